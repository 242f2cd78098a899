"""`repr` of what users hold is one short line, and notebooks draw it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import inlaid
from inlaid import ops, te
from inlaid_runtime.artifact import TensorSpec
from inlaid_runtime.types import dtype

X = inlaid.var("x", ("batch", 3))
MODEL = inlaid.function([X], ops.relu(X @ np.ones((3, 4), np.float32)))
MODULE = inlaid.Module({"main": MODEL})
VOID = frozenset(("br", "hr", "img", "input", "link", "meta", "col"))


def schedule() -> inlaid.Schedule:
    a = te.placeholder((4, 4), "float32", "a")
    result = inlaid.Schedule(te.program([a], [te.compute((4, 4), lambda i, j: a[i, j] * 2, "b")]))
    result.parallel(result.loops("b")[0])
    return result


def executable() -> inlaid.Executable:
    return inlaid.compile(MODULE, ["reference"])


def profile() -> Any:
    return executable().profile({"x": np.ones((2, 3), np.float32)})


CASES = {
    "module": (lambda: MODULE, "<Module @main(x: Tensor[(batch, 3), float32]) -> Tensor[(batch, 4), float32]: 2 operators>"),
    "partition": (lambda: inlaid.partition(MODULE, ["reference"]), "@region0_reference on reference: 2 operators>"),
    "executable": (executable, "<Executable (x: float32[batch, 3]) -> (output0: float32[batch, 4]) on reference>"),
    "estimate": (lambda: inlaid.estimate(MODULE, ["reference"]), "<Report 2 operators in 1 region on reference"),
    "profile": (profile, " ms: region0_reference "),
    "schedule": (schedule, ": 2 primitives applied>"),
}


class Balanced(HTMLParser):
    """Counts open elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", CASES)
def test_repr_is_a_short_line_and_html_is_drawn(name: str) -> None:
    make, part = CASES[name]
    value = make()
    shown = repr(value)
    assert part in shown and len(shown) < 200 and "\n" not in shown
    html = value._repr_html_()
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    assert any(f"<{tag}" in html for tag in ("table", "pre", "iframe"))


def test_a_function_prints_as_text() -> None:
    assert str(MODEL).startswith("fn(%x: Tensor[(batch, 3), float32]) -> Tensor[(batch, 4), float32] {\n  %0 = matmul(%x, const")


def test_html_is_escaped_and_not_endless() -> None:
    from inlaid_runtime.markup import preformatted, table

    assert "<script" not in table("<script>", ("<script>",), [("<script>",)]) + preformatted("<script>")
    assert "and 100 more lines" in preformatted("x\n" * 300)


def test_a_module_of_many_functions_is_still_a_line() -> None:
    module = inlaid.Module({"main": MODEL, **{f"f{number}": MODEL for number in range(100)}})
    assert (
        repr(module).endswith("; @f3: 2 operators; 96 more functions>") and repr(inlaid.Module({})) == "<Module without functions>"
    )


def test_inputs_and_outputs_have_names_types_and_shapes() -> None:
    model = executable()
    assert model.inputs == (TensorSpec("x", X.type.shape, dtype("float32")),)
    (output,) = model.outputs
    assert (output.name, output.dtype.name, str(output.shape)) == ("output0", "float32", "(batch, 4)")
    html = model._repr_html_()
    assert all(word in html for word in ("input", "output0", "float32", "[batch, 3]", "region0_reference"))
