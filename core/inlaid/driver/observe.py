"""What passes do to a model, for `inlaid show`: the IR after a pass, and what each pass changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from inlaid import ops
from inlaid.driver.build import at_borders
from inlaid.driver.compile import candidates_for, cut
from inlaid.driver.context import DriverContext
from inlaid.driver.prepare import FALLBACK, model_passes
from inlaid.driver.region import watch_region
from inlaid.graph.ir import Module, post_order
from inlaid.partitioning.annotate import Candidate
from inlaid.partitioning.borders import Bordered
from inlaid.passes.manager import Capture, Instrument, Pass, PassManager, PluginPass
from inlaid.plugins import Region
from inlaid.plugins.registry import PluginRegistry, default_registry
from inlaid.settings import DEFAULT, Settings
from inlaid.support.faults import reports_faults
from inlaid.tensor.ir import LoopProgram
from inlaid.tensor.text import show
from inlaid_runtime.errors import CompileError

PARTITION, BORDERS = STAGES = ("partition", "borders")
"""Names of the stages between the passes over the graph and those over regions."""

_Unit = TypeVar("_Unit")


@dataclass(frozen=True)
class PassEffect:
    """What a pass changes in a model. level: "graph", "region" or "kernel"; the stages in `STAGES` are of level "graph". target: ""
    for a graph. name: as `after_step` takes it. plugin: which provides the pass, "" for the core. units: graphs, regions or kernels
    that the pass ran on; changed: how many of them it changed. before, after: sums over all units, of nodes of graphs or lines of
    kernels; for a stage, functions of the module."""

    level: str
    target: str
    name: str
    plugin: str
    units: int
    changed: int
    before: int
    after: int


@reports_faults
def after_step(
    module: Module, targets: Sequence[str], step: str, registry: PluginRegistry | None = None, settings: Settings = DEFAULT
) -> Module | tuple[LoopProgram, ...]:
    """Compile a module up to `step` and return the IR after it. A step is a graph pass (`name` is its last run, `name:n` is run n),
    a stage in `STAGES`, a pass over regions, or a pass over kernels. Returns all kernels for a pass over kernels, otherwise the
    module. Raises `CompileError` for an unknown step, with a list of all names."""
    registry = registry or default_registry()
    passes = model_passes(candidates_for(targets, registry), FALLBACK, registry, settings.precision)
    name, _, number = step.partition(":")
    runs = [index for index, item in enumerate(passes) if item.name == name]
    if runs and (not number or (number.isdigit() and 1 <= int(number) <= len(runs))):
        return PassManager(passes[: (runs[int(number) - 1] if number else runs[-1]) + 1]).run(module)
    partitioned, candidates = cut(module, targets, registry, settings=settings)
    if step == PARTITION:
        return partitioned.module
    bordered = at_borders(partitioned, candidates, registry)
    functions = bordered.partitioned.module.functions
    if step == BORDERS:
        return bordered.partitioned.module
    capture, kernels = Capture[Module](step), Capture[LoopProgram](step)
    for lower in (False, True):
        for region in _regions(bordered, candidates):
            _watch(region, registry, settings, [capture], [kernels], lower)
        if capture.units:
            return Module({**functions, **{name: unit[name] for unit in capture.units for name in unit.functions}})
    if not kernels.units:
        names = dict.fromkeys((*(item.name for item in passes), *STAGES, *capture.names, *kernels.names))
        raise CompileError(f"unknown pass {step!r}", remedy=f"choose from {', '.join(names)}")
    return tuple(kernels.units)


@reports_faults
def pass_effects(
    module: Module, targets: Sequence[str], registry: PluginRegistry | None = None, settings: Settings = DEFAULT
) -> tuple[PassEffect, ...]:
    """Compile a module up to the text that code generators print, and list all passes in order with what they changed: those over
    the graph, and those over the regions and kernels of each target that has any."""
    registry = registry or default_registry()
    graph = _Effects(_nodes)
    partitioned, candidates = cut(module, targets, registry, [graph], settings)
    bordered = at_borders(partitioned, candidates, registry)
    stages = [
        PassEffect("graph", "", name, "", 1, int(before is not after), len(before.functions), len(after.functions))
        for name, before, after in (
            (PARTITION, graph.unit or module, partitioned.module),
            (BORDERS, partitioned.module, bordered.partitioned.module),
        )
    ]
    regions: dict[str, _Effects[Module]] = {}
    kernels: dict[str, _Effects[LoopProgram]] = {}
    for region in _regions(bordered, candidates):
        name = str(region.target)
        over_region = regions.setdefault(name, _Effects(_nodes))
        over_kernels = kernels.setdefault(name, _Effects(_lines, _is_same_text))
        _watch(region, registry, settings, [over_region], [over_kernels], lower=True)
    return (
        *graph.listed("graph"),
        *stages,
        *(row for name, effects in regions.items() for row in effects.summed("region", name)),
        *(row for name, effects in kernels.items() for row in effects.summed("kernel", name)),
    )


def _regions(bordered: Bordered, candidates: Sequence[Candidate]) -> Iterator[Region]:
    """Yield the regions of a module with their borders."""
    partitioned = bordered.partitioned
    for symbol, index in partitioned.regions.items():
        yield bordered.region(symbol, partitioned.module[symbol], candidates[index].target)


def _watch(
    region: Region,
    registry: PluginRegistry,
    settings: Settings,
    instruments: Sequence[Instrument[Module]],
    kernel_instruments: Sequence[Instrument[LoopProgram]],
    lower: bool,
) -> None:
    """Run the passes over a region and, with `lower`, those over its kernels, for the most demanding version of its target."""
    region = replace(region, target=registry.versions(region.target)[-1])
    context = DriverContext(
        region.target,
        registry,
        ops.TABLE,
        fusion=settings.fusion,
        instruments=instruments,
        kernel_instruments=kernel_instruments,
    )
    watch_region(region, context, lower)


class _Effects(Instrument[_Unit], Generic[_Unit]):
    """Records what each run of a pass changes. `size` measures a unit; `is_same` tests whether the output of a pass that is another
    object equals its input. `unit` is the last output."""

    def __init__(self, size: Callable[[_Unit], int], is_same: Callable[[_Unit, _Unit], bool] = lambda before, after: False) -> None:
        self.unit: _Unit | None = None
        self._size, self._is_same = size, is_same
        self._runs: list[PassEffect] = []

    def after(self, step: Pass[_Unit], before: _Unit, after: _Unit) -> None:
        """Record a run."""
        changed = after is not before and not self._is_same(before, after)
        plugin = step.plugin if isinstance(step, PluginPass) else ""
        old = self._size(before)
        self._runs.append(PassEffect("", "", step.name, plugin, 1, int(changed), old, self._size(after) if changed else old))
        self.unit = after

    def listed(self, level: str) -> Iterator[PassEffect]:
        """Yield all runs in order, numbered where a pass runs several times."""
        totals, numbers = Counter(run.name for run in self._runs), Counter[str]()
        for run in self._runs:
            numbers[run.name] += 1
            yield replace(run, level=level, name=f"{run.name}:{numbers[run.name]}" if totals[run.name] > 1 else run.name)

    def summed(self, level: str, target: str) -> Iterator[PassEffect]:
        """Yield each pass once, in order, with the sums of its runs. The order is that of the units, which may skip passes."""
        order: list[str] = []
        runs: dict[str, list[PassEffect]] = {}
        position = 0
        for run in self._runs:
            if run.name in runs:
                position = order.index(run.name)
            else:
                order.insert(position, run.name)
            position += 1
            runs.setdefault(run.name, []).append(run)
        for name in order:
            units, changed, before, after = (
                sum(getattr(run, field) for run in runs[name]) for field in ("units", "changed", "before", "after")
            )
            yield PassEffect(level, target, name, runs[name][0].plugin, units, changed, before, after)


def _nodes(module: Module) -> int:
    return sum(1 for function in module.functions.values() for _ in post_order(function))


def _lines(kernel: LoopProgram) -> int:
    return show(kernel).count("\n") + 1


def _is_same_text(one: LoopProgram, other: LoopProgram) -> bool:
    return show(one) == show(other)
