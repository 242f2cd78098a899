"""Small models of each family of `scaling.py --sizes`: what compiles is loaded in a fresh process, and runs. No time is checked."""

from __future__ import annotations

import pytest

from inlaid.plugins.registry import default_registry
from scaling import installed
from size_models import FAMILIES
from size_scaling import exponent, measure

COUNTS = {"dims": 9, "caches": 40, "rows": 40, "shapes": 200, "strides": 12, "decoder": 2, "ctc": 2}


def test_every_family_has_a_sample() -> None:
    assert COUNTS.keys() == FAMILIES.keys()
    assert all(b == 2 * a for family in FAMILIES.values() for a, b in zip(family.counts, family.counts[1:], strict=False))
    assert exponent([3, 10, 20], [9.0, 1.0, 4.0]) == pytest.approx(2)


@pytest.mark.parametrize("target", ["x86", "reference", "opencl"])
@pytest.mark.parametrize("family", FAMILIES)
def test_what_compiles_is_loaded_and_runs(family: str, target: str) -> None:
    if target not in installed():
        pytest.skip(f"the target {target} does not run here: {', '.join(default_registry().kinds())} are installed")
    if FAMILIES[family].outputs is None:
        if target == "opencl":
            pytest.skip("PoCL builds the kernels of a decoder for a minute")
        pytest.importorskip("onnxruntime")
    assert measure(family, COUNTS[family], target).seconds > 0
