"""No kernel of narrower floats computes in float64, which most GPUs run at a 64th of the rate of float32."""

from __future__ import annotations

from tests.threads.float64_scan import problems, sampled

from inlaid_cuda.dialect import DIALECT


def test_no_float64_in_kernels_of_narrower_floats():
    count, violations = problems("cuda:arch=host", DIALECT.prelude, sampled(1))
    assert count > 80
    assert not violations
