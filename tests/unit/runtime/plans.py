"""Small plans and regions for tests."""

from __future__ import annotations

import numpy as np

from inlaid_runtime.artifact.plan import Invoke, Plan


def f32(*shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


def unary(lab, symbol, function, shape=(2,)):
    def fill(x, y):
        y[...] = function(x)

    return lab.region(symbol, fill, [(shape, "float32")], [(shape, "float32")])


def make_plan(name, value, symbol, shape=(2,), storage="output"):
    return Plan(name, (value("input", shape), value(storage, shape)), (("x", 0),), (("y", 1),), (Invoke(symbol, (0,), (1,)),))
