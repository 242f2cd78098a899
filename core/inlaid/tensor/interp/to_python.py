"""Translates loop programs to Python source over numpy, for the interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.tensor import ir
from inlaid.tensor.analysis.independent import Nest, independent_nest
from inlaid.tensor.interp import values
from inlaid.tensor.interp.checked import OUT_OF_BOUNDS, SUPPORT
from inlaid.tensor.interp.thread_order import ThreadOrder
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError
from inlaid_runtime.types import DType

Array = np.ndarray[Any, Any]
Semantics = ir.LoopProgram | Callable[..., Any]
"""The semantics of an intrinsic. For an `ir.Intrinsic`: a loop program, whose inputs are the first regions and then the scalar
arguments as 0-d buffers, and whose outputs are the remaining regions. For an `ir.CallIntrinsic`: a function of numpy values (in
carrier dtypes, see `tensor.interp.values`)."""

_MAX_LANES = 1 << 16
_MIN_LANES = 16
_MAX_NESTING = 10
"""Maximum loop nesting in one function. Python allows twenty loops; loops nested deeper become separate functions."""


def translate(
    program: ir.LoopProgram, sizes: Mapping[SizeVar, int], intrinsics: Mapping[str, Semantics], seed: int = 0
) -> Callable[..., Any]:
    """Compile a program at given sizes to a Python function. The function takes arrays for the program's parameters, in order, and
    updates them in place. `seed` determines the order of threads."""
    code = Emitter(sizes, intrinsics, frozenset(size for size, _ in program.defines), seed)
    code.buffers = {buffer: f"a{number}" for number, buffer in enumerate(program.params)}
    code.defined = {size: f"int({code.buffers[buffer]}[()])" for size, buffer in program.defines}
    code.stmt(program.body)
    return code.compile([code.buffers[buffer] for buffer in program.params])


def evaluate_shape(buffer: ir.Buffer, sizes: Mapping[SizeVar, int]) -> tuple[int, ...]:
    """Evaluate the shape of a buffer at given sizes."""
    return tuple(arith.evaluate(dim, _by_expr(sizes)) for dim in buffer.shape)


def capacity(buffer: ir.Buffer, sizes: Mapping[SizeVar, int], defined: frozenset[SizeVar]) -> tuple[int, ...]:
    """Return the shape to allocate for a buffer: a size in `defined`, which the kernel defines, counts as its upper bound."""
    bounds = _by_expr(sizes)
    for dim in buffer.shape:
        for node in arith.walk(arith.wrap(dim)):
            if isinstance(node, SizeVar) and node not in bounds:
                if node.upper is None or node not in defined:
                    raise InputError(f"{buffer} needs size {node}, which is unknown", remedy="pass it in sizes")
                bounds[node] = arith.evaluate(node.upper, bounds)
    return tuple(arith.evaluate(dim, bounds) for dim in buffer.shape)


def _by_expr(sizes: Mapping[SizeVar, int]) -> dict[arith.Expr, int]:
    return dict(sizes.items())


# --- translation ------------------------------------------------------------------------------------------------------

_INLINE = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}


class Emitter:
    """Translates statements and expressions to lines of Python source.

    The translation of a value is a pair of texts: its value, and a flag that is nonzero if evaluating the value used an index out
    of range (None if that is impossible). `Select` drops the flag of the operand not selected. Values used by a statement must have
    flag 0. If `lanes` is set, index variables may be arrays with one element per lane.
    """

    def __init__(
        self, sizes: Mapping[SizeVar, int], intrinsics: Mapping[str, Semantics], defined: frozenset[SizeVar], seed: int = 0
    ) -> None:
        self.sizes = sizes
        self.intrinsics = intrinsics
        self.defined: dict[SizeVar, str] = {}
        self.buffers: dict[ir.Buffer, str] = {}
        self.privates: dict[ir.Buffer, str] = {}
        self.variables: dict[arith.Expr, str] = {}
        self.lanes = False
        self._seed = seed
        self._threads = ThreadOrder(seed)
        self._axes: dict[str, tuple[str, str]] = {}
        self._computed_sizes = defined
        self._lines: list[str] = []
        self._indent = 1
        self._nesting = 0
        self._names = itertools.count()
        self._objects: dict[str, Any] = {}
        self._calls: dict[str, _Call] = {}
        self._values: dict[ir.Expr, tuple[str, str | None]] = {}
        self._indices: dict[arith.Expr, tuple[str, str | None]] = {}

    # -- text --

    def bind(self, value: Any) -> str:
        """Bind an object to a name in the generated code."""
        name = f"k{next(self._names)}"
        self._objects[name] = value
        return name

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def temporary(self, text: str) -> str:
        name = f"t{next(self._names)}"
        self.line(f"{name} = {text}")
        return name

    def compile(self, parameters: Sequence[str] = ()) -> Callable[..., Any]:
        """Compile the lines to a function."""
        source = "\n".join([f"def generated({', '.join(parameters)}):", *self._lines, "    return None"])
        namespace: dict[str, Any] = {}
        exec(compile(source, "<loop program>", "exec"), {**SUPPORT, **self._objects}, namespace)
        function: Callable[..., Any] = namespace["generated"]
        return function

    def require(self, flag: str | None, context: str) -> None:
        """Emit a check that a flag is 0."""
        if flag is not None:
            self.line(f"if {f'(worst := int(np.max({flag})))' if self.lanes else f'(worst := {flag})'}: fail(worst, {context!r})")

    def _forget(self) -> None:
        """Discard memoized values, since memory may have changed."""
        self._values.clear()
        self._indices.clear()

    def _any(self, *flags: str | None) -> str | None:
        """Combine flags: the result is nonzero if any of them is."""
        distinct_flags = sorted({flag for flag in flags if flag is not None})
        if len(distinct_flags) < 2:
            return distinct_flags[0] if distinct_flags else None
        if not self.lanes:
            return self.temporary(" or ".join(distinct_flags))
        text = distinct_flags[0]
        for flag in distinct_flags[1:]:
            text = f"np.maximum({text}, {flag})"
        return self.temporary(text)

    def _choose(self, condition: str, then: str, otherwise: str) -> str:
        if self.lanes:
            return f"np.where({condition}, {then}, {otherwise})"
        return f"({then} if {condition} else {otherwise})"

    # -- integer expressions --

    def index(self, expr: arith.Expr) -> tuple[str, str | None]:
        """Translate an integer expression to its text and flag."""
        translation = self._indices.get(expr)
        if translation is None:
            translation = self._indices[expr] = self._index(expr)
        return translation

    def integer(self, expr: arith.Expr, context: str) -> str:
        """Translate an integer expression, and emit a check that its flag is 0."""
        text, flag = self.index(expr)
        self.require(flag, context)
        return text

    def _index(self, expr: arith.Expr) -> tuple[str, str | None]:
        match expr:
            case arith.Const(value=value):
                return repr(value), None
            case arith.Var():
                return self.variables[expr], None
            case SizeVar():
                if expr in self.defined:
                    return self.defined[expr], None
                return repr(self.sizes[expr]), None
            case arith.Opaque(payload=payload, lower=lower, upper=upper):
                assert isinstance(payload, ir.Expr)
                (data, bad), (low, low_bad), (high, high_bad) = self.value(payload), self.index(lower), self.index(upper)
                name = self.temporary(f"check_index(as_int({data}), {low}, {high})")
                return f"{name}[0]", self._any(f"{name}[1]", bad, low_bad, high_bad)
        parts = [self.index(operand) for operand in expr.operands]
        texts = [text for text, _ in parts]
        flags = [flag for _, flag in parts]
        match expr:
            case arith.Select():
                branch_flag = None
                if flags[1] is not None or flags[2] is not None:
                    branch_flag = self.temporary(self._choose(texts[0], flags[1] or "0", flags[2] or "0"))
                return self.temporary(self._choose(texts[0], texts[1], texts[2])), self._any(flags[0], branch_flag)
            case arith.And() if flags[1] is not None:
                branch_flag = self.temporary(self._choose(texts[0], flags[1], "0"))
                return self.temporary(f"(({texts[0]} != 0) & ({texts[1]} != 0)) * 1"), self._any(flags[0], branch_flag)
            case arith.FloorDiv() | arith.FloorMod():
                sign = "//" if isinstance(expr, arith.FloorDiv) else "%"
                if isinstance(expr.operands[1], arith.Const) and expr.operands[1].value:
                    return f"({texts[0]} {sign} {texts[1]})", self._any(*flags)
                zero = self.temporary(f"({texts[1]} == 0) * {OUT_OF_BOUNDS}")
                return self.temporary(f"({texts[0]} {sign} ({texts[1]} + {zero}))"), self._any(zero, *flags)
        return self._plain(expr, texts), self._any(*flags)

    def _plain(self, expr: arith.Expr, texts: list[str]) -> str:
        match expr:
            case arith.Add():
                return f"({texts[0]} + {texts[1]})"
            case arith.Mul():
                return f"({texts[0]} * {texts[1]})"
            case arith.Min() | arith.Max():
                name = "min" if isinstance(expr, arith.Min) else "max"
                return f"np.{name}imum({texts[0]}, {texts[1]})" if self.lanes else f"{name}({texts[0]}, {texts[1]})"
            case arith.Compare(op=op):
                return f"(({texts[0]} {op} {texts[1]}) * 1)"
            case arith.And():
                return f"((({texts[0]}) != 0) & (({texts[1]}) != 0)) * 1"
            case arith.Or():
                return f"((({texts[0]}) != 0) | (({texts[1]}) != 0)) * 1"
            case arith.Not():
                return f"((({texts[0]}) == 0) * 1)"
        raise AssertionError(f"expected an integer expression, got {type(expr).__name__}")

    # -- value expressions --

    def value(self, expr: ir.Expr) -> tuple[str, str | None]:
        """Translate a value expression to its text and flag. Iterative: fused expressions may be thousands of nodes deep."""
        stack = [expr]
        while stack:
            node = stack[-1]
            if node in self._values:
                stack.pop()
                continue
            missing = [arg for arg in ir.operands(node) if arg not in self._values]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self._values[node] = self._value(node)
        return self._values[expr]

    def _value(self, node: ir.Expr) -> tuple[str, str | None]:
        parts = [self._values[arg] for arg in ir.operands(node)]
        texts = [text for text, _ in parts]
        flags = [flag for _, flag in parts]
        dtype = node.dtype
        match node:
            case ir.Const(value=value):
                return self.bind(values.constant(value, dtype)), None
            case ir.Index(index=index):
                text, flag = self.index(index)
                if dtype.kind == "bool" and not self.lanes:
                    return self.temporary(f"np.bool_({text} != 0)"), flag
                return self.temporary(f"values.from_index({text}, {self.bind(dtype)})"), flag
            case ir.Load(buffer=buffer, indices=indices):
                return self._load(buffer, indices)
            case ir.Select():
                branch_flag = None
                if flags[1] is not None or flags[2] is not None:
                    branch_flag = self.temporary(self._choose(texts[0], flags[1] or "0", flags[2] or "0"))
                return self.temporary(self._choose(*texts)), self._any(flags[0], branch_flag)
        return self.temporary(self._compute(node, texts)), self._any(*flags)

    def _compute(self, node: ir.Expr, texts: list[str]) -> str:
        dtype = node.dtype
        args = ", ".join(texts)
        match node:
            case ir.Binary(op=op, a=a):
                if op in _INLINE and (a.dtype.bits >= 8 or op in ir.COMPARISONS) and values.carrier(a.dtype) == a.dtype.numpy:
                    return f"{texts[0]} {_INLINE[op]} {texts[1]}"
                return f"values.binary({op!r}, {self.bind(a.dtype)}, {args})"
            case ir.Unary(op=op, a=a):
                return f"values.unary({op!r}, {self.bind(a.dtype)}, {args})"
            case ir.Fma():
                return f"values.fma({self.bind(dtype)}, {args})"
            case ir.Cast(a=a):
                return f"values.cast({args}, {self.bind(a.dtype)}, {self.bind(dtype)})"
            case ir.Bitcast(a=a):
                return f"values.bitcast({args}, {self.bind(a.dtype)}, {self.bind(dtype)})"
            case ir.CallMath(name=name):
                return f"values.math({name!r}, {self.bind(dtype)}, {args})"
            case ir.CallIntrinsic(name=name):
                return f"{self.bind(self.intrinsics[name])}({args})"
        raise AssertionError(f"expected a value expression, got {type(node).__name__}")

    def _load(self, buffer: ir.Buffer, indices: tuple[arith.Expr, ...]) -> tuple[str, str | None]:
        if buffer in self.privates:
            return self.privates[buffer], None
        parts = [self.index(index) for index in indices]
        array = self._array(buffer)
        if self.lanes:
            subscript = "".join(f"{text}, " for text, _ in parts)
            name = self.temporary(f"gather({array}, ({subscript}), {self.bind(buffer.dtype)})")
            return f"{name}[0]", self._any(f"{name}[1]", *(flag for _, flag in parts))
        subscript, in_bounds = self._subscript(buffer, array, [text for text, _ in parts])
        value, flag = f"t{next(self._names)}", f"t{next(self._names)}"
        carrier = values.carrier(buffer.dtype)
        self.line(f"if {in_bounds}:")
        self.line(f"    {flag} = 0")
        conversion = "" if carrier == buffer.dtype.numpy else f".astype({self.bind(carrier)})"
        self.line(f"    {value} = {array}[{subscript}]{conversion}")
        self.line(f"else: {value}, {flag} = {self.bind(carrier.type(0))}, {OUT_OF_BOUNDS}")
        return value, self._any(flag, *(flag for _, flag in parts))

    def _subscript(self, buffer: ir.Buffer, array: str, indices: Sequence[str]) -> tuple[str, str]:
        """Return the subscript of an element, with indices bound to names, and the condition under which it is in bounds."""
        names = [text if text.isidentifier() or text.isdecimal() else self.temporary(text) for text in indices]
        extents = [f"{array}.shape[{axis}]" for axis in range(len(names))]
        if array == self.buffers[buffer]:
            extents = [str(extent) for extent in capacity(buffer, self.sizes, self._computed_sizes)]
        in_bounds = " and ".join(f"0 <= {name} < {extent}" for name, extent in zip(names, extents, strict=True))
        return "".join(f"{name}, " for name in names) or "()", in_bounds or "True"

    def _array(self, buffer: ir.Buffer) -> str:
        """Return the array of a buffer, viewed at its current size if the kernel computes its shape."""
        name = self.buffers[buffer]
        if not any(isinstance(dim, arith.Expr) and arith.free_vars(dim) & self._computed_sizes for dim in buffer.shape):
            return name
        shape = "".join(f"{self.index(arith.wrap(dim))[0]}, " for dim in buffer.shape)
        return self.temporary(f"strided({name}, ({shape}))")

    # -- statements --

    def stmt(self, stmt: ir.Stmt) -> None:
        """Translate a statement."""
        self._forget()
        if isinstance(stmt, ir.For) and stmt.over_threads and ir.threads_meet(stmt, (stmt.thread,)):
            self._coroutines(stmt)
            return
        if isinstance(stmt, ir.For) and not self.lanes:
            nest = independent_nest(stmt, self.sizes, _MIN_LANES, _MAX_LANES)
            if nest is not None:
                self._lanes(nest)
                return
        match stmt:
            case ir.For(body=body):
                self._loop(stmt, lambda: self.stmt(body))
            case ir.While(condition=condition, body=body):
                self._open("while True:")
                value, flag = self.value(condition)
                self.require(flag, "the condition of a loop")
                self.line(f"if not {value}: break")
                self.stmt(body)
                self._close()
            case ir.Block():
                self._block(stmt)
            case ir.Store():
                self._store(stmt)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                value, flag = self.value(condition)
                self.require(flag, "a condition")
                self._inside(f"if {value}:", lambda: self.stmt(then))
                if otherwise is not None:
                    self._inside("else:", lambda: self.stmt(otherwise))
            case ir.Let(var=var, value=value, body=body, bounds=bounds):
                text, flag = self.value(value)
                self.require(flag, f"the value of {var}")
                name = self.temporary(f"as_int({text})")
                if bounds is not None:
                    low, high = (self.integer(bound, f"the bounds of {var}") for bound in bounds)
                    self.require(self.temporary(f"check_index({name}, {low}, {high})[1]"), f"the value of {var}")
                self.variables[var] = name
                self.stmt(body)
            case ir.Alloc(buffer=buffer, body=body):
                self._alloc(buffer)
                self.stmt(body)
            case ir.Seq(stmts=stmts):
                for item in stmts:
                    self.stmt(item)
            case ir.Intrinsic(over=over) if not self._axes.keys().isdisjoint(over):
                self._collective(stmt)
            case ir.Intrinsic():
                self._intrinsic(stmt)
            case ir.Barrier(over=over):
                self._meet(stmt, over or tuple(self._axes))
            case _:
                raise AssertionError(f"expected a statement, got {type(stmt).__name__}")

    def _open(self, head: str) -> None:
        self.line(head)
        self._indent += 1
        self._forget()

    def _close(self) -> None:
        self.line("pass")
        self._indent -= 1
        self._forget()

    def _inside(self, head: str, body: Callable[[], None]) -> None:
        self._open(head)
        body()
        self._close()

    def _loop(self, loop: ir.For, body: Callable[[], None]) -> None:
        count = self.integer(loop.extent, f"the extent of {loop.var}")
        self.variables[loop.var] = name = f"i{next(self._names)}"
        steps = f"range({count})"
        if loop.kind in (ir.ForKind.PARALLEL, ir.ForKind.VECTORIZED):
            steps += "[::-1]"
        elif loop.kind is ir.ForKind.THREAD:
            steps = f"{self.bind(self._threads)}.next({count})"
        self._nesting += 1
        if self._nesting % _MAX_NESTING:
            self._inside(f"for {name} in {steps}:", body)
        else:
            inner = f"inner{next(self._names)}"
            self._inside(f"def {inner}({name}):", body)
            self.line(f"for {name} in {steps}: {'yield from ' * ir.threads_meet(loop.body, self._axes)}{inner}({name})")
        self._nesting -= 1

    def _coroutines(self, loop: ir.For) -> None:
        """Translate a nest of thread loops with barriers. Each thread is a generator that yields at the points where it waits."""
        body: ir.Stmt = loop
        variables = []
        while isinstance(body, ir.For) and body.over_threads:
            count = self.temporary(self.integer(body.extent, f"the extent of {body.var}"))
            self.variables[body.var] = f"i{next(self._names)}"
            variables.append(self.variables[body.var])
            self._axes[body.thread] = (variables[-1], count)
            body = body.body
        outer_nesting, self._nesting = self._nesting, 0
        thread, inner = f"thread{next(self._names)}", body
        self._inside(f"def {thread}({', '.join(variables)}):", lambda: self.stmt(inner))
        self.line(f"{self.bind(self._threads)}.run({thread}, ({''.join(f'{count}, ' for _, count in self._axes.values())}))")
        self._nesting, self._axes = outer_nesting, {}

    def _collective(self, stmt: ir.Intrinsic) -> None:
        """Translate a collective intrinsic: the threads of a group wait for each other, and one of them runs it."""
        self._meet(stmt, stmt.over)
        first = " and ".join(f"{self._axes[axis][0]} == 0" for axis in stmt.over)
        self._inside(f"if {first}:", lambda: self._intrinsic(stmt))
        self._meet(stmt, stmt.over)

    def _meet(self, stmt: ir.Stmt, axes: Collection[str]) -> None:
        """Make each thread wait for the threads that differ from it only along the axes `axes`."""
        group = "".join(f"{variable}, " for axis, (variable, _) in self._axes.items() if axis not in axes)
        self.line(f"yield {self.bind(stmt)}, ({group}), {self._count(axes)}")

    def _count(self, axes: Iterable[str]) -> str:
        return " * ".join(self._axes[axis][1] for axis in axes)

    def _alloc(self, buffer: ir.Buffer) -> None:
        if self.lanes:
            self.privates[buffer] = self.temporary(self.bind(values.load(values.poison((), buffer.dtype), buffer.dtype)))
            return
        shape = capacity(buffer, self.sizes, self._computed_sizes)
        self.buffers[buffer] = self.temporary(f"{self.bind(values.poison(shape, buffer.dtype))}.copy()")

    def _block(self, block: ir.Block) -> None:
        for item, binding in zip(block.iters, block.bindings, strict=True):
            self.variables[item.var] = self.temporary(self.integer(binding, f"the bindings of {block.name}"))
        if block.predicate != arith.ONE:
            self._open(f"if {self.integer(block.predicate, f'the predicate of {block.name}')}:")
        for item in block.iters:
            name, limit = self.variables[item.var], self.integer(item.extent, f"the extents of {block.name}")
            condition = f"np.all(({name} >= 0) & ({name} < {limit}))" if self.lanes else f"0 <= {name} < {limit}"
            self.line(f"assert {condition}, 'binding of {item.var} in {block.name} is outside its extent'")
        if block.init is not None:
            first = " and ".join(f"{self.variables[item.var]} == 0" for item in block.iters if item.kind is ir.IterKind.REDUCTION)
            init = block.init
            self._inside(f"if {first or 'True'}:", lambda: self.stmt(init))
        self.stmt(block.body)
        if block.predicate != arith.ONE:
            self._close()

    def _store(self, store: ir.Store) -> None:
        context = f"the store to {store.buffer}"
        text, flag = self.value(store.value)
        self.require(flag, context)
        if store.buffer in self.privates:
            self.line(f"{self.privates[store.buffer]} = {text}")
            return
        indices = [self.integer(index, context) for index in store.indices]
        array = self._array(store.buffer)
        element = text if values.carrier(store.buffer.dtype) == store.buffer.dtype.numpy else self._stored(text, store.buffer.dtype)
        if self.lanes:
            subscript = "".join(f"{index}, " for index in indices)
            self.line(f"scatter({array}, ({subscript}), {element}, {context!r})")
            return
        subscript, in_bounds = self._subscript(store.buffer, array, indices)
        self.line(f"if {in_bounds}: {array}[{subscript}] = {element}")
        self.line(f"else: fail({OUT_OF_BOUNDS}, {context!r} + f', at {{[{subscript}]}}')")

    def _stored(self, text: str, dtype: DType) -> str:
        return f"values.stored({text}, {self.bind(dtype)})"

    def _intrinsic(self, stmt: ir.Intrinsic) -> None:
        program = self.intrinsics[stmt.name]
        assert isinstance(program, ir.LoopProgram), f"the semantics of {stmt.name} must be a loop program"
        context = f"a region of {stmt.name}"
        operands = []
        for region in stmt.regions:
            ranges = "".join(
                f"({self.integer(first, context)}, {self.integer(extent, context)}), " for first, extent in region.ranges
            )
            operands.append(f"region({self._array(region.buffer)}, ({ranges}), {context!r})")
        scalars = []
        for arg in stmt.args:
            text, flag = self.value(arg)
            self.require(flag, context)
            scalars.append(f"np.asarray({self._stored(text, arg.dtype)})")
        first = len(program.inputs) - len(scalars)
        arrays = ", ".join((*operands[:first], *scalars, *operands[first:]))
        call = self._calls.setdefault(stmt.name, _Call(stmt.name, program, self.sizes, self.intrinsics, self._seed))
        self.line(f"{self.bind(call)}({arrays})")

    def _lanes(self, nest: Nest, depth: int = 0) -> None:
        """Translate a nest of independent iterations. Its serial loops become loops of Python, its other loops axes of arrays."""
        if depth < len(nest.serial):
            self._loop(nest.serial[depth], lambda: self._lanes(nest, depth + 1))
            return
        for axis, loop in enumerate(nest.lanes):
            count = self.integer(loop.extent, f"the extent of {loop.var}")
            shape = "(" + "1, " * axis + "-1, " + "1, " * (len(nest.lanes) - axis - 1) + ")"
            self.variables[loop.var] = self.temporary(f"np.arange({count}).reshape({shape})")
        self.lanes = True
        self.stmt(nest.body)
        self.lanes = False


class _Call:
    """A call of a tensor intrinsic on array views. It is translated once per set of sizes. Sizes that no operand determines have
    the values that they have in the calling program."""

    def __init__(
        self, name: str, program: ir.LoopProgram, sizes: Mapping[SizeVar, int], intrinsics: Mapping[str, Semantics], seed: int
    ) -> None:
        self._name = name
        self._sizes = sizes
        self._seed = seed
        self._program = program
        self._intrinsics = intrinsics
        self._functions: dict[tuple[int, ...], Callable[..., Any]] = {}

    def __call__(self, *arrays: Array) -> None:
        params = self._program.params
        assert len(arrays) == len(params), f"{self._name} takes {len(params)} operands, got {len(arrays)}"
        sizes: dict[SizeVar, int] = {}
        for buffer, array in zip(params, arrays, strict=True):
            # A region with leading unit extents may be passed for a buffer of lower rank.
            for dim, actual in zip(reversed(buffer.shape), reversed(array.shape), strict=False):
                if isinstance(dim, SizeVar):
                    sizes.setdefault(dim, actual)
        sizes = {**self._sizes, **sizes}
        views = []
        for buffer, array in zip(params, arrays, strict=True):
            shape = evaluate_shape(buffer, sizes)
            extra = array.ndim - len(shape)
            assert extra >= 0 and array.shape == (1,) * extra + shape, (
                f"{self._name}: {buffer} has shape {shape}, got {array.shape}"
            )
            views.append(array[(0,) * extra + (...,)])
        key = tuple(sizes.values())
        if key not in self._functions:
            self._functions[key] = translate(self._program, sizes, self._intrinsics, self._seed)
        self._functions[key](*views)
