"""Merges programs that differ only in integer constants into one program that takes the constants as sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inlaid.tensor import ir
from inlaid.tensor.analysis.keys import parameter_types, structural_key
from inlaid.tensor.analysis.ranges import INT32
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.records import dataclass, replace

_DIVISION_OPS = ("div", "mod")
"""Operations whose constants stay in the program: division by a constant is strength-reduced to a multiplication."""


@dataclass(frozen=True)
class General:
    """A program that replaces several member programs. Its last inputs are `sizes`. `members` maps the number of each member to the
    values of these sizes for which the program is equivalent to the member."""

    program: ir.LoopProgram
    members: Mapping[int, tuple[int, ...]]


def generalize(programs: Sequence[ir.LoopProgram], max_parameters: int) -> list[General]:
    """Group programs that differ only in signed integers, in the order of the groups' first members. At most `max_parameters`
    integers may differ in a group: constants in values, or arguments of intrinsics (zero points, multipliers, shifts). Shapes,
    extents and indices are equal, so the loops run as fast as before. Takes time linear in the total size of the programs."""
    numbers_by_types: dict[object, list[int]] = {}
    for number, program in enumerate(programs):
        numbers_by_types.setdefault(parameter_types(program), []).append(number)
    groups: dict[object, list[tuple[int, _WithHoles]]] = {}
    generals: list[General] = []
    for numbers in numbers_by_types.values():
        if len(numbers) == 1:
            generals.append(General(programs[numbers[0]], {numbers[0]: ()}))
            continue
        for number in numbers:
            with_holes = _WithHoles(programs[number])
            groups.setdefault(structural_key(with_holes.program), []).append((number, with_holes))
    for group in groups.values():
        columns = list(zip(*(with_holes.values for _, with_holes in group), strict=True))
        parameters = list(dict.fromkeys(column for column in columns if len(set(column)) > 1))
        if len(group) == 1 or len(parameters) > max_parameters:
            generals += (General(programs[number], {number: ()}) for number, _ in group)
            continue
        sizes = {column: arith.SizeVar(f"k{position}", min(column), max(column)) for position, column in enumerate(parameters, 1)}
        hole_values: dict[arith.Expr, arith.Expr] = {
            _hole(position): sizes.get(column, arith.wrap(column[0])) for position, column in enumerate(columns)
        }
        program = Rewriter(hole_values, expr=_constant).program(group[0][1].program)
        program = replace(program, sizes=(*program.sizes, *sizes.values()))
        values = zip(*parameters, strict=True) if parameters else ((),) * len(group)
        generals.append(General(program, dict(zip((number for number, _ in group), values, strict=True))))
    return sorted(generals, key=lambda general: min(general.members))


class _WithHoles:
    """A copy of a program with a hole, a size variable, in place of each integer constant; `values` are these integers in order."""

    def __init__(self, program: ir.LoopProgram) -> None:
        self.values: list[int] = []
        self.program = Rewriter(expr=self._expr, stmt=self._stmt).program(program)

    def _expr(self, node: ir.Expr) -> ir.Expr | None:
        operands = ir.operands(node)
        if (isinstance(node, ir.Binary) and node.op in _DIVISION_OPS) or not any(isinstance(item, ir.Const) for item in operands):
            return None
        return ir.with_operands(node, tuple(map(self._open, operands)))

    def _stmt(self, stmt: ir.Stmt) -> ir.Stmt | None:
        match stmt:
            case ir.Store(value=ir.Const()):
                return replace(stmt, value=self._open(stmt.value))
            case ir.Intrinsic(args=args) if args:
                return replace(stmt, args=tuple(map(self._open, args)))
        return None

    def _open(self, value: ir.Expr) -> ir.Expr:
        if not isinstance(value, ir.Const) or value.dtype.kind != "int" or not INT32.limits[0] <= value.value <= INT32.limits[1]:
            return value
        self.values.append(int(value.value))
        return ir.Index(value.dtype, _hole(len(self.values) - 1))


def _hole(number: int) -> arith.SizeVar:
    return arith.SizeVar(f"#{number}", int(INT32.limits[0]))


def _constant(node: ir.Expr) -> ir.Expr | None:
    """Convert a hole filled with a constant to a constant value; None for other nodes."""
    match node:
        case ir.Index(index=arith.Const(value=value), dtype=dtype) if dtype.kind == "int":
            return ir.const(value, dtype)
    return None
