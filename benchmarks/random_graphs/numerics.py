"""Comparison of results with expected ones, as far as rounding determines them.

Compiled code sums in another order and contracts products and sums, so that floats differ by rounding. An argmax of them, a floor
or a comparison may then differ by anything. How much each element of a result depends on rounding is measured: the module runs
again with noise of a few units in the last place around every operator that rounds.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid.driver.deviation import ABSOLUTE, NARROW, RELATIVE
from inlaid.driver.shadow import flat
from inlaid.graph import ir
from inlaid.graph.interp import Interpreter
from inlaid.graph.operator import Attrs, Operator
from inlaid.graph.transform import map_functions, transform
from inlaid.passes.decompose import decompose
from inlaid_conformance.corpus import find_entry
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import TensorType, TupleType, Type, from_numpy

Array = np.ndarray[Any, Any]

NOISE = {"float64": 2.0**-47, "float32": 2.0**-20, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Relative size of the noise by element type: some units in the last place; of the narrow types, whose results are rounded once,
about one."""
NARROW_NOISE = 2.0**-2
"""The same of floats of at most eight bits."""
NOISY_RUNS = 4
CAREFUL_RUNS = 40
"""Runs with noise before a difference is believed: a sign that rounding decides stays in one of eight of `NOISY_RUNS`."""
SPREAD = 6.0
"""Allowed difference in multiples of the largest one that noise makes."""
CONTRACTED = frozenset(("add", "sub", "mul", "div", "sqrt"))
"""Operators that the corpus calls exact, and whose results change with rounding all the same: IEEE 754 defines each of them, but
not their contraction."""
SUMS = CONTRACTED | {
    "reduce_sum",
    "reduce_prod",
    "matmul",
    "conv",
    "conv_transpose",
    "cumsum",
    "cumprod",
    "avg_pool",
    "col2im",
    "det",
}
"""Operators that do not round short numbers, such as small integers."""
NORMALIZATIONS = frozenset(("layer_norm", "rms_norm"))


@dataclass(frozen=True)
class Expected:
    """Expected outputs of a run, flat. `spread` has, for each, the largest change of each element that noise made, infinite where
    an element is not determined; None if not even its shape is. `error` is the reference's error, if it refuses the run."""

    values: tuple[Any, ...] = ()
    spread: tuple[Any, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison. `error` describes the first difference, "" if there is none. `undetermined` of `elements` elements
    were not compared, since rounding decides them."""

    error: str = ""
    undetermined: int = 0
    elements: int = 0


def noisy(module: ir.Module, seed: int, weights: Collection[str] | None = None) -> ir.Module:
    """Return a module in which the float operands and results of operators that round have noise, and so have constants whose
    digests are not in `weights`: they were computed when the model was imported."""
    counter = iter(range(1 << 30))

    def visit(old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if isinstance(new, ir.Call) and isinstance(new.callee, Operator) and _rounds(new.callee) and _floats(new):
            double = _double(new.callee, new.type, zlib.crc32(f"{seed} {next(counter)}".encode()), wide=seed % 2 == 0)
            return ir.Call(new.type, new.span, double, new.args, new.attrs)
        if isinstance(new, ir.Constant) and weights is not None and new.digest() not in weights:
            shaken = _shaken(new.data, np.random.default_rng(seed))
            return new if np.array_equal(shaken, new.data, equal_nan=shaken.dtype.kind == "f") else ir.constant(shaken)
        return new

    # Normalizations in parts: the mean of few elements, such as of one, cancels against them, and only engines that subtract the
    # rounded mean times a factor show it.
    return map_functions(module, lambda function: transform(decompose(function, _is_whole), visit))  # type: ignore[arg-type, return-value]


def _is_whole(call: ir.Call) -> bool:
    return isinstance(call.callee, Operator) and call.callee.name not in NORMALIZATIONS


def _rounds(operator: Operator) -> bool:
    entry = find_entry(operator)
    exact = entry is not None and entry.exact and operator.name not in CONTRACTED
    return operator.reference is not None and not exact and not operator.planned


def _floats(call: ir.Call) -> bool:
    return any(isinstance(part, TensorType) and part.dtype.is_float for arg in (call, *call.args) for part in _tensors(arg.type))


def _tensors(type_: Type) -> list[Type]:
    return [part for each in type_.fields for part in _tensors(each)] if isinstance(type_, TupleType) else [type_]


def _double(operator: Operator, type_: Type, seed: int, wide: bool) -> Operator:
    """Return an operator that computes as another, with noise on its float operands and results. A `wide` one sums in float64:
    whether a sum of huge numbers overflows in a narrower type depends on their order."""
    rng = np.random.default_rng(seed)
    reference, sums = operator.reference, operator.name in SUMS
    dtype = type_.dtype.numpy if wide and sums and isinstance(type_, TensorType) and type_.dtype.is_float else None
    assert reference is not None

    def run(attrs: Attrs, *values: Any) -> Any:
        operands = values if operator.name in CONTRACTED else [_shaken(value, rng) for value in values]
        with np.errstate(all="ignore"):
            if dtype is None:
                result = reference(attrs, *operands)
            else:
                result = reference(attrs, *(value.astype(np.float64) for value in operands)).astype(dtype)
        if isinstance(result, tuple):
            return tuple(_shaken(np.asarray(part), rng, sums) for part in result)
        return _shaken(np.asarray(result), rng, sums)

    return Operator(operator.name, lambda attrs, *types: type_, operator.attrs, reference=run, arity=(0, None))


def _shaken(value: Any, rng: np.random.Generator, exact: bool = True) -> Any:
    """Return floats with noise. With `exact`, numbers of half the bits of their type stay, since they are not rounded."""
    if not isinstance(value, np.ndarray) or value.dtype == object or not from_numpy(value.dtype).is_float:
        return value
    wide, noise = value.astype(np.float64), NOISE.get(from_numpy(value.dtype).name, NARROW_NOISE)
    step = 2.0 ** (math.log2(noise) // 2)
    with np.errstate(all="ignore"):
        fraction, exponent = np.frexp(wide)
        short = np.ldexp(np.round(fraction / step) * step, exponent) == wide
        shaken = wide * (1 + rng.uniform(-1, 1, value.shape) * noise)
        return np.asarray(np.where(short & exact, wide, shaken)).astype(value.dtype)


def expected(
    module: ir.Module,
    inputs: Mapping[str, Any],
    seed: int,
    values: Sequence[Any] | None = None,
    weights: Collection[str] | None = None,
    noisy_runs: int = NOISY_RUNS,
) -> Expected:
    """Evaluate a module on inputs. `values` replaces its outputs by those of another engine; noise still tells their spread.
    `weights` are the digests of constants without rounding errors; None: of all."""
    main = module.main
    ordered = [inputs[param.name] for param in main.params]
    if values is None:
        try:
            values = _outputs(module, ordered)
        except InlaidError as error:
            return Expected(error=f"{type(error).__name__}: {error}")
    runs = []
    for number in range(noisy_runs):
        try:
            runs.append(_outputs(noisy(module, seed + number, weights), ordered))
        except InlaidError:
            return Expected(tuple(values), (None,) * len(values))
    try:
        plain = _outputs(module, ordered)
    except InlaidError:
        plain = values
    spread = tuple(_spread(each, [run[number] for run in runs]) for number, each in enumerate(plain))
    # A loop without iterations stacks no elements; only engines that infer the shape of one know the other extents.
    spread = tuple(
        np.zeros(value.shape) if isinstance(value, np.ndarray) and value.size == 0 and np.size(each) == 0 else each
        for value, each in zip(values, spread, strict=True)
    )
    return Expected(tuple(values), spread)


def _outputs(module: ir.Module, inputs: Sequence[Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        return [value for _, value in flat(module.main.body.type, Interpreter(module).run(module.main, inputs))]


def _spread(plain: Any, runs: Sequence[Any]) -> Any:
    """Return the largest change of each element, None if a shape changes. Values of the host are arrays of one element here."""
    if not isinstance(plain, np.ndarray) or plain.dtype == object:
        return 0.0 if all(repr(run) == repr(plain) for run in runs) else None
    if any(run.shape != plain.shape for run in runs):
        return None
    with np.errstate(all="ignore"):
        wide = plain.astype(np.float64)
        spread = np.zeros(plain.shape)
        for run in runs:
            other = run.astype(np.float64)
            equal = (run == plain) | (np.isnan(other) & np.isnan(wide))
            # Integers beyond 2^53 may be equal in float64.
            change = np.where(equal, 0.0, np.maximum(np.abs(other - wide), 0.0 if from_numpy(plain.dtype).is_float else 1.0))
            spread = np.maximum(spread, np.where(np.isnan(change), np.inf, change))
    return spread


def compare(expected_outputs: Expected, outputs: Sequence[Any], relative: Callable[[str], float] | None = None) -> Comparison:
    """Compare outputs with expected ones."""
    if len(outputs) != len(expected_outputs.values):
        return Comparison(f"expected {len(expected_outputs.values)} outputs, got {len(outputs)}")
    undetermined = elements = 0
    for number, (value, spread, actual) in enumerate(zip(expected_outputs.values, expected_outputs.spread, outputs, strict=True)):
        error, skipped, count = _compared(value, spread, actual, relative or (lambda name: RELATIVE.get(name, NARROW)))
        undetermined, elements = undetermined + skipped, elements + count
        if error:
            return Comparison(f"output {number} {error}", undetermined, elements)
    return Comparison("", undetermined, elements)


def _compared(expected_output: Any, spread: Any, actual: Any, relative: Callable[[str], float]) -> tuple[str, int, int]:
    """Compare a value: return the difference, and the numbers of undetermined elements and of all."""
    if not isinstance(expected_output, np.ndarray) or expected_output.dtype == object:
        if spread is None:
            return "", 1, 1
        equal = _text(expected_output) == _text(actual)
        return ("" if equal else f"expected {_text(expected_output):.200}, got {_text(actual):.200}"), 0, 1
    if not isinstance(actual, np.ndarray) or actual.dtype != expected_output.dtype:
        return f"expected {expected_output.dtype}, got {getattr(actual, 'dtype', type(actual).__name__)}", 0, 0
    if spread is None:
        return "", expected_output.size, expected_output.size
    if actual.shape != expected_output.shape:
        return f"expected shape {list(expected_output.shape)}, got {list(actual.shape)}", 0, 0
    unstable = np.isinf(spread)
    element_type = from_numpy(expected_output.dtype)
    if element_type.is_float:
        wide, other = expected_output.astype(np.float64), actual.astype(np.float64)
        with np.errstate(all="ignore"):
            finite = np.abs(wide[np.isfinite(wide)])
            tolerance = relative(element_type.name) * finite.max(initial=0.0) + ABSOLUTE + SPREAD * spread
            equal = (wide == other) | (np.isnan(wide) & np.isnan(other)) | (np.abs(wide - other) <= tolerance)
    else:
        unstable = unstable | (spread > 0)
        equal = expected_output == actual
    wrong = ~equal & ~unstable
    if wrong.any():
        at = tuple(int(index) for index in np.argwhere(wrong)[0])
        where = f"{int(wrong.sum())} of {wrong.size} elements of {expected_output.dtype}{list(expected_output.shape)}"
        difference = f"differs at {where}; at {list(at)} expected {expected_output[at]}, got {actual[at]}"
        return difference, int(unstable.sum()), expected_output.size
    return "", int(unstable.sum()), expected_output.size


def _text(value: Any) -> str:
    """Write a value of the host: a string, a list of values, None or a tensor."""
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, np.ndarray):
        return f"{'string' if value.dtype.kind in 'OU' else value.dtype}{list(value.shape)}{value.tolist()}"
    return repr(value)
