"""Selects the expressions of a model that are computed in integers.

Products with weights are always selected. Operators that move, add, multiply or average are selected if they have integer operands
and integer consumers; between float operators, conversion to integers and back gains nothing. Element-wise functions of one stored
tensor become tables of 256 values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from inlaid.graph.ir import Call, Constant, Expr, Function, Tuple, Var, children
from inlaid.graph.operator import Operator
from inlaid.graph.scopes import analyse
from inlaid.graph.uses import UseCounts
from inlaid_quantization.choices import INT8
from inlaid_quantization.forms import Both, Form, Move, Product, Scaled, Softmax, Sum
from inlaid_quantization.match import activation_bounds, is_real, match_form, with_constant
from inlaid_quantization.settings import Quantization
from inlaid_runtime.types import TensorType

KEEP_FLOAT = "keep_float names it"
NESTED = "it is in a loop or branch"
NOTHING_STORED = "all of its operands are float"
NOTHING_READS = "all of its consumers are float"


@dataclass(frozen=True, eq=False)
class Step:
    """An expression that is computed in integers from stored tensors, and the calls folded into it, in order. The real values of
    the result are clamped to `low` and `high`."""

    form: Form | Move
    operands: tuple[Expr, ...]
    calls: tuple[Call, ...]
    low: float = -np.inf
    high: float = np.inf

    @property
    def anchors(self) -> bool:
        """True for products, which are quantized even without integer operands."""
        form = self.form.form if isinstance(self.form, Scaled) else self.form
        return isinstance(form, (Product, Both))


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a function: how each expression is computed. `order` has the expressions in topological order.

    `steps` maps ids to integer computations. `stored` are the expressions needed in int8. `real` are the ids of those needed as
    floats; `direct` are converted from int32 accumulators to floats without being stored. `masked` are the ids of values that only
    softmax reads; values far below the maximum are negligible. `reasons` maps the ids of calls to why they stay float.
    """

    main: Function
    order: Sequence[Expr]
    outputs: tuple[Expr, ...]
    steps: dict[int, Step]
    stored: tuple[Expr, ...]
    real: frozenset[int]
    direct: tuple[Expr, ...]
    masked: frozenset[int]
    reasons: dict[int, str]
    borders: str

    def is_int8(self, border: Expr) -> bool:
        """Test whether an input or output has type int8."""
        return self.borders == INT8 and any(border is expr for expr in self.stored)

    def is_moved(self, expr: Expr) -> bool:
        """Test whether a stored expression is the result of a data-moving operator, which shares the scale of its operands."""
        step = self.steps.get(id(expr))
        return step is not None and isinstance(step.form, Move)


def make_plan(main: Function, order: Sequence[Expr], settings: Quantization) -> Plan:
    """Plan the quantization of a function in canonical form."""
    outputs = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    planner = _Planner(main, order, outputs, settings)
    planner.find()
    planner.prune()
    stored, real, direct = planner.ids_by_precision()

    def in_order(ids: set[int]) -> tuple[Expr, ...]:
        return tuple(expr for expr in order if id(expr) in ids)

    masked = planner.masked(stored, real)
    return Plan(
        main,
        order,
        outputs,
        planner.steps,
        in_order(stored),
        frozenset(real),
        in_order(direct),
        masked,
        planner.reasons,
        settings.borders,
    )


class _Planner:
    def __init__(self, main: Function, order: Sequence[Expr], outputs: tuple[Expr, ...], settings: Quantization) -> None:
        self.order = order
        self.outputs = outputs
        self.settings = settings
        self.steps: dict[int, Step] = {}
        self.sources: dict[int, Expr] = {}
        self.reasons: dict[int, str] = {}
        self._uses = UseCounts(main)
        scopes = analyse(main)
        body = scopes.body(main)
        self._outside = {id(expr) for expr in order if scopes.expr_scopes.get(id(expr)) is body}
        self._params = {id(param) for param in main.params}
        self._outputs = {id(expr) for expr in outputs}

    # --- candidates -------------------------------------------------------------------------------------------------

    def find(self) -> None:
        """Find all possible steps and tables."""
        for expr in self.order:
            if not isinstance(expr, Call) or not isinstance(expr.callee, Operator):
                continue
            if id(expr) not in self._outside:
                self.reasons[id(expr)] = NESTED
            elif self._keeps_float(expr):
                self.reasons[id(expr)] = KEEP_FLOAT
            elif not self._fold(expr) and not self._tabulated(expr) and is_real(expr):
                self._step(expr)

    def _keeps_float(self, call: Call) -> bool:
        assert isinstance(call.callee, Operator)
        return call.callee.name in self.settings.keep_float or (
            call.span is not None and call.span.node in self.settings.keep_float
        )

    def _fold(self, call: Call) -> bool:
        """Fold a call into the step of its operand, if possible. Returns True if it is folded."""
        inner = next((arg for arg in call.args if id(arg) in self.steps), None)
        if inner is None or not self._uses.single(inner) or not is_real(call) or inner.type != call.type:
            return False
        step = self.steps[id(inner)]
        if isinstance(step.form, Move):
            return False
        limits = activation_bounds(call)
        calls = (*step.calls, call)
        if limits is not None:
            low, high = (float(np.clip(end, step.low, step.high)) for end in limits)
            self.steps[id(call)] = Step(step.form, step.operands, calls, low, high)
        elif (step.low, step.high) != (-np.inf, np.inf):
            return False
        else:
            form = with_constant(step.form, call)
            if form is None:
                return False
            self.steps[id(call)] = Step(form, step.operands, calls)
        del self.steps[id(inner)]
        return True

    def _tabulated(self, call: Call) -> bool:
        """Test whether a call is an element-wise function of one tensor of its shape and of constants; record the tensor if so."""
        assert isinstance(call.callee, Operator)
        if not call.callee.elementwise or not isinstance(call.type, TensorType):
            return False
        sources = [self.sources.get(id(arg), arg) for arg in call.args if not isinstance(arg, Constant)]
        if not sources or any(source is not sources[0] for source in sources) or not is_real(sources[0]):
            return False
        if any(isinstance(arg, Constant) and arg.data.size != 1 for arg in call.args):
            return False
        if not isinstance(sources[0].type, TensorType) or sources[0].type.shape != call.type.shape:
            return False
        self.sources[id(call)] = sources[0]
        return True

    def _step(self, call: Call) -> None:
        match = match_form(call)
        if isinstance(match, str):
            self.reasons[id(call)] = match
        elif not all(map(is_real, match[1])):
            self.reasons[id(call)] = "it has operands other than float32"
        else:
            self.steps[id(call)] = Step(match[0], match[1], (call,))

    # --- selection --------------------------------------------------------------------------------------------------

    def prune(self) -> None:
        """Remove steps without integer operands or without integer consumers, except products, until no more can be removed."""
        while True:
            stored, read = self._has_integers(), self._read_as_integers()
            removals = {key: NOTHING_STORED for key in self.steps if key not in stored} | {
                key: NOTHING_READS for key in self.steps if key not in read
            }
            removals = {key: why for key, why in removals.items() if not self.steps[key].anchors}
            if not removals:
                return
            for key, why in removals.items():
                for call in self.steps.pop(key).calls:
                    self.reasons[id(call)] = why

    def _has_integers(self) -> set[int]:
        """Return the ids of the expressions that are computed from stored tensors."""
        ids = set(self._params) if self.settings.borders == INT8 else set()
        moved_inputs = set(self._params)
        for expr in self.order:
            step = self.steps.get(id(expr))
            if step is None:
                if id(self.sources.get(id(expr))) in ids:
                    ids.add(id(expr))
                continue
            # An input that is moved may be stored before it is moved, without a loss.
            moves_inputs = isinstance(step.form, Move) and all(
                id(arg) in moved_inputs or isinstance(arg, Constant) for arg in step.operands
            )
            if step.anchors or moves_inputs or any(id(operand) in ids for operand in step.operands):
                ids.add(id(expr))
            if moves_inputs:
                moved_inputs.add(id(expr))
        return ids

    def _read_as_integers(self) -> set[int]:
        """Return the ids of the expressions that a step, a table or the model's caller may read as integers."""
        ids = set(self._outputs)
        for expr in reversed(self.order):
            step = self.steps.get(id(expr))
            if step is not None:
                ids.update(map(id, step.operands))
            elif id(expr) in self.sources and id(expr) in ids:
                ids.add(id(self.sources[id(expr)]))
        return ids

    # --- requirements -----------------------------------------------------------------------------------------------

    def ids_by_precision(self) -> tuple[set[int], set[int], set[int]]:
        """Return the ids of expressions needed in int8, of expressions needed as floats, and of accumulators that are not
        stored."""
        computed = self._has_integers()
        stored: set[int] = set()
        real: set[int] = set()
        direct: set[int] = set()
        for expr in self.outputs:
            step = self.steps.get(id(expr))
            is_int8 = self.settings.borders == INT8 or (
                (id(expr) in self.sources and id(expr) in computed) if step is None else not step.anchors
            )
            (stored if is_int8 and is_real(expr) else real).add(id(expr))
        if self.settings.borders == INT8:
            stored |= {id(expr) for expr in self.order if id(expr) in self._params and is_real(expr)}
        for expr in reversed(self.order):
            step = self.steps.get(id(expr))
            if step is not None:
                if id(expr) in stored or id(expr) in real:
                    # A product without integer consumers is not rounded to 8 bits, unless the hardware always rounds.
                    is_direct = step.anchors and id(expr) not in stored and not self.settings.requantization.roundings
                    (direct if is_direct else stored).add(id(expr))
                    stored.update(map(id, step.operands))
                    if isinstance(step.form, Move):
                        real.update(id(arg) for position, arg in enumerate(step.calls[0].args) if position not in step.form.places)
                continue
            if id(expr) in stored and not isinstance(expr, (Var, Constant)):
                real.add(id(expr))
                source = id(self.sources.get(id(expr)))
                if source in self.steps:
                    stored.add(source)  # for a table
            if id(expr) in real:
                real.update(map(id, children(expr)))
        return stored, real, direct

    def masked(self, stored: set[int], real: set[int]) -> frozenset[int]:
        """Return the ids of the stored expressions that only softmax reads, directly, after moves, or after a sum."""
        softmax_operands: set[int] = set()
        other_operands = set(self._outputs)
        for expr in reversed(self.order):
            step = self.steps.get(id(expr))
            if step is None:
                if id(expr) in real:
                    other_operands.update(map(id, children(expr)))
                continue
            leads_to_softmax = (
                isinstance(step.form, (Move, Sum))
                and id(expr) in stored
                and id(expr) in softmax_operands
                and id(expr) not in other_operands
            )
            (softmax_operands if leads_to_softmax or isinstance(step.form, Softmax) else other_operands).update(
                map(id, step.operands)
            )
        return frozenset(softmax_operands - other_operands)
