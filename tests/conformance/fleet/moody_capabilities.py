"""Says something else of its speed each time."""

import itertools

from fleet.sound import *

PLUGIN_API_VERSION = 3

SPEEDS = itertools.count(1)


def moody(options):
    return Capabilities(("float32", "int64"), dynamic_dims=False, peak=float(next(SPEEDS)))


@hookimpl
def inlaid_targets():
    return [TargetSpec(KIND, "a machine of moods", moody)]
