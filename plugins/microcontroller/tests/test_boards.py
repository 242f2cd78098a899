"""Networks on emulated boards: the same bytes as the reference target."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph.ir import Expr, Module, constant, function, var
from inlaid_microcontroller.boards import BOARDS, Board, find_board
from inlaid_microcontroller.boards.emulate import Firmware, build, missing, run, sizes
from inlaid_microcontroller.boards.kernel import build_firmware
from inlaid_microcontroller.export import firmware
from inlaid_microcontroller.options import MicrocontrollerOptions
from inlaid_runtime.errors import InlaidError, KernelFault, TargetError
from inlaid_runtime.types import TensorType

STRICT = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror")
INPUT = np.random.default_rng(1).integers(-128, 128, (1, 3, 9, 7)).astype(np.int8)


def network() -> Module:
    """A padded convolution of 3 channels, one of single channels, one of single pixels with 13 channels, and a sum of all."""
    rng = np.random.default_rng(0)

    def stored(total: Expr, outputs: int, rounding: str) -> Expr:
        bias, multiplier = rng.integers(-999, 999, (1, outputs, 1, 1)), rng.integers(1 << 30, (1 << 31) - 1, outputs)
        factor, shift = constant(multiplier.astype(np.int32)), constant(rng.integers(-9, -6, outputs).astype(np.int32))
        scaled = ops.multiply_fixed(ops.add(total, constant(bias.astype(np.int32))), factor, shift, axis=1, rounding=rounding)
        return ops.cast(ops.clip(ops.add(scaled, constant(np.int32(5))), minimum=-128.0, maximum=127.0), dtype="int8")

    def weights(*shape: int) -> Expr:
        return constant(rng.integers(-127, 128, shape).astype(np.int8))

    def padded(value: Expr) -> Expr:
        return ops.pad(value, constant(np.int8(-5)), pads=(0, 0, 1, 1, 0, 0, 1, 1))

    plain = {"pads": (0, 0, 0, 0), "dilations": (1, 1)}
    x = var("x", TensorType(INPUT.shape, "int8"))
    first = stored(ops.conv(padded(x), weights(8, 3, 3, 3), strides=(2, 2), **plain), 8, "up")
    second = stored(ops.conv(padded(first), weights(8, 1, 3, 3), strides=(1, 1), groups=8, **plain), 8, "away")
    third = stored(ops.conv(second, weights(13, 8, 1, 1), strides=(1, 1), **plain), 13, "up")
    rows = ops.reshape(third, shape=(1, 260))
    total = ops.add(ops.matmul(rows, weights(260, 5)), constant(np.arange(5, dtype=np.int32)))
    return Module({"main": function([x], total)})


def for_board(name: str) -> Board:
    board = find_board(name)
    assert board is not None
    if problem := missing(board):
        pytest.skip(problem)
    return board


@pytest.mark.parametrize("name", [board.name for board in BOARDS])
def test_boards_give_the_bytes_of_the_reference(name: str) -> None:
    board = for_board(name)
    (expected,) = compile_module(network(), ["reference"]).run({"x": INPUT}).values()
    (actual,) = compile_module(network(), [f"microcontroller:cpu={board.cpu},board={name}"]).run({"x": INPUT}).values()
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.slow
def test_a_sample_of_the_conformance_suite_on_a_board() -> None:
    """The suite runs in full as code of the host: here its nets, and an operator of each kind of kernel."""
    board = for_board("mps2-an386")
    target = f"microcontroller:cpu={board.cpu},board={board.name}"
    cases = ["models/agrees", *(f"operators/agrees[{name}-float32" for name in ("add", "softmax", "matmul"))]
    only = [argument for case in cases for argument in ("--only", case)]
    command = [
        sys.executable,
        "-c",
        "from inlaid_cli import main; main()",
        "conformance",
        "--target",
        target,
        *only,
        "--examples",
        "1",
    ]
    process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert process.returncode == 0, process.stdout + process.stderr
    assert " passed" in process.stdout and "failing" not in process.stdout


def test_runs_are_counted_alike_every_time_and_code_for_dsp_has_no_warnings(tmp_path: Path) -> None:
    board = for_board("mps2-an386")
    source = build_firmware(firmware(compile_module(network(), ["microcontroller:cpu=cortex-m4"]), "model"))
    program = build(source, board, tmp_path, STRICT)
    first, second = (run(source, program, board, [INPUT.tobytes()]) for _ in range(2))
    assert first == second
    assert first.instructions < 3 * 45_000  # 38,000 multiplications
    assert sizes(program).ram < 1500
    assert 0 < first.stack < 1500


def test_a_second_compiler_takes_the_code(tmp_path: Path) -> None:
    command = ["clang"] if shutil.which("clang") else [sys.executable, "-m", "ziglang", "cc"]
    if command[0] != "clang" and importlib.util.find_spec("ziglang") is None:
        pytest.skip("there is no second compiler: apt-get install clang, or pip install ziglang")
    source = build_firmware(firmware(compile_module(network(), ["microcontroller:cpu=cortex-m4"]), "model"))
    for name, content in source.files.items():
        (tmp_path / name).write_bytes(content)
    process = subprocess.run([*command, *STRICT, "-c", "model.c"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_a_program_that_never_ends_is_stopped(tmp_path: Path) -> None:
    board = for_board("mps2-an386")
    files = {"endless.h": b"int endless(void);", "endless.c": b'int endless(void) { for (;;) __asm__ volatile(""); }'}
    source = Firmware(files, "endless.h", (), (), "endless()")
    program = build(source, board, tmp_path)
    with pytest.raises(KernelFault, match="more than 1 s on board mps2-an386"):
        run(source, program, board, [], limit=1.0)


def test_a_fault_of_the_processor_is_an_error(tmp_path: Path) -> None:
    board = for_board("mps2-an386")
    files = {"fault.h": b"int fault(void);", "fault.c": b"int fault(void) { return *(volatile int *)0x90000000u; }"}
    source = Firmware(files, "fault.h", (), (), "fault()")
    program = build(source, board, tmp_path)
    with pytest.raises(KernelFault, match="stopped on board mps2-an386 with exit status 120"):
        run(source, program, board, [])


def test_missing_tools_are_named_with_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InlaidError, match="qemu-system-arm not found: apt-get install gcc-arm-none-eabi"):
        compile_module(network(), ["microcontroller:cpu=cortex-m4,board=mps2-an386"])


def test_a_board_has_one_processor() -> None:
    with pytest.raises(TargetError, match="board mps2-an386: expected cpu=cortex-m4, got cortex-m7"):
        MicrocontrollerOptions("cortex-m7", "mps2-an386")
    with pytest.raises(TargetError, match="unknown board 'mps2'"):
        MicrocontrollerOptions("cortex-m4", "mps2")
