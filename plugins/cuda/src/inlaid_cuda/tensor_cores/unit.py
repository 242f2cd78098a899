"""Semantics of fragment instructions, and selection of the target's instructions for given element types.

A fragment is a matrix of 16 rows, each with 32 bytes of an operand or 16 sums, distributed over the registers of a warp's threads.
Only the instructions determine which thread holds which element, so every access to a fragment is collective over the warp. The
rows of both operand fragments run along the depth, so a row of a right fragment is a column of the right operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from inlaid.tensor import ir
from inlaid.tensor.analysis.keys import structurally_equal
from inlaid.tensor.primitives import TensorIntrin
from inlaid.tensor.scheduling.rule import KernelContext
from inlaid.tensor.transform.paths import nest
from inlaid_cuda.capabilities import FRAGMENT
from inlaid_runtime import arith
from inlaid_runtime.arith import Var
from inlaid_runtime.types import dtype

SIDE, ROW_BYTES = 16, 32
"""SIDE: rows of a fragment, and columns of an accumulator fragment. ROW_BYTES: bytes per row of an operand fragment."""


def fragment_depth(factor: str) -> int:
    """Return the elements per row of an operand fragment."""
    return ROW_BYTES // dtype(factor).bytes


def fragment_zero(total: str) -> ir.LoopProgram:
    """Return the semantics t[i, j] = 0: clear an accumulator fragment."""
    i, j = Var("i"), Var("j")
    tile = ir.Buffer("t", (SIDE, SIDE), dtype(total), FRAGMENT)
    store = ir.Store(tile, (i, j), ir.const(0, dtype(total)))
    return ir.LoopProgram("fragment_zero", (), (tile,), _nest((i, SIDE), (j, SIDE), body=store))


def fragment_rows(factor: str, scope: str, transposed: bool) -> ir.LoopProgram:
    """Return the semantics t[i, k] = s[i, k], or s[k, i] if `transposed`: load an operand fragment."""
    i, k, depth = Var("i"), Var("k"), fragment_depth(factor)
    source = ir.Buffer("s", (depth, SIDE) if transposed else (SIDE, depth), dtype(factor), scope)
    tile = ir.Buffer("t", (SIDE, depth), dtype(factor), FRAGMENT)
    store = ir.Store(tile, (i, k), ir.load(source, (k, i) if transposed else (i, k)))
    return ir.LoopProgram("fragment_rows", (source,), (tile,), _nest((i, SIDE), (k, depth), body=store))


def fragment_product(left: str, right: str, total: str) -> ir.LoopProgram:
    """Return the semantics t[i, j] += sum over k of a[i, k] * b[j, k]: multiply two fragments."""
    i, j, k, depth = Var("i"), Var("j"), Var("k"), fragment_depth(left)
    a, b = (ir.Buffer(name, (SIDE, depth), dtype(element), FRAGMENT) for name, element in (("a", left), ("b", right)))
    tile = ir.Buffer("t", (SIDE, SIDE), dtype(total), FRAGMENT)
    product = ir.cast(ir.load(a, (i, k)), total) * ir.cast(ir.load(b, (j, k)), total)
    store = ir.Store(tile, (i, j), ir.load(tile, (i, j)) + product)
    return ir.LoopProgram("fragment_product", (a, b), (tile,), _nest((i, SIDE), (j, SIDE), (k, depth), body=store))


def fragment_sums(total: str, scope: str) -> ir.LoopProgram:
    """Return the semantics s[i, j] = t[i, j]: store an accumulator fragment."""
    i, j = Var("i"), Var("j")
    tile = ir.Buffer("t", (SIDE, SIDE), dtype(total), FRAGMENT)
    target = ir.Buffer("s", (SIDE, SIDE), dtype(total), scope)
    return ir.LoopProgram(
        "fragment_sums", (tile,), (target,), _nest((i, SIDE), (j, SIDE), body=ir.Store(target, (i, j), ir.load(tile, (i, j))))
    )


def _nest(*loops: tuple[Var, int], body: ir.Stmt) -> ir.Stmt:
    return nest([(var, arith.wrap(extent)) for var, extent in loops], body)


@dataclass(frozen=True)
class FragmentUnit:
    """Names of the instructions for two operand types. `rows`: loads of the left and of the right operand if it is contiguous along
    the depth. `transposed`: loads of the left and of the right operand if it is contiguous along the other axis; "" if
    unsupported."""

    zero: str
    rows: tuple[str, str]
    transposed: tuple[str, str]
    product: str
    store: str


def find_unit(context: KernelContext, left: str, right: str, total: str, scope: str) -> FragmentUnit | None:
    """Find the target's unit for products of these types with tiles in a memory scope; None if the target has no such unit."""
    zero = _intrinsic(context, fragment_zero(total))
    product = _intrinsic(context, fragment_product(left, right, total))
    store = _intrinsic(context, fragment_sums(total, scope))
    rows, transposed = (
        [_intrinsic(context, fragment_rows(element, scope, is_transposed)) for element in (left, right)]
        for is_transposed in (False, True)
    )
    if not all((zero, product, store, *rows)):
        return None
    return FragmentUnit(zero, (rows[0], rows[1]), (transposed[0], transposed[1]), product, store)


def _intrinsic(context: KernelContext, semantics: ir.LoopProgram) -> str:
    """Return the name of the target's intrinsic with these semantics; "" if the target has none."""
    fitting = _by_key(context.intrinsics).get(_key(semantics), [])
    return next((item.name for item in fitting if structurally_equal(item.semantics, semantics)), "")


_Key = tuple[tuple[object, ...], ...]


@lru_cache(16)  # users declare intrinsics of their own, so that the number of keys has no bound
def _by_key(intrinsics: tuple[TensorIntrin, ...]) -> Mapping[_Key, Sequence[TensorIntrin]]:
    intrinsics_by_key: dict[_Key, list[TensorIntrin]] = {}
    for item in intrinsics:
        intrinsics_by_key.setdefault(_key(item.semantics), []).append(item)
    return intrinsics_by_key


def _key(program: ir.LoopProgram) -> _Key:
    """Return element type, scope and shape of each parameter, a key that distinguishes most intrinsics."""
    return tuple((buffer.dtype.name, buffer.scope, buffer.shape) for buffer in program.params)
