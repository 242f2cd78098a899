"""Measured times of single operators on their targets, and of the regions of a model."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from inlaid.driver.build import ALONE, package_alone
from inlaid.graph import ir
from inlaid.graph.operator import Attrs
from inlaid.partitioning.annotate import Candidate, Claim
from inlaid.partitioning.compose import enclosed
from inlaid.partitioning.cost import CostModel
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.settings import DEFAULT, Settings
from inlaid_runtime.arith import SizeVar, free_vars, size_hint
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.execution.example import example_inputs
from inlaid_runtime.execution.executable import Executable

RUNS = 7
"""Number of timed runs of an operator or a model; the result is the median time."""
LONGEST = 0.2
"""Seconds after which no further run of an operator is started."""


@dataclass
class MeasuredCosts(CostModel):
    """Cost model with times measured on the targets: each distinct operator or composite is compiled as a model and run on random
    inputs. If measuring fails, for example without the device, the time is predicted."""

    candidates: tuple[Candidate, ...] = ()
    registry: PluginRegistry = field(default_factory=default_registry)
    settings: Settings = DEFAULT
    _measured: dict[Any, float | None] = field(default_factory=dict)

    def seconds(self, claim: Claim) -> float:
        """Return the seconds that a target takes for an operator or composite that it accepts."""
        rule = None if claim.composite is None else claim.composite.name
        members = tuple((call.callee, call.attrs, tuple(repr(arg.type) for arg in call.args)) for call in claim.members)
        key = (claim.target, rule, members)
        if key not in self._measured:
            self._measured[key] = self._measure(claim)
        measurement = self._measured[key]
        return super().seconds(claim) if measurement is None else measurement

    def _measure(self, claim: Claim) -> float | None:
        function, _ = enclosed(claim)
        if claim.composite is not None:
            params = tuple(ir.var(param.name, param.type) for param in function.params)
            function = ir.function(params, ir.Call(function.body.type, None, function, params, Attrs()))
        try:
            package = package_alone(function, self.candidates[claim.target], self.registry, self.settings)
            executable = Executable(package, registry=self.registry)
            inputs = usual_inputs(executable)
            if len(executable.regions) > 1:  # do not count conversions at borders: next to other regions they may not be needed
                return region_seconds(executable, inputs)[ALONE]
            return executable_seconds(executable, inputs)
        except InlaidError:
            return None  # no device, or the target rejects it without its context: use the prediction


def usual_inputs(executable: Executable) -> dict[str, Any]:
    """Return random inputs, with each symbolic dimension at the size that placement by cost assumes (`size_hint`). Raises as
    `example_inputs` does."""
    variables = {each for spec in executable.inputs for dim in spec.shape for each in free_vars(dim) if isinstance(each, SizeVar)}
    return example_inputs(executable.inputs, dims={each.name: size_hint(each) for each in variables})


def executable_seconds(executable: Executable, inputs: Mapping[str, Any]) -> float:
    """Return the median seconds of a run, after a warm-up run. Raises as `Executable.run` does."""
    executable.run(inputs)
    return statistics.median(_runs(lambda: executable.run(inputs)))


def region_seconds(executable: Executable, inputs: Mapping[str, Any]) -> dict[str, float]:
    """Return the median seconds of each region in a run, by name. A region's executions in a run are added up. Raises as
    `Executable.run` does."""
    executable.run(inputs)
    samples: dict[str, list[float]] = {}

    def sample() -> None:
        sums: dict[str, float] = {}
        for event in executable.profile(inputs).events:
            if not event.region:
                sums[event.name] = sums.get(event.name, 0.0) + event.seconds
        for name, seconds in sums.items():
            samples.setdefault(name, []).append(seconds)

    _runs(sample)
    return {name: statistics.median(seconds) for name, seconds in samples.items()}


def _runs(run: Callable[[], object]) -> list[float]:
    """Time `RUNS` runs, or fewer if they take long. Returns the seconds of each run."""
    durations: list[float] = []
    while not durations or (len(durations) < RUNS and sum(durations) < LONGEST):
        begin = time.perf_counter()
        run()
        durations.append(time.perf_counter() - begin)
    return durations
