"""Convolution over flattened images: a tile of pixels may span the ends of lines of a padded copy.

The copy stores the lines of an image one after another with a common pitch. A result pixel has the number line * pitch + column, so
a window tap reads the element at that number plus a constant offset, also across line ends. Tiles are full for every height and
width; results in the halo are computed and not stored. The right halo of a line is the left halo of the next. With a stride, the
copy is split into phases, one per remainder of a position modulo the stride, so that neighboring pixels are contiguous. Along
lines, the copy is split only if windows skip some remainders; otherwise neighboring pixels are a stride apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from inlaid.plugins.costs import CostConstants
from inlaid.schedules.direct_conv import ConvTile, DirectConv
from inlaid.schedules.shape import Anchor, constant_extent, expected_extent, find_anchor, read_size, size_text
from inlaid.tensor import ir
from inlaid.tensor.analysis.footprint import with_footprint
from inlaid.tensor.primitives.lookup import block_path
from inlaid.tensor.schedule import Schedule, Transform
from inlaid.tensor.scheduling.rule import Decision
from inlaid.tensor.transform.lower_blocks import conjuncts, joined, truth
from inlaid.tensor.transform.paths import block_nest, loops_around, remapped, unique_name
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith
from inlaid_runtime.arith import Const, Expr, Var
from inlaid_runtime.records import dataclass, replace
from inlaid_runtime.types import dtype


@dataclass(frozen=True)
class FlatAxis:
    """One axis of an image: number of results (`size`), window taps, stride, dilation, and `pitch`, the distance in pixels between
    the starts of adjacent lines along it."""

    size: Expr
    taps: int
    stride: int
    dilation: int
    pitch: Expr

    @property
    def step(self) -> int:
        """Greatest common divisor of the stride and all offsets that a window reads."""
        return gcd(self.stride, self.dilation) if self.taps > 1 else self.stride

    @property
    def phases(self) -> int:
        """Number of distinct remainders modulo the stride that windows read."""
        return max(tap * self.dilation % self.stride // self.step for tap in range(self.taps)) + 1

    @property
    def reach(self) -> int:
        """Distance within a phase from the first to the last element that a window reads."""
        return (self.taps - 1) * self.dilation // self.stride


def flat_axes(conv: DirectConv) -> tuple[FlatAxis, ...] | None:
    """Describe the axes of a convolution's image; None if a stride or dilation is not constant."""
    anchor, axes = conv.anchor, []
    items = zip(anchor.spatial[2:], anchor.reduced[1:], conv.data.indices[2:], strict=True)
    for axis, (item, tap, index) in enumerate(items, 2):
        parts = arith.affine(index, item.var)
        steps = None if parts is None else arith.affine(parts[1], tap.var)
        if parts is None or steps is None or not isinstance(parts[0], Const) or not isinstance(steps[0], Const):
            return None
        stride, dilation, taps = parts[0].value, steps[0].value, constant_extent(tap)
        if stride < 1 or dilation < 0 or steps[1] != arith.ZERO:
            return None
        flat_axis = FlatAxis(item.extent, taps, stride, dilation, item.extent)
        axes.append(replace(flat_axis, pitch=_pitch(conv, axis, flat_axis)))
    return tuple(axes)


def _pitch(conv: DirectConv, number: int, axis: FlatAxis) -> Expr:
    """Return the distance between lines along an axis, axis number `number` of the data. The padding elements at the end of a line
    are those at the start of the next."""
    full_pitch = arith.simplify(axis.size + axis.reach)
    if axis.stride > 1 and (number != len(conv.anchor.spatial) - 1 or axis.phases < axis.stride):
        return full_pitch  # the copy is divided into phases
    shared_halo = _shared_halo(conv, number, (axis.taps - 1) * axis.dilation)
    if axis.stride == 1 or not shared_halo:
        return arith.simplify(full_pitch - shared_halo)
    # Windows read the elements below `end`; of these, the elements from `stored_end` on are padding.
    first = (axis.size - 1) * axis.stride
    end, stored_end = first + (axis.taps - 1) * axis.dilation + 1, arith.wrap(conv.data.buffer.shape[number]) - shared_halo
    fits = arith.logical_and(arith.compare("<=", stored_end, end), arith.compare("<", first, stored_end))
    return arith.simplify(arith.ceildiv(stored_end, axis.stride)) if arith.prove(fits) else full_pitch


def _shared_halo(conv: DirectConv, axis: int, limit: int) -> int:
    """Return the number of padding elements that a line of the padded copy has at both its start and its end, at most `limit`."""
    for block in conv.anchor.before:
        value = block.body.value if isinstance(block.body, ir.Store) else None
        if isinstance(value, ir.Select) and isinstance(value.condition, ir.Index) and isinstance(value.otherwise, ir.Const):
            item, condition = block.iters[axis], value.condition.index
            for count in range(limit):
                ends = (arith.Const(count), item.extent - (count + 1))
                if any(arith.simplify(arith.substitute(condition, {item.var: end})) != arith.ZERO for end in ends):
                    return count
            return limit
    return 0


def fit_lines(axes: Sequence[FlatAxis], pixels: int, costs: CostConstants, depth: int = 0) -> tuple[FlatAxis, ...]:
    """Lengthen lines to at least half a tile of `pixels`, or less if the reduction's `depth` reaches `costs.deep`. A tile then
    spans at most two line ends, and the positions of its pixels follow from the first pixel's without divisions. Lines are also at
    least as long as the reach of a window. Windows of the last tile then read less than a tile and two lines beyond the image."""
    line = min(pixels, costs.flat_line if depth < costs.deep else costs.deep_flat_line)
    first, *inner_axes = axes
    least = [axis.reach + 1 for axis in inner_axes[:-1]] + [max(line, axis.reach) for axis in inner_axes[-1:]]
    pitches = (arith.simplify(arith.maximum(axis.pitch, size)) for axis, size in zip(inner_axes, least, strict=True))
    return (first, *(replace(axis, pitch=pitch) for axis, pitch in zip(inner_axes, pitches, strict=True)))


def _spacing(axes: Sequence[FlatAxis]) -> int:
    """Return the distance between adjacent pixels in elements of the copy."""
    return axes[-1].stride if axes[-1].phases == axes[-1].stride else 1


def _phases(axes: Sequence[FlatAxis]) -> list[int]:
    """Return the number of phases of the copy along each axis."""
    return [*(axis.phases for axis in axes[:-1]), axes[-1].phases // _spacing(axes)]


def flat_pixels(axes: Sequence[FlatAxis]) -> Expr:
    """Return the number of pixels of a flattened image, including the halo."""
    return arith.simplify(axes[0].size * _strides(axes)[0])


def _strides(axes: Sequence[FlatAxis]) -> list[Expr]:
    """Return the distance in pixels between neighbors along each axis."""
    strides: list[Expr] = [arith.ONE]
    for axis in reversed(axes[1:]):
        strides.insert(0, arith.simplify(strides[0] * axis.pitch))
    return strides


def needs_copy(conv: DirectConv, axes: Sequence[FlatAxis]) -> bool:
    """Test whether flattening needs a copy. For 1x1 windows without stride and padding, images are flat already."""
    return bool(conv.anchor.before) or any(axis.taps > 1 or axis.stride > 1 for axis in axes)


def plan_pixels(
    conv: DirectConv,
    choose: Callable[[int, int, int | None], tuple[ConvTile, Decision, float]],
    costs: CostConstants,
    copied: bool = False,
    joins: bool = False,
) -> tuple[ConvTile, Decision, float, tuple[FlatAxis, ...]] | None:
    """Choose the tile of a convolution by `choose(height, width, maximum pixels)`. Returns the tile, its decision, its cost, and
    the axes of flattened images (empty for a 2-d image of constant size); None if a stride or dilation is not constant. `copied`:
    images are always copied. `joins`: flatten images of constant size too, where that needs no copy."""
    if conv.is_plane and not (joins and not copied and (axes := flat_axes(conv)) and not needs_copy(conv, axes)):
        height, width = map(expected_extent, conv.anchor.spatial[2:])
        return (*choose(height, width, None), ())
    axes = flat_axes(conv)
    if not axes:
        return None
    copied = copied or needs_copy(conv, axes)
    pixels = arith.size_hint(arith.unwrap(flat_pixels(axes)), arith.IMAGE_SIDE)
    tile, decision, cost = choose(1, pixels, costs.flat_pixels if copied and len(axes) > 1 else None)
    return tile, decision, cost, fit_lines(axes, tile.pixels, costs, conv.inputs * conv.taps) if copied else axes


AxisText = tuple[int | str, int, int, int, int | str]
"""A `FlatAxis` as trace arguments."""


def in_text(axes: Sequence[FlatAxis]) -> tuple[AxisText, ...]:
    """Convert axes to trace arguments."""
    return tuple((size_text(axis.size), axis.taps, axis.stride, axis.dilation, size_text(axis.pitch)) for axis in axes)


def _from_text(program: ir.LoopProgram, axes: Sequence[AxisText]) -> tuple[FlatAxis, ...]:
    return tuple(
        FlatAxis(read_size(program, size), taps, stride, dilation, read_size(program, pitch))
        for size, taps, stride, dilation, pitch in axes
    )


def flatten(s: Schedule, name: str, data: str, axes: Sequence[FlatAxis], final: str, pixels: int, cut: bool = False) -> str:
    """Apply `flattened` to a schedule; returns the name of the copy."""
    earlier_blocks = s.blocks
    s.apply(FLATTEN, name, data, in_text(axes), final, pixels, cut)
    (copy,) = (block for block in s.blocks if block not in earlier_blocks)
    return copy


def join_pixels(s: Schedule, name: str, data: str, axes: Sequence[FlatAxis], final: str) -> None:
    """Apply `joined_pixels` to a schedule."""
    s.apply(JOIN_PIXELS, name, data, in_text(axes), final)


def flattened(
    program: ir.LoopProgram, name: str, data: str, described: Sequence[AxisText], final: str, pixels: int, cut: bool = False
) -> ir.LoopProgram:
    """Rewrite a convolution kernel to iterate over flattened images in full tiles of `pixels`, reading a flat copy of its data. The
    copy replaces a padded copy.

    `name` is the reduction block, `data` the buffer that it reads, `final` the element-wise block that stores results and is the
    only reader of the sums. If `final` is "", the readers keep their loops, and read flat sums at any index. If `cut`, images are
    single lines, and the last tile of each line is partial, since a full tile of few pixels would be mostly empty. Raises
    ValueError if sums are not read element-wise by `final`.
    """
    anchor, axes = find_anchor(program), _from_text(program, described)
    assert anchor is not None and anchor.block.name == name
    strides = _strides(axes)
    # The halo of the last line needs no tile.
    end = sum(((axis.size - 1) * stride for axis, stride in zip(axes, strides, strict=True)), start=arith.ONE)
    padded_pixels = arith.simplify(arith.ceildiv(arith.maximum(end, 0), pixels) * pixels)
    count = axes[0].size if cut else padded_pixels
    # Overestimate the number of lines without a division: the size is part of every address, so it must be cheap.
    least = arith.bounds(axes[-1].pitch)[0]
    lines_beyond = max(3, 1 - -pixels // least) if isinstance(least, int) and least > 0 else pixels + 1
    rows = arith.simplify(axes[0].size + (axes[0].reach + lines_beyond) if len(axes) > 1 else padded_pixels + axes[0].reach)
    source = next(region.buffer for region in anchor.block.reads if region.buffer.name == data)
    phases = [count for count in _phases(axes) if count > 1]
    length = arith.unwrap(arith.simplify(rows * strides[0] * _spacing(axes)))
    copy = ir.Buffer(unique_name(program, "flat"), (*source.shape[:2], *phases, length), source.dtype)
    padding = next((block for block in anchor.before if block.writes[0].buffer is source), None)
    pixel_body = _over_pixels(program, anchor, final, axes, count, source, copy)
    copy_nest = _copy(copy, source, padding, axes, strides, rows)

    def change(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Alloc(buffer=buffer, body=body):
                return change(body) if padding is not None and buffer is source else ir.Alloc(buffer, change(body))
            case ir.Seq(stmts=stmts):
                return joined(*map(change, stmts))
        (block,) = (node for node in ir.walk_stmts(stmt) if isinstance(node, ir.Block))
        if padding is not None and block is padding:
            return ir.Seq(())
        return joined(copy_nest, stmt) if block.name == name else stmt

    return replace(program, body=ir.Alloc(copy, change(pixel_body)))


def joined_pixels(program: ir.LoopProgram, name: str, data: str, described: Sequence[AxisText], final: str) -> ir.LoopProgram:
    """Rewrite a 1x1 convolution kernel to iterate over flattened images: each image becomes one line, without a copy. The
    parameters are as in `flattened`."""
    anchor, axes = find_anchor(program), _from_text(program, described)
    assert anchor is not None and anchor.block.name == name
    source = next(region.buffer for region in anchor.block.reads if region.buffer.name == data)
    count, strides = flat_pixels(axes), _strides(axes)
    program = replace(program, body=_over_pixels(program, anchor, final, axes, count, source, None))
    maps = {}
    for buffer in program.params:
        if len(buffer.shape) == 2 + len(axes) and all(
            arith.simplify(axis.size - dim) == arith.ZERO for axis, dim in zip(axes, buffer.shape[2:], strict=True)
        ):
            line = ir.Buffer(buffer.name, (*buffer.shape[:2], arith.unwrap(count)), buffer.dtype)
            maps[buffer] = (line, lambda indices: (*indices[:2], _flat_offset(indices[2:], strides)))
    return remapped(program, maps)


class _IndexReplacer(Rewriter):
    """Replaces whole index expressions."""

    def __init__(self, replacements: dict[Expr, Expr]) -> None:
        super().__init__()
        self._replacements = replacements

    def index(self, index: Expr) -> Expr:
        rebuilt = self._rebuilt_index(index)
        return self._replacements.get(rebuilt, rebuilt)


def store_whole_tiles(program: ir.LoopProgram, final: str, described: Sequence[AxisText], pixels: int) -> ir.LoopProgram:
    """Split the store loop of a tile, in block `final`, into an unconditional version for tiles without halo pixels and the
    original.

        for q in 8: block out(v = p * 8 + q) where v // pitch < h and v % pitch < w: out[v // pitch, v % pitch] = acc[v]
    becomes
        if p * 8 // pitch < h and p * 8 % pitch + 7 < w:
            for q in 8: block out(v = p * 8 + q, u = q): out[(v - u) // pitch, (v - u) % pitch + u] = acc[v]
        else: the original loop
    """
    axes = _from_text(program, described)
    strides = _strides(axes)

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.For) or stmt.extent != Const(pixels) or stmt.kind is not ir.ForKind.UNROLLED:
            return None
        blocks = [inner for inner in ir.walk_stmts(stmt) if isinstance(inner, ir.Block)]
        if [block.name for block in blocks] != [final] or stmt.var not in arith.free_vars(blocks[0].bindings[2]):
            return None  # a loop over vectors of channels may have as many iterations
        (block,), tile_pixel = blocks, ir.IterVar(Var("q"), Const(pixels))
        pixel, start = block.iters[2].var, arith.substitute(block.bindings[2], {stmt.var: arith.ZERO})
        ends = _lines(start, axes, strides)
        ends[-1] = ends[-1] + (pixels - 1)
        in_bounds: Expr = arith.ONE
        for end, axis in zip(ends, axes, strict=True):
            in_bounds = arith.logical_and(in_bounds, arith.compare("<", end, axis.size))
        split_positions = _lines(pixel - tile_pixel.var, axes, strides)
        split_positions[-1] = split_positions[-1] + tile_pixel.var
        replacements = dict(zip(_lines(pixel, axes, strides), split_positions, strict=True))
        predicate: Expr = arith.ONE
        for part in conjuncts(block.predicate):
            predicate = predicate if stmt.var in arith.free_vars(part) else arith.logical_and(predicate, part)
        iters, bindings, body = (
            (*block.iters, tile_pixel),
            (*block.bindings, stmt.var),
            _IndexReplacer(replacements).stmt(block.body),
        )
        unguarded = with_footprint(replace(block, iters=iters, bindings=bindings, body=body, predicate=predicate))
        return ir.If(truth(in_bounds), Rewriter(stmt=lambda inner: unguarded if inner is block else None).stmt(stmt), stmt)

    return Rewriter(stmt=change).program(program)


def _over_pixels(
    program: ir.LoopProgram,
    anchor: Anchor,
    final: str,
    axes: Sequence[FlatAxis],
    count: Expr,
    source: ir.Buffer,
    copy: ir.Buffer | None,
) -> ir.Stmt:
    """Rebuild a kernel's body with sums and results over `count` pixels; the sum reads the flat copy, if any."""
    strides, buffer = _strides(axes), anchor.buffer
    sums = ir.Buffer(buffer.name, (*buffer.shape[:2], arith.unwrap(count)), buffer.dtype, buffer.scope)

    def change(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Alloc(buffer=buffer, body=body):
                return ir.Alloc(sums if buffer is anchor.buffer else buffer, change(body))
            case ir.Seq(stmts=stmts):
                return joined(*map(change, stmts))
        (block,) = (node for node in ir.walk_stmts(stmt) if isinstance(node, ir.Block))
        if block.name == anchor.block.name:
            return _sum(block, anchor, source, copy, sums, axes, strides)
        if not any(region.buffer is anchor.buffer for region in block.reads):
            return stmt
        return _results(block, sums, axes, strides) if block.name == final else _over_lines(stmt, anchor.buffer, sums, strides)

    return change(program.body)


def _over_lines(stmt: ir.Stmt, buffer: ir.Buffer, sums: ir.Buffer, strides: list[Expr]) -> ir.Stmt:
    """Replace loads of sums by loads of the flat sums."""

    def load(node: ir.Expr) -> ir.Expr | None:
        if not isinstance(node, ir.Load) or node.buffer is not buffer:
            return None
        return ir.load(sums, (*node.indices[:2], arith.simplify(_flat_offset(node.indices[2:], strides))))

    return Rewriter(expr=load, stmt=lambda inner: with_footprint(inner) if isinstance(inner, ir.Block) else None).stmt(stmt)


def _copy(
    copy: ir.Buffer, source: ir.Buffer, padding: ir.Block | None, axes: Sequence[FlatAxis], strides: list[Expr], rows: Expr
) -> ir.Stmt:
    """Build the nest that copies the data to flat lines, with phases for strides:

    for n, c, phases, y in rows, x in pitch * stride:
        flat[n, c, phases, y * pitch * stride + x] = padded[n, c, y * stride + phase, x]
    """
    n, c, spacing = Var("n"), Var("c"), _spacing(axes)
    iters = [ir.IterVar(n, arith.wrap(source.shape[0])), ir.IterVar(c, arith.wrap(source.shape[1]))]
    phases = [Var(f"f{number}") if count > 1 else None for number, count in enumerate(_phases(axes))]
    iters += [ir.IterVar(var, Const(axis.phases)) for var, axis in zip(phases, axes, strict=True) if var is not None]
    positions = [Var(f"y{number}") for number in range(len(axes))]
    extents = [rows, *(axis.pitch for axis in axes[1:])]
    extents[-1] = arith.simplify(extents[-1] * spacing)
    iters += map(ir.IterVar, positions, extents)
    read_indices: list[Expr] = []
    in_bounds: Expr = arith.ONE
    for position, phase, axis, dim in zip(positions, phases, axes, source.shape[2:], strict=True):
        scaled = position if axis is axes[-1] and spacing > 1 else position * axis.stride
        read_indices.append(scaled + (0 if phase is None else phase * axis.step))
        in_bounds = arith.logical_and(in_bounds, arith.compare("<", read_indices[-1], dim))
    if padding is None:
        value: ir.Expr = ir.load(source, (n, c, *read_indices))
    else:
        assert isinstance(padding.body, ir.Store)
        mapping: dict[Expr, Expr] = dict(zip((item.var for item in padding.iters), (n, c, *read_indices), strict=True))
        value = Rewriter(mapping).expr(padding.body.value)
    analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in iters})
    value = _where(analyzer.simplify(in_bounds), value, ir.const(0, copy.dtype))
    outer_vars = tuple(item.var for item in iters[: len(iters) - len(axes)])
    store = ir.Store(
        copy, (*outer_vars, _flat_offset(positions, [*(stride * spacing for stride in strides[:-1]), arith.ONE])), value
    )
    return block_nest(copy.name, tuple(iters), store)


def _where(in_bounds: Expr, value: ir.Expr, otherwise: ir.Expr) -> ir.Expr:
    """Return `value` where `in_bounds` holds, else `otherwise`. If `value` itself selects between data and a padding constant,
    `in_bounds` is merged into its condition, so that the halo gets this constant. Of nested selects (padded channels) the innermost
    is taken: its constant is the padding of images, which lines share."""
    if isinstance(value, ir.Select) and isinstance(value.condition, ir.Index) and isinstance(value.otherwise, ir.Const):
        if isinstance(value.then, ir.Select):
            return ir.select(value.condition, _where(in_bounds, value.then, otherwise), value.otherwise)
        return ir.select(arith.logical_and(in_bounds, value.condition.index), value.then, value.otherwise)
    return ir.select(in_bounds, value, otherwise)


def _flat_offset(positions: Sequence[Expr], strides: Sequence[Expr]) -> Expr:
    total: Expr = arith.ZERO
    for position, stride in zip(positions, strides, strict=True):
        total = total + position * stride
    return total


def _sum(
    block: ir.Block,
    anchor: Anchor,
    source: ir.Buffer,
    copy: ir.Buffer | None,
    sums: ir.Buffer,
    axes: Sequence[FlatAxis],
    strides: list[Expr],
) -> ir.Stmt:
    n, o = anchor.spatial[:2]
    pixel = ir.IterVar(Var("p"), arith.wrap(sums.shape[2]))
    offset: Expr = pixel.var * _spacing(axes)
    phases: list[Expr] = []
    for axis, tap, count, step in zip(axes, anchor.reduced[1:], _phases(axes), strides, strict=True):
        distance = tap.var * axis.dilation
        offset = offset + (distance if axis is axes[-1] and _spacing(axes) > 1 else distance // axis.stride * step * _spacing(axes))
        if count > 1:
            phases.append(distance % axis.stride // axis.step)
    analyzer = arith.Analyzer({item.var: (0, arith.unwrap(item.extent - 1)) for item in anchor.reduced})
    offset = analyzer.simplify(offset)

    def load(node: ir.Expr) -> ir.Expr | None:
        if isinstance(node, ir.Load) and node.buffer is source:
            if copy is None:
                return ir.load(source, (*node.indices[:2], *_lines(pixel.var, axes, strides)))
            return ir.load(copy, (*node.indices[:2], *map(analyzer.simplify, phases), offset))
        if isinstance(node, ir.Load) and node.buffer is anchor.buffer:
            return ir.load(sums, (*node.indices[:2], pixel.var))
        return None

    def store(stmt: ir.Stmt | None) -> ir.Stmt:
        assert isinstance(stmt, ir.Store)
        return ir.Store(sums, (n.var, o.var, pixel.var), Rewriter(expr=load).expr(stmt.value))

    return block_nest(block.name, (n, o, pixel, *anchor.reduced), store(block.body), store(block.init))


def _lines(pixel: Expr, axes: Sequence[FlatAxis], strides: list[Expr]) -> list[Expr]:
    """Unflatten a pixel's number to its position along each axis."""
    inner_axes = zip(axes[1:], strides[1:], strict=True)
    return [pixel // strides[0], *(pixel // stride % axis.pitch for axis, stride in inner_axes)]


def _results(block: ir.Block, sums: ir.Buffer, axes: Sequence[FlatAxis], strides: list[Expr]) -> ir.Stmt:
    n, o, *image = block.iters
    pixel = ir.IterVar(Var("p"), arith.wrap(sums.shape[2]))
    positions = _lines(pixel.var, axes, strides)
    in_bounds: Expr = arith.ONE
    for position, axis in zip(positions[1:], axes[1:], strict=True):
        if axis.pitch != axis.size:
            in_bounds = arith.logical_and(in_bounds, arith.compare("<", position, axis.size))
    if in_bounds != arith.ONE:
        in_bounds = arith.logical_and(arith.compare("<", positions[0], axes[0].size), in_bounds)
    elif arith.unwrap(flat_pixels(axes)) != sums.shape[2]:
        in_bounds = arith.compare("<", pixel.var, flat_pixels(axes))
    iter_vars = tuple(item.var for item in block.iters)

    def load(node: ir.Expr) -> ir.Expr | None:
        if not isinstance(node, ir.Load) or node.buffer.name != sums.name:
            return None
        if node.indices != iter_vars:
            raise ValueError(f"block {block.name} must read sums at its iteration variables {iter_vars}, found {node.indices}")
        return ir.load(sums, (n.var, o.var, pixel.var))

    body = Rewriter(expr=load).stmt(block.body)
    position_by_var: dict[Expr, Expr] = dict(zip((item.var for item in image), positions, strict=True))
    body = Rewriter(position_by_var).stmt(body)
    return block_nest(block.name, (n, o, pixel), body, None, in_bounds)


def padding_of(anchor: Anchor) -> tuple[tuple[Expr, Expr], ...]:
    """Return the padding before the image and the image's extent along each axis; empty without a padded copy."""
    block = anchor.before[0] if len(anchor.before) == 1 else None
    if block is None or not isinstance(block.body, ir.Store):
        return ()
    loads = [node for node in ir.walk_exprs(block.body.value) if isinstance(node, ir.Load)]
    if len(loads) != 1 or len(loads[0].indices) != len(block.iters):
        return ()
    pads = [arith.simplify(item.var - index) for item, index in zip(block.iters[2:], loads[0].indices[2:], strict=True)]
    return tuple(zip(pads, map(arith.wrap, loads[0].buffer.shape[2:]), strict=True))


def skip_padding(s: Schedule, name: str, axes: Sequence[FlatAxis], padding: Sequence[tuple[Expr, Expr]]) -> None:
    """Apply `without_padding_taps` to a schedule."""
    s.apply(SKIP_PADDING, name, in_text(axes), tuple((size_text(before), size_text(extent)) for before, extent in padding))


def without_padding_taps(
    program: ir.LoopProgram, name: str, described: Sequence[AxisText], padding: Sequence[tuple[int | str, int | str]]
) -> ir.LoopProgram:
    """Restrict the loops over taps of a scheduled sum over flattened images, block `name`, to those that read an element of the
    image for some pixel of the tile. A tile that spans several lines takes all taps along the line. `padding`: elements of padding
    before the image, and the image's extent, along each axis."""
    axes = _from_text(program, described)
    strides = _strides(axes)
    path = block_path(program, name)
    sums = path[-1]
    assert isinstance(sums, ir.Block)
    spatial, reduced = (
        [binding for item, binding in zip(sums.iters, sums.bindings, strict=True) if item.kind is kind]
        for kind in (ir.IterKind.SPATIAL, ir.IterKind.REDUCTION)
    )
    pixel, taps = spatial[2], reduced[-len(axes) :]
    reduced_vars = set().union(*map(arith.free_vars, reduced))
    nest = next(loop for loop in loops_around(path) if loop.var in reduced_vars)
    ends: dict[Expr, Expr] = {node.var: node.extent - 1 for node in ir.walk_stmts(nest) if isinstance(node, ir.For)}
    first, last = (arith.substitute(pixel, values) for values in (dict.fromkeys(ends, arith.ZERO), ends))
    # Divisions would be repeated inside the nest.
    lets: list[tuple[Var, Expr]] = []
    tap_ranges: dict[Expr, tuple[Expr, Expr]] = {}
    in_line: Expr = arith.ONE
    for tap, axis, stride, texts in zip(taps, axes, strides, padding, strict=True):
        before, extent = (read_size(program, text) for text in texts)
        begin, end = first // stride, last // stride
        next_in_line = arith.compare("==", begin, end)
        if axis is not axes[0]:
            begin = arith.select(in_line, begin % axis.pitch, arith.ZERO)
            end = arith.select(in_line, end % axis.pitch, axis.size - 1)
        in_line = next_in_line
        end = arith.minimum(end, axis.size - 1)
        skipped = arith.ceildiv(arith.maximum(before - end * axis.stride, 0), axis.dilation)
        used = arith.ceildiv(arith.maximum(before + extent - begin * axis.stride, 0), axis.dilation)
        # No tap is left for a tile beyond the ends of lines.
        used = arith.select(arith.compare("<=", begin, end), arith.minimum(used, axis.taps), arith.ZERO)
        start, count = Var("start"), Var("count")
        lets += [(start, arith.simplify(skipped)), (count, arith.simplify(arith.maximum(used - start, 0)))]
        tap_ranges[tap] = start, count

    def change(stmt: ir.Stmt) -> ir.Stmt | None:
        if not isinstance(stmt, ir.For) or stmt.var not in tap_ranges:
            return None
        start, count = tap_ranges[stmt.var]
        loop = Var(stmt.var.name)
        body = Rewriter({stmt.var: loop + start}).stmt(Rewriter(stmt=change).stmt(stmt.body))
        return replace(stmt, var=loop, extent=count, body=body)

    changed = Rewriter(stmt=change).stmt(nest)
    for var, value in reversed(lets):
        changed = ir.Let(var, ir.as_expr(value, dtype("int64")), changed)
    return Rewriter(stmt=lambda stmt: changed if stmt is nest else None).program(program)


FLATTEN = Transform("flatten", flattened)
JOIN_PIXELS = Transform("join_pixels", joined_pixels)
STORE_WHOLE_TILES = Transform("store_whole_tiles", store_whole_tiles)
SKIP_PADDING = Transform("skip_padding", without_padding_taps)
