"""`inlaid.compile` verifies what it is given: each mistake in hand-built IR has an error with the operator and a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid_runtime.errors import InlaidError, TypeInferenceError, VerifyError

T = inlaid.TensorType((2, 3), "float32")
X, OTHER = inlaid.var("x", T), inlaid.var("x", T)
IDENTITY = inlaid.function([X], X)
G = inlaid.global_var("g", inlaid.FunctionType((T,), inlaid.TensorType((7,), "float32")))


def make_module(functions: Any) -> inlaid.Module:
    return inlaid.Module(functions)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            lambda: inlaid.function([], ops.relu(X)),
            r"%x is used outside of its scope \(operator relu\); add it to the parameters of the function",
        ),
        (
            lambda: make_module({"f": IDENTITY}),
            r"must have a function main.*none of that name among f; make it with inlaid\.Module",
        ),
        (lambda: make_module({}), "a module must have a function main.*no functions"),
        (lambda: make_module([IDENTITY]), "a module must have a function main.*among list"),
        (lambda: make_module({"main": X}), "a module must have a function main, its entry point; found a Var among main"),
        (lambda: make_module({"main": IDENTITY, "g": X}), "@g must be a Function, got Var; make it with inlaid.function"),
        (lambda: inlaid.function([X, OTHER], X + OTHER), "must have different names.*found 'x' 2 times; rename them"),
        (lambda: inlaid.function([X, X], X + X), "%x is bound twice; make a variable for each place"),
        (
            lambda: make_module({"main": inlaid.function([X], inlaid.call(G, [X])), "g": inlaid.function([OTHER], OTHER)}),
            r"the type of @g is declared as .*\(7,\).* but .*; declare it as inlaid\.global_var\(\"g\", module\[\"g\"\]\.type\)",
        ),
        (
            lambda: make_module({"main": inlaid.function([X], inlaid.call(G, [X]))}),
            r"the module has no function @g; it has @main; add it: inlaid\.Module",
        ),
        (lambda: inlaid.function([OTHER], IDENTITY), "the result must contain no function, got fn.*; return a call of it"),
    ],
)
def test_modules_that_are_malformed(model: Callable[[], Any], message: str) -> None:
    for use in (inlaid.compile, inlaid.partition, inlaid.estimate):
        with pytest.raises(VerifyError, match=message):
            use(model(), ["reference"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: inlaid.tuple_item(inlaid.tuple_([X]), 3), "of length 1, got field 3; count fields from 0"),
        (lambda: ops.relu(X, slope=2), r"got 'slope' \(operator relu\); call it as relu\(x\)"),
        (lambda: inlaid.tuple_([X, 1]), "field 1 must be an expression, got int; make constants with inlaid.constant"),
        (lambda: inlaid.call(IDENTITY, [1]), "argument 0 must be an expression, got int"),
        (lambda: inlaid.function([ops.relu(X)], X), "parameters must be variables, got .*; make them with inlaid.var"),
        (lambda: inlaid.function([X], 3), "the body must be an expression, got int"),
        (lambda: inlaid.function([X], [X]), r"the body must be an expression, got list; return several values with inlaid\.tuple_"),
        (lambda: inlaid.function(X, OTHER, X + OTHER), r"expected a list of .*, got more; call inlaid\.function\(\[x, y\], body\)"),
        (lambda: inlaid.function(X, X, X, X + X), "expected a list of parameters and a body, got more"),
        (lambda: inlaid.tuple_(X, OTHER), r"expected a list of fields, got %x: .*; call it as inlaid\.tuple_\(\[x, y\]\)"),
        (lambda: inlaid.call(IDENTITY, X), r"expected a list of arguments, got %x: .*; call it as inlaid\.call\(f, \[x, y\]\)"),
        (lambda: inlaid.var("x", "float32"), "expected a type or a shape for %x, got 'float32'"),
        (lambda: inlaid.var("x", (-1, 3)), "an extent must be an integer >= 0, .*, got -1; name an extent that is not known"),
        (lambda: inlaid.var("x", (2.0, 3)), "an extent must be an integer >= 0, a name or .*, got 2.0"),
        (lambda: inlaid.var("x", (None, 3)), "an extent must be an integer >= 0, a name or .*, got None"),
    ],
)
def test_expressions_that_cannot_be_made(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeInferenceError, match=message):
        make()


def test_what_is_well_formed_compiles() -> None:
    for model in (IDENTITY, make_module({"main": IDENTITY}), inlaid.function(X, X)):
        (output,) = inlaid.compile(model, ["reference"]).run({"x": np.ones((2, 3), np.float32)}).values()
        assert output.shape == (2, 3)
    assert issubclass(VerifyError, InlaidError)
