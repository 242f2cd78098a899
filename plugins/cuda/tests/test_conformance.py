"""A sample of the conformance suite on emulated kernels; `make conformance-cuda` runs all of it."""

from __future__ import annotations

import pytest

from inlaid.plugins.registry import default_registry
from inlaid_conformance.case import Outcome
from inlaid_conformance.suite import chosen, run
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_cuda.emulation.build import INSTALL, find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason=f"needs a C++ compiler: {INSTALL}")

SAMPLE = (
    *("operators/agrees[matmul-float16]", "operators/agrees[softmax-float32]", "operators/agrees[pad-int8]"),
    *("devices/copies", "models/agrees[quantized-convolution]"),
)


def test_a_sample_of_the_suite_passes_in_emulation() -> None:
    tested = TargetUnderTest("cuda:arch=host", default_registry(), examples=1)
    assert "emulated" in tested.device.detail
    results = run(tested, chosen(tested, SAMPLE))
    outcomes = {result.id: (result.outcome, result.reason) for result in results}
    assert outcomes == dict.fromkeys(SAMPLE, (Outcome.PASSED, ""))
