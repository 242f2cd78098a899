"""Functions of vectors give the integers of their twins in plain C, on an emulated board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph.ir import Expr, Module, constant, function, var
from inlaid_microcontroller.boards import find_board
from inlaid_microcontroller.boards.emulate import Firmware, build, missing, run
from inlaid_microcontroller.intrinsics import support
from inlaid_microcontroller.options import CPUS
from inlaid_runtime.types import TensorType

CHECK = """
static const int32_t multipliers[] = {0, 1, 3, 1073741823, 1073741824, 1073741825, 1518500250,
    2147483646, 2147483647, -1, -1073741825};
static int32_t rounded(int32_t value, int32_t multiplier, int32_t shift) {
    return inlaid_ROUNDING(value, multiplier, shift);
}
int check(void) {
    int32_t sums[4 * 32];
    int count = 0, wrong = 0;
    for (int bit = 0; bit < 30; bit++) {
        const int32_t most = (int32_t)((1u << 30) - 1), power = 1 << bit;
        sums[count++] = power < most ? power : most;
        sums[count++] = -power;
        sums[count++] = power + (power >> 1) < most ? power + (power >> 1) : -most;
        sums[count++] = bit == 0 ? 0 : bit % 2 ? 1 - power : power - 1;
    }
    for (int32_t m = 0; m < COUNT(multipliers); m++)
        for (int32_t shift = LAST; shift > -31; shift--)
            for (int s = 0; s < count; s += 4) {
                const int32_t m0 = multipliers[m], m1 = multipliers[(m + 1) % COUNT(multipliers)];
                const int32_t multiplier[4] = {m0, m1, m0, m1};
                const int8_t shifts[4] = {(int8_t)shift, (int8_t)shift, LAST, (int8_t)shift};
                const int32_t bias[4] = {1, -1, 0, 0};
                int32_t total[4];
                for (int lane = 0; lane < 4; lane++)
                    total[lane] = sums[s + lane] - bias[lane];
                for (int lane = 0; lane < 4; lane++) {
                    const int32_t zero = -rounded(sums[s + lane], multiplier[lane], shifts[lane]);
                    int8_t found[4] = {1, 2, 3, 4}, wanted[4] = {1, 2, 3, 4};
                    vectors(total, bias, multiplier, shifts, found, zero, -100, 127);
                    plain(total, bias, multiplier, shifts, wanted, zero, -100, 127);
                    wrong += memcmp(found, wanted, 4) != 0 || (lane < LANES && found[lane] != 0);
                }
            }
    return wrong != 0;
}
"""
DOTS = """
int check(void) {
    int8_t a[16], b[3 * 18 + 16];
    int wrong = 0;
    for (int round = 0; round < 100; round++) {
        for (int i = 0; i < COUNT(a); i++)
            a[i] = (int8_t)(round == 0 ? -128 : i * 37 + round * 101);
        for (int i = 0; i < COUNT(b); i++)
            b[i] = (int8_t)(round == 0 ? -128 : i * 53 + round * 29);
        int32_t found[4] = {round, -round, 1 << 29, -(1 << 29)}, wanted[4];
        memcpy(wanted, found, sizeof found);
        vectors(a, b, found, round % 2 ? 16 : 18);
        plain(a, b, wanted, round % 2 ? 16 : 18);
        wrong += memcmp(found, wanted, sizeof found) != 0;
    }
    return wrong != 0;
}
"""
RUNS = """
int check(void) {
    int8_t a[16 * 7], b[64 * 7];
    int wrong = 0;
    for (int count = 1; count <= 7; count++) {
        for (int i = 0; i < COUNT(a); i++)
            a[i] = (int8_t)(count == 1 ? -128 : i * 37 + count * 101);
        for (int i = 0; i < COUNT(b); i++)
            b[i] = (int8_t)(count == 1 ? -128 : i * 53 + (i >> 4) * 29);
        int32_t found[4] = {count, -count, 1 << 29, -(1 << 29)}, wanted[4];
        memcpy(wanted, found, sizeof found);
        vectors(a, b, found, count);
        plain(a, b, wanted, count);
        wrong += memcmp(found, wanted, sizeof found) != 0;
    }
    return wrong != 0;
}
"""
COPIES = """
int check(void) {
    int8_t source[90], found[90], wanted[90];
    int wrong = 0;
    for (int i = 0; i < COUNT(source); i++)
        source[i] = (int8_t)(i + 5);
    for (int32_t size = 0; size <= 70; size++) {
        memset(found, 1, sizeof found);
        memset(wanted, 1, sizeof wanted);
        vectors(found + 3, source + size % 7, size);
        plain(wanted + 3, source + size % 7, size);
        wrong += memcmp(found, wanted, sizeof found) != 0;
    }
    return wrong != 0;
}
"""
SUMS = """
int check(void) {
    static const int32_t factors[][2] = {{1073741824, 0}, {2147483647, -3}, {1623821475, -1}, {0, 0}, {1073741825, -30}};
    int wrong = 0;
    for (int a = -128; a < 128; a++)
        for (int b = -128; b < 128; b++) {
            const int8_t left[4] = {(int8_t)a, (int8_t)b, -128, 127}, right[4] = {(int8_t)b, 127, (int8_t)a, (int8_t)a};
            int8_t found[4] = {1, 2, 3, 4}, wanted[4] = {1, 2, 3, 4};
            const int32_t *one = factors[(a + 128) % COUNT(factors)], *two = factors[(b + 128) % COUNT(factors)];
            const int32_t three = -1 - (a + b + 256) % 20, zero = a % 3 ? b : 0;
            vectors(left, right, found, zero, one[0], one[1], a, two[0], two[1], 1518500250, three, b, -100, 127);
            plain(left, right, wanted, zero, one[0], one[1], a, two[0], two[1], 1518500250, three, b, -100, 127);
            wrong += memcmp(found, wanted, sizeof found) != 0;
        }
    return wrong != 0;
}
"""
WINDOWS = """
static uint32_t state = 1;
static int32_t any(int32_t low, int32_t high) {
    state = state * 1664525u + 1013904223u;
    return low + (int32_t)((uint64_t)(state >> 8) * ((uint32_t)high - (uint32_t)low + 1u) >> 24);
}
int check(void) {
    static const int32_t shapes[][2] = {{3, 3}, {1, 1}, {5, 2}, {2, 4}, {1, 7}, {7, 1}};
    int wrong = 0;
    for (int round = 0; round < 600; round++) {
        const int32_t rows = shapes[round % 6][0], columns = shapes[round % 6][1];
        int8_t a[700], b[300], found[9], wanted[9];
        int32_t bias[8], multiplier[8];
        int8_t shift[8];
        for (int i = 0; i < COUNT(a); i++)
            a[i] = (int8_t)(round < 6 ? -128 : any(-128, 127));
        for (int i = 0; i < COUNT(b); i++)
            b[i] = (int8_t)(round < 6 ? (i % 2 ? 127 : -127) : any(-127, 127));
        for (int i = 0; i < COUNT(bias); i++) {
            bias[i] = any(-20000, 20000);
            multiplier[i] = any(1 << 30, 2147483647);
            shift[i] = (int8_t)(round % 4 ? any(-11, -7) : LAST);
        }
        memset(found, 3, sizeof found);
        memcpy(wanted, found, sizeof found);
        const int32_t zero = any(-128, 127);
        vectors(a, b, bias, multiplier, shift, found, rows, columns, 90, 11, zero, -100, 127);
        plain(a, b, bias, multiplier, shift, wanted, rows, columns, 90, 11, zero, -100, 127);
        wrong += memcmp(found, wanted, sizeof found) != 0;
    }
    return wrong != 0;
}
"""
SCALARS = ["za", "ma", "sa", "zb", "mb", "sb", "m", "s", "z", "l", "h"]
CHECKS = {"vector_dot4": DOTS, "vector_run4": RUNS, "vector_copy": COPIES, "addition3": SUMS, "addition4": SUMS}
LISTS = {
    "addition": (
        f"const int8_t *a, const int8_t *b, int8_t *o, {', '.join(f'int32_t {each}' for each in SCALARS)}",
        f"a, b, o, {', '.join(SCALARS)}",
    ),
    "window": (
        "const int8_t *a, const int8_t *b, const int32_t *t, const int32_t *m, const int8_t *s, int8_t *o, int32_t rows,"
        " int32_t columns, int32_t row, int32_t channels, int32_t z, int32_t l, int32_t h",
        "a, b, t, m, s, o, rows, columns, row, channels, z, l, h",
    ),
    "vector_copy": ("int8_t *target, const int8_t *source, int32_t size", "target, source, size"),
    "vector": ("const int8_t *a, const int8_t *b, int32_t *total, int32_t stride", "a, b, total, stride"),
    "requantize": (
        "const int32_t *t, const int32_t *b, const int32_t *m, const int8_t *s, int8_t *o, int32_t z, int32_t l, int32_t h",
        "t, b, m, s, o, z, l, h",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        "vector_dot4",
        "vector_run4",
        "vector_copy",
        "addition3",
        "addition4",
        "window8_up",
        "window8_away",
        "window3_up",
        "window1_away",
        *(f"requantize_{each}" for each in ("up2", "up3", "up4", "away3", "away4")),
    ],
)
def test_vectors_give_what_plain_c_gives(name: str, tmp_path: Path) -> None:
    board = find_board("mps3-an547")
    assert board is not None
    if problem := missing(board):
        pytest.skip(problem)
    text, _ = support(CPUS["cortex-m55"], f"inlaid_{name}(")
    assert "#include <arm_mve.h>" in text
    declared, arguments = LISTS[name if name in LISTS else name.split("_")[0].rstrip("12345678")]
    includes = "#include <stdint.h>\n#include <string.h>\n#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])\n"
    header = f"{includes}void vectors({declared});\nvoid plain({declared});\nint check(void);\n"
    check = CHECKS.get(name)
    if check is None:
        rounding = name.split("_")[1].rstrip("12345678")
        check = WINDOWS if name.startswith("window") else CHECK.replace("LANES", name[-1]).replace("ROUNDING", rounding)
        check = check.replace("LAST", "-1" if rounding == "away" else "0")
    without = "#undef __ARM_FEATURE_MVE\n#undef __ARM_FEATURE_SIMD32\n"
    files = {
        "check.h": header,
        "vectors.c": f'#include "check.h"\n{text}void vectors({declared}) {{ inlaid_{name}({arguments}); }}\n',
        "check.c": f'{without}#include "check.h"\n{text}void plain({declared}) {{ inlaid_{name}({arguments}); }}\n{check}',
    }
    source = Firmware({file: content.encode() for file, content in files.items()}, "check.h", (), (), "check()")
    assert run(source, build(source, board, tmp_path), board, []).status == 0


def test_layers_of_odd_shapes_give_the_bytes_of_the_reference() -> None:
    """Sums of one channel, whose weights and place of data are the same for each pixel, and tails."""
    board = find_board("mps3-an547")
    assert board is not None
    if problem := missing(board):
        pytest.skip(problem)
    rng = np.random.default_rng(3)

    def stored(total: Expr, count: int) -> Expr:
        bias, multiplier, shift = (rng.integers(*limits, count) for limits in ((-900, 900), (1 << 30, (1 << 31) - 1), (-11, -6)))
        total = ops.add(total, constant(bias.astype(np.int32).reshape(1, count, 1, 1)))
        scaled = ops.multiply_fixed(total, constant(multiplier.astype(np.int32)), constant(shift.astype(np.int32)), axis=1)
        return ops.cast(ops.clip(ops.add(scaled, constant(np.int32(-3))), minimum=-128.0, maximum=127.0), dtype="int8")

    def layer(x: Expr, count: int, window: tuple[int, int], groups: int = 1) -> Expr:
        channels = x.type.shape[1] // groups
        weights = rng.integers(-127, 128, (count, channels, *window)).astype(np.int8)
        conv = ops.conv(x, constant(weights), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1), groups=groups)
        return stored(conv, count)

    x = var("x", TensorType((1, 6, 5, 13), "int8"))
    value: Expr = ops.transpose(x, perm=(0, 3, 1, 2))
    for count, window, groups in ((13, (3, 2), 13), (9, (1, 1), 1), (9, (1, 1), 9), (1, (1, 1), 1)):
        value = layer(value, count, window, groups)
    model = Module({"main": function([x], ops.transpose(value, perm=(0, 2, 3, 1)))})
    data = rng.integers(-128, 128, (1, 6, 5, 13)).astype(np.int8)
    targets = ("microcontroller:cpu=cortex-m55,board=mps3-an547", "reference")
    actual, expected = (next(iter(compile_module(model, [target], keep=False).run({"x": data}).values())) for target in targets)
    np.testing.assert_array_equal(actual, expected)
