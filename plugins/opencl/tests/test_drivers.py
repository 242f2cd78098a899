"""A sample of the tests on other drivers than PoCL, each in a process of its own: the loader reads its environment once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from opencl_drivers import DRIVERS, ROOT

TESTS = Path(__file__).parent
KERNELS = ("test_kernels", "not thousand and not bounded and not threads_with_queues")
SAMPLES = {
    "intel": {
        "test_arithmetic": "test_arithmetic[8]",
        "test_halves": "functions",
        "test_executables": "several_sizes or out_of_range",
        "test_needs": "",
        "test_shuffles": "subgroups_of_a_device",
        KERNELS[0]: KERNELS[1],
    },
    # llvmpipe compiles vectors for minutes, and 22.3 has a fixed time for all kernels.
    "rusticl": {
        "test_arithmetic": "test_arithmetic[1]",
        "test_halves": "decoded and functions",
        "test_executables": "several_sizes and gpu",
        "test_needs": "",
        "test_placement": "lacks",
        KERNELS[0]: f"{KERNELS[1]} and not times",
    },
    "oclgrind": {
        "test_printed_kernels": "",
        "test_order": "not attention",
        KERNELS[0]: KERNELS[1],
    },
}
"""Selection of tests by driver and module, as an expression of pytest."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name, tmp_path):
    environment = DRIVERS[name].environment(tmp_path)
    if environment is None:
        pytest.skip(f"{DRIVERS[name].title} is not installed: {DRIVERS[name].install}")
    log = tmp_path / "oclgrind.log"
    environment |= {"OCLGRIND_LOG": str(log), "INLAID_CACHE": "off"}
    chosen = [str(TESTS / f"{module}.py") for module in SAMPLES[name]]
    # A name in an expression selects the tests of its module.
    expression = " or ".join(f"({module} and ({words}))" if words else module for module, words in SAMPLES[name].items())
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *chosen, "-k", expression]
    for variable in [key for key in environment if key.startswith("PYTEST_")]:
        del environment[variable]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1800)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
    assert not log.exists() or not log.read_text(), log.read_text()[:4000]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_process_sees_its_driver_alone(name, tmp_path):
    environment = DRIVERS[name].environment(tmp_path)
    if environment is None:
        pytest.skip(f"{DRIVERS[name].title} is not installed: {DRIVERS[name].install}")
    code = "from inlaid_opencl.platforms import find_devices; print(*(item.device.platform.name for item in find_devices()))"
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert run.stdout.lower().strip().removesuffix("(r) opencl") == name, run.stdout
    assert "OCL_ICD_VENDORS" not in os.environ or os.environ["OCL_ICD_VENDORS"] != environment["OCL_ICD_VENDORS"]
