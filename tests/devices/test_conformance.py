"""The suite's level for devices: the simulated one passes, and each that breaks one promise is caught by the case for it."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import numpy as np
import pytest

from inlaid.conformance.case import Outcome
from inlaid.conformance.subject import Subject
from inlaid.conformance.suite import cases, run
from inlaid.errors import KernelFault
from inlaid.plugins.hookspecs import GROUP
from inlaid.plugins.registry import PluginRegistry

pytestmark = pytest.mark.slow

TAKEN = ("add-float32", "mul-float32", "matmul-float32", "relu-float32", "take-int64", "nonzero-float32", "conv-float32")
PROCESSES = ("runtime/keeps-no-memory", "package/", "plugin/loads-lazily", "codegen/gives-the-same-elsewhere", "codegen/needs-no")


@pytest.fixture
def subject(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from discrete.machine import MACHINES, Machine

    MACHINES[:] = [Machine(0), Machine(1)]
    own = [point for point in entry_points(group=GROUP) if point.name == "reference"]
    return Subject("discrete", PluginRegistry.discover([*own, EntryPoint("discrete", "discrete.plugin", GROUP)]))


def failures(subject, prefix=""):
    chosen = [case for case in cases(subject) if case.id.startswith(prefix) and not case.id.startswith(PROCESSES)]
    chosen = [case for case in chosen if case.level != "operators" or case.of in TAKEN]
    results = run(subject, chosen)
    assert results
    return {result.id: result.reason for result in results if result.outcome is Outcome.FAILED}


def test_the_simulated_device_passes(subject):
    assert failures(subject) == {}


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
            machine.view(target)[...] = machine.view(source)

        machine.put(queue, work)

    machine.copy = copy


@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (keeps_the_source, "devices/copies"),
        (copies_too_much, "devices/copies"),
        (forgets_events, "devices/keeps-order"),
        (forgets_to_free, "devices/has-room"),
        (names_it_wrongly, "devices/has-room"),
        (overflows, "devices/keeps-to-its-tensors"),
    ],
)
def test_a_broken_device_is_caught(subject, broken, caught):
    from discrete.machine import MACHINES

    broken(MACHINES[0])
    assert caught in failures(subject, "devices/")
