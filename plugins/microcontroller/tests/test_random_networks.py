"""Random networks of 8-bit numbers: folders build and run clean under sanitizers, and boards give the bytes of the reference."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.driver.export import export_folder
from inlaid.graph.ir import Expr, Module, constant, function, tuple_, var
from inlaid_microcontroller.boards import BOARDS, Board
from inlaid_microcontroller.boards.emulate import missing
from inlaid_microcontroller.export import example
from inlaid_runtime.execution.c_source import find_compiler
from inlaid_runtime.types import TensorType

from .test_firmware import SANITIZED, STRICT, build

MAX_ELEMENTS = 8000
"""Elements of a value."""


class Network:
    """A network that a seed draws: `steps` layers, each on one of the last values or two."""

    def __init__(self, seed: int, steps: int) -> None:
        self._draw, self._numbers = random.Random(seed), np.random.default_rng(seed)
        shape = (1, self._draw.choice((1, 3, 4, 8)), self._draw.randint(3, 12), self._draw.randint(1, 12))
        self.x = var("x", TensorType(shape, "int8"))
        self._values: list[Expr] = [self.x]
        layers = (self._product, self._product, self._product, self._sum, self._pool, self._mean, self._moved, self._joined)
        while len(self._values) <= steps:
            value = self._draw.choice((*layers, self._part, self._bounded, self._table))(self._value())
            if np.prod(_shape(value)) <= MAX_ELEMENTS:
                self._values.append(value)

    @property
    def module(self) -> Module:
        """With two results where the last two values differ."""
        results = dict.fromkeys((self._values[-1], ops.neg(self._draw.choice(self._values[1:]))))
        return Module({"main": function([self.x], tuple_(list(results)))})

    def _value(self) -> Expr:
        return self._values[-1] if self._draw.random() < 0.7 else self._draw.choice(self._values)

    def _int8(self, *shape: int) -> Expr:
        return constant(self._numbers.integers(-127, 128, shape).astype(np.int8))

    def _stored(self, total: Expr, largest: float) -> Expr:
        """Sums of about this size, with biases, as int8: scaled by channel or at once, with each rounding."""
        channels, draw = _shape(total)[1], self._draw
        bias = self._numbers.integers(-int(largest), int(largest) + 1, (1, channels, 1, 1)).astype(np.int32)
        shape = (channels,) if draw.random() < 0.6 else ()
        factor = constant(np.asarray(self._numbers.integers(1 << 30, (1 << 31) - 1, shape), np.int32))
        right = np.asarray(self._numbers.integers(0, 2, shape) + max(int(np.log2(largest / 20)), 1), np.int32)
        rounding = draw.choice(("up", "away", "once"))
        scaled = ops.multiply_fixed(ops.add(total, constant(bias)), factor, constant(-right), axis=1, rounding=rounding)
        point = draw.randint(-128, 127)
        lowest = float(draw.choice((-128, point)))
        return ops.cast(ops.clip(ops.add(scaled, constant(np.int32(point))), minimum=lowest, maximum=127.0), dtype="int8")

    def _product(self, x: Expr) -> Expr:
        draw, (_, channels, *size) = self._draw, _shape(x)
        window = [1 if draw.random() < 0.3 else draw.randint(1, min(extent, 5)) for extent in size]
        single = draw.random() < 0.4
        outputs = channels * draw.choice((1, 1, 2)) if single else draw.choice((1, 3, 4, 5, 8, 16))
        before = [draw.randint(0, extent // 2) for extent in (*window, *window)]
        if any(before):
            x = ops.pad(x, self._int8(), pads=(0, 0, *before[:2], 0, 0, *before[2:]))
        weights = self._int8(outputs, 1 if single else channels, *window)
        strides = (draw.randint(1, 3), draw.randint(1, 2))
        total = ops.conv(x, weights, strides=strides, groups=channels if single else 1)
        return self._stored(total, 4500 * float(np.sqrt(np.prod(_shape(weights)[1:]))))

    def _sum(self, x: Expr) -> Expr:
        operands = [value for value in self._values if _shape(value) == _shape(x)]
        scaled = []
        for each in (x, self._draw.choice(operands)):
            raised = ops.shift_left(ops.cast(each, dtype="int32"), constant(np.int32(16)))
            factor = constant(np.int32(self._draw.randint(1 << 30, (1 << 31) - 1)))
            scaled.append(ops.multiply_fixed(raised, factor, constant(np.int32(-self._draw.randint(0, 3))), rounding="up"))
        half = ops.multiply_fixed(ops.add(*scaled), constant(np.int32(1 << 30)), constant(np.int32(-16)), rounding="away")
        return ops.cast(ops.clip(half, minimum=-128.0, maximum=127.0), dtype="int8")

    def _pool(self, x: Expr) -> Expr:
        kernel = tuple(self._draw.randint(1, min(extent, 3)) for extent in _shape(x)[2:])
        return ops.max_pool(x, kernel=kernel, strides=(self._draw.randint(1, 2),) * 2)

    def _mean(self, x: Expr) -> Expr:
        height, width = _shape(x)[2:]
        return self._stored(ops.reduce_sum(ops.cast(x, dtype="int32"), axes=(2, 3), keepdims=True), 40.0 * height * width)

    def _moved(self, x: Expr) -> Expr:
        return ops.transpose(x, perm=(0, *self._draw.sample((1, 2, 3), 3)))

    def _joined(self, x: Expr) -> Expr:
        return ops.concat(x, self._int8(*_shape(x)), x, axis=self._draw.randint(1, 3))

    def _part(self, x: Expr) -> Expr:
        begin = [self._draw.randrange(extent) for extent in _shape(x)]
        return ops.strided_slice(x, begin=tuple(begin), end=_shape(x), strides=(1, 1, self._draw.randint(1, 2), 1))

    def _bounded(self, x: Expr) -> Expr:
        return ops.maximum(x, self._int8())

    def _table(self, x: Expr) -> Expr:
        return ops.take(self._int8(256), ops.add(ops.cast(x, dtype="int32"), constant(np.int32(128))), axis=0)


def _shape(value: Expr) -> tuple[int, ...]:
    assert isinstance(value.type, TensorType)
    return tuple(dim for dim in value.type.shape if isinstance(dim, int))


def results(module: Module, target: str) -> list[bytes]:
    """What a target makes of the example."""
    executable = compile_module(module, [target], keep=False)
    return [np.asarray(array).tobytes() for array in executable.run({"x": example(executable.inputs[0])}).values()]


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler: apt-get install gcc")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_firmware_is_clean_and_exact(seed: int, tmp_path: Path) -> None:
    module = Network(seed, 2 + seed % 6).module
    cpu, fast = ("c99", "cortex-m4", "cortex-m55")[seed % 3], (0, 200)[seed % 2]
    export_folder(compile_module(module, [f"microcontroller:cpu={cpu},fast={fast}"], keep=False).package, tmp_path, "net")
    text = (tmp_path / "net.c").read_text()
    assert not re.search(r"Computes\s*\*/|\bp\d+\b|\(int8_t\)-?\d", text)
    assert max(map(len, text.splitlines())) <= 200
    outputs = json.loads((tmp_path / "manifest.json").read_text())["outputs"]
    assert [bytes.fromhex(port["test"]) for port in outputs] == results(module, "reference")
    assert subprocess.run([build(tmp_path, *STRICT, *SANITIZED)], check=False).returncode == 0


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
@pytest.mark.parametrize("seed", [100, pytest.param(101, marks=pytest.mark.slow)])
def test_boards_give_the_bytes_of_the_reference(board: Board, seed: int) -> None:
    if problem := missing(board):
        pytest.skip(problem)
    module = Network(seed, 2 + seed % 5).module
    assert results(module, f"microcontroller:cpu={board.cpu},board={board.name}") == results(module, "reference")
