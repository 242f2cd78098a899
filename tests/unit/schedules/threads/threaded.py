"""Operators whose loop programs are for grids of threads, held to their numpy references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from inlaid.graph import ir as graph
from inlaid.graph.operator import Operator
from inlaid.lowering.kernels.finish import finish
from inlaid.lowering.kernels.kernel import KernelSource, build, thread_grid
from inlaid.plugins import Capabilities
from inlaid.tensor import interp
from inlaid.tensor.analysis.races import check_races
from inlaid.tensor.analysis.verify import verify
from inlaid.tensor.primitives import SEMANTICS
from inlaid.tensor.transform.launches import SplitProgram, split_launches
from inlaid_runtime.arith import Dim
from inlaid_runtime.types import TensorType

from .interpreter_checks import Array, Sizes, first_offer

Shape = Sequence[Dim]


class Threaded:
    """A call of an operator as the launches of its kernel, without races."""

    def __init__(self, operator: Operator, able: Capabilities, *types: tuple[Shape, str], **attrs: Any) -> None:
        params = tuple(graph.var(f"x{number}", TensorType(tuple(shape), dtype)) for number, (shape, dtype) in enumerate(types))
        self.call = operator(*params, **attrs)
        self.program = build(KernelSource("kernel", params, self.call), thread_grid(able))
        self.finished = finish(first_offer(self.program, able)[1].schedule(self.program), able=able)
        self.split: SplitProgram = split_launches(self.finished, able.scopes)
        for item in self.split.kernels.values():
            verify(item.program, SEMANTICS)
            check_races(item.program, item.offsets)

    def run(self, arrays: Sequence[Array], sizes: Sizes | None = None, seed: int = 0) -> list[Array]:
        """The results, threads of a phase in a random order."""
        meaning = {**SEMANTICS, **{name: item.program for name, item in self.split.kernels.items()}}
        results = interp.run(self.split.host, list(arrays), sizes or {}, meaning, seed)
        return results[: len(self.program.outputs) - len(self.program.defines)]

    def check(self, arrays: Sequence[Array], sizes: Sizes | None = None, tolerance: float = 0.0, seed: int = 0) -> None:
        """Check the results against the reference of the operator: exactly, or within a relative tolerance."""
        operator = self.call.callee
        assert isinstance(operator, Operator) and operator.reference is not None
        expected = operator.reference(self.call.attrs, *arrays)
        for left, right in zip(
            expected if isinstance(expected, tuple) else (expected,), self.run(arrays, sizes, seed), strict=True
        ):
            assert left.dtype == right.dtype
            if tolerance:
                np.testing.assert_allclose(np.asarray(right, np.float64), np.asarray(left, np.float64), tolerance, tolerance)
            else:
                np.testing.assert_array_equal(right, left)
