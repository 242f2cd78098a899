"""The matrix of variants lowers without cliffs on every instruction set, but for those that the file names.

Values stay right when a rule or a rewrite misses a row, so no other test notices. `python benchmarks/cliffs.py --check` prints the
differences of all instruction sets. A cliff that is gone is to be removed from the file, which `--update-golden` writes.
"""

from __future__ import annotations

import pytest

pytest.importorskip("inlaid_x86", reason='needs the x86 plugin: pip install "inlaid[x86]"')

import cliffs
import inlaid
import variants
from inlaid import ops
from inlaid.driver import loop_lowering
from inlaid.schedules.generic import GenericRule
from inlaid.tensor.parse import parse

SOUND = "listed: gemm, Q"
"""A row without cliffs."""


@pytest.mark.slow
@pytest.mark.parametrize("name", cliffs.SETS)
def test_the_matrix_has_the_known_cliffs_alone(name):
    current = set(cliffs.cliffs_on(name))
    recorded = {cliff for cliff in cliffs.recorded_cliffs() if cliff.instructions == name}
    assert cliffs.table(current - recorded) == "", "new cliffs"
    assert cliffs.table(recorded - current) == "", f"these are gone: remove them from {cliffs.KNOWN_CLIFFS.name}"


def test_known_cliffs_are_of_rows():
    recorded = cliffs.recorded_cliffs()
    assert {cliff.row for cliff in recorded} <= set(variants.rows())
    assert {cliff.instructions for cliff in recorded} <= set(cliffs.SETS)
    assert cliffs.KNOWN_CLIFFS.read_text(encoding="utf-8") == cliffs.table(recorded)


def test_a_rule_that_stops_is_noticed(monkeypatch):
    row = variants.rows()[SOUND]
    assert cliffs.cliffs(row, cliffs.SETS["VNNI"]) == []
    monkeypatch.setattr(loop_lowering, "shared_rules", lambda capabilities: (GenericRule(),))
    assert any(text.startswith("generic for matmul") for text in cliffs.cliffs(row, cliffs.SETS["VNNI"]))


@pytest.mark.parametrize(
    ("dtypes", "is_float", "texts"),
    [
        (("float32", "float32"), True, []),
        (("float32", "float32"), False, ["matmul of float32 and float32"]),
        (("uint8", "int8"), False, []),
        (("uint8", "int16"), False, ["matmul of uint8 and int16"]),
        (("int32", "int8"), True, ["matmul of int32 and int8"]),
    ],
)
def test_products_are_judged_by_their_operands(dtypes, is_float, texts):
    a, b = (inlaid.var(name, inlaid.TensorType((8, 8), dtype)) for name, dtype in zip("ab", dtypes, strict=True))
    out = {} if dtypes[0] == "float32" else {"out_dtype": "int32"}
    module = inlaid.Module({"main": inlaid.function([a, b], ops.matmul(a, b, **out))})
    assert list(cliffs.product_cliffs(module, is_float)) == texts


def test_conversions_are_counted_where_they_are_executed():
    program = parse(
        """program product(x: float16[64], w: float16[64, 16]) -> (y: float32[16]):
  for k in 64:
    for i in 2, unrolled:
      for j in 8, vectorized:
        y[((i * 8) + j)] = (y[((i * 8) + j)] + (cast(float32, x[k]) * cast(float32, w[k, ((i * 8) + j)])))
"""
    )
    assert list(cliffs.conversion_cliffs(program, has_one_row=False)) == ["conversions in product"]
    assert list(cliffs.conversion_cliffs(program, has_one_row=True)) == [], "one for each weight, and one of the data"
