"""Cost placement: selects the claims with the least predicted time in total, transfers included.

This is a mixed-integer linear program, solved by SciPy (HiGHS). Each claim is a 0/1 variable, and each call is in exactly one
chosen claim. Values move through host memory, at most once out of a target's memory and once into each other target's. With two
targets and claims of single operators, the constraints are those of a minimum cut, whose linear relaxation has an integral
solution, so that the solver needs no branching.
"""

from __future__ import annotations

import numpy as np

from inlaid.partitioning.annotate import Annotated, Claim
from inlaid.partitioning.assignment import in_order
from inlaid.partitioning.cost import CostModel
from inlaid.partitioning.flow import TransferredValue, collect_values
from inlaid.plugins import AcceptIf
from inlaid_runtime.errors import CompileError, Remedy, setting
from inlaid_runtime.records import dataclass

BY_PRIORITY = setting("placement", "priority")
TIME_LIMIT = 20.0
"""Time limit of the solver in seconds. Afterwards its best placement is used; `Solution.gap` bounds the distance to the optimum."""


@dataclass(frozen=True)
class Solution:
    """Chosen claims in the order of their roots; predicted seconds in total, transfers included; and the relative gap to the
    optimum, 0 if proven optimal."""

    claims: tuple[Claim, ...]
    seconds: float
    gap: float


def by_cost(annotated: Annotated, costs: CostModel, fallback: int | None = None) -> Solution:
    """Choose claims that cover every call once in the least predicted time. Claims under a condition are not considered, since
    their cost depends on sizes. Target number `fallback` gets only operators that no other target accepts alone. Raises
    `CompileError` if SciPy is not installed, or if no placement covers all calls."""
    claims = [claim for claim in annotated.claims if not isinstance(claim.verdict, AcceptIf)]
    accepted_elsewhere = {id(claim.root) for claim in claims if len(claim.members) == 1 and claim.target != fallback}
    claims = [claim for claim in claims if claim.target != fallback or id(claim.root) not in accepted_elsewhere]
    program = _Program(len(costs.capabilities))
    variables = [program.variable(costs.seconds(claim), integer=True) for claim in claims]
    claim_variables: dict[tuple[int, int], list[int]] = {}
    for claim, variable in zip(claims, variables, strict=True):
        for call in claim.members:
            claim_variables.setdefault((id(call), claim.target), []).append(variable)
    for call in annotated.calls:
        program.exactly_one([v for target in range(program.targets) for v in claim_variables.get((id(call), target), ())])
    for value in collect_values(annotated.function):
        for target in range(program.targets):
            program.transfers(value, target, costs.transfer(target, value.size), claim_variables)
    solution, seconds, gap = program.solve()
    claims_by_call = {
        id(call): claim for claim, v in zip(claims, variables, strict=True) if solution[v] > 0.5 for call in claim.members
    }
    return Solution(in_order(annotated, claims_by_call), seconds, gap)


class _Program:
    """A mixed-integer program under construction, as rows of a sparse matrix."""

    def __init__(self, targets: int) -> None:
        self.targets = targets
        self.costs: list[float] = []
        self.integer: list[bool] = []
        self.entries: list[tuple[int, int, float]] = []
        self.lower: list[float] = []
        self.upper: list[float] = []

    def variable(self, cost: float, *, integer: bool) -> int:
        """Add a variable between 0 and 1."""
        self.costs.append(cost)
        self.integer.append(integer)
        return len(self.costs) - 1

    def row(self, entries: list[tuple[int, float]], lower: float, upper: float) -> None:
        """Add the constraint lower <= sum of entries <= upper."""
        self.entries += [(len(self.lower), variable, factor) for variable, factor in entries]
        self.lower.append(lower)
        self.upper.append(upper)

    def exactly_one(self, variables: list[int]) -> None:
        """Require that exactly one of the variables is 1."""
        self.row([(variable, 1.0) for variable in variables], 1, 1)

    def transfers(
        self, value: TransferredValue, target: int, seconds: float, claim_variables: dict[tuple[int, int], list[int]]
    ) -> None:
        """Add variables that are 1 if a value leaves a target's memory, or enters it. `claim_variables` has, by id of a call and
        target, the variables of the claims that place the call on the target."""
        if seconds <= 0:
            return
        producer_terms = [] if value.source is None else [(v, 1.0) for v in claim_variables.get((id(value.source), target), ())]
        reads_by_reader = [[(v, 1.0) for v in claim_variables.get((id(reader), target), ())] for reader in value.readers]
        if producer_terms:
            leaves = self.variable(seconds, integer=False)
            for read in reads_by_reader:
                self.row([(leaves, 1.0), *((v, -f) for v, f in producer_terms), *read], 0, np.inf)
            if value.host:
                self.row([(leaves, 1.0), *((v, -f) for v, f in producer_terms)], 0, np.inf)
        reader_terms = [read for read in reads_by_reader if read]
        if reader_terms:
            enters = self.variable(seconds, integer=False)
            for read in reader_terms:
                self.row([(enters, 1.0), *((v, -f) for v, f in read), *producer_terms], 0, np.inf)

    def solve(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], float, float]:
        """Solve the program. Returns the values of the variables, their cost, and the gap. Raises `CompileError`."""
        try:
            from scipy.optimize import Bounds, LinearConstraint, milp
            from scipy.sparse import csr_array
        except ImportError as error:
            raise CompileError(
                "placement by cost needs SciPy", remedy=Remedy.join('pip install "inlaid[cost]", or give ', BY_PRIORITY)
            ) from error
        if not self.costs:
            return np.zeros(0), 0.0, 0.0
        rows, columns, factors = zip(*self.entries, strict=True)
        matrix = csr_array((factors, (rows, columns)), shape=(len(self.lower), len(self.costs)))
        # Scaled by the greatest cost, so that the solver's tolerances suit times of microseconds.
        costs = np.array(self.costs)
        scale = float(costs.max()) or 1.0
        optimum = milp(
            costs / scale,
            constraints=LinearConstraint(matrix, self.lower, self.upper),
            bounds=Bounds(0, 1),
            integrality=np.array(self.integer, int),
            options={"time_limit": TIME_LIMIT, "mip_rel_gap": 1e-4},
        )
        if optimum.x is None:
            raise CompileError(f"cost placement failed: {optimum.message}", remedy=Remedy.join("give ", BY_PRIORITY))
        return optimum.x, float(optimum.fun) * scale, float(optimum.mip_gap or 0.0)
