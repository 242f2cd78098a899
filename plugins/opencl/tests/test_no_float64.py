"""No kernel of narrower floats computes in float64 on GPUs, which may lack it or run it slowly."""

from __future__ import annotations

from tests.threads.float64_scan import problems, sampled

from inlaid_opencl.capabilities import capabilities
from inlaid_opencl.options import OpenCLOptions


def test_no_float64_in_kernels_of_narrower_floats():
    count, found = problems("opencl:kind=gpu", "", sampled(0))
    assert count > 80
    assert not found


def test_only_cpus_have_the_full_rate():
    assert {kind: capabilities(OpenCLOptions(kind=kind)).full_rate_float64 for kind in ("cpu", "gpu", "embedded")} == {
        "cpu": True,
        "gpu": False,
        "embedded": False,
    }
