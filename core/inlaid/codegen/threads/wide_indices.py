"""Print indices, conditions and masks over the lanes of a vectorized loop.

Lane-invariant expressions stay scalar. If a mask is set, only active lanes are bounds-checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from inlaid.codegen.c_statements import Statements
from inlaid.codegen.c_values import Text
from inlaid.codegen.threads.dialect import ThreadDialect
from inlaid.codegen.threads.vectors import Vectors, Wide
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Ranges
from inlaid_runtime import arith
from inlaid_runtime.types import dtype

_BOOL = dtype("bool")


class WideIndices(Statements):
    """Prints indices. In a vectorized loop `lane` is its variable and `lanes` its extent. `mask` marks the active lanes, None for
    all; `private` buffers have a copy per lane; `wide_names` are the variables that vary by lane."""

    def __init__(self, program: ir.LoopProgram, dialect: ThreadDialect, index: str, ranges: Ranges) -> None:
        super().__init__(program, index, dialect.words, ranges)
        self.language = dialect.name
        self.dialect = dialect
        self.vectors = Vectors(dialect, self.name_code)
        self.index_dtype = dtype(index.removesuffix("_t"))
        self.lane: arith.Var | None = None
        self.lanes = 0
        self.mask: Wide | None = None
        self.private: set[ir.Buffer] = set()
        self.wide_names: dict[arith.Expr, Wide] = {}

    def name_code(self, kind: str, code: str) -> str:
        """Assign an expression of C type `kind` to a new variable; returns its name."""
        name = self.fresh("v")
        self.line(f"const {kind} {name} = {code};")
        return name

    def report(self, failed: str) -> None:
        """Print a statement that reports a bad index if the condition `failed` holds, and skips the access."""
        raise NotImplementedError

    def varies(self, expr: arith.Expr) -> bool:
        """Test whether an index varies by lane."""
        if self.lane is None:
            return False
        if any(var == self.lane or var in self.wide_names for var in arith.free_vars(expr)):
            return True
        loads = (node for value in ir.payloads(expr) for node in ir.walk_exprs(value) if isinstance(node, ir.Load))
        return any(load.buffer in self.private for load in loads)

    def by_lane(self, flat: arith.Expr) -> tuple[arith.Expr, int] | None:
        """Match an index base + stride * lane with a lane-invariant base; returns (base, stride), None for any other index."""
        if not self.varies(flat):
            return flat, 0
        assert self.lane is not None
        stride_and_base = self.ranges.indices.affine(flat, self.lane)
        if stride_and_base is None or not isinstance(stride_and_base[0], arith.Const) or self.varies(stride_and_base[1]):
            return None
        return stride_and_base[1], stride_and_base[0].value

    def component(self, expr: arith.Expr, lane: int) -> str:
        """Print the value of an index in one lane."""

        def leaf(node: arith.Expr) -> str | None:
            if node == self.lane:
                return str(lane)
            if node in self.wide_names:
                return self.dialect.lane(self.wide_names[node].code, lane, self.lanes)
            if not self.varies(node):
                return self.leaf(node)
            if isinstance(node, arith.Opaque):
                return self.dialect.lane(self._checked(node).code, lane, self.lanes)
            if isinstance(node, (arith.And, arith.Or)) and arith.reads_data(node.operands[1]):
                return f"-{self.dialect.lane(self.condition(node).code, lane, self.lanes)}"
            if isinstance(node, arith.Select) and any(map(arith.reads_data, node.operands[1:])):
                return self.dialect.lane(self.wide_index(node).code, lane, self.lanes)
            return None

        if self.lane is not None and not arith.reads_data(expr):
            expr = self.ranges.indices.simplify(arith.substitute(expr, {self.lane: arith.Const(lane)}))
        return self.index_with(expr, leaf)

    def wide_index(self, expr: arith.Expr) -> Wide:
        """Print the vector of an index over all lanes."""
        dtype, lanes = self.index_dtype, self.lanes
        if expr in self.wide_names:
            return self.wide_names[expr]
        base_and_stride = self.by_lane(expr)
        if base_and_stride is not None:
            base = self.dialect.splat(self.index(base_and_stride[0]), dtype, lanes)
            if base_and_stride[1] == 0:
                return self.vectors.value(base, dtype, lanes)
            steps = self.dialect.elements([str(lane * base_and_stride[1]) for lane in range(lanes)], dtype)
            return self.vectors.value(steps if base_and_stride[0] == arith.ZERO else f"{base} + {steps}", dtype, lanes)
        match expr:
            case arith.Opaque():
                return self._checked(expr)
            case arith.Select(operands=(condition, a, b)) if arith.reads_data(a) or arith.reads_data(b):
                flag = self.condition(condition)
                with self.under(flag):
                    then = self.wide_index(a)
                with self.under(self.vectors.opposite(flag)):
                    otherwise = self.wide_index(b)
                return self.vectors.choose(flag, then, otherwise, dtype)
        return self.vectors.value(self.dialect.elements([self.component(expr, lane) for lane in range(lanes)], dtype), dtype, lanes)

    def condition(self, expr: arith.Expr) -> Wide:
        """Print the mask of the lanes in which an index condition is nonzero."""
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
        """Print the vector of a bounds-checked index."""
        assert isinstance(node.payload, ir.Expr)
        value = self.wide_narrowed(node.payload)
        return value if self.inside(node.payload, node.lower, node.upper) else self.check_lanes(value, node.lower, node.upper)

    def wide_narrowed(self, expr: ir.Expr) -> Wide:
        """Print the vector of a value converted to the index type, saturating."""
        dtype, to = expr.dtype, self.index_dtype
        value = self.vectors.widen(self.value(expr), dtype, self.lanes)
        if dtype.bits > to.bits or (dtype.bits == to.bits and dtype is not to):
            low, high = (self.vectors.number(int(limit), dtype, self.lanes) for limit in to.limits)
            if dtype.kind == "int":
                value = self.vectors.value(self.dialect.choose(f"{value.code} < {low}", low, value.code), dtype, self.lanes)
            value = self.vectors.value(self.dialect.choose(f"{value.code} > {high}", high, value.code), dtype, self.lanes)
        return value if dtype is to else self.vectors.convert(value, dtype, to)

    def check_lanes(self, value: Wide, low: arith.Dim, high: arith.Dim) -> Wide:
        """Bounds-check an index in the active lanes; bad lanes become the lower bound, since they may still form addresses."""
        least, greatest = self.wide_index(arith.wrap(low)), self.wide_index(arith.wrap(high))
        code = f"({value.code} < {least.code}) | ({value.code} > {greatest.code})"
        bad = self.vectors.mask(code, self.index_dtype.bits, self.lanes)
        self.report(self.vectors.any(bad if self.mask is None else self.vectors.both(bad, self.mask)))
        return self.vectors.choose(bad, least, value, self.index_dtype)

    def leaf(self, expr: arith.Expr) -> str | None:
        # Under a mask a uniform index is checked as a vector: only active lanes may report.
        if self.mask is not None and isinstance(expr, arith.Opaque) and expr not in self.names:
            return self.dialect.lane(self._checked(expr).code, 0, self.lanes)
        return super().leaf(expr)

    # --- masks ---

    @contextmanager
    def under(self, flag: Wide) -> Iterator[None]:
        """Restrict the active lanes to lanes in which `flag` is set."""
        outer, texts = self.mask, self.texts
        self.mask = flag if outer is None else self.vectors.both(outer, flag)
        self.texts = dict(texts)
        yield
        self.mask, self.texts = outer, texts
