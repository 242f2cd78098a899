"""Print expressions, scalar or over the lanes of a vectorized loop."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from inlaid.codegen.c import c_type
from inlaid.codegen.c_values import ATOM, Text
from inlaid.codegen.threads.exchange import SHUFFLE
from inlaid.codegen.threads.float64_calls import FLOAT64_CALL
from inlaid.codegen.threads.narrow_floats import DECODE, ENCODE
from inlaid.codegen.threads.vectors import Wide, signed
from inlaid.codegen.threads.wide_memory import WideMemory
from inlaid.tensor import ir
from inlaid_runtime import arith
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.types import DType, dtype

_BOOL = dtype("bool")
_FUSED = {
    ("add", 0): "{a} * {b} + {c}",
    ("add", 1): "{c} + {a} * {b}",
    ("sub", 0): "{a} * {b} - {c}",
    ("sub", 1): "{c} - {a} * {b}",
}
"""Forms of a sum with a product, by operator and the operand number of the product."""
_LONG = 16
"""Number of nodes above which a branch costs less than the unused operand of a select."""


def _is_long(expr: ir.Expr) -> bool:
    """Test whether an expression has more than `_LONG` nodes."""
    return len(list(islice(ir.walk_exprs(expr), _LONG + 1))) > _LONG


class WideExpressions(WideMemory):
    """Prints expressions, scalar or over lanes."""

    def eager(self, expr: ir.Expr) -> tuple[ir.Expr, ...]:
        if isinstance(expr, ir.Select):
            risky = self.needs_guard(expr.then) or self.needs_guard(expr.otherwise)
            return (expr.condition,) if risky or self._has_long_operands(expr) else ir.operands(expr)
        fused = self._fused(expr)
        return ir.operands(expr) if fused is None else fused[0]

    def _has_long_operands(self, expr: ir.Select) -> bool:
        """Test whether both operands of a select are long computations of their own, such as two methods for one function."""
        is_long = self._long_selects.get(expr)
        if is_long is None:
            is_long = _is_long(expr.then) and _is_long(expr.otherwise)
            if is_long:
                condition, then, otherwise = (set(ir.walk_exprs(side)) for side in (expr.condition, expr.then, expr.otherwise))
                is_long = min(len(then - otherwise - condition), len(otherwise - then - condition)) > _LONG
            self._long_selects[expr] = is_long
        return is_long

    def _fused(self, expr: ir.Expr) -> tuple[tuple[ir.Expr, ir.Expr, ir.Expr], str] | None:
        """Match a floating-point a * b +- c for contraction: operands and form."""
        if self.lane is None or not isinstance(expr, ir.Binary) or not expr.a.dtype.is_float or expr.op not in ("add", "sub"):
            return None
        for side, (one, other) in enumerate(((expr.a, expr.b), (expr.b, expr.a))):
            if isinstance(one, ir.Binary) and one.op == "mul" and one not in self.texts:
                return (one.a, one.b, other), _FUSED[expr.op, side]
        return None

    def name_value(self, node: ir.Expr, text: Text) -> None:
        if not isinstance(text, Wide):
            super().name_value(node, text)

    def expression(self, expr: ir.Expr) -> Text:
        if isinstance(expr, ir.Load):
            return self.load(expr)
        if isinstance(expr, ir.CallIntrinsic):
            if expr.name.startswith(f"{FLOAT64_CALL}."):
                return self._called(expr)
            return self._shuffle(expr) if expr.name == SHUFFLE else self._converted(expr)
        if self.lane is None:
            return self._scalar(expr)
        match expr:
            case ir.Index(index=index, dtype=dtype):
                if not self.varies(index) and not (self.mask is not None and arith.reads_data(index)):
                    return super().expression(expr)
                if dtype is _BOOL:
                    return self.condition(index)
                wide_index = self.wide_index(index)
                return wide_index if dtype is self.index_dtype else self.vectors.convert(wide_index, self.index_dtype, dtype)
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                return self._select(expr, self.value(condition), then, otherwise)
        fused = self._fused(expr)
        args = ir.operands(expr) if fused is None else fused[0]
        texts = [self.value(arg) for arg in args]
        if not any(isinstance(text, Wide) for text in texts):
            return self._scalar(expr)
        wide = [self._widened(text, arg.dtype) for text, arg in zip(texts, args, strict=True)]
        if fused is not None:
            return self.vectors.fused(fused[1], wide, expr.dtype)
        return self._operation(expr, wide)

    def _scalar(self, expr: ir.Expr) -> Text:
        """Print a scalar expression."""
        match expr:
            case ir.Unary(op="popcount" | "clz", a=a):
                return Text(self.dialect.call(expr.op, (self.value(a).code,), expr.dtype, 0), ATOM)
            case ir.Bitcast(a=a, dtype=dtype):
                return Text(self.dialect.reinterpret(self.value(a).code, dtype, 0), ATOM)
        return super().expression(expr)

    def _converted(self, expr: ir.CallIntrinsic) -> Text:
        """Print a conversion of a narrow float."""
        action, _, name = expr.name.partition(".")
        conversion = {DECODE: self.dialect.decode, ENCODE: self.dialect.encode}.get(action)
        if conversion is None:
            raise Unsupported(f"kernel {self.program.name} calls {expr.name!r}, which {self.language} lacks")
        text = self.value(expr.args[0])
        if isinstance(text, Wide):
            return self.vectors.value(conversion(text.code, dtype(name), text.lanes), expr.dtype, text.lanes)
        return Text(conversion(text.code, dtype(name), 0), ATOM)

    def _called(self, expr: ir.CallIntrinsic) -> Text:
        """Print a call of a float64 function; for vectors, one call per lane."""
        function, dtype = f"inlaid_{expr.name.replace('.', '_')}", expr.dtype
        args = [self.value(arg) for arg in expr.args]
        if not any(isinstance(arg, Wide) for arg in args):
            code = f"{function}({', '.join(arg.code for arg in args)})"
            return Text(f"{code} != 0") if dtype is _BOOL else Text(code, ATOM)
        calls = []
        for lane in range(self.lanes):
            lane_args = [self.dialect.lane(arg.code, lane, self.lanes) if isinstance(arg, Wide) else arg.code for arg in args]
            calls.append(f"{'-' * (dtype is _BOOL)}{function}({', '.join(lane_args)})")
        if dtype is _BOOL:
            return self.vectors.mask(self.dialect.elements(calls, signed(32)), 32, self.lanes)
        return self.vectors.value(self.dialect.elements(calls, dtype), dtype, self.lanes)

    def _shuffle(self, expr: ir.CallIntrinsic) -> Text:
        value, lane, width = expr.args
        assert isinstance(width, ir.Const)
        code = self.value(value).code
        if expr.dtype is _BOOL:
            code = f"({c_type(_BOOL)})({code})"
        shuffled = self.dialect.shuffle(code, self.value(lane).code, int(width.value))
        return Text(f"{shuffled} != 0") if expr.dtype is _BOOL else Text(shuffled, ATOM)

    def _widened(self, text: Text, dtype: DType) -> Wide:
        if isinstance(text, Wide):
            return text
        wide = self.vectors.widen(text, dtype, self.lanes)
        return Wide(wide.code, ATOM, number=text.number, lanes=wide.lanes, mask=wide.mask)

    def _operation(self, expr: ir.Expr, args: list[Wide]) -> Wide:
        vectors = self.vectors
        match expr:
            case ir.Binary(op=op, a=a):
                shift = op in ("shl", "shr") and self.shifts(expr)
                divides = op in ("div", "mod") and a.dtype.is_int and self.divides(expr)
                return vectors.binary(op, args[0], args[1], a.dtype, shift, divides)
            case ir.Unary(op=op, a=a):
                return vectors.unary(op, args[0], a.dtype)
            case ir.Cast(a=a, dtype=dtype):
                return vectors.convert(args[0], a.dtype, dtype)
            case ir.Bitcast(dtype=dtype):
                return vectors.reinterpret(args[0], dtype)
            case ir.Fma(dtype=dtype):
                return vectors.fma(args, dtype)
        raise Unsupported(f"kernel {self.program.name}: {self.language} has no {type(expr).__name__} on vectors")

    def _select(self, expr: ir.Select, flag: Text, then: ir.Expr, otherwise: ir.Expr) -> Text:
        dtype, risky = expr.dtype, self.needs_guard(then) or self.needs_guard(otherwise)
        if not isinstance(flag, Wide):
            if risky:
                kind = self.dialect.vector(dtype, self.lanes)
                return self._chosen_lanes(kind, flag, then, otherwise)
            a, b = self.value(then), self.value(otherwise)
            if not isinstance(a, Wide) and not isinstance(b, Wide):
                return super().expression(expr)
            one, two = self._widened(a, dtype), self._widened(b, dtype)
            if dtype is _BOOL:
                return self.vectors.choose(self.vectors.widen(flag, _BOOL, self.lanes), one, two, dtype)
            return self.vectors.value(f"{flag.atom} ? {one.code} : {two.code}", dtype, self.lanes)
        if not risky and dtype is not _BOOL and self._has_long_operands(expr):
            return self._chosen_late(flag, then, otherwise)
        if not risky:
            return self.vectors.choose(
                flag, self._widened(self.value(then), dtype), self._widened(self.value(otherwise), dtype), dtype
            )
        with self.under(flag):
            one = self._widened(self.value(then), dtype)
        with self.under(self.vectors.opposite(flag)):
            two = self._widened(self.value(otherwise), dtype)
        return self.vectors.choose(flag, one, two, dtype)

    def _chosen_late(self, flag: Wide, then: ir.Expr, otherwise: ir.Expr) -> Text:
        """Select on a condition that usually holds in all lanes of a vector: `otherwise` is evaluated only if the condition fails
        in a lane."""
        dtype = then.dtype
        name, everywhere = self.fresh("v"), self.vectors.all(flag)
        mask = self.vectors.as_wide(flag, dtype.bits).code
        self.line(f"{self.dialect.vector(dtype, self.lanes)} {name} = {self._widened(self.value(then), dtype).code};")
        with self.block(f"if (!({everywhere}))"):
            otherwise_code = self._widened(self.value(otherwise), dtype).code
            self.line(f"{name} = {self.dialect.choose(mask, name, otherwise_code)};")
        return Wide(name, ATOM, lanes=self.lanes)

    def _chosen_lanes(self, kind: str, flag: Text, then: ir.Expr, otherwise: ir.Expr) -> Text:
        """Select on a uniform condition, with each operand evaluated only if it is selected."""
        dtype = then.dtype

        def side(value: ir.Expr) -> Callable[[], Text]:
            def print_side() -> Text:
                wide = self._widened(self.value(value), dtype)
                return Text(self.vectors.as_wide(wide, 32).code if dtype is _BOOL else wide.code, ATOM)

            return print_side

        kind = self.dialect.vector(signed(32) if dtype is _BOOL else dtype, self.lanes)
        choice = self.chosen(kind, flag.code, side(then), side(otherwise))
        name = self.name_code(kind, choice.code)
        return Wide(name, ATOM, lanes=self.lanes, mask=32 if dtype is _BOOL else 0)
