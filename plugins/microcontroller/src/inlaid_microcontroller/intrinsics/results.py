"""Intrinsics that compute int8 results: requantized sums, requantized sums over depthwise windows, and sums of two tensors."""

from __future__ import annotations

from collections.abc import Iterator

from inlaid_microcontroller.intrinsics.mve import addition_lines, requantized_lines, window_lines
from inlaid_microcontroller.intrinsics.printed import EXACT, GROUP, Printed, indent_lines
from inlaid_microcontroller.schedules.addition import RAISED, SCALARS, addition
from inlaid_microcontroller.schedules.requantize import ROUNDINGS, requantization, rescaling
from inlaid_microcontroller.schedules.vector_depthwise import LANES as CHANNELS
from inlaid_microcontroller.schedules.vector_depthwise import SCALARS as LIMITS
from inlaid_microcontroller.unit import PREFIX


def results(exact: bool) -> Iterator[Printed]:
    """Yield all result intrinsics. exact: yield the versions that accept sums and shifts of any size."""
    for rounding in ROUNDINGS:
        for lanes in range(1, GROUP + 1):
            yield _requantize(lanes, rounding, exact)
            yield _rescale(1, lanes, rounding, exact)
        yield _rescale(2, 2, rounding, exact)
    for lanes in range(1, GROUP + 1):
        yield _addition(lanes)
    for rounding in ROUNDINGS:
        for lanes in range(1, CHANNELS + 1):
            yield _window(lanes, rounding, exact)


def _requantize(lanes: int, rounding: str, exact: bool) -> Printed:
    """Define the requantization of sums to int8."""
    name, kind = f"requantize_{rounding}{lanes}", EXACT if exact else ""
    head = [
        f"INLAID_INLINE void {PREFIX}{kind}{name}(const int32_t *total, const int32_t *bias, const int32_t *multiplier,",
        f"    const {_shift_type(exact)} *shift, int8_t *out, int32_t zero, int32_t low, int32_t high) {{",
    ]
    lines = list(head)
    for lane in range(lanes):
        total = f"total[{lane}] + bias[{lane}]"
        # Sums that may be large wrap.
        total = f"(int32_t)((uint32_t)total[{lane}] + (uint32_t)bias[{lane}])" if exact else total
        lines.append(f"    const int32_t v{lane} = {PREFIX}{kind}{rounding}({total}, multiplier[{lane}], shift[{lane}]) + zero;")
    lines += [f"    out[{lane}] = inlaid_within(v{lane}, low, high);" for lane in range(lanes)]
    vectors = indent_lines([*head, *requantized_lines(lanes, rounding)]) if lanes > 1 and not exact else ""
    return Printed(name, requantization(lanes, rounding), indent_lines(lines), exact=exact, mve=vectors)


def _rescale(rows: int, lanes: int, rounding: str, exact: bool) -> Printed:
    """Define the requantization to int8 of sums that were initialized with their biases."""
    name, kind = f"rescale_{rounding}{rows}x{lanes}", EXACT if exact else ""
    outs = ", ".join(f"int8_t *out{row}" for row in range(rows))
    lines = [
        f"INLAID_INLINE void {PREFIX}{kind}{name}(const int32_t *total, const int32_t *multiplier,",
        f"    const {_shift_type(exact)} *shift,",
        f"    {outs}, int32_t zero, int32_t low, int32_t high) {{",
    ]
    places = [(row, lane) for lane in range(lanes) for row in range(rows)]
    for lane in range(lanes):
        lines.append(f"    const int32_t m{lane} = multiplier[{lane}], s{lane} = shift[{lane}];")
        lines += [] if exact else [f"    const int32_t h{lane} = {PREFIX}half(zero, s{lane});"]
    for row, lane in places:
        total = f"total[{row * lanes + lane}]"
        if exact:
            value = f"{PREFIX}{EXACT}{rounding}({total}, m{lane}, s{lane}) + zero"
        else:
            added = f"h{lane} + ({total} >> 31)" if rounding == "away" else f"h{lane}"
            value = f"{PREFIX}upper({total}, m{lane}, {added}) >> -s{lane}"
        lines.append(f"    const int32_t v{row}{lane} = {value};")
    lines += [f"    out{row}[{lane}] = inlaid_within(v{row}{lane}, low, high);" for row, lane in places]
    return Printed(name, rescaling(rows, lanes, rounding), indent_lines(lines), exact=exact, scalar=True)


def _addition(lanes: int) -> Printed:
    """Define the addition of two quantized tensors. Scaled values stay below 2^30, so nothing saturates."""
    scalars = ", ".join(f"int32_t {name}" for name in SCALARS)
    head = f"INLAID_INLINE void {PREFIX}addition{lanes}(const int8_t *a, const int8_t *b, int8_t *out, {scalars}) {{"
    plain, away = [head, f"    for (int32_t i = 0; i < {lanes}; i++) {{"], f"{PREFIX}{EXACT}away"
    for side in "ab":
        raised = f"({side}[i] - zero_{side}) * {1 << RAISED}"
        plain.append(f"        const int32_t {side}_scaled = {away}({raised}, multiplier_{side}, shift_{side});")
    plain.append(f"        const int32_t value = {away}(a_scaled + b_scaled, multiplier, shift) + zero;")
    plain += ["        out[i] = inlaid_within(value, low, high);", "    }"]
    return Printed(
        f"addition{lanes}", addition(lanes), indent_lines(plain), mve=indent_lines([head, *addition_lines(lanes)]), vector=True
    )


def _window(lanes: int, rounding: str, exact: bool) -> Printed:
    """Define the requantized sums over a depthwise window."""
    name, kind = f"window{lanes}_{rounding}", EXACT if exact else ""
    head = [
        f"INLAID_INLINE void {PREFIX}{kind}{name}(const int8_t *a, const int8_t *b, const int32_t *bias,",
        f"    const int32_t *multiplier, const {_shift_type(exact)} *shift, int8_t *out,",
        "    int32_t rows, int32_t columns, int32_t row, int32_t channels,",
        f"    {', '.join(f'int32_t {scalar}' for scalar in LIMITS)}) {{",
    ]
    total = "(int32_t)((uint32_t)total + (uint32_t)bias[i])" if exact else "total + bias[i]"
    plain = [
        *head,
        f"    for (int32_t i = 0; i < {lanes}; i++) {{",
        "        int32_t total = 0;",
        "        for (int32_t y = 0; y < rows; y++) {",
        "            for (int32_t x = 0; x < columns; x++) {",
        "                total += a[y * row + x * channels + i] * b[(y * columns + x) * channels + i];",
        "            }",
        "        }",
        f"        out[i] = inlaid_within({PREFIX}{kind}{rounding}({total}, multiplier[i], shift[i]) + zero, low, high);",
        "    }",
    ]
    return Printed(
        name, None, indent_lines(plain), exact=exact, mve="" if exact else indent_lines([*head, *window_lines(lanes, rounding)])
    )


def _shift_type(exact: bool) -> str:
    return "int32_t" if exact else "int8_t"
