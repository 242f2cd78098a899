"""What compilers say of models: bytes of code, and the bound of the stack along the deepest calls."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from inlaid.driver.compile import compile_module
from inlaid_microcontroller.boards import ARM, BOARDS, INSTALL, Board, Memory
from inlaid_microcontroller.boards.emulate import Firmware, build, missing, run
from inlaid_microcontroller.boards.kernel import build_firmware
from inlaid_microcontroller.export import example, firmware
from inlaid_microcontroller.options import CPUS
from inlaid_microcontroller.toolchain import compiled

from .test_random_networks import Network

pytestmark = pytest.mark.skipif(shutil.which(ARM) is None, reason=f"there is no {ARM}: {INSTALL}")
M3, M4 = (next(board for board in BOARDS if board.cpu == cpu) for cpu in ("cortex-m3", "cortex-m4"))


def other(board: Board, cpu: str, **changes: object) -> Board:
    """A board with a processor that is no target's board, but runs its code."""
    return replace(board, cpu=cpu, flags=(*CPUS[cpu].flags, "--specs=nano.specs"), **changes)


BOARD_VARIANTS = (
    *BOARDS,
    other(M3, "cortex-m0plus"),
    other(M4, "cortex-m33", name="mps2-an505", flash=Memory(0x10000000, 4 << 20), ram=Memory(0x38000000, 2 << 20)),
)
HEAD = """
#include <string.h>
__attribute__((noinline)) static void use(char *at, int bytes) { for (int i = 0; i < bytes; i++) ((volatile char *)at)[i] = 0; }
"""
LARGE = "__attribute__((noinline)) static void large(void) { char at[1000]; use(at, 1000); }\n"


def stack_bound(files: dict[str, str], cpu: str) -> int | None:
    usage = compiled(files, "model_run", cpu)
    return usage and usage.stack


def bound(text: str) -> int | None:
    return stack_bound({"model.c": HEAD + text}, "cortex-m4")


def test_code_counts_with_the_constants_in_it_and_without_weights() -> None:
    files = {"model.c": "extern const int w[];\nconst int table[25] = {1};\nint model_run(void) { return w[0]; }"}
    both = compiled({**files, "model_weights.c": "const int w[1000] = {1};"}, "model_run", "cortex-m4")
    assert both is not None and 100 < both.code < 130
    assert both == compiled(files, "model_run", "cortex-m4")
    assert compiled({"model.c": "int model_run(void) { return 1 }"}, "model_run", "cortex-m4") is None


def test_calls_add_up_along_the_deepest() -> None:
    alone = bound(LARGE + "void model_run(void) { char at[100]; use(at, 100); }")
    both = bound(LARGE + "void model_run(void) { char at[100]; use(at, 100); large(); }")
    assert alone is not None and 100 <= alone < 200
    assert both is not None and 1100 <= both < 1200


def test_functions_of_libraries_have_room() -> None:
    copied = bound("void model_run(char *to, const char *from, unsigned size) { memcpy(to, from, size); }")
    divided = bound("double model_run(double a, double b) { return a / b + 1.0; }")
    assert copied is not None and divided is not None
    assert 64 <= copied < 100 and 80 <= divided < 120


@pytest.mark.parametrize(
    "text",
    [
        "void model_run(int depth) { char at[100]; use(at, 100); if (depth) model_run(depth - 1); use(at, 100); }",
        "void model_run(void (*called)(void)) { called(); use(0, 0); }",
        "void model_run(int bytes) { char at[bytes]; use(at, bytes); }",
        "void model_run(void) { neither C",
        "void other(void) {}",
    ],
    ids=["recursion", "pointers", "arrays of any size", "no C", "no function"],
)
def test_what_cannot_be_told_is_not(text: str) -> None:
    assert bound(text) is None
    assert bound(text) is None  # nor when it is asked again


def test_a_function_that_takes_none_is_bound_by_none() -> None:
    assert bound("void model_run(void) {}") == 0


@pytest.mark.parametrize("board", BOARD_VARIANTS, ids=lambda board: board.cpu)
@pytest.mark.parametrize("seed", [5, 12, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(200, 206))])
def test_random_networks_stay_within_the_bound(board: Board, seed: int, tmp_path: Path) -> None:
    if problem := missing(board):
        pytest.skip(problem)
    executable = compile_module(Network(seed, 1 + seed % 5).module, [f"microcontroller:cpu={board.cpu}"], keep=False)
    printed = firmware(executable, "model")
    source = build_firmware(printed)
    stack_bytes = run(
        source, build(source, board, tmp_path), board, [example(spec).tobytes() for spec in executable.inputs]
    ).model_stack
    limit = stack_bound(printed.files(), board.cpu)
    assert limit is not None
    assert 0 < stack_bytes <= limit


SLOW = """
#include <math.h>
#include <string.h>
#include <stdint.h>
volatile float f = 3.75e9f;
volatile double d = 3.75e9;
volatile int64_t i = -((int64_t)1 << 40) + 3;
volatile int32_t at = 300;
char to[400];
int model_run(void) {
    BODY;
    return 0;
}
"""
BODIES = [
    "i = (int64_t)f",
    "f = (float)i",
    "i = (int64_t)d",
    "d = (double)i",
    "i = i / (i >> 3)",
    "i = i % (i >> 3)",
    "d = d / (d + 1)",
]
BODIES += ["d = sqrt(d)", "f = sqrtf(f)", "d = fmod(d, 3.5)", "f = fmaf(f, f, f)", "d = rint(d)", "memset(to, 1, (size_t)at)"]


@pytest.mark.parametrize("board", BOARD_VARIANTS, ids=lambda board: board.cpu)
def test_functions_of_libraries_stay_within_their_room(board: Board, tmp_path: Path) -> None:
    """The functions that were measured to take the most, one after another: the deepest counts."""
    if problem := missing(board):
        pytest.skip(problem)
    for number, body in enumerate(BODIES if board is M3 or board.cpu in ("cortex-m0plus", "rv32imc") else BODIES[::3]):
        files = {"model.c": SLOW.replace("BODY", body), "model.h": "int model_run(void);\n"}
        (tmp_path / str(number)).mkdir()
        program = Firmware({name: text.encode() for name, text in files.items()}, "model.h", (), (), "model_run()")
        stack_bytes = run(program, build(program, board, tmp_path / str(number)), board, []).model_stack
        limit = stack_bound(files, board.cpu)
        assert limit is not None
        assert stack_bytes <= limit, body


def test_processors_without_a_compiler_have_no_bound() -> None:
    assert compiled({"model.c": HEAD + "void model_run(void) {}"}, "model_run", "c99") is None
