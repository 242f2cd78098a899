"""Values, loads and stores of a kernel on threads, scalar or in the lanes of a vectorised loop.

What does not read the lane stays scalar. Consecutive elements are one vector; others are read one by one. Under a mask no lane that
it leaves out touches memory, and none is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inlaid import arith
from inlaid.codegen.c import c_type
from inlaid.codegen.c_statements import Statements
from inlaid.codegen.c_values import ATOM, Text
from inlaid.codegen.threads.dialect import ThreadDialect
from inlaid.codegen.threads.indices import flat_index
from inlaid.codegen.threads.registers import Names
from inlaid.codegen.threads.vectors import Vectors, Wide, signed
from inlaid.errors import Unsupported
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Ranges
from inlaid.types import DType, dtype

_BOOL = dtype("bool")
_FUSED = {
    ("add", 0): "{a} * {b} + {c}",
    ("add", 1): "{c} + {a} * {b}",
    ("sub", 0): "{a} * {b} - {c}",
    ("sub", 1): "{c} - {a} * {b}",
}
"""Sums with a product as left or right operand."""


class WideExpressions(Statements):
    """Prints values. In a vectorised loop `lane` is its variable and `lanes` its extent; `mask` says which lanes count, None that
    all do; `private` buffers are each lane's own. `spaces` are the qualifiers of pointers, `named` the buffers of named values."""

    def __init__(self, program: ir.LoopProgram, dialect: ThreadDialect, index: str, ranges: Ranges) -> None:
        super().__init__(program, index, dialect.words, ranges)
        self.language = dialect.name
        self.dialect = dialect
        self.vectors = Vectors(dialect, self._named)
        self.index_dtype = dtype(index.removesuffix("_t"))
        self.spaces: dict[ir.Buffer, str] = {}
        self.named: dict[ir.Buffer, Names] = {}
        self.lane: arith.Var | None = None
        self.lanes = 0
        self.mask: Wide | None = None
        self.private: set[ir.Buffer] = set()
        self.wide_names: dict[arith.Expr, Wide] = {}
        self._risks_of: dict[ir.Expr, tuple[ir.Expr, ...] | None] = {}

    def _named(self, kind: str, code: str) -> str:
        name = self.fresh("v")
        self.line(f"const {kind} {name} = {code};")
        return name

    def report(self, failed: str) -> None:
        """Report a bad index where a condition holds, and do without the access."""
        raise NotImplementedError

    # --- indices ---

    def varies(self, expr: arith.Expr) -> bool:
        """Whether an index differs between lanes."""
        if self.lane is None:
            return False
        if any(var == self.lane or var in self.wide_names for var in arith.free_vars(expr)):
            return True
        loads = (node for value in ir.payloads(expr) for node in ir.walk_exprs(value) if isinstance(node, ir.Load))
        return any(load.buffer in self.private for load in loads)

    def by_lane(self, flat: arith.Expr) -> tuple[arith.Expr, int] | None:
        """(base, stride) of an index that is base + stride * lane, where the base does not vary; else None."""
        if not self.varies(flat):
            return flat, 0
        assert self.lane is not None
        found = self.ranges.indices.affine(flat, self.lane)
        if found is None or not isinstance(found[0], arith.Const) or self.varies(found[1]):
            return None
        return found[1], found[0].value

    def component(self, expr: arith.Expr, place: int) -> str:
        """An index in one lane."""

        def leaf(node: arith.Expr) -> str | None:
            if node == self.lane:
                return str(place)
            if node in self.wide_names:
                return self.dialect.lane(self.wide_names[node].code, place)
            if not self.varies(node):
                return self.leaf(node)
            if isinstance(node, arith.Opaque):
                return self.dialect.lane(self._checked(node).code, place)
            if isinstance(node, (arith.And, arith.Or)) and arith.reads_data(node.operands[1]):
                return f"-{self.dialect.lane(self.condition(node).code, place)}"
            if isinstance(node, arith.Select) and any(map(arith.reads_data, node.operands[1:])):
                return self.dialect.lane(self.wide_index(node).code, place)
            return None

        if self.lane is not None and not arith.reads_data(expr):
            expr = self.ranges.indices.simplify(arith.substitute(expr, {self.lane: arith.Const(place)}))
        return self.index_with(expr, leaf)

    def wide_index(self, expr: arith.Expr) -> Wide:
        """An index in every lane."""
        of, lanes = self.index_dtype, self.lanes
        if expr in self.wide_names:
            return self.wide_names[expr]
        shape = self.by_lane(expr)
        if shape is not None:
            base = self.dialect.splat(self.index(shape[0]), of, lanes)
            if shape[1] == 0:
                return self.vectors.value(base, of, lanes)
            steps = self.dialect.elements([str(place * shape[1]) for place in range(lanes)], of)
            return self.vectors.value(steps if shape[0] == arith.ZERO else f"{base} + {steps}", of, lanes)
        match expr:
            case arith.Opaque():
                return self._checked(expr)
            case arith.Select(operands=(condition, a, b)) if arith.reads_data(a) or arith.reads_data(b):
                flag = self.condition(condition)
                with self.under(flag):
                    then = self.wide_index(a)
                with self.under(self.vectors.opposite(flag)):
                    otherwise = self.wide_index(b)
                return self.vectors.choose(flag, then, otherwise, of)
        return self.vectors.value(self.dialect.elements([self.component(expr, place) for place in range(lanes)], of), of, lanes)

    def condition(self, expr: arith.Expr) -> Wide:
        """Whether an index is not zero, in every lane."""
        if not self.varies(expr) and not arith.reads_data(expr):
            return self.vectors.widen(Text(self.index(expr)), _BOOL, self.lanes)
        match expr:
            case arith.Compare(op=op, operands=(a, b)):
                left, right = self.wide_index(a), self.wide_index(b)
                return self.vectors.mask(f"{left.code} {op} {right.code}", self.index_dtype.bits, self.lanes)
            case arith.And(operands=(a, b)) | arith.Or(operands=(a, b)):
                one = self.condition(a)
                if not arith.reads_data(b):
                    other = self.condition(b)
                else:
                    with self.under(one if isinstance(expr, arith.And) else self.vectors.opposite(one)):
                        other = self.condition(b)
                return self.vectors.binary("and" if isinstance(expr, arith.And) else "or", one, other, _BOOL)
            case arith.Not(operands=(a,)):
                return self.vectors.opposite(self.condition(a))
        number = self.wide_index(expr)
        zero = self.vectors.number(0, self.index_dtype, self.lanes)
        return self.vectors.mask(f"{number.code} != {zero}", self.index_dtype.bits, self.lanes)

    def _checked(self, node: arith.Opaque) -> Wide:
        """A checked index in every lane."""
        assert isinstance(node.payload, ir.Expr)
        value = self.wide_narrowed(node.payload)
        return value if self.inside(node.payload, node.lower, node.upper) else self.check_lanes(value, node.lower, node.upper)

    def wide_narrowed(self, expr: ir.Expr) -> Wide:
        """A value as an index in every lane, at the nearest end of what an index can be where it does not fit."""
        of, to = expr.dtype, self.index_dtype
        value = self.vectors.widen(self.value(expr), of, self.lanes)
        if of.bits > to.bits or (of.bits == to.bits and of is not to):
            low, high = (self.vectors.number(int(limit), of, self.lanes) for limit in to.limits)
            if of.kind == "int":
                value = self.vectors.value(f"{value.code} < {low} ? {low} : {value.code}", of, self.lanes)
            value = self.vectors.value(f"{value.code} > {high} ? {high} : {value.code}", of, self.lanes)
        return value if of is to else self.vectors.convert(value, of, to)

    def check_lanes(self, value: Wide, low: arith.Dim, high: arith.Dim) -> Wide:
        """Check an index in every lane that counts; where it is bad it becomes the least, since addresses may be made of it."""
        least, most = self.wide_index(arith.wrap(low)), self.wide_index(arith.wrap(high))
        code = f"({value.code} < {least.code}) | ({value.code} > {most.code})"
        bad = self.vectors.mask(code, self.index_dtype.bits, self.lanes)
        self.report(self.vectors.any(bad if self.mask is None else self.vectors.both(bad, self.mask)))
        return self.vectors.choose(bad, least, value, self.index_dtype)

    def leaf(self, expr: arith.Expr) -> str | None:
        # Under a mask a check counts in lanes, of which all have the same index here.
        if self.mask is not None and isinstance(expr, arith.Opaque) and expr not in self.names:
            return self.dialect.lane(self._checked(expr).code, 0)
        return super().leaf(expr)

    # --- masks ---

    @contextmanager
    def under(self, flag: Wide) -> Iterator[None]:
        """Only the lanes where `flag` is set count."""
        outer, known = self.mask, self.known
        self.mask = flag if outer is None else self.vectors.both(outer, flag)
        self.known = dict(known)
        yield
        self.mask, self.known = outer, known

    # --- memory ---

    def place(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> arith.Expr:
        """The element of an array that an access is to."""
        flat = flat_index(buffer, indices)
        if buffer in self.private and self.lane is not None:
            flat = arith.add(arith.mul(flat, self.lanes), self.lane)
        return self.ranges.indices.simplify(flat)

    def element(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> str:
        return self._element(buffer, self.place(buffer, indices))

    def _element(self, buffer: ir.Buffer, flat: arith.Expr, lane: int | None = None) -> str:
        """An element, in a lane where the index varies."""
        if buffer not in self.named:
            return f"{self.buffers[buffer]}[{self.index(flat) if lane is None else self.component(flat, lane)}]"
        if lane is not None and self.lane is not None:
            flat = arith.simplify(arith.substitute(flat, {self.lane: arith.Const(lane)}))
        assert isinstance(flat, arith.Const), f"{buffer}[{flat!r}] has a name"
        name, part = self.named[buffer].at(flat.value)
        return name if self.named[buffer].width == 1 else self.dialect.lane(name, part)

    def _pointer(self, buffer: ir.Buffer, base: arith.Expr) -> str:
        index = self.index(base)
        return self.buffers[buffer] if index == "0" else f"{self.buffers[buffer]} + {index}"

    def _whole(self, buffer: ir.Buffer, base: arith.Expr) -> str | None:
        """The name of the vector that consecutive elements are, if they are one."""
        names = self.named.get(buffer)
        if names is None or names.width != self.lanes:
            return None
        assert isinstance(base, arith.Const), f"{buffer}[{base!r}] has a name"
        return names.at(base.value)[0]

    def load(self, load: ir.Load) -> Text:
        """An element, or one for each lane."""
        buffer, of = load.buffer, load.buffer.dtype
        flat = self.place(buffer, load.indices)
        shape = self.by_lane(flat)
        guard = None if self._is_inside(load) else self.mask
        if shape is not None and shape[1] == 0:
            text = self._element(buffer, flat)
            if guard is not None:
                text = self._named(c_type(of), f"{self.vectors.any(guard)} ? {text} : 0")
            return Text(f"{text} != 0") if of is _BOOL else Text(text, ATOM)
        consecutive = shape is not None and shape[1] == 1
        if shape is not None and consecutive:
            whole = self._whole(buffer, shape[0])
            if whole is not None:
                return self.vectors.loaded(whole, of, self.lanes)
            if buffer not in self.named and guard is None:
                return self.vectors.loaded(self._load_run(buffer, shape[0]), of, self.lanes)
        parts = [self._element(buffer, flat, place) for place in range(self.lanes)]
        if guard is None:
            return self.vectors.loaded(self.dialect.elements(parts, of), of, self.lanes)
        guarded = [f"{self.dialect.lane(guard.code, place)} ? {part} : 0" for place, part in enumerate(parts)]
        if shape is None or not consecutive:
            return self.vectors.loaded(self.dialect.elements(guarded, of), of, self.lanes)
        name = self.fresh("v")
        run = self._load_run(buffer, shape[0])
        self.line(f"{self.dialect.vector(of, self.lanes)} {name};")
        self.line(f"if ({self.vectors.all(guard)}) {name} = {run};")
        self.line(f"else {name} = {self.dialect.elements(guarded, of)};")
        return self.vectors.loaded(name, of, self.lanes)

    def _load_run(self, buffer: ir.Buffer, base: arith.Expr) -> str:
        return self.dialect.load(self._pointer(buffer, base), self.spaces[buffer], buffer.dtype, self.lanes)

    def store_lanes(self, stmt: ir.Store) -> None:
        """Store an element for each lane."""
        buffer, of = stmt.buffer, stmt.buffer.dtype
        value = self.vectors.widen(self.value(stmt.value), stmt.value.dtype, self.lanes)
        flat = self.place(buffer, stmt.indices)
        shape = self.by_lane(flat)
        if shape is not None and shape[1] == 1:
            whole = self._whole(buffer, shape[0])
            if whole is not None:
                if self.mask is not None:
                    value = self.vectors.choose(self.mask, value, self.vectors.loaded(whole, of, self.lanes), stmt.value.dtype)
                self.line(f"{whole} = {self.vectors.stored(value, of)};")
                return
        stored = value.code
        if of is _BOOL:
            stored = self._named(self.dialect.vector(of, self.lanes), self.vectors.stored(value, of))
        parts = [(self._element(buffer, flat, place), self.dialect.lane(stored, place)) for place in range(self.lanes)]
        if shape is not None and shape[1] == 1 and buffer not in self.named:
            run = self.dialect.store(stored, self._pointer(buffer, shape[0]), self.spaces[buffer], of, self.lanes)
            if self.mask is None:
                self.line(f"{run};")
                return
            with self.block(f"if ({self.vectors.all(self.mask)})"):
                self.line(f"{run};")
            with self.block("else"):
                self._store_parts(parts)
            return
        self._store_parts(parts)

    def _store_parts(self, parts: list[tuple[str, str]]) -> None:
        for place, (target, part) in enumerate(parts):
            guard = "" if self.mask is None else f"if ({self.dialect.lane(self.mask.code, place)}) "
            self.line(f"{guard}{target} = {part};")

    # --- values ---

    def eager(self, expr: ir.Expr) -> tuple[ir.Expr, ...]:
        if isinstance(expr, ir.Select):
            risky = self.needs_guard(expr.then) or self.needs_guard(expr.otherwise)
            return (expr.condition,) if risky else ir.operands(expr)
        fused = self._fused(expr)
        return ir.operands(expr) if fused is None else fused[0]

    def _fused(self, expr: ir.Expr) -> tuple[tuple[ir.Expr, ir.Expr, ir.Expr], str] | None:
        """The factors and the other operand of a sum of floats with a product, which may be one operation."""
        if self.lane is None or not isinstance(expr, ir.Binary) or not expr.a.dtype.is_float or expr.op not in ("add", "sub"):
            return None
        for side, (one, other) in enumerate(((expr.a, expr.b), (expr.b, expr.a))):
            if isinstance(one, ir.Binary) and one.op == "mul" and one not in self.known:
                return (one.a, one.b, other), _FUSED[expr.op, side]
        return None

    def needs_guard(self, expr: ir.Expr) -> bool:
        """Whether an expression reads memory or checks an index, so that it must not be evaluated where it is not chosen: unless
        all that it reads is known, or lies inside its buffer in any case."""
        risks = self._risks(expr)
        return risks is None or any(risk not in self.known and not self._is_inside(risk) for risk in risks)

    def _is_inside(self, risk: ir.Expr) -> bool:
        if not isinstance(risk, ir.Load) or any(map(arith.reads_data, risk.indices)):
            return False
        if risk.buffer in self.named:
            return True
        size = arith.product(risk.buffer.shape)
        low, high = self.ranges.indices.bounds(flat_index(risk.buffer, risk.indices))
        return isinstance(size, int) and low is not None and high is not None and low >= 0 and high < size

    def _risks(self, expr: ir.Expr) -> tuple[ir.Expr, ...] | None:
        """What an expression reads and checks; None where that is much."""
        memo, stack = self._risks_of, [expr]
        while stack:
            node = stack[-1]
            below = ir.operands(node)
            waiting = [item for item in below if item not in memo]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if isinstance(node, ir.Load) or (isinstance(node, ir.Index) and arith.reads_data(node.index)):
                memo[node] = (node,)
                continue
            parts = [memo[item] for item in below]
            found = dict.fromkeys(risk for part in parts for risk in part or ())
            memo[node] = None if None in parts or len(found) > _MOST_RISKS else tuple(found)
        return memo[expr]

    def name_value(self, node: ir.Expr, text: Text) -> None:
        if not isinstance(text, Wide):
            super().name_value(node, text)

    def expression(self, expr: ir.Expr) -> Text:
        if isinstance(expr, ir.Load):
            return self.load(expr)
        if isinstance(expr, ir.Unary) and expr.op in ("popcount", "clz") and self.lane is None:
            return Text(self.dialect.call(expr.op, (self.value(expr.a).code,), expr.dtype, 0), ATOM)
        if self.lane is None:
            return super().expression(expr)
        match expr:
            case ir.Index(index=index, dtype=of):
                if not self.varies(index) and not (self.mask is not None and arith.reads_data(index)):
                    return super().expression(expr)
                if of is _BOOL:
                    return self.condition(index)
                found = self.wide_index(index)
                return found if of is self.index_dtype else self.vectors.convert(found, self.index_dtype, of)
            case ir.Select(condition=condition, then=then, otherwise=otherwise):
                return self._select(expr, self.value(condition), then, otherwise)
        fused = self._fused(expr)
        args = ir.operands(expr) if fused is None else fused[0]
        texts = [self.value(arg) for arg in args]
        if not any(isinstance(text, Wide) for text in texts):
            if isinstance(expr, ir.Unary) and expr.op in ("popcount", "clz"):
                return Text(self.dialect.call(expr.op, (texts[0].code,), expr.dtype, 0), ATOM)
            return super().expression(expr)
        wide = [self._widened(text, arg.dtype) for text, arg in zip(texts, args, strict=True)]
        if fused is not None:
            return self.vectors.fused(fused[1], wide, expr.dtype)
        return self._operation(expr, wide)

    def _widened(self, text: Text, of: DType) -> Wide:
        if isinstance(text, Wide):
            return text
        found = self.vectors.widen(text, of, self.lanes)
        return Wide(found.code, ATOM, number=text.number, lanes=found.lanes, mask=found.mask)

    def _operation(self, expr: ir.Expr, args: list[Wide]) -> Wide:
        vectors = self.vectors
        match expr:
            case ir.Binary(op=op, a=a):
                shift = op in ("shl", "shr") and self.shifts(expr)
                divides = op in ("div", "mod") and a.dtype.is_int and self.divides(expr)
                return vectors.binary(op, args[0], args[1], a.dtype, shift, divides)
            case ir.Unary(op=op, a=a):
                return vectors.unary(op, args[0], a.dtype)
            case ir.Cast(a=a, dtype=of):
                return vectors.convert(args[0], a.dtype, of)
            case ir.Bitcast(dtype=of):
                return vectors.reinterpret(args[0], of)
            case ir.Fma(dtype=of):
                return vectors.fma(args, of)
        raise Unsupported(f"kernel {self.program.name} holds a {type(expr).__name__}, which {self.language} has not")

    def _select(self, expr: ir.Expr, flag: Text, then: ir.Expr, otherwise: ir.Expr) -> Text:
        of, risky = expr.dtype, self.needs_guard(then) or self.needs_guard(otherwise)
        if not isinstance(flag, Wide):
            if risky:
                kind = self.dialect.vector(of, self.lanes)
                return self._chosen_lanes(kind, flag, then, otherwise)
            a, b = self.value(then), self.value(otherwise)
            if not isinstance(a, Wide) and not isinstance(b, Wide):
                return super().expression(expr)
            one, two = self._widened(a, of), self._widened(b, of)
            if of is _BOOL:
                return self.vectors.choose(self.vectors.widen(flag, _BOOL, self.lanes), one, two, of)
            return self.vectors.value(f"{flag.atom} ? {one.code} : {two.code}", of, self.lanes)
        if not risky:
            return self.vectors.choose(flag, self._widened(self.value(then), of), self._widened(self.value(otherwise), of), of)
        with self.under(flag):
            one = self._widened(self.value(then), of)
        with self.under(self.vectors.opposite(flag)):
            two = self._widened(self.value(otherwise), of)
        return self.vectors.choose(flag, one, two, of)

    def _chosen_lanes(self, kind: str, flag: Text, then: ir.Expr, otherwise: ir.Expr) -> Text:
        """One of two values on a condition that all lanes share, each evaluated only where it is chosen."""
        of = then.dtype

        def side(value: ir.Expr) -> Callable[[], Text]:
            def print_side() -> Text:
                wide = self._widened(self.value(value), of)
                return Text(self.vectors.as_wide(wide, 32).code if of is _BOOL else wide.code, ATOM)

            return print_side

        kind = self.dialect.vector(signed(32) if of is _BOOL else of, self.lanes)
        found = self.chosen(kind, flag.code, side(then), side(otherwise))
        name = self._named(kind, found.code)
        return Wide(name, ATOM, lanes=self.lanes, mask=32 if of is _BOOL else 0)


_MOST_RISKS = 16
"""Loads and checked indices that are remembered of an expression."""
