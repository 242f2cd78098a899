"""ONNX's own node cases and light models on Inlaid, and ONNX's own test runner on Inlaid's backend."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import unittest
import warnings
from pathlib import Path

import pytest

import inlaid.onnx_backend as backend

REPOSITORY = Path(__file__).parents[2]

COVERAGE = REPOSITORY / "docs" / "onnx-coverage.md"
LEAST_PASSED = 1855
LEAST_NATIVE = 1735
"""Node cases on x86. Raise them as they grow: what passed once must go on passing."""


def _suite():
    path = REPOSITORY / "benchmarks" / "onnx_node_suite.py"
    spec = importlib.util.spec_from_file_location("onnx_node_suite", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


suite = _suite()
LIGHT = sorted(path.stem for path in suite.LIGHT.glob("*.onnx"))
WEIGHTED = {f"light_{name}" for name in ("densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet")}
"""Networks that `test_zoo` runs with weights that differ, which shows more than equal ones do."""


@pytest.fixture(scope="module")
def names():
    """The node cases, which take seconds to collect."""
    return list(suite.node_cases())


def listed(heading):
    """The node cases in a table of docs/onnx-coverage.md, which shortens their names."""
    table = COVERAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {f"test_{name}" for name in re.findall(r"`(\w+)`", table)}


def test_a_sample_of_the_node_cases(names):
    """On the reference target: every thirtieth case."""
    names = [name for name in names[::30] if name not in listed("Fails")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [suite.run_node_case(suite.node_cases()[name], "reference") for name in names]
    assert [(item.name, item.reason) for item in outcomes if not item.passed] == []


@pytest.mark.slow
def test_node_cases_on_x86(names, sample, exhaustive):
    """A quarter of the cases, of which those fail and fall back that docs/onnx-coverage.md lists. All of them under --exhaustive,
    where the numbers have bounds."""
    outcomes = suite.run_cases(sample(names, 4), "x86", min(os.cpu_count() or 1, 4))
    failed = {item.name: item.reason for item in outcomes if not item.passed}
    fallbacks = {item.name: item.reason for item in outcomes if item.state == "fallback"}
    if exhaustive:
        assert len(outcomes) >= 1884
        assert len(outcomes) - len(failed) >= LEAST_PASSED, failed
        assert sum(item.state == "native" for item in outcomes) >= LEAST_NATIVE, fallbacks
    else:
        assert len(outcomes) >= 400
        assert failed.keys() <= listed("Fails"), failed
        assert fallbacks.keys() <= listed("Runs partly on the reference target"), fallbacks


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LIGHT if name not in WEIGHTED])
def test_light_models_on_x86(name):
    outcome = suite.run_light_model(name, "x86")
    assert outcome.state == "native", outcome.reason


def test_onnx_runs_its_own_tests_on_the_backend():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest

        tests = BackendTest(backend, __name__)
    for pattern in (
        "test_relu_cpu",
        "test_reshape_reordered_all_dims_cpu",
        "test_sequence_insert_at_back_cpu",
        "test_add_bcast_cpu",
    ):
        tests.include(f"^{pattern}$")
    result = unittest.TestResult()
    tests.test_suite.run(result)
    assert not result.failures and not result.errors, result.failures + result.errors
    ran = result.testsRun - len(result.skipped)
    assert ran == 4
