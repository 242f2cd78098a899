"""Random modules of canonical operators, on symbolic sizes, with inputs for several runs.

Examples of operators are those of the conformance corpus, which computes shapes and attributes from extents: here extents remember
their expressions, so that the example of one run becomes a call on symbolic sizes. The same choices made once more at the sizes of
another run give its inputs.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.driver.compile import compile_module
from inlaid.graph import ir
from inlaid.graph.attrs import attr_vars, sizes_in
from inlaid.graph.interp import evaluate
from inlaid.graph.operator import Operator
from inlaid.graph.scope_conditions import call_conditions
from inlaid.graph.text import show
from inlaid.graph.transform import map_functions
from inlaid.graph.verify import verify
from inlaid.ops.plan import fail_attrs
from inlaid.passes.name_sizes import substitute_sizes
from inlaid_conformance.corpus import COMMON, CORPUS, Choices, Entry, Example, Unfit
from inlaid_conformance.values import Array, Mix
from inlaid_runtime import arith
from inlaid_runtime.arith import Dim, SizeVar
from inlaid_runtime.errors import InlaidError, TypeInferenceError
from inlaid_runtime.execution.executable import Executable
from inlaid_runtime.types import TensorType, TupleType, Type, from_numpy, type_vars

from .control import F32, Generator, carried, moved, scalar, tensor_dtype, tensor_shape
from .extents import RUNS, Extent, Sizes, extent_dim
from .numerics import NOISY_RUNS, Expected, expected

LEAST, SMALL, LARGE = (1, 2, 2, 3, 4, 5), (1, 2, 3, 4, 5, 7, 8, 9, 11), (1, 6, 12, 13, 15, 16, 17, 23, 31, 32, 33)
"""Values of a symbolic size in the first run, whose examples fix attributes, and in the others."""
EXTRA_SIZES = (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33)
"""Values of a symbolic size in runs that need not fit."""
STATIC = (3, 5, 4, 1, 7, 2, 16, 13, 9, 8)
"""Extents that are the same in all runs."""
MAX_ELEMENTS = 1 << 13
"""Greatest number of elements of an input or a result."""
TRIES = 24
"""Number of attempts to find a call of an operator that is defined at all sizes."""
HUGE = 1e5
"""Magnitude beyond which results are mostly replaced: they would hide errors of smaller ones."""
PLANNED = ("bind_size", "assert_true", "fail")
"""Operators without examples in the corpus: instructions of the execution plan."""
OPERATORS = (*(entry.operator.name for entry in CORPUS), *PLANNED)
"""Names of all canonical operators."""
RANDOM = ("random_uniform", "random_normal")
ENTRIES: Mapping[str, Entry] = {entry.operator.name: entry for entry in CORPUS}


@dataclass(frozen=True)
class ModuleCase:
    """A module, and the inputs of each run by name. `sizes` has the symbolic sizes with their values in all runs."""

    module: ir.Module
    inputs: tuple[dict[str, Any], ...]
    sizes: Mapping[str, tuple[int, ...]]
    skipped: Mapping[str, int] = field(default_factory=dict)

    def compiled(self, target: str, run: int | None = None) -> Executable:
        """Compile for a target, with symbolic sizes, or with the sizes of a run."""
        return compile_module(self.module if run is None else self._fixed(run), [target])

    def fixable(self) -> bool:
        """Test whether the sizes of a run can be fixed: always."""
        return True

    def _fixed(self, run: int) -> ir.Module:
        """Return the module for the sizes of a run alone."""
        values: dict[arith.Expr, arith.Expr] = {SizeVar(name): arith.Const(each[run]) for name, each in self.sizes.items()}
        every = [expr for each in self.module.functions.values() for expr in ir.post_order(each)]
        for size in (size for expr in every for size in sizes_in(expr.type) if ir.existential(size)):
            # The bound of a size that a kernel defines is an expression of others.
            upper = size.upper if size.upper is None else arith.unwrap(arith.substitute(arith.wrap(size.upper), values))
            values.setdefault(size, SizeVar(size.name, size.lower, upper))
        return map_functions(self.module, lambda function: substitute_sizes(function, values))

    def expected(self, run: int, noisy_runs: int = NOISY_RUNS) -> Expected:
        """Return the reference's outputs of a run."""
        return expected(self.module, self.inputs[run], run, noisy_runs=noisy_runs)

    def __str__(self) -> str:
        return f"{show(self.module)}{dict(self.sizes)}"

    def other_inputs(self, rng: random.Random) -> dict[str, Any]:
        """Return inputs of drawn sizes, which need not fit together."""
        sizes: dict[arith.Expr, int] = {SizeVar(name): rng.choice(EXTRA_SIZES) for name in self.sizes}
        return {param.name: _resized(param.type, self.inputs[0][param.name], sizes) for param in self.module.main.params}

    def spread(self, inputs: Mapping[str, Any], outputs: Sequence[Any], noisy_runs: int = NOISY_RUNS) -> Expected:
        """Return outputs as expected ones, with what rounding may change."""
        return expected(self.module, inputs, 0, outputs, noisy_runs=noisy_runs)

    def operators(self) -> Counter[str]:
        """Count the calls of each operator."""
        return Counter(item.callee.name for item in self.calls() if isinstance(item.callee, Operator))

    def calls(self) -> list[ir.Call]:
        """Return all calls in the module."""
        functions = self.module.functions.values()
        return [expr for each in functions for expr in ir.post_order(each) if isinstance(expr, ir.Call)]


class RunChoices(Choices):
    """Choices of an example in one run. `shaped` has the arrays drawn so far, with the extents that they were drawn with."""

    def __init__(
        self,
        choose: Callable[[int], int],
        mix: Mix,
        sizes: Sequence[int],
        fixed_shapes: Mapping[int, tuple[int, ...]],
    ) -> None:
        super().__init__(choose, mix, sizes, fixed_shapes=fixed_shapes)
        self.shaped: list[tuple[Array, tuple[int, ...]]] = []

    def below(self, count: int) -> int:
        """Pick a number from 0 to count - 1. The last one of a symbolic extent is symbolic as well."""
        if isinstance(count, Extent) and self._choose(2):
            return count - 1
        return super().below(int(count))

    def array(self, shape: Sequence[int], dtype_name: str, low: float | None = None, high: float | None = None) -> Array:
        """Draw values, and note the extents of their shape. Raises `Unfit` for too many."""
        return self._noted(shape, lambda plain: super(RunChoices, self).array(plain, dtype_name, low, high))

    def indices(self, shape: Sequence[int], extent: int, dtype_name: str = "int64") -> Array:
        """Draw indices, and note the extents of their shape."""
        return self._noted(shape, lambda plain: super(RunChoices, self).indices(plain, int(extent), dtype_name))

    def _noted(self, shape: Sequence[int], draw: Callable[[tuple[int, ...]], Array]) -> Array:
        plain = tuple(map(int, shape))
        if math.prod(plain) > MAX_ELEMENTS:
            raise Unfit
        array = draw(plain)
        self.shaped.append((array, tuple(shape)))
        return array

    def _pick_rank(self, min_rank: int, max_rank: int) -> int:
        return 5 if max_rank == 4 and self._choose(12) == 11 else super()._pick_rank(min_rank, max_rank)

    def extents(self, value: Array) -> tuple[int, ...]:
        """Return the extents that an array was drawn with, or its shape; extents that only look like those of data or of other
        arrays take their expressions."""
        for array, shape in self.shaped:
            if array is value:
                return self._likened(shape)
        return self._likened(value.shape)

    def _likened(self, shape: Sequence[int]) -> tuple[int, ...]:
        shapes = [*self._fixed_shapes.values(), *(shape for _, shape in self.shaped)]
        extents = []
        for axis, extent in enumerate(shape, -len(shape)):
            candidates = [each[axis] for each in shapes if len(each) >= -axis] + [item for each in shapes for item in each]
            symbolic = (item for item in candidates if isinstance(item, Extent) and int(item) == int(extent))
            extents.append(extent if isinstance(extent, Extent) or int(extent) <= 1 else next(symbolic, extent))
        return tuple(extents)


class ModuleGenerator(Generator):
    """Grows a module. `focus` names operators of which each occurs at least once."""

    dtypes = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "bool")

    def __init__(self, seed: str, focus: Sequence[str], max_steps: int = 9) -> None:
        self.random = random.Random(seed)
        super().__init__(self.random.randint)
        self.focus = list(focus)
        self.max_steps = max_steps
        self.sizes = Sizes()
        self.params: list[ir.Var] = []
        self.inputs: dict[ir.Var, tuple[Any, ...]] = {}
        self.pending: list[str] = []
        self.binders: dict[SizeVar, ir.Var] = {}
        self.closed = False
        empty = self.random.random() < 0.25
        for name in ("n", "m", "k")[: self.number(0, 3)]:
            size_pools = [self.pick((SMALL, LARGE)) for _ in range(RUNS - 1)]
            values = [self.pick(LEAST), *map(self.pick, size_pools)]
            if empty and self.number(0, 1):
                values[-1] = 0
            self.sizes.add(name, values)
        self.static = self.random.sample(STATIC, 4)

    def case(self) -> ModuleCase:
        """Grow a module, with each of the operators in focus."""
        pool: list[ir.Expr] = []
        steps = max(len(self.focus), self.number(2, self.max_steps))
        waiting = [*self.focus, *(None for _ in range(steps - len(self.focus)))]
        self.random.shuffle(waiting)
        for name in waiting:
            self.extend(pool, name)
        return self.finished(pool)

    def finished(self, pool: list[ir.Expr]) -> ModuleCase:
        """Make the module of all values that nothing reads, of those with sizes that a kernel defines, and of some others. An arm
        may use such a size and not read the value."""
        read = {id(child) for expr in ir.post_order(*pool) for child in ir.children(expr)}
        read -= {id(expr) for expr in pool if any(map(ir.existential, type_vars(expr.type)))}
        results = [expr for expr in pool if (id(expr) not in read or self.number(0, 5) == 0) and not isinstance(expr, ir.Var)]
        results = [expr for expr in results if not _function_in(expr.type)] or [ir.constant(np.float32(0))]
        body = results[0] if len(results) == 1 and self.number(0, 1) else ir.tuple_(results)
        functions = {**self.functions, "main": ir.function(self._read_params([*self.functions.values(), body]), body)}
        module = ir.Module(functions)
        verify(module)
        inputs = [{param.name: self.inputs[param][run] for param in module.main.params} for run in range(RUNS)]
        sizes = {size.name: values for size, values in self.sizes.values.items()}
        return ModuleCase(module, tuple(inputs), sizes)

    def _read_params(self, roots: Sequence[ir.Expr]) -> list[ir.Var]:
        """Return the parameters that expressions read, and parameters that bind the other sizes in them."""
        every = list(ir.post_order(*roots))
        read = {id(expr) for expr in every}
        params = [param for param in self.params if id(param) in read]
        calls = [expr for expr in every if isinstance(expr, ir.Call)]
        sizes = {size for expr in every for size in type_vars(expr.type)} | {
            size for each in calls for size in attr_vars(each.attrs)
        }
        unbound = sizes - {dim for param in params if isinstance(param.type, TensorType) for dim in param.type.shape}
        for size in self.sizes.values:
            if size in unbound:
                if size not in self.binders:
                    values = tuple(np.zeros(value, np.float32) for value in self.sizes.values[size])
                    self.binders[size] = self.parameter(TensorType((size,), F32), values)
                params.append(self.binders[size])
        return params

    # --- growth -------------------------------------------------------------------------------------------------------

    def extend(self, pool: list[ir.Expr], name: str | None) -> None:
        """Add to a pool the results of an operator, or of any if `name` is None, that is defined at the sizes of all runs."""
        for attempt in range(TRIES):
            params, functions = len(self.params), dict(self.functions)
            self.pending = [] if name is None else [name]
            with contextlib.suppress(Unfit, TypeInferenceError):
                nested = attempt < TRIES // 2 and self.tensors(pool) and self.number(0, 4) == 0
                if nested:
                    expr = self.pick(self.control())(pool, self.number(1, 2))
                else:
                    fresh = attempt >= TRIES // 2
                    expr = self.operator([] if fresh else pool, 0, plain=attempt >= 3 * TRIES // 4)
                if self._calls(expr, functions, name) and self.defined(expr):
                    pool += _parts(expr)
                    return
            del self.params[params:]
            self.functions = functions
        if name is not None:
            raise AssertionError(f"no example of {name} is defined at the sizes {self.sizes.values}")

    def _calls(self, expr: ir.Expr, functions: Mapping[str, ir.Function], name: str | None) -> bool:
        """Test whether an expression, or a function that is not in `functions`, calls an operator: a branch may have made the call
        and returned another value. True if `name` is None."""
        if name is None:
            return True
        roots = [expr, *(each for key, each in self.functions.items() if key not in functions)]
        every = (each for each in ir.post_order(*roots) if isinstance(each, ir.Call) and isinstance(each.callee, Operator))
        return any(each.callee.name == name for each in every)

    def step(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Make a call of an operator, or control flow."""
        for _ in range(TRIES):
            pending = list(self.pending)
            with contextlib.suppress(Unfit, TypeInferenceError):
                if depth and not pending and self.tensors(pool) and self.number(0, 4) == 0:
                    return self.pick(self.control())(pool, depth)
                expr = self.operator(pool, depth)
                parts = [item for item in _parts(expr) if item is not expr]
                pool += parts
                return self.pick(parts) if parts else expr
            self.pending = pending
        raise Unfit

    def defined(self, expr: ir.Expr) -> bool:
        """Test whether an expression has a value in each run, of a moderate size, and bind the sizes that it defines."""
        params = self._read_params([*self.functions.values(), expr])
        module = ir.Module({**self.functions, "main": ir.function(params, expr)})
        values = []
        for run in range(RUNS):
            try:
                with np.errstate(all="ignore"):
                    values.append(evaluate(module, [self.inputs[param][run] for param in params]))
            except InlaidError:
                return False
        if any(not self._moderate(value) for value in values):
            return False
        calls = [each for each in ir.post_order(expr) if isinstance(each, ir.Call) and isinstance(each.callee, Operator)]
        for constraint in call_conditions(calls):
            if self.sizes.evaluable([constraint.condition]) and not all(
                self.sizes.at(run, [constraint.condition])[0] for run in range(RUNS)
            ):
                return False
        for run_values, value in zip(self.sizes.existing, values, strict=True):
            _bind(expr.type, value, run_values)
        return True

    def _moderate(self, value: Any) -> bool:
        if isinstance(value, (tuple, list)):
            return all(map(self._moderate, value))
        if not isinstance(value, np.ndarray):
            return True
        if value.size > MAX_ELEMENTS:
            return False
        if value.dtype == object or not from_numpy(value.dtype).is_float or not value.size:
            return True
        with np.errstate(all="ignore"):
            numbers = np.abs(value.astype(np.float64))
        finite = numbers[np.isfinite(numbers)]
        return bool(finite.size and finite.max() < HUGE) or self.number(0, 4) == 0

    def recurse(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Call a new function of the module. It reads nothing of `main`."""
        self.closed = True
        try:
            return super().recurse(pool, depth)
        finally:
            self.closed = False

    def branch(self, pool: list[ir.Expr], depth: int) -> ir.Expr:
        """Make an `If`, sometimes of two values whose sizes may differ."""
        value = self.pick(pool)
        alternatives = [each for each in pool if _alike(value.type, each.type) and each.type != value.type]
        if alternatives and not self.closed and self.number(0, 1):
            return ir.if_(self.flag(pool), value, self.pick(alternatives))
        return super().branch(pool, depth)

    # --- calls --------------------------------------------------------------------------------------------------------

    def operator(self, pool: list[ir.Expr], depth: int, plain: bool = False) -> ir.Expr:
        """Call an operator on values of the pool, on new inputs and on constants. A `plain` call has new inputs of static sizes."""
        name = self.pending.pop() if self.pending else None
        data = self.pick(pool[-6:]) if pool and self.number(0, 4) else None
        if data is not None and not self._readable(data):
            data = None
        if name in PLANNED:
            return self.planned(name, pool)
        entries = list(ENTRIES.values()) if name is None else [ENTRIES[name]]
        if data is not None:
            fitting = [entry for entry in entries if tensor_dtype(data) in entry.dtypes]
            entries, data = (fitting, data) if fitting else (entries, None)
        entry = self.pick(entries)
        if data is not None:
            element = tensor_dtype(data)
        else:
            common = [each for each in entry.dtypes if each in COMMON]
            element = self.pick(common if common and self.number(0, 2) else entry.dtypes)
        return self._call(entry, element, data, pool, plain)

    def _readable(self, data: ir.Expr) -> bool:
        return isinstance(data.type, TensorType) and self.sizes.evaluable(data.type.shape)

    def _call(self, entry: Entry, element: str, data: ir.Expr | None, pool: list[ir.Expr], plain: bool) -> ir.Expr:
        """Call the operator of an entry. Raises `Unfit` and `TypeInferenceError`."""
        other = self._other(entry, data, pool)
        mix = self.pick(("plain",) * 7 + ("special", "special", "edge"))
        trace: list[int] = []

        def record(count: int) -> int:
            if count < 1:
                raise Unfit
            trace.append(self.random.randrange(count))
            return trace[-1]

        examples: list[tuple[Example, RunChoices]] = []
        for run in range(RUNS):
            fixed_shapes = {
                number: self.sizes.at(run, tensor_shape(each)) for number, each in enumerate((data, other)) if each is not None
            }
            # A function of the module binds none of the sizes of `main`.
            symbols = () if plain or self.closed else self.sizes.at(run, self.sizes.values)
            choices = RunChoices(_replay(trace) if run else record, mix, (*self.static, *symbols, *symbols), fixed_shapes)
            try:
                examples.append((entry.example(choices, element), choices))
            except (ValueError, IndexError, ZeroDivisionError, OverflowError) as error:
                # The corpus makes examples at sizes that it draws; those of other runs may leave it none.
                raise Unfit from error
        example, choices = examples[0]
        operands = {number: each for number, each in enumerate((data, other)) if each is not None}
        args = [self._operand(number, examples, operands.get(number), pool, plain) for number in range(len(example.inputs))]
        if entry.operator.name == "bitcast" and example.inputs[0].dtype.kind not in "biu":
            # The sign and payload of the NaN of an operation are the processor's.
            args[0] = ops.where(ops.isnan(args[0]), ir.constant(np.zeros((), example.inputs[0].dtype)), args[0])
        attrs = {name: _attribute(value, True) for name, value in example.attrs.items()}
        try:
            return entry.operator(*args, **attrs)
        except TypeInferenceError:
            return entry.operator(*args, **{name: _attribute(value, False) for name, value in example.attrs.items()})

    def _other(self, entry: Entry, data: ir.Expr | None, pool: list[ir.Expr]) -> ir.Expr | None:
        """Pick a second operand for an element-wise operator or a product, sometimes."""
        if data is None or entry.operator.arity[0] != 2 or self.number(0, 1):
            return None
        fitting = [each for each in pool if self._readable(each) and tensor_dtype(each) == tensor_dtype(data)]
        return self.pick(fitting)

    def _operand(
        self,
        number: int,
        examples: Sequence[tuple[Example, RunChoices]],
        operand: ir.Expr | None,
        pool: list[ir.Expr],
        plain: bool,
    ) -> ir.Expr:
        """Make an operand: a known one, one of the pool with its type, a constant, or a parameter with values for each run."""
        example, choices = examples[0]
        value = example.inputs[number]
        if number in example.types:
            type_, values = example.types[number], tuple(each.inputs[number] for each, _ in examples)
        else:
            dims = tuple(map(extent_dim, choices.extents(value)))
            type_ = TensorType(dims, from_numpy(value.dtype))
            if operand is not None and operand.type == type_:
                return operand
            if any(size not in self.sizes.values for size in type_vars(type_)):
                existing = [each for each in pool if each.type == type_]
                if not existing:
                    raise Unfit
                return self.pick(existing)
            if not plain and not type_vars(type_) and type_.rank and self.number(0, 3) == 0:
                type_ = self._opened(type_)
            values = tuple(
                _fitted(each.inputs[number], self.sizes.shape(run, type_)) if number < len(each.inputs) else value
                for run, (each, _) in enumerate(examples)
            )
            if any(each.size > MAX_ELEMENTS for each in values):
                raise Unfit
        existing = [each for each in pool if each.type == type_]
        if existing and self.number(0, 2) == 0:
            return self.pick(existing)
        constant = isinstance(type_, TensorType) and type_.is_static and type_.dtype.kind != "string"
        if self.closed and not constant:
            raise Unfit  # a function of the module reads none of the parameters of `main`
        if constant and (self.closed or (number and self.number(0, 2) == 0)):
            return ir.constant(value)
        return self.parameter(type_, values)

    def _opened(self, type_: TensorType) -> TensorType:
        """Give some extents of a static shape a symbolic size of their own."""
        shape: list[Dim] = list(type_.shape)
        for axis, dim in enumerate(shape):
            if isinstance(dim, int) and dim > 1 and self.number(0, 1):
                shape[axis] = self.sizes.add(f"d{len(self.sizes.values)}", [dim, *(self.pick(SMALL) for _ in range(RUNS - 1))])
        return TensorType(shape, type_.dtype)

    def parameter(self, type_: Type, values: tuple[Any, ...]) -> ir.Var:
        """Add a parameter, with its value in each run."""
        param = ir.var(f"x{len(self.inputs)}", type_)
        self.params.append(param)
        self.inputs[param] = values
        return param

    # --- instructions of the plan -------------------------------------------------------------------------------------

    def planned(self, name: str, pool: list[ir.Expr]) -> ir.Expr:
        """Read a size from data, assert a condition on data, or fail in a branch that is not taken."""
        floats = [expr for expr in pool if carried(expr)]
        number = scalar(self.pick(floats)) if floats else self.parameter(TensorType((), F32), (np.float32(2).reshape(()),) * RUNS)
        if name == "bind_size":
            count = ops.cast(ops.abs(ops.where(ops.isnan(number), ir.constant(np.float32(1)), number)), dtype="int64")
            witness = ops.bind_size(count, message="a size of data")
            value = ops.after(number, witness)
            return ops.broadcast_to(value, shape=(tensor_shape(witness)[0], self.pick(self.static)))
        low = ir.constant(np.float32(-10))
        if name == "assert_true":
            holds = ops.logical_not(ops.less(number, low))
            return ops.after(self.pick(floats) if floats else number, ops.assert_true(holds, message="the sum is too small"))
        value = self.pick(floats) if floats else number
        assert isinstance(value.type, TensorType)
        never = ir.call(ops.fail, [], fail_attrs("the sum is too small", value.type))
        return ir.if_(ops.less(number, low), never, moved(value, number))


def _attribute(value: Any, symbolic: bool) -> Any:
    """Convert extents in an attribute to expressions or to plain integers."""
    if isinstance(value, tuple):
        return tuple(_attribute(item, symbolic) for item in value)
    if isinstance(value, Extent):
        return value.dim if symbolic else int(value)
    return value


def _fitted(value: Array, shape: tuple[int, ...]) -> Array:
    """Repeat or cut values to a shape."""
    return value if value.shape == shape else np.resize(value, shape).astype(value.dtype)


def _resized(type_: Type, value: Any, sizes: Mapping[arith.Expr, int]) -> Any:
    """Repeat or cut a value of a tensor type to the shape that it has at some sizes."""
    if not isinstance(type_, TensorType):
        return value
    # A size less one is no size where the first is 0.
    return _fitted(value, tuple(max(0, arith.evaluate(dim, sizes)) for dim in type_.shape))


def _replay(trace: Sequence[int]) -> Callable[[int], int]:
    numbers = iter(trace)

    def choose(count: int) -> int:
        if count < 1:
            raise Unfit
        return next(numbers, 0) % count

    return choose


def _parts(expr: ir.Expr) -> list[ir.Expr]:
    """Return the tensors of an expression: the items of a tuple, or itself."""
    if not isinstance(expr.type, TupleType):
        return [expr]
    return [part for index in range(len(expr.type.fields)) for part in _parts(ir.tuple_item(expr, index))]


def _bind(type_: Type, value: Any, run_values: dict[Any, int]) -> None:
    """Note the sizes that a value of a type defines."""
    if isinstance(type_, TensorType):
        pairs = zip(type_.shape, value.shape, strict=True)
        run_values.update((dim, size) for dim, size in pairs if not isinstance(dim, int) and ir.existential(dim))
    elif isinstance(type_, TupleType):
        for field, part in zip(type_.fields, value, strict=True):
            _bind(field, part, run_values)


def _alike(a: Type, b: Type) -> bool:
    """Test whether two types are of tensors of one rank and element type."""
    return isinstance(a, TensorType) and isinstance(b, TensorType) and (a.rank, a.dtype) == (b.rank, b.dtype)


def _function_in(type_: Type) -> bool:
    return not isinstance(type_, (TensorType, TupleType)) and "fn(" in repr(type_)
