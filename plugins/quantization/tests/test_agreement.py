"""Agreement of outputs: cosine similarity and top-1, by their definitions."""

from __future__ import annotations

import numpy as np
import pytest

import inlaid
from inlaid import ops
from inlaid_quantization.agreement import Agreement


def test_it_is_counted_by_definition() -> None:
    rng = np.random.default_rng(0)
    samples = [(rng.standard_normal((3, 5)), rng.standard_normal((3, 5))) for _ in range(4)]
    agreement = Agreement()
    for real, value in samples:
        agreement = agreement.with_values(real, value)
    a, b = (np.concatenate([pair[side].reshape(-1) for pair in samples]) for side in (0, 1))
    assert agreement.cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    equal = sum(int((real.argmax(-1) == value.argmax(-1)).sum()) for real, value in samples)
    assert (agreement.rows, agreement.equal) == (12, equal) and agreement.top1 == equal / 12
    assert str(agreement).endswith(f", top-1 equal in {equal} of 12 ({equal / 12:.1%})")


@pytest.mark.parametrize("shape", [(), (4, 1), (0,)])
def test_outputs_that_classify_nothing(shape: tuple[int, ...]) -> None:
    agreement = Agreement().with_values(np.ones(shape), np.ones(shape))
    assert agreement.top1 is None and agreement.cosine == 1 and str(agreement) == "cosine 1.00000"
    assert agreement.to_json() == {"cosine": 1.0, "top1": None, "top1_rows": 0}


def test_what_is_not_finite_and_what_is_zero() -> None:
    odd = np.array([np.nan, np.inf, 1.0, 2.0])
    assert Agreement().with_values(odd, odd).cosine == pytest.approx(1)
    assert Agreement().with_values(np.zeros(3), np.ones(3)).cosine == 0


@pytest.mark.parametrize("borders", ["float32", "int8"])
def test_the_report_states_it(borders: str) -> None:
    rng = np.random.default_rng(0)
    x = inlaid.var("x", inlaid.TensorType((1, 8), "float32"))
    y = ops.matmul(x, inlaid.constant(rng.standard_normal((8, 4), np.float32)))
    samples = [{"x": rng.standard_normal((1, 8), np.float32)} for _ in range(6)]
    settings = inlaid.Quantization(borders=borders)
    report = inlaid.quantize(inlaid.function([x], y), samples, settings, targets=["reference"]).report
    agreement = report.outputs[0].agreement
    assert agreement is not None and agreement.rows == 6 and agreement.cosine > 0.99
    payload = report.to_json()["outputs"][0]
    assert payload["cosine"] > 0.99 and payload["top1_rows"] == 6 and 0 <= payload["top1"] <= 1
    assert f"cosine {agreement.cosine:.5f}, top-1 equal in {agreement.equal} of 6" in report.to_text()
