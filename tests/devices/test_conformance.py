"""The simulated device passes the whole suite, and each that breaks one promise is caught by the case for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.plugin_registry import both_halves, installed_halves

from inlaid.plugins.registry import PluginRegistry
from inlaid_conformance.case import LEVELS, Outcome
from inlaid_conformance.levels.devices import find_room_fault
from inlaid_conformance.suite import cases, run
from inlaid_conformance.target_under_test import TargetUnderTest
from inlaid_runtime.errors import KernelFault

pytestmark = pytest.mark.slow

PASSED = {
    "plugin": 8, "annotations": 5, "codegen": 5, "operators": 700, "composites": 2, "runtime": 10, "devices": 6, "models": 12,
    "package": 2,
}  # fmt: skip
"""How many cases of each level pass, at least."""
SAMPLED_OPERATORS = 150
"""How many cases of operators of a sample pass, at least."""


@pytest.fixture
def under_test(join):
    return join("discrete")


@pytest.fixture
def join(monkeypatch):
    """`join(text)` is the machine as a target with options."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from discrete.machine import MACHINES, Machine

    MACHINES[:] = [Machine(0), Machine(1)]
    reference_halves = installed_halves("reference")
    registry = PluginRegistry.discover([*reference_halves, *both_halves("discrete", "discrete.plugin")])
    return lambda text: TargetUnderTest(text, registry, examples=1)


def results(under_test, levels):
    """The results of all cases of some levels."""
    return run(under_test, [case for case in cases(under_test) if case.level in levels])


def result_of(under_test, id):
    """The result of a case."""
    (case_result,) = run(under_test, [case for case in cases(under_test) if case.id == id])
    return case_result


@pytest.mark.parametrize("level", LEVELS)
def test_the_simulated_device_conforms(under_test, level, sample, exhaustive):
    """One drawn example of an operator and element type is enough here, and a quarter of them: the kernels are the oracle's own."""
    every = [case for case in cases(under_test) if case.level == level]
    sampled = level == "operators" and not exhaustive
    ids = set(sample([case.id for case in every], 4 if sampled else 1))
    case_results = run(under_test, [case for case in every if case.id in ids])
    counts = Counter(result.outcome for result in case_results)
    assert {result.id: result.reason for result in case_results if result.outcome is Outcome.FAILED} == {}
    assert counts[Outcome.PASSED] >= (SAMPLED_OPERATORS if sampled else PASSED[level])
    expected = {"package/runs-without-the-compiler", "package/refuses-damaged-code"} if level == "package" else set()
    assert {result.id for result in case_results if result.outcome is Outcome.EXPECTED} == expected


def test_a_device_that_stores_tensors_in_blocks_conforms(join):
    case_results = results(join("discrete:lanes=16"), {"runtime", "devices"})
    assert {result.id: result.reason for result in case_results if result.outcome is Outcome.FAILED} == {}
    passed = {result.id for result in case_results if result.outcome is Outcome.PASSED}
    assert passed >= {"devices/keeps-to-its-tensors", "devices/replays", "devices/keeps-results"}


def writes_padding(machine):
    real = machine.launch

    def launch(function, inputs, outputs, workspace, dims, queue):
        real(function, inputs, outputs, workspace, dims, queue)

        def work():
            for tensor in outputs:
                if len(tensor.shape) > 1 and tensor.shape[-1] == 16:
                    machine.view(tensor)[..., -1] = 1  # no axis of a sample has 16 elements

        machine.put(queue, work)

    machine.launch = launch


def test_padding_of_a_result_is_zero(join):
    from discrete.machine import MACHINES

    under_test = join("discrete:lanes=16")
    writes_padding(MACHINES[0])
    assert "the padding of a result must be 0" in result_of(under_test, "devices/keeps-to-its-tensors").reason


def keeps_the_source(machine):
    def upload(source, target, queue):
        def work():
            machine.view(target)[...] = source

        machine.put(queue, work)

    machine.upload = upload


def forgets_events(machine):
    machine.wait = lambda queue, event: None


def forgets_to_free(machine):
    machine.free = lambda buffer: None


def overflows(machine):
    real = machine.launch

    def launch(function, inputs, outputs, workspace, dims, queue):
        real(function, inputs, outputs, workspace, dims, queue)

        def work():
            for tensor in outputs:
                end = tensor.offset + int(np.prod(tensor.shape)) * tensor.dtype.itemsize
                machine._memory[tensor.buffer][end : end + 4] = 0

        machine.put(queue, work)

    machine.launch = launch


def runs_while_recording(machine):
    real = machine.put

    def put(queue, work):
        captured, queue.captured = queue.captured, None
        real(queue, work)
        queue.captured = captured
        if captured is not None:
            captured.append(work)

    machine.put = put


def replays_once(machine):
    real = machine.replay
    machine.replay = lambda recording, queue: (real(recording, queue), recording.clear())


def replays_on_its_own_queue(machine):
    begin, replay, queues = machine.begin_capture, machine.replay, []

    def begin_capture(queue):
        queues.append(queue)
        begin(queue)

    machine.begin_capture = begin_capture
    machine.replay = lambda recording, queue: replay(recording, queues[-1])


def names_it_wrongly(machine):
    real = machine.allocate

    def allocate(size):
        try:
            return real(size)
        except Exception as error:
            raise KernelFault(str(error)) from error

    machine.allocate = allocate


def copies_too_much(machine):
    def copy(source, target, queue):
        def work():
            size = int(np.prod(source.shape))
            machine._memory[target.buffer][target.offset : target.offset + size + 1] = 0
            machine.view(target, 1)[...] = machine.view(source, 1)

        machine.put(queue, work)

    machine.copy = copy


def copies_whole_lines(machine):
    real = machine.copy

    def copy(source, target, queue):
        first, second = (replace(tensor, offset=tensor.offset // 64 * 64) for tensor in (source, target))
        real(first, second, queue)

    machine.copy = copy


@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (keeps_the_source, "devices/copies"),
        (copies_too_much, "devices/copies"),
        (copies_whole_lines, "devices/copies"),
        (forgets_events, "devices/keeps-order"),
        (runs_while_recording, "devices/replays"),
        (replays_once, "devices/replays"),
        (replays_on_its_own_queue, "devices/replays"),
        (overflows, "devices/keeps-to-its-tensors"),
    ],
)
def test_a_broken_device_is_caught(under_test, broken, caught):
    from discrete.machine import MACHINES

    broken(MACHINES[0])
    assert result_of(under_test, caught).outcome is Outcome.FAILED


@pytest.mark.parametrize("broken", [forgets_to_free, names_it_wrongly])
def test_a_device_that_counts_memory_wrongly_is_caught(under_test, broken):
    """The case runs in a process of its own, where this device is not broken."""
    from discrete.machine import MACHINES

    broken(MACHINES[0])
    runtime = under_test.registry.runtime(under_test.target)
    try:
        fault = find_room_fault(runtime, runtime.device())
    except KernelFault as error:
        fault = str(error)
    assert fault is not None
