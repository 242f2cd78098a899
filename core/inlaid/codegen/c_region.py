"""Print regions of loop programs as C: a starting point for loop-level plugins whose target has a C compiler."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from inlaid.codegen.c import address, region_source
from inlaid.codegen.c_indices import helpers, index_text
from inlaid.codegen.c_kernel import print_kernel, stored_type
from inlaid.tensor.region import Predicate, RegionBuffer, RegionProgram
from inlaid_runtime import arith
from inlaid_runtime.execution.c_source import cplusplus
from inlaid_runtime.execution.host import VIOLATION

_INCLUDES = "#include <math.h>\n#include <stdio.h>\n#include <string.h>\n"


def region_in_c(region: RegionProgram) -> bytes:
    """Print a region as C source that defines the function `region.name` (see `inlaid_runtime.execution.host`). Equal regions give
    equal bytes. Raises `Unsupported` for constructs that C lacks."""
    kernels = [print_kernel(kernel, f"kernel{number}") for number, kernel in enumerate(region.kernels)]
    entry = "\n".join(_entry(region, [kernel.checks for kernel in kernels]))
    code = "\n".join(kernel.text for kernel in kernels)
    return region_source(region.name, entry, f"{_INCLUDES}{cplusplus(code)}{helpers(code + entry)}\n{code}")


def _entry(region: RegionProgram, checks: Sequence[bool]) -> list[str]:
    """Print statements of the region's function, which call the kernels in order. `checks`: whether each kernel checks indices."""
    texts: dict[arith.Expr, str] = {arith.SizeVar(dim.name): f"dims[{number}]" for number, dim in enumerate(region.signature.dims)}
    bounds: dict[arith.Expr, arith.Expr] = {
        arith.SizeVar(dim.name): arith.wrap(dim.upper)
        for dim in region.signature.dims
        if dim.input is None and dim.upper is not None
    }

    def assigned(text: str) -> str:
        lines.append(f"    const int64_t size{len(lines)} = {text};")
        return f"size{len(lines) - 1}"

    def size(expr: arith.Dim) -> str:
        return index_text(arith.wrap(expr), texts.get, assigned, leaves=texts)

    def pointer(buffer: RegionBuffer) -> str:
        const = "const " if buffer.storage in ("input", "constant") else ""
        return f"({const}{stored_type(buffer.dtype)} *){address(buffer, size(arith.substitute(arith.wrap(buffer.offset), bounds)))}"

    def holds(predicate: Predicate) -> str:
        negated = "" if predicate.holds else "!"
        if isinstance(predicate.condition, arith.Expr):
            return f"{negated}({size(predicate.condition)})"
        return f"{negated}*(const uint8_t *){pointer(region.buffers[predicate.condition])}"

    lines: list[str] = []
    # Offsets share these subexpressions.
    for maximum in _maxima(region, bounds):
        lines.append(f"    const int64_t end{len(lines)} = {size(maximum)};")
        texts[maximum] = f"end{len(lines) - 1}"
    violation = VIOLATION
    for call in region.calls:
        name = region.kernels[call.kernel].name
        buffers = [pointer(region.buffers[number]) for number in (*call.inputs, *call.outputs)]
        arguments = [*buffers, *(f"&{texts[variable]}" for variable in call.defines), *map(size, call.sizes)]
        guarded_call = [*map(holds, call.predicates), f"kernel{call.kernel}({', '.join(arguments)})"]
        if checks[call.kernel]:
            location = f" at {', '.join(call.nodes)}" if call.nodes else ""
            lines += _failing(" && ".join(guarded_call), f"an index is out of range in kernel {name}{location}", 1)
        else:
            guard = f"if ({' && '.join(guarded_call[:-1])}) " if call.predicates else ""
            lines.append(f"    {guard}{guarded_call[-1]};")
        for check in call.checks:
            lines += _failing(f"!({size(check.condition)})", check.statement, violation)
            violation -= 1
    return lines


def _failing(condition: str, message: str, code: int) -> list[str]:
    """Print a return of an error code with a message if a condition holds."""
    return [
        f"    if ({condition}) {{",
        f'        snprintf(context->message, sizeof context->message, "%s", {json.dumps(message)});',
        f"        return {code};\n    }}",
    ]


def _maxima(region: RegionProgram, bounds: Mapping[arith.Expr, arith.Expr]) -> list[arith.Expr]:
    """Collect the `max` expressions in the offsets of used buffers, inner expressions first."""
    buffer_numbers = dict.fromkeys(number for call in region.calls for number in (*call.reads, *call.outputs))
    maxima: dict[arith.Expr, None] = {}
    visited: set[arith.Expr] = set()
    stack = [(arith.substitute(arith.wrap(region.buffers[number].offset), bounds), False) for number in buffer_numbers]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            maxima[node] = None
        elif isinstance(node, arith.Max):
            if node not in visited:
                visited.add(node)
                stack += [(node, True), *((operand, False) for operand in node.operands)]
        else:
            stack += ((operand, False) for operand in node.operands)
    return list(maxima)
