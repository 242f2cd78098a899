"""Merges conversions at region borders into regions of the same target that compute or read the converted value.

A model in NHWC transposes each value before and after the NCHW operators of a region, and a conversion to a blocked layout
transposes it again. In one region, such transposes compose, and often cancel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from inlaid.graph import ir
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.scopes import Scopes, analyse
from inlaid.graph.transform import map_functions, substitute, transform_function
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.outline import call_by_name
from inlaid.passes.compose_moves import compose_moves
from inlaid.plugins import Accept
from inlaid_runtime.records import dataclass, field


def merge_conversions(
    module: ir.Module,
    targets: Mapping[str, int],
    conversions: Collection[str],
    bordered: Collection[str],
    candidates: Sequence[Candidate],
) -> ir.Module:
    """Merge each of the regions `conversions` into the region that computes its operand, or into the only region that reads its
    result, if that region has the same target and scope, and is not among those in `bordered`. `targets` has the target numbers of
    all regions. Regions of control flow, and regions that several calls run, stay as they are."""
    call_counts: dict[str, int] = {}
    for expr in ir.post_order(*module.functions.values()):
        if isinstance(expr, ir.Call) and isinstance(expr.callee, ir.GlobalVar):
            call_counts[expr.callee.name] = call_counts.get(expr.callee.name, 0) + 1
    receivers = {
        name
        for name in targets
        if call_counts.get(name) == 1 and name not in bordered and name not in conversions and _is_straight(module[name])
    }
    merger = _Merger(module, targets, conversions, receivers, candidates)
    functions = dict(map_functions(module, merger.merge).functions)
    functions.update(merger.functions)
    called_names = {
        expr.name for function in functions.values() for expr in ir.post_order(function) if isinstance(expr, ir.GlobalVar)
    }
    return ir.Module({name: function for name, function in functions.items() if name not in conversions or name in called_names})


def _is_straight(function: ir.Function) -> bool:
    """Test whether a region consists of operators and composites, and returns a tuple of values that it computes."""
    control = (ir.If, ir.Loop, ir.Let)
    return isinstance(function.body, ir.Tuple) and not any(isinstance(expr, control) for expr in ir.in_order(function.body))


@dataclass
class _Merge:
    """The conversions that become a part of the region of one call. `inputs` has conversions of operands by position; `outputs` has
    conversions of results, each with the position of the result. `results` are the positions of the results that are also read
    unconverted."""

    inputs: dict[int, ir.Call] = field(default_factory=dict)
    outputs: list[tuple[int, ir.Call]] = field(default_factory=list)
    results: list[int] = field(default_factory=list)


@dataclass
class _Merger:
    """Rewrites functions that call regions. `functions` has the merged regions."""

    module: ir.Module
    targets: Mapping[str, int]
    conversions: Collection[str]
    receivers: Collection[str]
    candidates: Sequence[Candidate]
    functions: dict[str, ir.Function] = field(default_factory=dict)

    def merge(self, function: ir.Function) -> ir.Function:
        """Merge the conversions that a function calls."""
        merges = self._accept(self._merges(function))
        if not merges:
            return function
        replacements: dict[int, ir.Expr] = {}

        def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
            if isinstance(new, ir.TupleItem) and isinstance(new.tuple, ir.Tuple):
                return new.tuple.fields[new.index]
            if id(old) in replacements:
                return replacements[id(old)]
            merge = merges.get(id(old))
            if merge is None:
                return new
            assert isinstance(new, ir.Call) and isinstance(new.callee, ir.GlobalVar)
            args = [_operand(arg) if number in merge.inputs else arg for number, arg in enumerate(new.args)]
            call = call_by_name(new.callee.name, self.functions[new.callee.name], args)
            call = ir.Call(call.type, new.span, call.callee, call.args, Attrs())
            for number, (_, conversion) in enumerate(merge.outputs, len(merge.results)):
                replacements[id(conversion)] = ir.tuple_([ir.tuple_item(call, number)])
            # Only merged conversions read the other results, and they are replaced.
            items = {position: ir.tuple_item(call, number) for number, position in enumerate(merge.results)}
            return ir.tuple_([items.get(number, ir.tuple_item(new, number)) for number in range(len(_results(new)))])

        return transform_function(function, visit)

    def _merges(self, function: ir.Function) -> dict[int, tuple[ir.Call, _Merge]]:
        """Find the conversions to merge at each call, by the call's id."""
        readers: dict[int, list[ir.Expr]] = {}
        for expr in ir.post_order(function):
            for child in ir.children(expr):
                readers.setdefault(id(child), []).append(expr)
        scopes = analyse(function)
        merges: dict[int, tuple[ir.Call, _Merge]] = {}
        for expr in ir.post_order(function):
            if not isinstance(expr, ir.Call) or _callee(expr) not in self.conversions:
                continue
            (value,) = expr.args
            source, (reader, position) = _source(value), _only_reader(expr, readers)
            if isinstance(value, ir.TupleItem) and source is not None and self._can_receive(source, expr, scopes):
                merges.setdefault(id(source), (source, _Merge()))[1].outputs.append((value.index, expr))
            elif reader is not None and self._can_receive(reader, expr, scopes):
                merges.setdefault(id(reader), (reader, _Merge()))[1].inputs[position] = expr
        for call, merge in merges.values():
            outputs = {id(conversion) for _, conversion in merge.outputs}
            items = [expr for expr in readers[id(call)] if isinstance(expr, ir.TupleItem)]
            positions = {item.index for item in items if any(id(reader) not in outputs for reader in readers[id(item)])}
            merge.results += sorted(positions if len(items) == len(readers[id(call)]) else range(len(_results(call))))
        return merges

    def _can_receive(self, call: ir.Call, conversion: ir.Call, scopes: Scopes) -> bool:
        name = _callee(call)
        is_on_target = name in self.receivers and self.targets[name] == self.targets[_callee(conversion)]
        return is_on_target and scopes.expr_scopes[id(call)] is scopes.expr_scopes[id(conversion)]

    def _accept(self, merges: Mapping[int, tuple[ir.Call, _Merge]]) -> dict[int, _Merge]:
        """Build the merged regions. Returns the merges whose operators the region's target accepts."""
        accepted_merges = {}
        for key, (call, merge) in merges.items():
            name = _callee(call)
            function = self._merged_function(self.module[name], merge)
            old_ids = {id(expr) for expr in ir.post_order(self.module[name])}
            new_calls = [expr for expr in ir.in_order(function.body) if isinstance(expr, ir.Call) and id(expr) not in old_ids]
            judge = self.candidates[self.targets[name]].judge
            if all(isinstance(judge(expr), Accept) for expr in new_calls if isinstance(expr.callee, Operator)):
                self.functions[name] = function
                accepted_merges[key] = merge
        return accepted_merges

    def _merged_function(self, function: ir.Function, merge: _Merge) -> ir.Function:
        params = list(function.params)
        values: dict[ir.Var, ir.Expr] = {}
        for position, call in merge.inputs.items():
            old = params[position]
            params[position] = ir.var(old.name, call.args[0].type, span=old.span)
            values[old] = self._convert(call, params[position])
        body = substitute(function.body, values)
        assert isinstance(body, ir.Tuple)
        results = [body.fields[position] for position in merge.results]
        results += [self._convert(call, body.fields[position]) for position, call in merge.outputs]
        return compose_moves(ir.function(params, ir.tuple_(results), function.attrs, constraints=function.constraints))

    def _convert(self, call: ir.Call, value: ir.Expr) -> ir.Expr:
        """Apply a conversion to a value."""
        function = self.module[_callee(call)]
        (param,) = function.params
        assert isinstance(function.body, ir.Tuple)
        return substitute(function.body.fields[0], {param: value})


def _callee(call: ir.Call) -> str:
    return call.callee.name if isinstance(call.callee, ir.GlobalVar) else ""


def _results(call: ir.Call) -> tuple[object, ...]:
    return call.type.fields  # type: ignore[attr-defined, no-any-return]


def _source(value: ir.Expr) -> ir.Call | None:
    """Return the call of which a value is a result."""
    return value.tuple if isinstance(value, ir.TupleItem) and isinstance(value.tuple, ir.Call) else None


def _operand(value: ir.Expr) -> ir.Expr:
    """Return the operand of the conversion of which a value is the result."""
    call = _source(value)
    assert call is not None
    return call.args[0]


def _only_reader(conversion: ir.Call, readers: Mapping[int, list[ir.Expr]]) -> tuple[ir.Call | None, int]:
    """Return the call that alone reads the result of a conversion, and the position of the operand; None if others read it."""
    items = readers.get(id(conversion), [])
    users = readers.get(id(items[0]), []) if len(items) == 1 else []
    if len(users) != 1 or not isinstance(users[0], ir.Call):
        return None, 0
    positions = [number for number, arg in enumerate(users[0].args) if arg is items[0]]
    return (users[0], positions[0]) if len(positions) == 1 else (None, 0)
