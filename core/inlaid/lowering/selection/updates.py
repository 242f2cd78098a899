"""Find the calls of a region that can update their first argument in place.

An operator that changes some elements of its first argument, such as a scatter, can update the argument in place if nothing reads
it afterwards. Caches, loop states and histograms are then never copied. A parameter of the region may be updated if it is returned
as a result: the caller then provides one buffer for both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from inlaid import ops
from inlaid.graph import ir as graph
from inlaid.graph.operator import Operator
from inlaid.lowering.selection.branches import Arms

Exchange = Callable[[int, int], bool]
"""Predicate on (result number, parameter number): whether the region's result may reuse the parameter's buffer."""

_PARTS = (ops.strided_slice, ops.transpose, ops.concat)
"""Operators whose results may share memory with their arguments at other positions."""


@dataclass
class _Group:
    """Values that may share memory. `reads` are the positions of their readers. `full_overlap`: every value covers all of the
    memory in the same order."""

    members: list[int]
    reads: list[int] = field(default_factory=list)
    full_overlap: bool = True


def in_place_calls(function: graph.Function, exprs: Sequence[tuple[graph.Expr, Arms]], exchange: Exchange) -> frozenset[int]:
    """Return the ids of the calls that may run in place. `exprs` are the expressions of the function's body in execution order."""
    analysis = _Analysis(function, exprs, exchange)
    answers: dict[int, bool] = {}
    for call in reversed(analysis.candidates):
        answers[id(call)] = analysis.keeps_input(call, answers)
    return frozenset(number for number, fits in answers.items() if fits)


class _Analysis:
    def __init__(self, function: graph.Function, exprs: Sequence[tuple[graph.Expr, Arms]], exchange: Exchange) -> None:
        body = function.body
        self.results = [id(item) for item in (body.fields if isinstance(body, graph.Tuple) else (body,))]
        self.params = {id(param): number for number, param in enumerate(function.params)}
        self.types = [param.type for param in function.params]
        self.exchange = exchange
        self.candidates: list[graph.Call] = []
        self.sources: dict[int, int | None] = {}
        self.readers: dict[int, list[graph.Expr]] = {}
        self._groups: dict[int, _Group] = {id(param): _Group([id(param)]) for param in function.params}
        reads: dict[int, list[int]] = {}
        for position, (expr, _) in enumerate(exprs):
            for child in _operands(expr):
                reads.setdefault(id(child), []).append(position)
                self.readers.setdefault(id(child), []).append(expr)
        reads.setdefault(id(body), []).append(len(exprs))
        for number, group in self._groups.items():
            group.reads = list(reads.get(number, ()))
        for position, (expr, arms) in enumerate(exprs):
            updates = isinstance(expr, graph.Call) and isinstance(expr.callee, Operator) and expr.callee.update is not None
            if updates and not arms and self._last_reader(expr, position):
                assert isinstance(expr, graph.Call)
                self.candidates.append(expr)
                self.sources[id(expr)] = self._param(expr.args[0])
            else:
                updates = False
            self._add(expr, reads.get(id(expr), []), updates)

    def keeps_input(self, call: graph.Call, later: dict[int, bool]) -> bool:
        """Test whether a candidate updates no parameter of the region, or a parameter whose buffer the final result may reuse.
        Parameter and result must have equal types, since the plan has one value for both, even if the call updates a view of
        another shape. `later` holds the answers for later candidates."""
        param = self.sources[id(call)]
        if param is None:
            return True
        if id(call) in self.results:
            is_single_result, has_same_type = self.results.count(id(call)) == 1, call.type == self.types[param]
            return is_single_result and has_same_type and self.exchange(self.results.index(id(call)), param)
        match self.readers.get(id(call), []):
            case [graph.Call() as reader]:
                return later.get(id(reader), False) and reader.args[0] is call
        return False

    def _last_reader(self, call: graph.Expr, position: int) -> bool:
        """Test whether a call is the last reader of its first argument's memory: no value in that memory is read after the call or
        is another argument of the call."""
        assert isinstance(call, graph.Call)
        group = self._groups.get(id(call.args[0]))
        other_args = {id(arg) for arg in call.args[1:]}
        return (
            group is not None
            and group.full_overlap
            and max(group.reads, default=position) <= position
            and other_args.isdisjoint(group.members)
        )

    def _param(self, expr: graph.Expr) -> int | None:
        """Find the parameter that shares memory with an expression; None if no parameter does."""
        return next((self.params[member] for member in self._groups[id(expr)].members if member in self.params), None)

    def _add(self, expr: graph.Expr, reads: Collection[int], updates: bool) -> None:
        """Add an expression to the group of the values that it shares memory with."""
        if isinstance(expr, graph.Constant):
            return  # weights are never updated, so constants have no group
        sharing_operands, full_overlap = _shared(expr, updates)
        group = _Group([id(expr)], list(reads), full_overlap)
        for other in {
            id(operand_group): operand_group
            for item in sharing_operands
            if (operand_group := self._groups.get(id(item))) is not None
        }.values():
            group = _Group(group.members + other.members, group.reads + other.reads, group.full_overlap and other.full_overlap)
        if any(id(item) not in self._groups for item in sharing_operands):
            group.full_overlap = False
        for member in group.members:
            self._groups[member] = group


def _operands(expr: graph.Expr) -> Sequence[graph.Expr]:
    return expr.args if isinstance(expr, graph.Call) else graph.children(expr)


def _shared(expr: graph.Expr, updates: bool) -> tuple[Sequence[graph.Expr], bool]:
    """Return the operands that may share memory with an expression, and whether they do so at equal positions."""
    match expr:
        case graph.Call(callee=Operator() as operator, args=args):
            if updates or operator.traits.view:
                return args[:1], True
            return (args, False) if operator in _PARTS else ((), True)
        case graph.Call() | graph.Var():
            return (), True
    return graph.children(expr), False
