"""Judges by the weather."""

import itertools

from fleet.sound import *

PLUGIN_API_VERSION = 3

WEATHER = itertools.count()


def by_weather(call):
    return Reject(f"the wind comes from {next(WEATHER) % 360} degrees")


@hookimpl
def inlaid_op_rules(target):
    return [*rules(), OpRule("sin", "", by_weather)] if target.kind == KIND else []
