"""Launches run on arguments for which their kernels are compiled, and all others are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.threads.handmade import OPENCL, K

from inlaid_runtime.arith import SizeVar, compare
from inlaid_runtime.errors import KernelFault, Unsupported
from inlaid_runtime.execution import launches as launches_module
from inlaid_runtime.execution.launch_checks import KernelFootprint, LaunchChecks
from inlaid_runtime.execution.launch_code import decode_launches, encode_launches
from inlaid_runtime.execution.launches import (
    EvaluatedLaunch,
    KernelFunction,
    LaunchEvaluator,
    LaunchPlan,
    LaunchPlanStep,
    Parameter,
    Size,
)

ROOM = 64
"""Bytes of every buffer of the tests."""


def checks(plan: LaunchPlan) -> LaunchChecks:
    """The checks of a run on one buffer of each storage."""
    stores = {storage: [(None, 0, ROOM)] for storage in ("input", "output", "constant", "arena")}
    return LaunchChecks("region", plan, list(map(KernelFootprint, plan.kernels)), stores)


SCALED, _ = decode_launches(OPENCL.scaled())
FIRST, SECOND = LaunchEvaluator(SCALED).evaluate([16], lambda number, source: 0)
"""The launches for 16 elements, 64 bytes."""


def test_launches_of_a_sound_plan() -> None:
    run = checks(SCALED)
    run.check(FIRST)
    run.check(SECOND)


def at(storage: str, offset: int, index: int = 2) -> tuple[tuple[str, int, int], ...]:
    """The places of the first launch, with one replaced."""
    return (*FIRST.places[:index], (storage, 0, offset), *FIRST.places[index + 1 :])


OUTSIDE = r"kernel scale accesses 64 bytes at byte {} of its {}, which must be a multiple of 16 and within 64 bytes"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"places": at("arena", 16)}, OUTSIDE.format(16, "arena")),
        ({"places": at("arena", -16)}, OUTSIDE.format(-16, "arena")),
        ({"places": at("arena", 1 << 40)}, OUTSIDE.format(1 << 40, "arena")),
        ({"places": at("constant", 4, 1)}, "accesses 4 bytes at byte 4 of its constant"),
        ({"scalars": (2, 17)}, r"accesses 68 bytes at byte 0 of its input"),
        ({"places": at("input", 0)}, "kernel scale must write a buffer that overlaps none of its others"),
        ({"grid": (2, 1, 1)}, r"must be launched with grid and threads \(1, 1, 1, 64, 1, 1\), got \(2, 1, 1, 64, 1, 1\)"),
        ({"threads": (32, 2, 1)}, "must be launched with grid and threads"),
        ({"scalars": (2, 65)}, r"with grid and threads \(2, 1, 1"),
    ],
)
def test_launches_that_access_other_memory(changes: dict[str, object], message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        checks(SCALED).check(replace(FIRST, **changes))  # type: ignore[arg-type]


def test_conditions_on_scalars_and_witnesses() -> None:
    small, witness_bound = Size(compare("<", SizeVar("n"), 8)), Size(compare("<=", SizeVar("n"), SizeVar("m")))
    kernel = KernelFunction("k", (), ("n",), (1, 1, 1), (1, 1, 1), ("m",), (small, witness_bound))
    run = checks(LaunchPlan((kernel,), (), (), ()))
    launch = EvaluatedLaunch(0, (), (7,), (1, 1, 1), (1, 1, 1), 0, (7,))
    run.check(launch)
    with pytest.raises(KernelFault, match=r"kernel k is compiled for sizes with \(n < 8\), got n = 8, m = 9"):
        run.check(replace(launch, scalars=(8,), witnesses=(9,)))
    with pytest.raises(KernelFault, match="got n = 7, m = 6"):
        run.check(replace(launch, witnesses=(6,)))


COUNT = KernelFunction("count", (Parameter(8, False, True, "?k"),), ("n",), (1, 1, 1), (1, 1, 1))
USE = KernelFunction("use", (Parameter(8, True, False, "?k"), Parameter(32, False, True)), ("n",), (1, 1, 1), (1, 1, 1))
OTHER = replace(USE, name="other", program=1)
COMPUTED = LaunchPlan((COUNT, USE, OTHER), (), (), ())
COUNTED = EvaluatedLaunch(0, (("arena", 0, 48),), (5,), (1, 1, 1), (1, 1, 1), 0)
USE_LAUNCH = EvaluatedLaunch(1, (("arena", 0, 48), ("output", 0, 0)), (5,), (1, 1, 1), (1, 1, 1), 0)


def test_a_computed_size_is_read_where_it_was_computed() -> None:
    run = checks(COMPUTED)
    run.check(COUNTED)
    run.check(USE_LAUNCH)
    run.check(replace(USE_LAUNCH, places=(("arena", 0, 48), ("arena", 0, 0))))


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (replace(USE_LAUNCH, places=(("arena", 0, 32), ("output", 0, 0))), r"kernel use reads size \?k before it is computed"),
        (replace(USE_LAUNCH, places=(("input", 0, 48), ("output", 0, 0))), "before it is computed"),
        (replace(USE_LAUNCH, call=1), "before it is computed"),
        (replace(USE_LAUNCH, scalars=(6,)), "call 0 must launch kernels of one program, for one set of sizes"),
        (replace(USE_LAUNCH, kernel=2), "call 0 must launch kernels of one program"),
        (replace(USE_LAUNCH, places=(("arena", 0, 48), ("arena", 0, 32))), "must write a buffer that overlaps none of its others"),
    ],
)
def test_computed_sizes_that_are_not(later: EvaluatedLaunch, message: str) -> None:
    run = checks(COMPUTED)
    run.check(COUNTED)
    with pytest.raises(KernelFault, match=message):
        run.check(later)
    with pytest.raises(KernelFault, match="before it is computed"):
        checks(COMPUTED).check(USE_LAUNCH)


def test_a_computed_size_is_not_overwritten() -> None:
    fill = KernelFunction("fill", (Parameter(32, False, True),), (), (1, 1, 1), (1, 1, 1))
    run = checks(LaunchPlan((COUNT, fill), (), (), ()))
    run.check(COUNTED)
    run.check(EvaluatedLaunch(1, (("arena", 0, 0),), (), (1, 1, 1), (1, 1, 1), 1))
    with pytest.raises(KernelFault, match=r"kernel fill must not overwrite the computed size \?k"):
        run.check(EvaluatedLaunch(1, (("arena", 0, 32),), (), (1, 1, 1), (1, 1, 1), 1))
    run.computed(("arena", 0, 48))
    for offset in (60, 44, -8, 64):
        with pytest.raises(KernelFault, match=f"a computed size at byte {offset} of its arena must be within 64 bytes"):
            run.computed(("arena", 0, offset))


def test_host_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of a plan's loop may be any number, also if no kernel takes the loop's variable."""
    monkeypatch.setattr(launches_module, "MAX_STEPS", 100)
    step = LaunchPlanStep(variable=0, extent=1, body=(LaunchPlanStep(variable=0, extent=0, body=(LaunchPlanStep(),)),))
    plan = LaunchPlan((), (), (Size(0), Size(1 << 40)), (step,), variables=(Size(SizeVar("host.0")),))
    with pytest.raises(KernelFault, match="a region must have at most 100 launches and loop iterations in a run"):
        list(LaunchEvaluator(plan).evaluate([], lambda number, source: 0))
    empty = replace(plan, steps=(LaunchPlanStep(variable=0, extent=1),))
    assert list(LaunchEvaluator(empty).evaluate([], lambda number, source: 0)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"buffers": (0, 1)}, "launch.buffers: kernel scale takes 3, got 2"),
        ({"scalars": (2,)}, "launch.scalars: kernel scale takes 2, got 1"),
        ({"witnesses": (2,)}, "launch.witnesses: kernel scale takes 0, got 1"),
        ({"buffers": (0, 1, 0)}, r"plan.places\[0\]: a kernel must not write an input"),
        ({"buffers": (0, 2, 1)}, r"plan.places\[1\]: a kernel must not write a constant"),
    ],
)
def test_launches_with_other_arguments_are_refused_at_load(changes: dict[str, object], message: str) -> None:
    artifact = OPENCL.scaled()
    plan, program = decode_launches(artifact)
    assert plan.steps[0].launch is not None
    launch = replace(plan.steps[0].launch, **changes)  # type: ignore[arg-type]
    code = encode_launches(replace(plan, steps=(LaunchPlanStep(launch=launch),)), program)
    with pytest.raises(Unsupported, match=message):
        decode_launches(replace(artifact, code=code))


def test_an_input_that_shares_its_buffer_with_an_output_is_not_read() -> None:
    with pytest.raises(Unsupported, match="input 0 shares the buffer of an output, which is used instead"):
        decode_launches(replace(OPENCL.scaled(), aliases=((0, 0),)))


def test_sizes_that_a_region_does_not_compute_are_not_read_back() -> None:
    artifact = OPENCL.counted(later=True)
    plan, program = decode_launches(artifact)
    reads = tuple(replace(step, read=replace(step.read, size=0)) if step.read else step for step in plan.steps)
    with pytest.raises(Unsupported, match=r"read.size: the region does not compute dimension n"):
        decode_launches(replace(artifact, code=encode_launches(replace(plan, steps=reads), program)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"witnesses": ("n",)}, "scalars and witnesses must have different names"),
        ({"buffers": (Parameter(4 * K),) * 3}, r"\?k has no value at run time"),
        ({"grid": (-1, 1, 1)}, "-1 is negative"),
        ({"shared": -1}, "expected bytes >= 0, got -1"),
    ],
)
def test_kernels_that_contradict_themselves(changes: dict[str, object], message: str) -> None:
    artifact = OPENCL.scaled()
    plan, program = decode_launches(artifact)
    code = encode_launches(replace(plan, kernels=(replace(plan.kernels[0], **changes),)), program)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match=message):
        decode_launches(replace(artifact, code=code))
