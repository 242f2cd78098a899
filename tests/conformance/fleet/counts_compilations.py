"""Writes into its code how often it has compiled a region of that name."""

from collections import Counter

from fleet.sound import *

PLUGIN_API_VERSION = 3

COMPILATIONS = Counter()


@hookimpl
def inlaid_codegen(target):
    import dataclasses

    from fleet.machine import Codegen

    class Counting(Codegen):
        def compile(self, unit, context):
            artifact = super().compile(unit, context)
            COMPILATIONS[unit.symbol] += 1
            return dataclasses.replace(artifact, code=artifact.code + b" " * COMPILATIONS[unit.symbol])

    return Counting()
