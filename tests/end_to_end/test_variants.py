"""The matrix of variants: its axes, names and models; a sample, chosen by a hash of the name, has the values of the reference."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from types import MappingProxyType

import numpy as np
import onnx
import pytest

import inlaid
import variants
import variants_page
from inlaid.plugins.registry import default_registry
from inlaid_bench.comparison import Missing, Result, Timing
from machine import Limits
from page import Measurement
from variants import Row, axes, generated, operators
from variants.axes import name_of, points, share_of
from variants.reference import mismatch, reference

SAMPLE = 12
needs_x86 = pytest.mark.skipif(
    "x86" not in default_registry().kinds(), reason='the x86 plugin is not installed: pip install "inlaid[x86]"'
)


def sample() -> list[Row]:
    """Rows that run in a fraction of a second, of each part."""
    ordered = sorted((row for row in variants.rows().values() if not row.listed), key=lambda row: share_of(f"test {row.name}"))
    by_part = [[row for row in ordered if row.part == part] for part in variants.PARTS]
    return list(itertools.islice((row for rank in itertools.zip_longest(*by_part) for row in rank if row), SAMPLE))


@pytest.mark.parametrize("module", [generated, operators])
def test_the_product_of_the_axes_is_complete(module):
    every = list(points(module.AXES))
    assert len(every) == math.prod(map(len, module.AXES.values())) == len(set(map(name_of, every)))
    possible = {name_of(point) for point in every if not module.impossible(point)}
    rows = generated.product_points() if module is generated else operators.operator_points()
    assert {row.name for row in rows} == possible
    for axis, values in module.AXES.items():
        assert {point[axis] for point in every if not module.impossible(point)} == set(values), axis


def test_rows_are_many_and_their_siblings_exist():
    rows = variants.rows()
    assert len(rows) >= 400
    assert sum(not row.listed for row in rows.values()) >= 300
    assert all(name == row.name for name, row in rows.items())
    assert set(Counter(row.part for row in rows.values())) == set(variants.PARTS)
    siblings = {row.sibling.row for row in rows.values() if row.sibling}
    assert siblings <= set(variants.named())
    assert all(row.sibling is None or row.sibling.row != row.name for row in rows.values())


def test_names_of_listed_rows_are_unique():
    modules = (
        variants.convolutions,
        variants.floats,
        variants.operands,
        variants.quantized,
        variants.full_models,
        variants.windows,
    )
    names = [row.name for module in modules for row in module.rows()]
    assert len(names) == len(set(names))


def test_thinning_is_stable_under_further_values(monkeypatch):
    before = {row.name for row in generated.thinned()}
    forms = {**generated.FORMS, "another form": generated.FORMS["conv 1-D"]}
    monkeypatch.setattr(generated, "FORMS", MappingProxyType(forms))
    further = MappingProxyType({**generated.AXES, "form": tuple(forms)})
    monkeypatch.setattr(generated, "AXES", further)
    after = {row.name for row in generated.thinned()}
    assert before == {name for name in after if "another form" not in name}
    assert before < after


def test_thinning_does_not_depend_on_the_process():
    assert f"{share_of('float32, conv 1-D'):.6f}" == "0.584512"
    assert axes.stays("any", 1)


def test_every_model_is_valid():
    for row in variants.rows().values():
        if row.name.startswith("listed: full model "):  # models of `zoo`, which take seconds to build
            continue
        model = row.build()
        onnx.checker.check_model(model)
        assert set(row.sizes) == {dim.dim_param for item in model.graph.input for dim in item.type.tensor_type.shape.dim} - {""}
        assert set(row.ranges) <= {item.name for item in model.graph.input}


@needs_x86
@pytest.mark.parametrize("row", sample(), ids=lambda row: row.name)
def test_values(row):
    pytest.importorskip("onnxruntime")
    model = row.build()
    feeds = row.feeds(model)
    outputs = inlaid.compile(model, ["x86:threads=1"]).run(feeds)
    assert mismatch(list(outputs.values()), reference(model, feeds), row.levels, row.tolerance) == ""


def test_mismatches_are_told():
    ones = np.ones(3, np.float32)
    assert mismatch([ones * np.float32(1.00005)], [ones]) == ""
    assert "differs in 3 of 3 elements" in mismatch([ones * np.float32(1.001)], [ones])
    assert mismatch([ones * np.float32(1.001)], [ones], tolerance=1e-2) == ""
    assert "instead of float32" in mismatch([ones.astype(np.float64)], [ones])
    assert "differs in 1" in mismatch([np.array([np.nan, 1, 1], np.float32)], [ones])
    levels = np.array([1, 2], np.uint8), np.array([2, 2], np.uint8)
    assert mismatch([levels[0]], [levels[1]], levels=1) == ""
    assert "differs in 1 of 2" in mismatch([levels[0]], [levels[1]])


def test_the_page_counts_rows_and_siblings():
    rows = {row.name: row for row in itertools.islice((row for row in variants.rows().values() if row.sibling), 3)}
    slow, failed, alone = rows

    def timing(label: str, time: float) -> Timing:
        return Timing(label, "1", "", 1.0, 0.0, 0.0, (time, time), 0.0)

    def measured(name: str, result: Result | str) -> Measurement:
        return Measurement.create(variants_page.AVX2, name, "model", Limits(1, 1e11, 1e10), result)

    timings = (timing("inlaid", 3.0), timing(variants_page.SIBLING, 1.0), timing(variants_page.ALONE, 0.5), timing("openvino", 2.0))
    absent = (Missing("onnxruntime", "is not installed"),)
    every = [
        measured(slow, Result(timings, absent)),
        measured(failed, "wrong: output 0 differs"),
        measured(alone, Result(timings[:2], absent)),
        measured("a row of the past", "refused: no"),
    ]
    text = variants_page.draw(every, rows)
    assert "## AVX2, 1 thread" in text and "a row of the past" not in text
    assert "| all | 3 | 1 | 1 | 1 | 0 | **1.50** | 0.70 | 1 | 0 |" in text
    assert f"| {slow} | 3.00 | 2.00 openvino | 1.50 |" in text
    assert f"- {failed}: wrong: output 0 differs" in text
    assert "- 2 rows without onnxruntime: is not installed" in text
    assert f"| {slow} | {rows[slow].part} | 1.50 (2.00) |" in text
    assert f"| {alone} | {rows[alone].part} | no peer (3.00) |" in text
    assert "Nothing is measured yet" in variants_page.draw([], rows)
