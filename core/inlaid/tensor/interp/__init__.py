"""The interpreter of loop programs: the oracle for all schedules and code generators.

It translates a program to Python source over numpy scalars and runs it. It checks that indices and block bindings are in range, as
compiled code assumes. New memory holds poison (NaN, or bytes 0xA5), which exposes reads of uninitialized elements. To expose
dependences, it runs loops marked parallel or vectorized backwards, and loops bound to threads or blocks in random order. Each
thread loop is a phase, which ends before the next phase begins. Nests with obviously independent iterations (one store per element,
as tensor expressions lower to) run on whole arrays instead, with the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from inlaid.tensor import ir
from inlaid.tensor.analysis.stages import Stage
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.interp import values
from inlaid.tensor.interp.stages import random_stage_order
from inlaid.tensor.interp.to_python import Emitter, Semantics, capacity, evaluate_shape, translate
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InputError

__all__ = ["Semantics", "bind_sizes", "evaluate_vector", "run"]

Array = np.ndarray[Any, Any]
NONE: Mapping[str, Semantics] = {}


def run(
    program: ir.LoopProgram,
    inputs: Sequence[Array],
    sizes: Mapping[SizeVar, int] | None = None,
    intrinsics: Mapping[str, Semantics] = NONE,
    seed: int = 0,
    stages: Sequence[Stage] = (),
) -> list[Array]:
    """Run a program, and return its outputs in the order of `program.outputs`. `seed` determines the order of threads. If `stages`
    are given, `seed` also determines the order of their tasks, as far as tokens leave it open.

    `inputs` have the shapes and dtypes of `program.inputs`. A dimension that is a bare size variable is taken from their shapes;
    other dimensions must be given in `sizes`. Outputs with a dimension that the program computes are returned at their actual size.

    Raises `VerifyError` for a malformed program, `InputError` for an input of wrong dtype or shape, and `KernelFault` when a
    checked index or a bounded `Let` is out of range. AssertionError means an error in the program: an index outside its buffer,
    or a binding outside the range of its iteration variable.
    """
    verify(program, intrinsics)
    size_values = bind_sizes(program, inputs, sizes or {})
    defined = {size for size, _ in program.defines}
    arrays: dict[ir.Buffer, Array] = dict(zip(program.inputs, inputs, strict=True))
    for buffer in program.outputs:
        arrays[buffer] = values.poison(capacity(buffer, size_values, frozenset(defined)), buffer.dtype)
    for output, operand in program.updates:
        arrays[program.outputs[output]] = np.array(inputs[operand])
    with np.errstate(all="ignore"):
        serialized = random_stage_order(program, stages, size_values, seed) if stages else program
        translate(serialized, size_values, intrinsics, seed)(*(arrays[buffer] for buffer in program.params))
    for size, buffer in program.defines:
        size_values[size] = int(arrays[buffer][()])
    return [_trimmed(arrays[buffer], buffer, size_values, defined) for buffer in program.outputs]


def bind_sizes(program: ir.LoopProgram, inputs: Sequence[Array], sizes: Mapping[SizeVar, int]) -> dict[SizeVar, int]:
    """Return the values of a program's size variables, including those given by bare dimensions of inputs. Raises `InputError`."""
    if len(inputs) != len(program.inputs):
        raise InputError(f"{program.name} takes {len(program.inputs)} inputs, got {len(inputs)}")
    size_values = dict(sizes)
    for buffer, array in zip(program.inputs, inputs, strict=True):
        if array.dtype != buffer.dtype.numpy:
            raise InputError(f"input {buffer} of {program.name} holds {buffer.dtype}, got {array.dtype}")
        if array.ndim != len(buffer.shape):
            raise InputError(f"input {buffer} of {program.name} has {len(buffer.shape)} dimensions, got {array.ndim}")
        for dim, actual in zip(buffer.shape, array.shape, strict=True):
            if isinstance(dim, SizeVar):
                size_values.setdefault(dim, actual)
    for buffer, array in zip(program.inputs, inputs, strict=True):
        if evaluate_shape(buffer, size_values) != array.shape:
            raise InputError(f"input {buffer} of {program.name} has shape {list(buffer.shape)}, got {list(array.shape)}")
    return size_values


def evaluate_vector(expr: ir.Expr, arrays: Mapping[ir.Buffer, Array], intrinsics: Mapping[str, Semantics] = NONE) -> Array:
    """Evaluate an expression over 0-d buffers at many points at once. `arrays` maps each buffer to an array with one value per
    point, all of one shape. Returns an array of that shape in the numpy dtype of the expression."""
    shape = next(iter(arrays.values())).shape
    code = Emitter({}, intrinsics, frozenset())
    for buffer, array in arrays.items():
        assert not buffer.shape, f"buffers must be 0-d, {buffer} has {len(buffer.shape)} dimensions"
        code.privates[buffer] = code.bind(values.load(array, buffer.dtype))
    code.lanes = True
    result, bad = code.value(expr)
    code.require(bad, "the expression")
    code.line(f"return {result}")
    with np.errstate(all="ignore"):
        output = values.stored(np.asarray(code.compile()()), expr.dtype)
    return np.broadcast_to(output, shape)


def _trimmed(array: Array, buffer: ir.Buffer, sizes: Mapping[SizeVar, int], defined: set[SizeVar]) -> Array:
    if not any(isinstance(dim, arith.Expr) and arith.free_vars(dim) & defined for dim in buffer.shape):
        return array
    shape = evaluate_shape(buffer, sizes)
    return array.reshape(-1)[: int(np.prod(shape))].reshape(shape)
