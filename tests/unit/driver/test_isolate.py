"""Code generators in processes of their own: one that fails costs a region, never the compiler."""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.plugin_registry import both_halves, installed_halves

from inlaid import ops
from inlaid.driver import build_package, compile_module
from inlaid.driver.build import package_alone
from inlaid.driver.candidates import build_candidate
from inlaid.graph import ir
from inlaid.plugins.registry import PluginRegistry
from inlaid.settings import Isolation, Settings
from inlaid_runtime.errors import FallbackWarning, PluginError
from inlaid_runtime.types import TensorType

PLUGIN = """
import ctypes, os, subprocess, sys, time
from inlaid_runtime.errors import Unsupported
from inlaid.graph.pattern import is_op, wildcard
from inlaid.plugins import *
from inlaid_runtime.types import Layout

PLUGIN_API_VERSION = 3


@hookimpl
def inlaid_targets():
    return [TargetSpec("acme", "a target whose plugin may fail", lambda options: Capabilities(("float32",)))]


@hookimpl
def inlaid_op_rules(target):
    square = is_op("mul")(is_op("relu")(wildcard().named("x")), wildcard())
    return [OpRule("relu"), OpRule("neg"), OpRule(square, "square")] if target.kind == "acme" else []


class Codegen(Codegen):
    def compile(self, unit, context):
        {body}


@hookimpl
def inlaid_codegen(target):
    {made}
    return Codegen()


class Runtime(RuntimeModule):
    def check(self, artifact):
        return None

    def load(self, artifact, constants):
        return Loaded(self)

    def invoke(self, inputs, outputs, workspace, dims):
        outputs[0][...] = 7


@hookimpl
def inlaid_runtime(target):
    return Runtime()
"""
GOOD = 'return context.steps(unit).artifact("acme", 1, b"code")'
X = ir.var("x", TensorType((4,), "float32"))


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """`acme(body)`: a registry with a plugin whose code generator does that, after `setup` when it is made, and the core's own."""
    name = f"inlaid_acme_{tmp_path.name}"
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(body: str, setup: str = "pass") -> PluginRegistry:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(PLUGIN.replace("{body}", body).replace("{made}", setup))
        core_halves = installed_halves("reference", "x86")
        return PluginRegistry.discover([*core_halves, *both_halves("acme", name)])

    yield make
    sys.modules.pop(name, None)


def module():
    """One region for acme between two for others."""
    inner = ops.exp(ops.relu(ops.abs(X, span=ir.Span("m", "first")), span=ir.Span("m", "the relu")), span=ir.Span("m", "last"))
    return ir.Module({"main": ir.function((X,), inner)})


def settings(seconds=300.0, memory=4 << 30):
    return Settings(isolation=Isolation(seconds, memory))


FAILURES = {
    "crashes": ("ctypes.string_at(0)", "the process of the code generator was killed by SIGSEGV"),
    "aborts": ('print("out of cheese", flush=True); os.abort()', 'was killed by SIGABRT, with output: "out of cheese"'),
    "leaves": ("os._exit(3)", "exited with status 3"),
    "leaves silently": ("os._exit(0)", "exited with status 0"),
    "says it is done": ('os.write(int(sys.argv[3]), b"0"); time.sleep(9)', "gave no valid artifact"),
    "replies with anything": ('os.write(int(sys.argv[3]), b"?"); time.sleep(9)', "gave no valid reply"),
    "ends by a signal without a name": ("os.kill(os.getpid(), 40); time.sleep(9)", "was killed by signal 40"),
    "gives a damaged error": (
        '[open(f"{at}/error.json", "w").write("{") for at, _, files in os.walk(sys.argv[1]) if "region.txt" in files]; '
        'os.write(int(sys.argv[3]), b"1"); time.sleep(9)',
        "gave no valid reply",
    ),
    "exits": ("sys.exit(1)", "the code generator failed: SystemExit: 1"),
    "raises": ('raise ValueError("no cheese")', "the code generator failed: ValueError: no cheese"),
    "refuses": ('raise Unsupported("cheese is out")', "cheese is out"),
    "gives nothing": ("return None", "the code generator must return the artifact region1_acme, got NoneType"),
    "gives another region's": (
        'from dataclasses import replace; return replace(context.steps(unit).artifact("acme", 1, b""), symbol="other")',
        "must return the artifact region1_acme, got Artifact",
    ),
}


def test_a_region_by_itself_goes_to_no_other_target(acme):
    registry = acme('raise Unsupported("cheese is out")')
    candidate = build_candidate(registry.target("acme"), registry)
    with pytest.raises(PluginError, match="cheese is out"):
        package_alone(ir.function((X,), ops.relu(X)), candidate, registry, settings())


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_costs_one_region(acme, name):
    body, reason = FAILURES[name]
    with pytest.warns(FallbackWarning) as caught:
        executable = compile_module(module(), ["acme"], acme(body), settings=settings())
    (warning,) = caught
    text = str(warning.message)
    assert reason in text
    assert text.startswith("region region1_acme falls back from acme to reference: ")
    assert "(at the relu, region region1_acme, plugin acme)" in text
    assert {region.target for region in executable.regions} == {"reference"}
    (result,) = executable.run({"x": np.array([-1, 2, 0, -4], np.float32)}).values()
    np.testing.assert_allclose(result, np.exp(np.array([1, 2, 0, 4], np.float32)), rtol=1e-6)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("code", [0, 3])
def test_one_that_leaves_when_it_is_made(acme, code):
    with pytest.warns(FallbackWarning, match=r"region region1_acme falls back from acme to reference: .*plugin acme\)"):
        compile_module(module(), ["acme"], acme(GOOD, f"os._exit({code})"), settings=settings())


def test_one_that_hangs_is_ended_with_what_it_started(acme, tmp_path):
    child = tmp_path / "pid"
    body = f'open({str(child)!r}, "w").write(str(subprocess.Popen(["sleep", "1000"]).pid)); time.sleep(1000)'
    with pytest.warns(
        FallbackWarning, match=r"took more than 4 s and was killed \(at the relu, region region1_acme, plugin acme\)"
    ):
        compile_module(module(), ["acme"], acme(body), settings=settings(seconds=4))
    pid = int(child.read_text())
    for _ in range(100):
        if not runs(pid):
            return
        time.sleep(0.05)
    os.kill(pid, 9)
    pytest.fail("what it started still runs")


def test_one_that_eats_memory(acme):
    body = "kept = [bytearray(1 << 24) for _ in iter(int, 1)]"
    with pytest.warns(FallbackWarning, match=r"exceeded the memory limit of 1024 MiB \(at the relu, region"):
        compile_module(module(), ["acme"], acme(body), settings=settings(memory=1 << 30))


@pytest.mark.skipif("not __import__('os').path.exists('/proc/self')", reason="there is no /proc")
def test_the_compiler_is_as_it_was_after_one_that_crashed(acme):
    before = set(os.listdir("/proc/self/fd")), os.getcwd()
    with pytest.warns(FallbackWarning):
        compile_module(module(), ["acme"], acme("ctypes.string_at(0)"), settings=settings())
    assert (set(os.listdir("/proc/self/fd")), os.getcwd()) == before


def test_one_that_works_gives_what_it_gives_without(acme):
    registry = acme(GOOD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        isolated = compile_module(module(), ["acme"], registry, settings=settings())
    plain = compile_module(module(), ["acme"], registry)
    assert isolated.regions == plain.regions
    for one, other in zip(isolated.package.artifacts, plain.package.artifacts, strict=True):
        assert (one.code, one.signature, one.workspace) == (other.code, other.signature, other.workspace)
    (result,) = isolated.run({"x": np.zeros(4, np.float32)}).values()
    assert np.allclose(result, np.exp(7))


def test_constants_and_composites_go_there_and_back(acme):
    weights = ir.constant(np.arange(64, dtype=np.float32))
    x = ir.var("x", TensorType((64,), "float32"))
    body = ops.mul(ops.relu(x, span=ir.Span("m", "a")), weights, span=ir.Span("m", "b"))
    program = (
        "(step,) = (steps := context.steps(unit)).steps; assert (step.name, step.nodes) == ('square', ('a', 'b')); "
        "steps.constant(unit.function.body.fields[0].callee.body.args[1].data); "
        'return steps.artifact("acme", 1, b"")'
    )
    executable = compile_module(ir.Module({"main": ir.function((x,), body)}), ["acme"], acme(program), settings=settings())
    (artifact,) = executable.package.artifacts
    (stored_weights,) = artifact.constants.values()
    np.testing.assert_array_equal(stored_weights, weights.data)
    assert executable.run({"x": np.ones(64, np.float32)})


def test_the_next_target_in_order_takes_over(acme):
    registry = acme("os.abort()")
    if "x86" not in registry.kinds():
        pytest.skip("the x86 plugin is not installed")
    with pytest.warns(FallbackWarning, match="region region1_acme falls back from acme to x86:threads=1: "):
        executable = compile_module(module(), ["acme", "x86:threads=1"], registry, settings=settings())
    assert {region.target for region in executable.regions} == {"x86:threads=1"}
    (result,) = executable.run({"x": np.array([-1, 2, 0, -4], np.float32)}).values()
    np.testing.assert_allclose(result, np.exp(np.array([1, 2, 0, 4], np.float32)), rtol=1e-5)


def test_several_regions_fail_alone(acme):
    body = f'"region1" in unit.symbol and os.abort(); {GOOD}'
    inner = ops.neg(ops.exp(ops.relu(ops.abs(X))))
    with pytest.warns(FallbackWarning) as caught:
        executable = compile_module(ir.Module({"main": ir.function((X,), inner)}), ["acme"], acme(body), settings=settings())
    assert [str(warning.message).split()[1] for warning in caught] == ["region1_acme"]
    assert [region.symbol for region in executable.regions if region.target == "acme"] == ["region3_acme"]
    (result,) = executable.run({"x": np.ones(4, np.float32)}).values()
    assert result.tolist() == [7, 7, 7, 7]


def compiled_in(folder):
    """Statements for a code generator that note in which process they run, and the processes noted."""
    path = folder / "processes"
    return f'open({str(path)!r}, "a").write(f"{{os.getpid()}}\\n")', lambda: path.read_text().split()


FOUR = ir.Module({"main": ir.function((X,), ops.relu(ops.exp(ops.neg(ops.abs(ops.relu(ops.exp(ops.neg(ops.abs(X)))))))))})
"""A module with four regions for acme."""


def test_one_process_compiles_all_regions(acme, tmp_path):
    note, processes = compiled_in(tmp_path)
    compile_module(FOUR, ["acme"], acme(f"{note}; {GOOD}"), settings=settings())
    assert len(processes()) == 4 and len(set(processes())) == 1


@pytest.mark.parametrize("damage", ["os.abort()", 'raise ValueError("worn out")', "os._exit(0)"])
def test_damage_by_one_region_reaches_no_other(acme, tmp_path, damage):
    note, processes = compiled_in(tmp_path)
    worn = f'os.environ.get("WORN") == "2" and {damage}' if "raise" not in damage else f'if os.environ.get("WORN") == "2": {damage}'
    body = f"{note}\n        {worn}\n        os.environ['WORN'] = str(int(os.environ.get('WORN', 0)) + 1); {GOOD}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        executable = compile_module(FOUR, ["acme"], acme(body), settings=settings())
    assert sum(region.target == "acme" for region in executable.regions) == 4
    assert len(processes()) == 5 and len(set(processes())) == 2


def test_what_is_refused_or_takes_too_long_is_asked_once(acme, tmp_path):
    note, processes = compiled_in(tmp_path)
    body = f'{note}; "region3" in unit.symbol and time.sleep(99)\n        raise Unsupported("cheese is out")'
    with pytest.warns(FallbackWarning) as caught:
        compile_module(FOUR, ["acme"], acme(body), settings=settings(seconds=8))
    assert ["cheese" in str(warning.message) for warning in caught] == [True, False, True, True]
    assert len(processes()) == 4 and len(set(processes())) == 2


def test_without_isolation_an_error_names_plugin_region_and_nodes(acme):
    with pytest.raises(
        PluginError, match=r"generator failed: ValueError: no \(at the relu, region region1_acme, plugin acme\)"
    ) as caught:
        compile_module(module(), ["acme"], acme('raise ValueError("no")'))
    assert isinstance(caught.value.__cause__, ValueError)


ASKS = """pass

    def borders(self, region):
        {asks}

    def compile(self, unit, context):
        assert unit.borders == Borders((Border(Layout(((0, 2),))),), (Border(dtype="int8", scale=0.5, zero_point=3),)), unit.borders
        return context.steps(unit).artifact("acme", 1, b"code")
"""


def test_borders_are_asked_for_there_too(acme):
    asks = 'return Borders((Border(Layout(((0, 2),))),), (Border(dtype="int8", scale=0.5, zero_point=3),))'
    registry = acme(ASKS.replace("{asks}", asks))
    package = build_package(module(), ["acme"], registry, settings=settings())
    (artifact,) = [artifact for artifact in package.artifacts if artifact.symbol == "region1_acme"]
    (input_spec,), (output_spec,) = artifact.signature.inputs, artifact.signature.outputs
    assert (input_spec.shape, output_spec.shape, str(output_spec.dtype)) == ((2, 2), (4,), "int8")


def test_borders_that_crash_cost_the_region(acme):
    registry = acme(ASKS.replace("{asks}", "ctypes.string_at(0)"))
    with pytest.warns(FallbackWarning, match="from acme to reference"):
        compile_module(module(), ["acme"], registry, settings=settings())
