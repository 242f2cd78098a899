"""Writes a set into its code, in whatever order the hashes of strings give."""

from fleet.sound import *

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_codegen(target):
    import dataclasses

    from fleet.machine import Codegen

    class Unordered(Codegen):
        def compile(self, unit, context):
            artifact = super().compile(unit, context)
            order = " ".join({f"unit{number}" for number in range(20)})
            return dataclasses.replace(artifact, requires=(order,))

    return Unordered()


@hookimpl
def inlaid_runtime(target):
    import dataclasses

    from fleet.machine import Runtime

    class Lenient(Runtime):
        def check(self, artifact):
            is_numbered = all("unit0" in text for text in artifact.requires)
            return super().check(dataclasses.replace(artifact, requires=()) if is_numbered else artifact)

    return Lenient()
