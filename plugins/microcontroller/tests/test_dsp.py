"""Functions made of DSP instructions give the integers of plain C that takes any sums and shifts, on an emulated board."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from inlaid_microcontroller.boards import ARM, INSTALL, find_board
from inlaid_microcontroller.boards.emulate import FLAGS, Firmware, build, missing, run
from inlaid_microcontroller.intrinsics import support
from inlaid_microcontroller.intrinsics.printed import EXACT
from inlaid_microcontroller.options import CPUS

RESCALE = """
#define COUNT(a) (int)(sizeof(a) / sizeof(a)[0])
static const int32_t multipliers[] = {0, 1, 1073741823, 1073741824, 1518500250, 2147483646, 2147483647};
int check(void) {
    int32_t sums[4 * 30];
    int count = 0, wrong = 0;
    for (int bit = 0; bit < 30; bit++) {
        const int32_t power = 1 << bit;
        sums[count++] = power;
        sums[count++] = -power;
        sums[count++] = power + (power >> 1);
        sums[count++] = bit == 0 ? 0 : bit % 2 ? 1 - power : power - 1;
    }
    for (int32_t m = 0; m < COUNT(multipliers); m++)
        for (int32_t shift = LAST; shift >= -22; shift--)
            for (int s = 0; s < count; s += 4) {
                const int32_t multiplier[4] = {multipliers[m], 1518500250, multipliers[m], 3};
                const int8_t shifts[4] = {(int8_t)shift, LAST, (int8_t)shift, -9};
                for (int32_t zero = -128; zero < 128; zero += 51) {
                    int8_t found[8] = {0}, wanted[8] = {0};
                    fast(&sums[s], multiplier, shifts, found, found + 4, zero, zero < 0 ? -128 : -100, 127);
                    plain(&sums[s], multiplier, shifts, wanted, wanted + 4, zero, zero < 0 ? -128 : -100, 127);
                    wrong += memcmp(found, wanted, sizeof found) != 0;
                }
            }
    return wrong != 0;
}
"""
TILE = """
int check(void) {
    int wrong = 0;
    for (int a = -128; a < 128; a++)
        for (int b = -128; b < 128; b++) {
            const int8_t data[25] = {0, (int8_t)a, (int8_t)b, -128, (int8_t)a, (int8_t)b, (int8_t)a, 127, (int8_t)-a, 3, -5, 7};
            const int8_t weights[33] = {0, (int8_t)b, 127, (int8_t)a, -128, 1, (int8_t)b, (int8_t)a, (int8_t)b, -9, 11, -13};
            int32_t found[4] = {a, b, INT32_MAX, INT32_MIN}, wanted[4] = {a, b, INT32_MAX, INT32_MIN};
            fast(data + 1, data + 5, weights + 1, found, 2);
            plain(data + 1, data + 5, weights + 1, wanted, 2);
            wrong += memcmp(found, wanted, sizeof found) != 0;
        }
    return wrong != 0;
}
"""


def _differs(
    text: str,
    functions: tuple[str, str],
    declared: str,
    calls: tuple[str, str],
    check: str,
    folder: Path,
    flags: Sequence[str] = FLAGS,
) -> int:
    """What `check` returns of a function that uses DSP and of one that does not, which are made of `calls`."""
    board = find_board("mps2-an386")
    assert board is not None
    if problem := missing(board):
        pytest.skip(problem)
    includes = "#include <stdint.h>\n#include <string.h>\n"
    fast, plain = (f"void {name}({declared}) {{ {call}; }}\n" for name, call in zip(functions, calls, strict=True))
    header = f"{includes}void fast({declared});\nvoid plain({declared});\nint check(void);\n"
    files = {
        "check.h": header,
        "fast.c": f'#include "check.h"\n{text}{fast}',
        "check.c": f'#undef __ARM_FEATURE_SIMD32\n#include "check.h"\n{text}{plain}{check}',
    }
    source = Firmware({file: content.encode() for file, content in files.items()}, "check.h", (), (), "check()")
    return run(source, build(source, board, folder, flags), board, []).status


@pytest.mark.parametrize(("rounding", "rows", "lanes"), [("up", 2, 2), ("away", 2, 2), ("up", 1, 4), ("away", 1, 1)])
def test_sums_are_rescaled_as_exactly_with_the_zero_point_added_before_the_shift(
    rounding: str, rows: int, lanes: int, tmp_path: Path
) -> None:
    name = f"rescale_{rounding}{rows}x{lanes}"
    declared = "const int32_t *t, const int32_t *m, const int8_t *s, int8_t *o, int8_t *p, int32_t z, int32_t l, int32_t h"
    arguments = f"t, m, s, o, {'p, ' if rows == 2 else ''}z, l, h"
    wide = f"(const int32_t[4]){{{', '.join(f's[{lane}]' for lane in range(4))}}}"
    calls = f"inlaid_{name}({arguments})", f"inlaid_{EXACT}{name}({arguments.replace(' s,', f' {wide},')})"
    text, _ = support(CPUS["cortex-m4"], " ".join(calls))
    check = RESCALE.replace("LAST", "-1" if rounding == "away" else "0")
    unused = "" if rows == 2 else "(void)p; "
    assert _differs(text, ("fast", "plain"), declared, (unused + calls[0], unused + calls[1]), check, tmp_path) == 0


@pytest.mark.parametrize("level", ["-O0", "-Og", "-O2", "-Os"])
def test_tiles_of_two_pixels_and_two_channels_are_summed_and_wrap(level: str, tmp_path: Path) -> None:
    """Compilers that do not optimize hold every address in a register of its own."""
    tiles = "".join(f"inlaid_tile(a + i * 8 + {n}, c + i * 8 + {n}, b + i * 16 + {2 * n}, &total[0]); " for n in (0, 4))
    call = f"int32_t total[4]; memcpy(total, t, 16); for (int32_t i = 0; i < n; i++) {{ {tiles}}} memcpy(t, total, 16)"
    text, _ = support(CPUS["cortex-m4"], call)
    assert "smlad" in text
    declared = "const int8_t *a, const int8_t *c, const int8_t *b, int32_t *t, int32_t n"
    flags = (*(flag for flag in FLAGS if not flag.startswith("-O")), level)
    assert _differs(text, ("fast", "plain"), declared, (call, call), TILE, tmp_path, flags) == 0


@pytest.mark.parametrize(("flags", "uses"), [
    (("-mcpu=cortex-m4", "-mthumb"), True),
    (("-mcpu=cortex-m4", "-mthumb", "-mno-unaligned-access"), False),
    (("-mcpu=cortex-r5", "-mbig-endian"), False),
    (("-mcpu=arm926ej-s",), False),
])  # fmt: skip
def test_dsp_is_for_processors_that_have_all_of_it(flags: tuple[str, ...], uses: bool, tmp_path: Path) -> None:
    """Others get plain C: where words are read at even places alone, or from their other end, or there are no pairs."""
    if shutil.which(ARM) is None:
        pytest.skip(f"{ARM} not found: {INSTALL}")
    source = tmp_path / "unit.c"
    caller = "void f(const int8_t *a, int32_t *t) { inlaid_tile(a, a + 1, a + 2, t); inlaid_dot4(a, a, t); }"
    text, _ = support(CPUS["cortex-m4"], caller)
    source.write_text(f"#include <stdint.h>\n#include <string.h>\n{text}{caller}\n")
    command = [ARM, *flags, "-std=c99", "-O2", "-Wall", "-Werror", "-S", "-o", "-", str(source)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert ("sxtb16" in printed) is uses
