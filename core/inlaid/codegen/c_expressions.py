"""Print the values and indices of a kernel as C expressions; values with several uses get variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from inlaid.codegen import c_values
from inlaid.codegen.c import c_type
from inlaid.codegen.c_indices import index_text
from inlaid.codegen.c_values import ATOM, Text
from inlaid.tensor import ir
from inlaid.tensor.analysis.ranges import Ranges
from inlaid_runtime import arith
from inlaid_runtime.errors import Unsupported
from inlaid_runtime.names import unique
from inlaid_runtime.types import DType, dtype

WIDTH = 110
"""Maximum length of an expression in characters; parts of a longer expression get variables."""


class Expressions:
    """Prints the values and indices of one kernel. `texts` maps the values available at this point to their text. `names` maps
    index variables to C names. `index_type` is the C type of indices. Subclasses define how buffers are read and how a bad index is
    reported."""

    language = "C"

    def __init__(self, program: ir.LoopProgram, index_type: str, reserved_words: Collection[str], ranges: Ranges) -> None:
        self.program = program
        self.index_type = index_type
        self.ranges = ranges
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.identifiers: set[str] = set(reserved_words)
        self.buffers: dict[ir.Buffer, str] = {}
        self.names: dict[arith.Expr, str] = {}
        self.texts: dict[ir.Expr, Text] = {}

    def check(self, name: str, low: arith.Dim, high: arith.Dim) -> None:
        """Print a check that an index variable is in [low, high]."""
        raise NotImplementedError

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return self.unique(f"{letter}{self.count}")

    def unique(self, label: str) -> str:
        """Make a C identifier that is unique in the function."""
        clean = re.sub(r"[^A-Za-z0-9_]", "_", label) or "x"
        clean = clean if clean[0].isalpha() else f"x{clean}"
        return unique(clean, self.identifiers)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Print a braced block. Variables declared in it are out of scope after it."""
        outer = self.texts
        self.texts = dict(outer)
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")
        self.texts = outer

    def inside(self, value: ir.Expr, low: arith.Dim, high: arith.Dim) -> bool:
        """Test whether an integer is proved to be in [low, high]."""
        match self.ranges.infer(value), arith.wrap(low), arith.wrap(high):
            case (least, greatest), arith.Const(value=first), arith.Const(value=last):
                return first <= least and greatest <= last
        return False

    # --- indices ---

    def index(self, expr: arith.Expr) -> str:
        """Print an index expression. Its loads from buffers are printed as statements before it."""
        return self.index_with(expr, self.leaf)

    def index_with(self, expr: arith.Expr, leaf: Callable[[arith.Expr], str | None]) -> str:
        """Print an index expression whose leaves are printed by `leaf`."""
        return index_text(expr, leaf, self._assigned, self.ranges.indices)

    def _assigned(self, text: str) -> str:
        """Assign an index to a variable and return its name."""
        name = self.fresh("i")
        self.line(f"const {self.index_type} {name} = {text};")
        return name

    def leaf(self, expr: arith.Expr) -> str | None:
        if expr in self.names:
            return self.names[expr]
        match expr:
            case arith.Opaque(payload=payload):
                assert isinstance(payload, ir.Expr)
                if self.inside(payload, expr.lower, expr.upper):
                    return self.value(payload).atom
                name = self._assigned(self.narrowed(payload))
                self.check(name, expr.lower, expr.upper)
                return name
            case arith.And(operands=(a, b)) if arith.reads_data(b):
                return self.chosen("int32_t", self.index(a), lambda: Text(self.index(b)), lambda: Text("0", ATOM)).code
            case arith.Or(operands=(a, b)) if arith.reads_data(b):
                return self.chosen("int32_t", self.index(a), lambda: Text("1", ATOM), lambda: Text(self.index(b))).code
            case arith.Select(operands=(condition, a, b)) if arith.reads_data(a) or arith.reads_data(b):
                kind = self.index_type
                return self.chosen(kind, self.index(condition), lambda: Text(self.index(a)), lambda: Text(self.index(b))).code
        return None

    def narrowed(self, expr: ir.Expr) -> str:
        """Convert a value to the index type, saturating if it is wider."""
        text, width, kind = self.value(expr), dtype(self.index_type.removesuffix("_t")), self.index_type
        if expr.dtype.bits < width.bits or expr.dtype is width:
            return text.code
        if self.inside(expr, *map(int, width.limits)):
            return f"({kind}){text.atom}"
        if not is_name(text.code):
            self.name_value(expr, text)
            text = self.texts[expr]
        low, high = (f"INT{width.bits}_{end}" for end in ("MIN", "MAX"))
        least = f"{text.code} < {low} ? {low} : " if expr.dtype.kind == "int" else ""
        return f"{least}{text.code} > {high} ? {high} : ({kind}){text.code}"

    def element(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> str:
        flat: arith.Expr = arith.ZERO
        for extent, index in zip(buffer.shape, indices, strict=True):
            flat = arith.add(arith.mul(flat, extent), index)
        return f"{self.buffers[buffer]}[{self.index(self.ranges.indices.simplify(flat))}]"

    # --- values ---

    def share(self, root: ir.Expr) -> None:
        """Assign the subexpressions of a value that are used several times and evaluated unconditionally to variables."""
        uses: dict[ir.Expr, int] = {}
        order: list[ir.Expr] = []
        stack: list[tuple[ir.Expr, bool]] = [(root, False)]
        visited: set[ir.Expr] = set()
        while stack:
            node, expanded = stack.pop()
            if expanded:
                order.append(node)
                continue
            if node in visited:
                continue
            visited.add(node)
            stack.append((node, True))
            for item in self.eager(node):
                uses[item] = uses.get(item, 0) + (2 if self.repeats(node) else 1)
                stack.append((item, False))
        for node in order:
            if node is not root and node not in self.texts and not isinstance(node, ir.Const):
                text = self.expression(node)
                if (uses[node] > 1 and text.level != ATOM) or (uses[node] > 1 and not is_name(text.code)) or len(text.code) > WIDTH:
                    self.name_value(node, text)
                else:
                    self.texts[node] = text

    def name_value(self, node: ir.Expr, text: Text) -> None:
        name = self.fresh("v")
        self.line(f"const {c_values.value_type(node.dtype)} {name} = {text.code};")
        self.texts[node] = Text(name, ATOM)

    def repeats(self, node: ir.Expr) -> bool:
        """Test whether the C text of a node repeats its operands."""
        dtype = ir.operands(node)[0].dtype if ir.operands(node) else node.dtype
        match node:
            case ir.Binary(op="div" | "mod"):
                return not dtype.is_float and not self.divides(node)
            case ir.Binary(op="shl" | "shr"):
                return not self.shifts(node)
            case ir.Binary(op=op):
                return op in c_values.REPEATS
            case ir.Unary(op=op):
                return op in ("abs", "clz", *c_values.REPEATS) and not (dtype.is_float and op == "abs")
            case ir.Cast():
                return dtype.is_float and node.dtype.is_int
        return False

    def value(self, expr: ir.Expr) -> Text:
        """Print a value as an expression over the known variables."""
        if isinstance(expr, ir.Const):
            return c_values.constant(expr.value, expr.dtype)
        if expr not in self.texts:
            self.share(expr)
            self.texts[expr] = self.expression(expr)
        return self.texts[expr]

    def chosen(self, kind: str, flag: str, then: Callable[[], Text], otherwise: Callable[[], Text]) -> Text:
        """Print a choice between two values, each evaluated only if it is chosen."""
        sides = []
        for side in (then, otherwise):
            lines, outer_texts = self.lines, self.texts
            self.lines, self.texts = [], dict(outer_texts)
            self.depth += 1
            text = side()
            self.depth -= 1
            sides.append((self.lines, text))
            self.lines, self.texts = lines, outer_texts
        if not any(lines for lines, _ in sides):
            return Text(f"{Text(flag, ATOM if is_name(flag) else c_values.OTHER).atom} ? {sides[0][1].atom} : {sides[1][1].atom}")
        name = self.fresh("v")
        self.line(f"{kind} {name};")
        for head, (lines, text) in zip((f"if ({flag})", "else"), sides, strict=True):
            self.line(f"{head} {{")
            self.lines += [*lines, "    " * (self.depth + 1) + f"{name} = {text.code};"]
            self.line("}")
        return Text(name, ATOM)

    def reinterpreted(self, value: ir.Expr, dtype: DType) -> Text:
        """Print a bitcast to a dtype of the same width, as a copy of the bytes, which is valid in C++, too."""
        text, source, name = self.value(value), self.fresh("v"), self.fresh("v")
        self.line(f"const {c_values.value_type(value.dtype)} {source} = {text.code};")
        self.line(f"{c_values.value_type(dtype)} {name};")
        self.line(f"memcpy(&{name}, &{source}, sizeof {name});")
        return Text(name, ATOM)

    def shifts(self, expr: ir.Binary) -> bool:
        """Test whether a shift count is proved to be in [0, width)."""
        count = self.ranges.infer(expr.b)
        return count is not None and count[0] >= 0 and count[1] < expr.dtype.bits

    def divides(self, expr: ir.Binary) -> bool:
        """Test whether a divisor is proved to be neither 0 nor -1."""
        bounds = self.ranges.infer(expr.b)
        return bounds is not None and (bounds[0] > 0 or bounds[1] < -1)

    def expression(self, expr: ir.Expr) -> Text:
        match expr:
            case ir.Select():
                kind, flag = c_values.value_type(expr.dtype), self.value(expr.condition).code
                return self.chosen(kind, flag, lambda: self.value(expr.then), lambda: self.value(expr.otherwise))
            case ir.Load(buffer=buffer, indices=indices):
                text = self.element(buffer, indices)
                return Text(f"{text} != 0") if expr.dtype.kind == "bool" else Text(text, ATOM)
            case ir.Index(index=index, dtype=dtype):
                text = self.index(index)
                if dtype.kind == "bool":
                    return (
                        Text(text) if isinstance(index, (arith.Compare, arith.And, arith.Or, arith.Not)) else Text(f"({text}) != 0")
                    )
                if not is_name(text):
                    return Text(f"({c_type(dtype)})({text})", ATOM)
                return Text(text if c_type(dtype) == self.index_type else f"({c_type(dtype)}){text}", ATOM)
            case ir.Binary(op=op, a=a, b=b):
                exact = op in ("add", "sub", "mul") and a.dtype.is_int and self.ranges.exact(expr)
                exact = exact or (op in ("div", "mod") and a.dtype.is_int and self.divides(expr))
                shift = op in ("shl", "shr") and self.shifts(expr)
                return c_values.binary(op, self.value(a), self.value(b), a.dtype, exact, shift)
            case ir.Unary(op=op, a=a):
                return c_values.unary(op, self.value(a), a.dtype)
            case ir.Cast(a=a, dtype=dtype):
                return c_values.convert(self.value(a), a.dtype, dtype)
            case ir.Bitcast(a=a, dtype=dtype):
                return self.reinterpreted(a, dtype)
            case ir.Fma(a=a, b=b, c=c):
                return c_values.fma(self.value(a), self.value(b), self.value(c), expr.dtype)
        raise Unsupported(f"kernel {self.program.name}: {self.language} has no {type(expr).__name__}")

    def eager(self, expr: ir.Expr) -> tuple[ir.Expr, ...]:
        """Return the operands of an expression that are evaluated unconditionally."""
        return (expr.condition,) if isinstance(expr, ir.Select) else ir.operands(expr)


def is_name(text: str) -> bool:
    """Test whether an expression is a single name or number."""
    return re.fullmatch(r"\w+", text) is not None
