"""What an operator is.

An operator is one definition: typed attributes, type relation, numpy reference, tensor-level meaning, fusion kind, algebraic
facts. Nothing registers itself: `inlaid.ops` builds the operators and whoever needs the table is given it. A user's own operator
is made with the same class and needs no table at all, since a `Call` holds the operator itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from inlaid.errors import TypeInferenceError
from inlaid.graph.attrs import Attrs as Attrs

if TYPE_CHECKING:
    from inlaid.graph.ir import Call, Expr
    from inlaid.graph.span import Span
    from inlaid.types import Type


class FusionKind(Enum):
    """The four kinds of TVM (Chen et al., OSDI 2018, section 3)."""

    INJECTIVE = "injective"
    REDUCTION = "reduction"
    COMPLEX_OUT_FUSABLE = "complex-out-fusable"
    OPAQUE = "opaque"


Interval = tuple[Any, Any]
"""Least and greatest values, inclusive: int64 arrays that broadcast."""


class Choice(Enum):
    """What decides which element of an operand an element of the result is."""

    PLACE = "place"
    """Its index, attributes and shapes alone."""
    INDEX = "index"
    """Integers or truth values that other operands hold: a gather, a select."""
    ORDER = "order"
    """A comparison of elements: a maximum, a minimum."""


@dataclass(frozen=True)
class Moves:
    """Data movement: each element of the result is an element of `operands` (None: of any), unchanged. The operator takes every
    element type. Where a call has an operand number `fill`, elements that nothing is moved to are its single one."""

    operands: tuple[int, ...] | None = (0,)
    by: Choice = Choice.PLACE
    fill: int | None = None

    def places(self, count: int) -> tuple[int, ...]:
        """The numbers of the operands that a call with `count` operands moves from."""
        return tuple(range(count)) if self.operands is None else self.operands

    def filling(self, count: int) -> int | None:
        """The number of the operand that fills, in a call with `count` operands; None where it has none."""
        return self.fill if self.fill is not None and self.fill < count else None


class ErrorPropagation(Enum):
    """How far off a result in floats is, relative to the rounding errors of its operands."""

    PRESERVES = "preserves"
    """About as far: it is computed of few elements each."""
    DAMPS = "damps"
    """No further: a reduction or a normalisation, whose operands may be rounded whatever reads the result."""
    AMPLIFIES = "amplifies"
    """Perhaps much further: an exponential, a logarithm, rounding."""


@dataclass(frozen=True)
class Traits:
    """Facts that passes rely on, in place of names. None need be declared; what is not declared is not known.

    moves
        That the operator only moves data, and how.
    view
        Whether the result is the first operand's elements in the same row-major order, so that it needs no kernel.
    errors
        How rounding errors propagate. Element-wise operators preserve them unless they amplify.
    expensive
        Whether an element takes longer to compute than to look up in a table.
    monotone
        Whether the result never decreases as the first operand increases, while the others, parameters, stay.
    `interval(*intervals) -> Interval or None`
        For element-wise operators on integers: the bounds of the result before it wraps, given those of the operands.
    idempotent
        Whether f(f(x)) is f(x), or of two operands f(x, x) is x.
    involution
        Whether f(f(x)) is x.
    """

    moves: Moves | None = None
    view: bool = False
    errors: ErrorPropagation | None = None
    expensive: bool = False
    monotone: bool = False
    interval: Callable[..., Interval | None] | None = None
    idempotent: bool = False
    involution: bool = False


NO_TRAITS = Traits()


@dataclass(frozen=True)
class Threaded:
    """The tensor-level meaning of an operator on targets whose kernels are grids of blocks of threads, in place of its `compute`.

    `compute(grid, attrs, *te.Tensor) -> te.Tensor or tuple of them`
        As `Operator.compute`, for an `inlaid.ops.threads.grid.Grid`. Its loop programs may have loops bound to thread axes.
    `takes(grid, attrs, *argument_types) -> bool`
        The calls that it is for; the others are as on any target.
    """

    compute: Callable[..., Any]
    takes: Callable[..., bool] = lambda grid, attrs, *types: True


@dataclass(frozen=True, eq=False, repr=False)
class Operator:
    """One operator. Two operators are the same only when they are the same object.

    name
        As it prints; a vendor's own are `vendor.name`.
    `infer(attrs, *argument_types) -> Type`
        The type relation. Raises `TypeInferenceError` (or ValueError, which is turned into one).
    attrs
        The class of its attributes.
    `reference(attrs, *arrays) -> array or tuple of arrays`
        The numpy meaning; the oracle of every other implementation.
    `compute(attrs, *te.Tensor) -> te.Tensor or tuple of them`
        The tensor-level meaning (typed as object here: the graph does not know the tensor level). None when `decompose` or the
        host alone says it. Inputs are `tensor.te.Tensor` objects, the result is what loop-level targets schedule.
    `update(attrs, *te.Tensor) -> te.Tensor`
        `compute` in place, for operators that change some elements of their first argument: the result's buffer holds that argument
        already, and only the changed elements are written. None for all others.
    threaded
        The tensor-level meaning on grids of threads, of operators for which threads of a block work together; None where `compute`
        says all. A `Threaded` without a `compute` beside it: other targets take the decomposition.
    `decompose(attrs, args) -> Expr`
        The same in simpler operators, used wherever no target claims the operator whole.
    fusion
        How the fusion pass may treat it.
    arity
        (least, greatest) number of arguments, None for no bound.
    inputs
        Names of the arguments, for errors and documentation.
    commutative
        Whether swapping its two arguments changes nothing.
    elementwise
        True where every element of the result depends on the elements at the same place of the (broadcast) inputs alone.
    traits
        Further facts: see `Traits`.
    host_only
        True for operators over strings, sequences and optionals, which no kernel can express.
    existential
        True for operators whose result has dimensions that only their kernel works out. `compute` then takes the call's type as
        `out_type`, so that it defines the very dimensions that `infer` made.
    planned
        True for operators that are instructions of the plan: no target is asked for them, and they end a region.
    """

    name: str
    infer: Callable[..., Type]
    attrs: type[Attrs] = Attrs
    reference: Callable[..., Any] | None = None
    compute: Callable[..., Any] | None = None
    update: Callable[..., Any] | None = None
    threaded: Threaded | None = None
    decompose: Callable[[Any, tuple[Expr, ...]], Expr] | None = None
    fusion: FusionKind = FusionKind.OPAQUE
    arity: tuple[int, int | None] = (1, 1)
    inputs: tuple[str, ...] = ()
    commutative: bool = False
    elementwise: bool = False
    traits: Traits = NO_TRAITS
    host_only: bool = False
    existential: bool = False
    planned: bool = False

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    def __call__(self, *args: Any, span: Span | None = None, **attrs: Any) -> Call:
        """A call of this operator: operands by position or keyword, attributes by keyword.

        Numbers and arrays stand for constants (see `inlaid.graph.arguments.as_operands`); a negative axis counts from the last.
        Raises `TypeInferenceError` where arguments do not fit.
        """
        from inlaid.graph import arguments
        from inlaid.graph.ir import call

        operands = arguments.as_operands(self, arguments.operands_of(self, args, attrs))
        return call(self, operands, self.attrs(**arguments.normalised(attrs, operands, self.name)), span=span)

    def __getattr__(self, name: str) -> Any:
        # `inspect.signature` and completion ask for it; the class itself keeps the signature of its constructor.
        if name == "__signature__":
            from inlaid.graph.arguments import signature_of

            return signature_of(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def infer_type(self, attrs: Attrs, types: tuple[Type, ...], span: Span | None = None) -> Type:
        """The result type, with errors that name the operator, its inputs and the node of the source model."""
        least, greatest = self.arity
        where = str(span) if span else None
        if len(types) < least or (greatest is not None and len(types) > greatest):
            wanted = f"{least}" if greatest == least else f"{least} or more" if greatest is None else f"{least} to {greatest}"
            raise TypeInferenceError(f"takes {wanted} arguments, got {len(types)}", operator=self.name, node=where)
        try:
            return self.infer(attrs, *types)
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, TypeInferenceError) as error:
            if isinstance(error, TypeInferenceError) and error.operator:
                raise
            message = error.message if isinstance(error, TypeInferenceError) else str(error)
            raise TypeInferenceError(
                f"{message}; inputs are {', '.join(map(repr, types)) or 'none'}", operator=self.name, node=where
            ) from error
