"""Schedules: primitives applied to a program in sequence, and the trace that records them.

    schedule = Schedule(program)
    i, j, k = schedule.loops("matmul")
    i_0, i_1 = schedule.split(i, (None, 4))
    schedule.vectorize(j)
    print(schedule.trace)

prints

    i, j, k = loops("matmul")
    i_0, i_1 = split(i, (None, 4))
    vectorize(j)

and `replay(program, text)` repeats it. A trace refers to blocks and buffers by name, and to loops by the names that it introduces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import cache
from inspect import Signature, signature
from typing import Any, TypeVar

from inlaid.tensor import ir, primitives, text
from inlaid.tensor.arguments import checked, require_program
from inlaid.tensor.primitives import AnnotationKey, TensorIntrin
from inlaid.tensor.primitives.lookup import block_path
from inlaid.tensor.transform.layouts import with_layouts
from inlaid.tensor.transform.paths import loops_around
from inlaid_runtime.arith import Var
from inlaid_runtime.arith.text import Tokens, quoted, unquoted
from inlaid_runtime.errors import ScheduleError
from inlaid_runtime.markup import preformatted
from inlaid_runtime.names import unique
from inlaid_runtime.records import dataclass
from inlaid_runtime.types import Layout

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoopName:
    """A reference to a loop in a trace."""

    name: str


Argument = LoopName | str | int | float | bool | None | tuple["Argument", ...]


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One applied primitive. `results` are the names of the loops that it returned."""

    primitive: str
    args: tuple[Argument, ...]
    results: tuple[str, ...] = ()

    def __str__(self) -> str:
        call = f"{self.primitive}({', '.join(map(_text, self.args))})"
        return f"{', '.join(self.results)} = {call}" if self.results else call


@dataclass(frozen=True, slots=True)
class Trace:
    """The recorded steps of a schedule. `str` gives a text that `parse_trace` parses."""

    steps: tuple[TraceStep, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def _text(argument: Argument) -> str:
    match argument:
        case LoopName(name=name):
            return name
        case str():
            return quoted(argument)
        case tuple():
            return f"({', '.join(map(_text, argument))}{',' if len(argument) == 1 else ''})"
    return repr(argument)


@dataclass(frozen=True, slots=True)
class Transform:
    """A step that is not a primitive. `rewrite` maps a program and arguments (loops, or values with a text form) to a program. If
    it does not apply to a program, it returns the program unchanged."""

    name: str
    rewrite: Callable[..., ir.LoopProgram]


class Schedule:
    """A program and the primitives applied to it. See `tensor.primitives` for the effect and the errors of each primitive.

    `program` is the current program. `tensorize` accepts `intrinsics`, and `annotate` accepts `annotation_keys`.
    """

    def __init__(
        self,
        program: ir.LoopProgram,
        intrinsics: tuple[TensorIntrin, ...] = (),
        annotation_keys: tuple[AnnotationKey, ...] = (),
    ) -> None:
        self.program = require_program(program)
        self._intrinsics = {intrinsic.name: intrinsic for intrinsic in intrinsics}
        self._keys = {key.name: key for key in annotation_keys}
        self._steps: list[TraceStep] = []
        self._names: dict[Var, str] = {}
        self._names_in_use = set(_CONSTANTS)

    @property
    def trace(self) -> Trace:
        """The steps applied so far."""
        return Trace(tuple(self._steps))

    @property
    def semantics(self) -> Mapping[str, ir.LoopProgram]:
        """The semantic loop nests of all intrinsics in the program, by name, for the interpreter."""
        return {**primitives.SEMANTICS, **{name: item.semantics for name, item in self._intrinsics.items()}}

    def __str__(self) -> str:
        return text.show(self.program)

    def __repr__(self) -> str:
        count = len(self._steps)
        return f"<Schedule of {self.program.name}: {count} primitive{'s' * (count != 1)} applied>"

    def _repr_html_(self) -> str:
        return preformatted(f"{self!r}\n\n{self.trace}\n\n{self}")

    @property
    def blocks(self) -> tuple[str, ...]:
        """Return the names of all blocks, in program order."""
        return tuple(stmt.name for stmt in ir.walk_stmts(self.program.body) if isinstance(stmt, ir.Block))

    def loops(self, block: str) -> tuple[Var, ...]:
        """Return the loops around a block, outermost first. Recorded as a step only if the trace lacks names for some of them."""
        loops = tuple(loop.var for loop in loops_around(block_path(self.program, block)))
        if not all(loop in self._names for loop in loops):
            self._record("loops", (block,), loops)
        return loops

    def copy(self) -> Schedule:
        """Return an independent copy of the schedule in its current state."""
        other = copy(self)
        other._steps, other._names, other._names_in_use = list(self._steps), dict(self._names), set(self._names_in_use)
        return other

    def apply(self, transform: Transform, *args: Any) -> None:
        """Apply a transform. `replay` must be given the same transform. A transform that changes nothing is not recorded."""
        program = transform.rewrite(self.program, *args)
        if program is not self.program:
            self.program = program
            self._record(transform.name, args)

    # --- loops ------------------------------------------------------------------------------------------------------------

    def split(self, loop: Var, factors: tuple[int | None, ...]) -> tuple[Var, ...]:
        """Split a loop into a nest. Returns the new loops, outermost first."""
        return self._returning(primitives.split, loop, factors)

    def fuse(self, *loops: Var) -> Var:
        """Fuse directly nested loops, given outermost first. Returns the new loop."""
        return self._returning(primitives.fuse, loops)

    def reorder(self, *loops: Var) -> None:
        """Reorder nested loops into the given order, outermost first."""
        self._apply(primitives.reorder, loops)

    def tile(self, loops: tuple[Var, ...], factors: tuple[int, ...]) -> tuple[Var, ...]:
        """Split nested loops, and nest all inner parts inside all outer parts. Returns the outer loops, then the inner loops."""
        return self._returning(primitives.tile, loops, factors)

    # --- execution of loops -----------------------------------------------------------------------------------------------

    def parallel(self, loop: Var) -> None:
        """Run the iterations of a loop on several threads."""
        self._apply(primitives.parallel, loop)

    def vectorize(self, loop: Var) -> None:
        """Run the iterations of a loop as vector lanes."""
        self._apply(primitives.vectorize, loop)

    def unroll(self, loop: Var) -> None:
        """Mark a loop to be unrolled completely after scheduling."""
        self._apply(primitives.unroll, loop)

    def bind(self, loop: Var, thread: str) -> None:
        """Bind a loop to a thread axis, e.g. "threadIdx.x"."""
        self._apply(primitives.bind, loop, thread)

    def vthread(self, loop: Var, tasks: Var | None = None) -> None:
        """Run the iterations of a loop as virtual threads, interleaved at the statements directly inside the loop `tasks`."""
        self._apply(primitives.vthread, loop, *(() if tasks is None else (tasks,)))

    def annotate(self, loop: Var, key: str, value: int | str | bool) -> None:
        """Annotate a loop with a value for the pass that declares the key."""
        annotation_key = self._keys.get(key)
        if annotation_key is None:
            raise ScheduleError(f"unknown annotation key {key}", remedy=f"known: {', '.join(self._keys) or 'none'}")
        self.program = primitives.annotate(self.program, loop, annotation_key, value)
        self._record("annotate", (loop, key, value))

    # --- blocks -----------------------------------------------------------------------------------------------------------

    def compute_inline(self, block: str) -> None:
        """Inline an element-wise block into its consumers."""
        self._apply(primitives.compute_inline, block)

    def reverse_compute_inline(self, block: str) -> None:
        """Inline an element-wise block into its producer."""
        self._apply(primitives.reverse_compute_inline, block)

    def compute_at(self, block: str, loop: Var) -> None:
        """Move a producer into a loop of its consumers."""
        self._apply(primitives.compute_at, block, loop)

    def reverse_compute_at(self, block: str, loop: Var) -> None:
        """Move a consumer into a loop of its producer."""
        self._apply(primitives.reverse_compute_at, block, loop)

    def decompose_reduction(self, block: str, loop: Var) -> str:
        """Move the initialization of a reduction in front of a loop. Returns the name of the new block."""
        return self._returning(primitives.decompose_reduction, block, loop)

    def rfactor(self, block: str, loop: Var, axis: int = 0) -> str:
        """Split a reduction into one partial reduction per iteration of a loop. Returns the block of the partial results."""
        return self._returning(primitives.rfactor, block, loop, axis)

    # --- memory -----------------------------------------------------------------------------------------------------------

    def cache_read(self, block: str, buffer: str, scope: str = "") -> str:
        """Make a block read a copy of a buffer. Returns the name of the copying block."""
        return self._returning(primitives.cache_read, block, buffer, scope)

    def cache_write(self, block: str, scope: str = "") -> str:
        """Make a block write to a private buffer. Returns the name of the block that copies it back."""
        return self._returning(primitives.cache_write, block, scope)

    def set_scope(self, buffer: str, scope: str) -> None:
        """Place an intermediate buffer in a memory scope."""
        self._apply(primitives.set_scope, buffer, scope)

    def transform_layout(self, buffer: str, layout: str, fill: int | float | None = None) -> None:
        """Change the layout of a buffer by an index map, e.g. `(i, j) -> (j, i)`."""
        self._apply(primitives.transform_layout, buffer, layout, fill)

    def lay_out(self, *layouts: tuple[str, tuple[tuple[int, int], ...]]) -> None:
        """Set blocked layouts (`Layout.blocks`) by buffer name: `("b", ((0, 64), (1, 16)))`. Unknown names are ignored."""
        if not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], tuple) for pair in layouts):
            raise ScheduleError(f"lay_out arguments must be pairs (buffer name, blocks), got {layouts!r}")
        blocks, allocated = dict(layouts), (stmt.buffer for stmt in ir.walk_stmts(self.program.body) if isinstance(stmt, ir.Alloc))
        buffers = [buffer for buffer in (*self.program.params, *allocated) if buffer.name in blocks]
        self.program = with_layouts(self.program, {buffer: Layout(blocks[buffer.name]) for buffer in buffers})
        self._record("lay_out", layouts)

    def storage_align(self, buffer: str, axis: int, factor: int, offset: int = 0) -> None:
        """Pad a buffer so that its stride along an axis is `offset` modulo `factor` elements."""
        self._apply(primitives.storage_align, buffer, axis, factor, offset)

    def pad(self, block: str, multiples: tuple[int, ...], owned: tuple[str, ...] = ()) -> None:
        """Round the extents of a block up to the given multiples. `owned` inputs are enlarged in place, not copied."""
        self._apply(primitives.pad, block, multiples, owned)

    # --- hardware ---------------------------------------------------------------------------------------------------------

    def blockize(self, loop: Var) -> str:
        """Make a block of a loop and its body. Returns the name of the new block."""
        return self._returning(primitives.blockize, loop)

    def tensorize(self, loop: Var, intrinsic: str) -> None:
        """Replace a loop and its body by an intrinsic."""
        tensor_intrin = self._intrinsics.get(intrinsic)
        if tensor_intrin is None:
            raise ScheduleError(f"unknown intrinsic {intrinsic}", remedy=f"known: {', '.join(self._intrinsics) or 'none'}")
        self.program = primitives.tensorize(self.program, loop, tensor_intrin)
        self._record("tensorize", (loop, intrinsic))

    def software_pipeline(self, loop: Var, stages: tuple[int, ...]) -> None:
        """Software-pipeline a loop: overlap the stages of successive iterations."""
        self._apply(primitives.software_pipeline, loop, stages)

    def double_buffer(self, block: str) -> None:
        """Double-buffer a block's output: compute it one iteration ahead of its use."""
        self._apply(primitives.double_buffer, block)

    def rolling_buffer(self, block: str) -> None:
        """Keep a block's output in a rolling buffer, so that an iteration reuses elements that it shares with earlier ones."""
        self._apply(primitives.rolling_buffer, block)

    def prefetch(self, block: str, buffer: str, loop: Var, distance: int) -> str:
        """Prefetch the data that a block will read `distance` iterations later. Returns the name of the new block."""
        return self._returning(primitives.prefetch, block, buffer, loop, distance)

    def stream(self, block: str, buffer: str, loop: Var, inner: Var, each: bool = False, expected: int = 1) -> str:
        """Prefetch data that a block reads in the next iteration of a loop, spread over `inner`. Returns the new block's name."""
        return self._returning(primitives.stream, block, buffer, loop, inner, each, expected)

    # --- recording --------------------------------------------------------------------------------------------------------

    def _apply(self, primitive: Callable[..., ir.LoopProgram], *args: Any) -> None:
        args = checked(primitive, args)
        self.program = primitive(self.program, *args)
        self._record(primitive.__name__, args)

    def _returning(self, primitive: Callable[..., tuple[ir.LoopProgram, T]], *args: Any) -> T:
        args = checked(primitive, args)
        self.program, result = primitive(self.program, *args)
        loops = (result,) if isinstance(result, Var) else result if isinstance(result, tuple) else ()
        self._record(primitive.__name__, args, loops)
        return result

    def _record(self, primitive: str, args: tuple[Any, ...], loops: tuple[Var, ...] = ()) -> None:
        self._steps.append(TraceStep(primitive, tuple(map(self._argument, args)), tuple(map(self._name, loops))))

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, tuple):
            return tuple(map(self._argument, value))
        if isinstance(value, Var):
            return LoopName(self._name(value))
        assert value is None or isinstance(value, (str, int, float, bool)), f"expected an argument with a text form, got {value!r}"
        return value

    def _name(self, loop: Var) -> str:
        name = self._names.get(loop)
        if name is None:
            name = self._names[loop] = unique(loop.name, self._names_in_use)
        return name


_CONSTANTS = {"None": None, "True": True, "False": False}
_SPREAD = frozenset({"fuse", "reorder"})
"""Primitives whose method of `Schedule` takes loops as separate arguments. A trace lists these loops in one tuple."""
_NOT_PRIMITIVES = ("trace", "blocks", "program", "semantics", "copy", "apply")
PRIMITIVES = frozenset(name for name in vars(Schedule) if not name.startswith("_") and name not in _NOT_PRIMITIVES)
"""The names of the primitives that a trace may contain."""


def parse_trace(text: str, transforms: Iterable[str] = ()) -> Trace:
    """Parse the text of a trace, whose steps are primitives or transforms named in `transforms`. Raises `ParseError`."""
    step_names = PRIMITIVES.union(transforms)
    tokens = Tokens(text)
    steps = []
    while tokens.next.kind != "end":
        names = [tokens.expect_kind("name")]
        while tokens.accept(","):
            names.append(tokens.expect_kind("name"))
        results = tuple(names) if tokens.accept("=") else ()
        if not results and len(names) > 1:
            tokens.fail("expected '='")
        primitive = tokens.expect_kind("name") if results else names[0]
        if primitive not in step_names:
            tokens.fail(f"expected a schedule primitive, got {primitive}")
        args = _parse_argument(tokens)
        assert isinstance(args, tuple)
        steps.append(TraceStep(primitive, args, results))
    return Trace(tuple(steps))


def _parse_argument(tokens: Tokens) -> Argument:
    if tokens.accept("("):
        items: list[Argument] = []
        while not tokens.accept(")"):
            items.append(_parse_argument(tokens))
            if not tokens.at(")"):
                tokens.expect(",")
        return tuple(items)
    if tokens.next.kind == "number":
        text = tokens.take().text
        return int(text) if text.lstrip("-").isdigit() else float(text)
    if tokens.next.kind == "string":
        return unquoted(tokens.take().text)
    name = tokens.expect_kind("name")
    return _CONSTANTS[name] if name in _CONSTANTS else LoopName(name)


def replay(
    program: ir.LoopProgram,
    trace: Trace | str,
    intrinsics: tuple[TensorIntrin, ...] = (),
    annotation_keys: tuple[AnnotationKey, ...] = (),
    transforms: tuple[Transform, ...] = (),
) -> Schedule:
    """Apply a trace to a program. `transforms` are the transforms that the trace may contain.

    Raises `ParseError` for an invalid text, and `ScheduleError` if a step does not apply to this program.
    """
    transform_by_name = {transform.name: transform for transform in transforms}
    trace = parse_trace(trace, transform_by_name) if isinstance(trace, str) else trace
    schedule = Schedule(program, intrinsics, annotation_keys)
    loops: dict[str, Var] = {}

    def value(argument: Argument) -> Any:
        if isinstance(argument, tuple):
            return tuple(map(value, argument))
        if isinstance(argument, LoopName):
            if argument.name not in loops:
                raise ScheduleError(f"the trace uses loop {argument.name}, which no earlier step returns")
            return loops[argument.name]
        return argument

    for step in trace.steps:
        args = tuple(map(value, step.args))
        if step.primitive in _SPREAD and len(args) == 1 and isinstance(args[0], tuple):
            args = args[0]
        try:
            if step.primitive in transform_by_name:
                schedule.apply(transform_by_name[step.primitive], *args)
                continue
            _signature(step.primitive).bind(schedule, *args)
        except (TypeError, ValueError, AttributeError, AssertionError, StopIteration) as error:
            raise ScheduleError(f"step {step} of the trace has arguments that {step.primitive} does not accept") from error
        result = getattr(schedule, step.primitive)(*args)
        result_loops = (result,) if isinstance(result, Var) else result if isinstance(result, tuple) else ()
        if step.results and len(result_loops) != len(step.results):
            raise ScheduleError(
                f"step {step} of the trace expects {len(step.results)} loops, but the program has {len(result_loops)}"
            )
        loops.update(zip(step.results, result_loops, strict=False))
    return schedule


@cache
def _signature(primitive: str) -> Signature:
    """Return the signature of a primitive, including the schedule as first parameter."""
    return signature(getattr(Schedule, primitive))
