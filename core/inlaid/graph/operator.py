"""Definition of an operator.

An operator is defined in one place: typed attributes, type relation, numpy reference, tensor-level definition, fusion kind,
algebraic properties, documentation and examples. There is no registration: `inlaid.ops` builds the table of operators, which is
passed explicitly. A user-defined operator is an instance of the same class and needs no table, since a `Call` holds the operator
object.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from inlaid.graph.attrs import Attrs as Attrs
from inlaid_runtime.errors import TypeInferenceError
from inlaid_runtime.records import dataclass

if TYPE_CHECKING:
    from inlaid.graph.examples import Examples
    from inlaid.graph.ir import Call, Expr
    from inlaid.graph.span import Span
    from inlaid_runtime.types import Type


class FusionKind(Enum):
    """The four fusion kinds of TVM (Chen et al., OSDI 2018, section 3)."""

    INJECTIVE = "injective"
    REDUCTION = "reduction"
    COMPLEX_OUT_FUSABLE = "complex-out-fusable"
    OPAQUE = "opaque"


Interval = tuple[Any, Any]
"""Bounds (minimum, maximum) of integers, both inclusive: int64 arrays that broadcast."""


class Choice(Enum):
    """Kind of data movement, by the information that selects which operand element is copied to a result element."""

    POSITION = "place"
    """The result element's index, the attributes and the shapes, as in a transpose or a slice."""
    INDEX = "index"
    """Integers or booleans in other operands, as in a gather or a select."""
    ORDER = "order"
    """Comparisons between elements, as in a maximum or a minimum."""


@dataclass(frozen=True)
class Moves:
    """Data movement: each result element is a copy of an operand element. `operands` are the indices of the copied operands (None:
    all). The operator accepts every dtype. If a call has an operand with index `fill`, this 0-d operand supplies the elements
    without a source."""

    operands: tuple[int, ...] | None = (0,)
    by: Choice = Choice.POSITION
    fill: int | None = None

    def places(self, count: int) -> tuple[int, ...]:
        """Return the indices of the copied operands of a call with `count` operands."""
        return tuple(range(count)) if self.operands is None else self.operands

    def filling(self, count: int) -> int | None:
        """Return the index of the fill operand of a call with `count` operands, or None."""
        return self.fill if self.fill is not None and self.fill < count else None


class ErrorPropagation(Enum):
    """Effect of an operator on the relative rounding errors of its float operands."""

    PRESERVES = "preserves"
    """The result's error is about as large as the operands': each element depends on few elements."""
    DAMPS = "damps"
    """The result's error is no larger than the operands', as in a reduction or normalization. So a pass may round the
    operands."""
    AMPLIFIES = "amplifies"
    """The result's error may be much larger than the operands', as in an exponential, a logarithm or rounding."""


@dataclass(frozen=True)
class Traits:
    """Properties that passes query instead of comparing operator names. All are optional; the defaults are conservative.

    moves
        How the operator moves data, if it only moves data.
    view
        Whether the result has the first operand's elements in the same row-major order, so that no kernel is needed.
    errors
        How rounding errors propagate. By default, an element-wise operator preserves the errors of its operands.
    expensive
        Whether computing an element takes longer than a table lookup.
    monotone
        Whether the result is non-decreasing in the first operand, with the other operands fixed.
    `interval(*intervals) -> Interval or None`
        For element-wise operators on integers: the bounds of the result before wrap-around, given the bounds of the operands.
    idempotent
        Whether f(f(x)) is f(x); for two operands, whether f(x, x) is x.
    involution
        Whether f(f(x)) is x.
    fails
        Whether it fails for some values of its operands, such as an index that is out of range: see `Operator.may_fail`.
    """

    moves: Moves | None = None
    view: bool = False
    errors: ErrorPropagation | None = None
    expensive: bool = False
    monotone: bool = False
    interval: Callable[..., Interval | None] | None = None
    idempotent: bool = False
    involution: bool = False
    fails: bool = False


NO_TRAITS = Traits()


@dataclass(frozen=True)
class Threaded:
    """The tensor-level definition of an operator for targets whose kernels are grids of thread blocks. It replaces `compute`.

    `compute(grid, attrs, *te.Tensor) -> te.Tensor or tuple of them`
        Like `Operator.compute`, for `grid`, an `inlaid.ops.threads.grid.Grid`. Loop programs may bind loops to thread axes.
    `takes(grid, attrs, *argument_types) -> bool`
        Test whether this definition applies to a call. Other calls use `Operator.compute` or the decomposition.
    """

    compute: Callable[..., Any]
    takes: Callable[..., bool] = lambda grid, attrs, *types: True


@dataclass(frozen=True, eq=False, repr=False)
class Operator:
    """An operator. Operators compare by identity.

    name
        The name in printed modules; a vendor's operator is named `vendor.name`.
    `infer(attrs, *argument_types) -> Type`
        The type relation. Raises `TypeInferenceError` or ValueError; a call converts ValueError to `TypeInferenceError`. Sizes may
        be known only at run time, so it compares them only by the functions of `inlaid.conditions`.
    attrs
        The attributes' class.
    `reference(attrs, *arrays) -> array or tuple of arrays`
        The numpy implementation, which is the oracle of every other implementation.
    `compute(attrs, *te.Tensor) -> te.Tensor or tuple of them`
        The tensor-level definition, which loop-level targets schedule; operands and results are `tensor.te.Tensor` objects (typed
        as Any: the graph layer does not import the tensor layer). None for operators that only decompose or only run on the host.
    `update(attrs, *te.Tensor) -> te.Tensor`
        In-place version of `compute`, for operators that change some elements of their first operand; None for other operators. The
        result's buffer holds the first operand already, and only the changed elements are written.
    threaded
        The tensor-level definition for grids of threads, for operators whose kernels cooperate within a block; None if `compute`
        suffices. With `threaded` and no `compute`, other targets use the decomposition.
    `decompose(attrs, args) -> Expr`
        The equivalent expression of simpler operators, used if no target supports the operator itself.
    fusion
        How the fusion pass treats the operator.
    arity
        (minimum, maximum) number of operands; a maximum of None is unbounded.
    inputs
        Names of the operands, for keywords, errors and documentation.
    commutative
        Whether the two operands can be swapped.
    elementwise
        Whether each element of the result depends only on the elements at the same index of the broadcast operands.
    traits
        Further properties: see `Traits`.
    host_only
        Whether the operator runs only on the host. True for strings, sequences and optionals, which no kernel can express.
    existential
        Whether the kernel computes dimensions of its result. `compute` then takes the call's type as `out_type`, so that it defines
        the same existential dimensions that `infer` made.
    planned
        Whether the operator is an instruction of the execution plan. It is then not offered to targets, and it ends a region.
    doc
        The documentation; `help` shows it with the signature and the attributes. The first line says what the operator computes.
    examples
        Example calls, for the conformance suite; None if the suite itself has them.
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
    doc: str = ""
    examples: Examples | None = None

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    def __call__(self, *args: Any, span: Span | None = None, **attrs: Any) -> Call:
        """Build a call of this operator: operands by position or keyword, attributes by keyword.

        Numbers and arrays become constants (see `inlaid.graph.arguments.as_operands`); a negative axis counts from the last. Raises
        `TypeInferenceError` for operands or attributes that do not fit.
        """
        from inlaid.graph import arguments
        from inlaid.graph.ir import call

        operands = arguments.as_operands(self, arguments.bind_operands(self, args, attrs))
        return call(self, operands, self.attrs(**arguments.normalized(attrs, operands, self)), span=span)

    def __getattr__(self, name: str) -> Any:
        # For `inspect.signature` and completion. The class itself keeps the signature of its constructor.
        if name == "__signature__":
            from inlaid.graph.arguments import call_signature

            return call_signature(self)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @cached_property
    def has_traced_rule(self) -> bool:
        """Whether `infer` is a type relation of Inlaid, whose comparisons the tests trace. Others are traced at each call with
        symbolic sizes: see `inlaid.graph.traced`."""
        rule = getattr(self.infer, "func", self.infer)  # of a partial function
        return str(getattr(rule, "__module__", "")).startswith("inlaid.ops.")

    @property
    def may_fail(self) -> bool:
        """Whether computing the operator may end the run with an error. An operator without `compute` and `decompose` may, since
        the code of a plugin or of the host computes it."""
        return self.traits.fails or self.planned or (self.compute is None and self.decompose is None)

    def infer_type(self, attrs: Attrs, types: tuple[Type, ...], span: Span | None = None) -> Type:
        """Infer the result type. Errors name the operator, the operand types and the node of the source model."""
        least, greatest = self.arity
        node = str(span) if span else None
        if len(types) < least or (greatest is not None and len(types) > greatest):
            expected = f"{least}" if greatest == least else f"{least} or more" if greatest is None else f"{least} to {greatest}"
            raise TypeInferenceError(f"expected {expected} operands, got {len(types)}", operator=self.name, node=node)
        try:
            result = self.infer(attrs, *types)
            if not self.has_traced_rule:
                from inlaid.graph.traced import check_rule

                check_rule(self.infer, attrs, types, result)
            return result
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, TypeInferenceError) as error:
            if isinstance(error, TypeInferenceError) and error.operator:
                raise
            message, remedy = (error.message, error.remedy) if isinstance(error, TypeInferenceError) else (str(error), None)
            raise TypeInferenceError(
                f"{message}; inputs are {', '.join(map(repr, types)) or 'none'}", operator=self.name, node=node, remedy=remedy
            ) from error


class _Documentation:
    """`__doc__` of the class and of its instances: `help(inlaid.ops.conv)` documents convolution, not `Operator`."""

    def __init__(self, class_doc: str) -> None:
        self._class_doc = class_doc

    def __get__(self, operator: Operator | None, owner: type[Operator]) -> str:
        if operator is None:
            return self._class_doc
        from inlaid.graph.arguments import usage

        attributes = (operator.attrs.__doc__ or "") if dataclasses.fields(operator.attrs) else ""
        return "\n\n".join(filter(None, (usage(operator), operator.doc, inspect.cleandoc(attributes))))


Operator.__doc__ = cast(str, _Documentation(Operator.__doc__ or ""))
