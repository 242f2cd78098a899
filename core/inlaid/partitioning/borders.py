"""Inserts conversions at region borders for the storage forms that targets ask for.

A code generator may ask for an input or a result in another layout, or as integers with a scale. A separate conversion region then
converts the value. Between regions that use the same form, no conversion is inserted. A conversion on the target of a neighboring
region becomes a part of that region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.transform import map_functions, substitute, transform
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.merge import merge_conversions
from inlaid.partitioning.outline import REGION_TARGET, Partitioned
from inlaid.passes.compose_moves import compose_chain
from inlaid.plugins import Accept, Border, Borders, Region, Target
from inlaid_runtime.errors import CompileError, PluginError
from inlaid_runtime.records import dataclass, field, replace
from inlaid_runtime.types import FunctionType, TensorType, TupleType, Type, dtype

PLAIN = Border()


@dataclass(frozen=True)
class Bordered:
    """A partitioned module whose region functions take and return stored forms. For each region that asks for storage forms,
    `borders_by_region` has its borders and `inside` its original function."""

    partitioned: Partitioned
    borders_by_region: dict[str, Borders]
    inside: dict[str, ir.Function]

    def region(self, name: str, function: ir.Function, target: Target) -> Region:
        """Create a region with its borders and its original function."""
        return Region(name, self.inside.get(name, function), target, self.borders_by_region.get(name))


def with_borders(
    partitioned: Partitioned, candidates: Sequence[Candidate], ask: Callable[[str, ir.Function, int], Borders | None]
) -> Bordered:
    """Insert conversions where regions ask for storage forms. `ask(name, function, target)` returns the borders of a region. Raises
    `CompileError` if no target accepts a conversion."""
    module = partitioned.module
    borders = {
        name: border_request for name, target in partitioned.regions.items() if (border_request := ask(name, module[name], target))
    }
    if not borders:
        return Bordered(partitioned, {}, {})
    inside = {name: module[name] for name in borders}
    converter = _Converter(candidates, borders)
    functions = dict(map_functions(module, converter.convert).functions)
    functions.update({name: stored_function(function, borders[name]) for name, function in inside.items()})
    called_names = {
        expr.name for function in functions.values() for expr in ir.post_order(function) if isinstance(expr, ir.GlobalVar)
    }
    functions.update({name: function for name, function in converter.functions.items() if name in called_names})
    regions = {**partitioned.regions, **{name: target for name, target in converter.targets.items() if name in called_names}}
    merged = merge_conversions(ir.Module(functions), regions, converter.functions, borders, candidates)
    regions = {name: target for name, target in regions.items() if name in merged.functions}
    return Bordered(replace(partitioned, module=merged, regions=regions), borders, inside)


def check_borders(function: ir.Function, borders: Borders) -> None:
    """Raise `PluginError` for borders that do not fit a region's function."""
    results = function.body.type
    assert isinstance(results, TupleType)
    if len(borders.inputs) != len(function.params) or len(borders.outputs) != len(results.fields):
        actual = f"{len(borders.inputs)} inputs and {len(borders.outputs)} outputs"
        raise PluginError(f"expected borders of {len(function.params)} inputs and {len(results.fields)} outputs, got {actual}")
    for type_, border in zip(
        (*(p.type for p in function.params), *results.fields), (*borders.inputs, *borders.outputs), strict=True
    ):
        _stored_type(type_, border)


def stored_function(function: ir.Function, borders: Borders) -> ir.Function:
    """Build a region's function on stored forms: decode the inputs, compute, encode the results."""
    params = [ir.var(p.name, _stored_type(p.type, b), span=p.span) for p, b in zip(function.params, borders.inputs, strict=True)]
    decoded = [decode(new, old.type, border) for old, new, border in zip(function.params, params, borders.inputs, strict=True)]
    body = substitute(function.body, dict(zip(function.params, decoded, strict=True)))
    parts = [encode(ir.tuple_item(body, number), border) for number, border in enumerate(borders.outputs)]
    return ir.function(params, ir.tuple_(parts), function.attrs)


def encode(expr: ir.Expr, border: Border) -> ir.Expr:
    """Convert a tensor to its stored form at a border."""
    if border.scale:
        zero_point = np.array(border.zero_point, dtype(border.dtype).numpy)
        expr = ops.quantize(expr, ir.constant(np.float32(border.scale)), ir.constant(zero_point), dtype=border.dtype)
    inner_axes: dict[int, int] = {}
    for axis, factor in border.layout.blocks:
        dimension = inner_axes.get(axis, axis)
        shape = _shape(expr.type, dimension)
        padding = -shape[dimension] % factor
        if padding:
            fill = ir.constant(np.array(border.zero_point, _tensor(expr.type).dtype.numpy))
            pads = tuple(padding if dim == len(shape) + dimension else 0 for dim in range(2 * len(shape)))
            expr = ops.pad(expr, fill, pads=pads)
        outer = (shape[dimension] + padding) // factor
        blocked = ops.reshape(expr, shape=(*shape[:dimension], outer, factor, *shape[dimension + 1 :]))
        outer_axes = [dim for dim in range(len(shape) + 1) if dim != dimension + 1]
        expr = blocked if dimension + 1 == len(shape) else ops.transpose(blocked, perm=(*outer_axes, dimension + 1))
        inner_axes[axis] = len(shape)
    return expr


def decode(expr: ir.Expr, type_: Type, border: Border) -> ir.Expr:
    """Convert a stored form at a border back to a tensor. The inverse of `encode`."""
    inner_axes: dict[int, int] = {}
    shapes = [_tensor(type_).shape]
    for axis, factor in border.layout.blocks:
        dimension = inner_axes.get(axis, axis)
        shape = shapes[-1]
        extent = shape[dimension]
        assert isinstance(extent, int)
        inner_axes[axis] = len(shape)
        shapes.append((*shape[:dimension], -(-extent // factor), *shape[dimension + 1 :], factor))
    for number in reversed(range(len(border.layout.blocks))):
        axis, factor = border.layout.blocks[number]
        earlier_blocks = [block for block, (other, _) in enumerate(border.layout.blocks[:number]) if other == axis]
        dimension = len(shapes[0]) + earlier_blocks[-1] if earlier_blocks else axis
        shape, stored_shape = shapes[number], shapes[number + 1]
        outer, extent = stored_shape[dimension], shape[dimension]
        assert isinstance(outer, int) and isinstance(extent, int)
        perm = (*range(dimension + 1), len(shape), *range(dimension + 1, len(shape)))
        ordered = expr if perm == tuple(range(len(perm))) else ops.transpose(expr, perm=perm)
        expr = ops.reshape(ordered, shape=(*shape[:dimension], outer * factor, *shape[dimension + 1 :]))
        pad_after = extent - outer * factor
        if pad_after:
            pads = tuple(pad_after if dim == len(shape) + dimension else 0 for dim in range(2 * len(shape)))
            expr = ops.pad(expr, ir.constant(np.zeros((), _tensor(expr.type).dtype.numpy)), pads=pads)
    if border.scale:
        zero_point = np.array(border.zero_point, dtype(border.dtype).numpy)
        scale = ir.constant(np.float32(border.scale))
        expr = ops.dequantize(expr, scale, ir.constant(zero_point), dtype=_tensor(type_).dtype.name)
    return expr


def _stored_type(type_: Type, border: Border) -> Type:
    return type_ if border == PLAIN else stored_type(_tensor(type_), border)


def stored_type(tensor: TensorType, border: Border) -> TensorType:
    """Return the type of a tensor's buffer at a border. Raises `PluginError` for a border that does not fit the tensor."""
    if border.scale and not tensor.dtype.is_float:
        raise PluginError(f"a border with a scale needs a float tensor, got {tensor!r}")
    for axis, _ in border.layout.blocks:
        _shape(tensor, axis)
    return TensorType(border.layout.shape(tensor.shape), border.dtype if border.scale else tensor.dtype)


def _tensor(type_: Type) -> TensorType:
    if not isinstance(type_, TensorType):
        raise PluginError(f"a border needs a tensor, got {type_!r}")
    return type_


def _shape(type_: Type, axis: int) -> tuple[int, ...]:
    """Return the shape of a tensor that is split into blocks along `axis`. Only other axes may be symbolic."""
    shape = _tensor(type_).shape
    if axis >= len(shape) or not isinstance(shape[axis], int):
        raise PluginError(f"a border with blocks along axis {axis} requires a static size of the axis, got {type_!r}")
    return shape  # type: ignore[return-value]


@dataclass
class _Converter:
    """Rewrites functions that call regions. `stored` maps the id of a value to its border and the region result that it was decoded
    from; `conversions` has the existing conversions, for reuse."""

    candidates: Sequence[Candidate]
    borders: dict[str, Borders]
    functions: dict[str, ir.Function] = field(default_factory=dict)
    targets: dict[str, int] = field(default_factory=dict)
    stored: dict[int, tuple[ir.Expr, Border]] = field(default_factory=dict)
    conversions: dict[tuple[int, Border], tuple[ir.Expr, ir.Expr]] = field(default_factory=dict)

    def convert(self, function: ir.Function) -> ir.Function:
        """Rewrite a function so that its regions take and return stored forms."""
        changed = transform(function, self._visit)
        assert isinstance(changed, ir.Function)
        return changed

    def _visit(self, old: ir.Expr, new: ir.Expr) -> ir.Expr:
        match new:
            case ir.TupleItem(tuple=ir.Tuple(fields=fields), index=index):
                return fields[index]
            case ir.Call(callee=ir.GlobalVar(name=name)) if name in self.borders:
                return self._call(new, self.borders[name], name)
        return new

    def _call(self, call: ir.Call, borders: Borders, name: str) -> ir.Expr:
        assert isinstance(call.type, TupleType)
        args = tuple(self._to_stored(arg, border) for arg, border in zip(call.args, borders.inputs, strict=True))
        results = zip(call.type.fields, borders.outputs, strict=True)
        type_ = TupleType(tuple(_stored_type(field, border) for field, border in results))
        callee = ir.global_var(name, FunctionType(tuple(arg.type for arg in args), type_))
        stored_call = ir.Call(type_, call.span, callee, args, Attrs())
        return ir.tuple_(
            [self._from_stored(ir.tuple_item(stored_call, n), call.type.fields[n], b) for n, b in enumerate(borders.outputs)]
        )

    def _to_stored(self, value: ir.Expr, border: Border) -> ir.Expr:
        """Convert a value to a border's stored form."""
        source, stored_border = self.stored.get(id(value), (value, PLAIN))
        if stored_border == border:
            return source
        if border == PLAIN:
            return value
        return self._region(source, border, lambda param: encode(decode(param, value.type, stored_border), border))

    def _from_stored(self, result: ir.Expr, type_: Type, border: Border) -> ir.Expr:
        """Convert the stored form at a border to a value."""
        if border == PLAIN:
            return result
        value = self._region(result, PLAIN, lambda param: decode(param, type_, border))
        self.stored[id(value)] = (result, border)
        return value

    def _region(self, value: ir.Expr, border: Border, convert: Callable[[ir.Var], ir.Expr]) -> ir.Expr:
        """Convert a value in a region of the first target that accepts the conversion."""
        key = (id(value), border)
        if key not in self.conversions:
            param = ir.var("x", value.type)
            body = compose_chain(convert(param))
            target = self._accepting_target(body)
            name = f"border{len(self.functions)}_{self.candidates[target].target.kind}"
            attrs = ((REGION_TARGET, str(self.candidates[target].target)),)
            function = ir.function([param], ir.tuple_((body,)), attrs)
            self.functions[name], self.targets[name] = function, target
            assert isinstance(function.type, FunctionType)
            call = ir.Call(function.type.result, value.span, ir.global_var(name, function.type), (value,), Attrs())
            self.conversions[key] = (ir.tuple_item(call, 0), value)
        return self.conversions[key][0]

    def _accepting_target(self, body: ir.Expr) -> int:
        calls = [expr for expr in ir.post_order(body) if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator)]
        for number, candidate in enumerate(self.candidates):
            if all(isinstance(candidate.judge(call), Accept) for call in calls):
                return number
        names = ", ".join(dict.fromkeys(call.callee.name for call in calls if isinstance(call.callee, Operator)))
        raise CompileError(f"no target supports the conversion at a border: {names}", remedy="list another target, such as x86")
