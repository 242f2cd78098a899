"""Draw the map of the code: docs/code-map.svg, and the table of docs/architecture.md, from docstrings and imports.

    python tools/code_map.py [--check] [--root FOLDER]

A room is a sub-package of runtime or core, the module `inlaid.api`, or a plugin. An arrow leads from a room to one that it imports,
unless another path leads there. Imports for type checkers alone do not count. The text of a room is the first sentence of its
docstring. Fails if imports form a cycle. With `--check`, fails also if picture or table differ, apart from numbers of lines, and
writes nothing.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE, PAGE = "docs/code-map.svg", "docs/architecture.md"
BEGIN, END = "<!-- begin of the table that tools/code_map.py writes -->\n", "<!-- end of the table -->\n"
CORE, RUNTIME = "inlaid", "inlaid_runtime"
MODULES = f"{RUNTIME} modules"
"""The room of the runtime's single modules."""
FACADES = {CORE: f"{CORE}.api", RUNTIME: f"{RUNTIME}.execution"}
"""For each package, the room of the names that it exports itself."""
REEXPORTS = {f"{CORE}.{name}": f"{RUNTIME}.{name}" for name in ("arith", "types")} | {f"{CORE}.errors": MODULES}
"""Modules of the core that only export objects of the runtime."""
EXEMPT = {(f"{CORE}.graph", f"{CORE}.ops")}
"""Imports that do not count: the sugar of expressions, such as `x + y`, calls operators. The import contracts exempt it, too."""
SHARED = {f"{CORE}.codegen", f"{CORE}.schedules"}
KINDS = {
    "target": ("targets", "#fbe7cf", "#b5701c"),
    "format": ("formats", "#f6dff0", "#97417f"),
    "tool": ("tools", "#e3efda", "#5a8136"),
    "core": ("core", "#e0e9f7", "#3b5b8c"),
    "shared": ("core, shared by targets", "#d9eeee", "#2f7d7d"),
    "runtime": ("runtime", "#ececec", "#666666"),
}
"""Title, fill and outline of each kind of room."""
FORMATS, TOOLS = {"onnx", "tflite"}, {"bench", "cli", "conformance", "quantization"}
WIDTH, MARGIN, GAP, ROW_GAP, BAND_GAP, LINE = 1400.0, 34.0, 18.0, 38.0, 44.0, 15.0


@dataclass(frozen=True)
class Room:
    """A part of the code. `band` orders the distributions from top to bottom: 0 plugins, 1 core, 2 runtime."""

    name: str
    kind: str
    description: str
    lines: int

    @property
    def band(self) -> int:
        """Number of the distribution's band in the picture."""
        return 2 if self.kind == "runtime" or self.name == "inlaid_x86_runtime" else int(self.kind in ("core", "shared"))


@dataclass(eq=False)
class Node:
    """A box of the picture, or a bend of an arrow if `room` is None. `x` is the center. Nodes of a row with the same `group`
    are adjacent."""

    row: int
    width: float = 10.0
    room: Room | None = None
    group: int = -1
    texts: list[str] = field(default_factory=list)
    x: float = WIDTH / 2
    neighbors: list[Node] = field(default_factory=list)


# ---- rooms and imports ----


def packages(root: Path) -> dict[str, Path]:
    """Return the folders of all import packages by name."""
    folders = [root / "runtime/src", root / "core", *sorted(root.glob("plugins/*/src"))]
    return {path.parent.name: path.parent for folder in folders for path in sorted(folder.glob("*/__init__.py"))}


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"\.(?:\s|$)", docstring.partition("\n\n")[0].replace("\n", " "), maxsplit=1)[0]


def count_lines(paths: Iterable[Path]) -> int:
    """Count the lines of files that are neither blank nor comments."""
    lines = (line.strip() for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith("#") for line in lines)


def rooms(root: Path) -> dict[str, Room]:
    """Return all rooms by name, in the order of the table."""
    result = []
    for package, folder in packages(root).items():
        if package in (CORE, RUNTIME):
            for path in sorted(folder.glob("*/__init__.py")):
                name = f"{package}.{path.parent.name}"
                kind = "runtime" if package == RUNTIME else "shared" if name in SHARED else "core"
                result.append(Room(name, kind, first_sentence(path), count_lines(path.parent.rglob("*.py"))))
        else:
            part = package.removeprefix("inlaid_")
            kind = "format" if part in FORMATS else "tool" if part in TOOLS else "target"
            result.append(Room(package, kind, first_sentence(folder / "__init__.py"), count_lines(folder.rglob("*.py"))))
        if package == CORE:
            result.append(Room(f"{CORE}.api", "core", first_sentence(folder / "api.py"), count_lines([folder / "api.py"])))
        if package == RUNTIME:
            single = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
            names = ", ".join(path.stem for path in single)
            result.append(Room(MODULES, "runtime", f"Single modules: {names}", count_lines(single)))
    bands = {"tool": 0, "target": 1, "format": 2, "core": 3, "shared": 4, "runtime": 5}
    return {room.name: room for room in sorted(result, key=lambda room: (bands[room.kind], room.name))}


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield what a module of a package imports: for `from a import b`, the name `a.b`. Skips imports for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{prefix}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                yield from imported_names(ast.Module([child], []), package)
        else:
            yield from imported_names(node, package)


def containing_room(name: str, folders: Mapping[str, Path], names: Mapping[str, Room]) -> str | None:
    """Return the room of a module or of a name in it; None for those of another library, and for a single module of the core."""
    package, _, rest = name.partition(".")
    if package not in folders or package not in FACADES:
        return package if package in names else None
    part = rest.partition(".")[0]
    room = REEXPORTS.get(f"{package}.{part}", f"{package}.{part}")
    if room in names:
        return room
    if part and (folders[package] / f"{part}.py").exists():
        return MODULES if package == RUNTIME else None
    return FACADES[package]


def import_graph(root: Path, names: Mapping[str, Room]) -> dict[str, set[str]]:
    """Return the rooms that each room imports."""
    folders = packages(root)
    graph: dict[str, set[str]] = {name: set() for name in names}
    for folder in folders.values():
        for path in sorted(folder.rglob("*.py")):
            module = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
            importer = containing_room(module, folders, names)
            if importer is None or module in (f"{CORE}.__init__", f"{RUNTIME}.__init__"):
                continue
            for name in imported_names(ast.parse(path.read_text(encoding="utf-8")), module.rpartition(".")[0]):
                imported = containing_room(name, folders, names)
                if imported not in (None, importer) and (importer, imported) not in EXEMPT:
                    graph[importer].add(str(imported))
    return graph


def sorted_rooms(graph: Mapping[str, set[str]]) -> list[str]:
    """Sort rooms so that each comes before those that it imports. Raises ValueError with the rooms of a cycle."""
    remaining, result = dict(graph), []
    while remaining:
        imported = set().union(*remaining.values())
        unimported = [name for name in remaining if name not in imported]
        if not unimported:
            raise ValueError(f"expected imports without cycles, found one among {', '.join(sorted(set(remaining) & imported))}")
        result += unimported
        for name in unimported:
            del remaining[name]
    return result


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the transitive reduction of an acyclic graph."""
    reachable: dict[str, set[str]] = {}
    result = {}
    for name in reversed(sorted_rooms(graph)):
        indirect = set().union(*(reachable[other] for other in graph[name])) if graph[name] else set()
        result[name] = graph[name] - indirect
        reachable[name] = graph[name] | indirect
    return result


# ---- layout ----


def row_numbers(names: Mapping[str, Room], graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Number the rows from the top: a room is below all that import it, and its band below the bands above."""
    order = sorted_rooms(graph)
    rows: dict[str, int] = {}
    start = 0
    for band in range(3):
        members = [name for name in order if names[name].band == band]
        for name in members:
            above = [rows[other] + 1 for other in members if name in graph[other]]
            rows[name] = max(above, default=start)
        for name in reversed(members):  # a room that no room of the band imports goes right above what it imports
            below = [rows[other] - 1 for other in graph[name] if names[other].band == band]
            if below and not any(name in graph[other] for other in members):
                rows[name] = min(below)
        if band == 0:
            bottom = max(rows[name] for name in members)
            rows |= {name: bottom for name in members if names[name].kind != "tool"}
        start = max((rows[name] for name in members), default=start - 1) + 1
    return rows


def position_rows(levels: Sequence[list[Node]]) -> None:
    """Order the nodes of each row and compute their `x`, by averages of their neighbors' positions."""

    for sweep in range(400):
        for level in levels if sweep % 2 else reversed(levels):
            targets = {id(node): _average([other.x for other in node.neighbors], node.x) for node in level}
            if sweep < 200:
                level.sort(key=lambda node: (node.group, targets[id(node)]))
            _spread(level, [targets[id(node)] for node in level])


def straighten(levels: Sequence[Sequence[Node]]) -> None:
    """Move each bend below another one to the same `x`, as far as the other nodes of its row permit."""
    for level in levels:
        for position, node in enumerate(level):
            above = [other for other in node.neighbors if other.row < node.row]
            if node.room or any(other.room for other in above):
                continue
            left, right = level[position - 1 : position], level[position + 1 : position + 2]
            least = max([MARGIN, *(other.x + (other.width + node.width) / 2 + GAP for other in left)])
            greatest = min([WIDTH - MARGIN, *(other.x - (other.width + node.width) / 2 - GAP for other in right)])
            node.x = min(max(_average([other.x for other in above], node.x), least), greatest)


def _average(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _spread(level: Sequence[Node], targets: Sequence[float]) -> None:
    """Set `x` as close to the targets as order, widths and margins permit, by isotonic regression."""
    offsets, total = [], 0.0
    for position, node in enumerate(level):
        total += node.width / 2 + (0 if position == 0 else level[position - 1].width / 2 + GAP)
        offsets.append(total)
    blocks: list[tuple[float, float, int]] = []
    for node, target, offset in zip(level, targets, offsets, strict=True):
        mean, weight, count = target - offset, 1.0 if node.room else 3.0, 1
        while blocks and blocks[-1][0] > mean:
            other, other_weight, size = blocks.pop()
            mean = (other * other_weight + mean * weight) / (other_weight + weight)
            weight, count = weight + other_weight, count + size
        blocks.append((mean, weight, count))
    greatest = WIDTH - MARGIN - (offsets[-1] + level[-1].width / 2)
    shifts = [min(max(mean, MARGIN), max(greatest, MARGIN)) for mean, _, count in blocks for _ in range(count)]
    for node, shift, offset in zip(level, shifts, offsets, strict=True):
        node.x = shift + offset


def wrapped(text: str, width: float) -> list[str]:
    """Break a text of 12 px into lines of at most some width in pixels."""
    lines = [""]
    for word in text.split():
        if lines[-1] and 6.4 * (len(lines[-1]) + 1 + len(word)) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def short_name(room: Room) -> str:
    """Return the name of a room in the picture: that of the sub-package or plugin."""
    name = room.name.rpartition(".")[2].removeprefix(f"{RUNTIME} ").removeprefix(f"{CORE}_")
    return {f"{RUNTIME}.plugins": "plugins (run half)", f"{CORE}.plugins": "plugins (contract)"}.get(room.name, name)


def layout(names: Mapping[str, Room], graph: Mapping[str, set[str]]) -> tuple[list[list[Node]], list[list[Node]]]:
    """Return the rows of nodes, and each arrow as its nodes from top to bottom."""
    rows = row_numbers(names, graph)
    groups = {"target": 0, "format": 1, "tool": 2}
    nodes = {
        name: Node(rows[name], room=room, group=groups.get(room.kind, -1) if room.band == 0 else -1) for name, room in names.items()
    }
    last_plugins = max(rows[name] for name in names if names[name].band == 0)
    levels: list[list[Node]] = [[] for _ in range(max(rows.values()) + 1)]
    for name in sorted(names):
        levels[rows[name]].append(nodes[name])
    arrows: list[list[Node]] = []
    bends: dict[tuple[str, int], Node] = {}  # arrows to one room share their bends
    for name in sorted(graph):
        for other in sorted(graph[name]):
            path = [nodes[name]]
            for row in range(rows[name] + 1, rows[other]):
                if (other, row) not in bends:
                    bends[other, row] = Node(row, group=nodes[name].group if row <= last_plugins else -1)
                    levels[row].append(bends[other, row])
                path.append(bends[other, row])
            path.append(nodes[other])
            for upper, lower in pairwise(path):
                if lower not in upper.neighbors:
                    upper.neighbors.append(lower)
                    lower.neighbors.append(upper)
            arrows.append(path)
    for level in levels:
        boxes = [node for node in level if node.room]
        free_width = WIDTH - 2 * MARGIN - GAP * (len(level) - 1) - 10.0 * (len(level) - len(boxes))
        max_width = min(free_width / len(boxes), 460.0)
        for node in boxes:
            assert node.room is not None
            node.texts = wrapped(node.room.description.replace("`", ""), max_width - 16)
            longest = max(8.4 * len(short_name(node.room)), *(6.4 * len(text) for text in node.texts))
            node.width = min(max_width, longest + 20)
    position_rows(levels)
    straighten(levels)
    return levels, arrows


# ---- output ----


def draw(names: Mapping[str, Room], graph: Mapping[str, set[str]]) -> str:
    """Return the picture as SVG."""
    levels, arrows = layout(names, graph)
    top, height = {}, {}
    y, band = 96.0, 0
    bands: dict[int, tuple[float, float]] = {}
    for row, level in enumerate(levels):
        row_band = next(node.room.band for node in level if node.room)
        y += BAND_GAP if row_band != band else 0.0
        band = row_band
        top[row] = y
        height[row] = max(34.0 + LINE * len(node.texts) for node in level if node.room)
        bands[band] = (bands.get(band, (y, y))[0], y + height[row])
        y += height[row] + ROW_GAP
    end = y - ROW_GAP + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {end:.0f}" role="img">',
        "  <title>Rooms of the code, and what imports what</title>",
        "  <style>",
        "    text { fill: #1a1a1a; text-anchor: middle; font-size: 12px; font-family: Helvetica, Arial, sans-serif }",
        "    .name { font-size: 14px; font-weight: bold }",
        "    .title { font-size: 14px; text-anchor: start; fill: #444444 }",
        "    .title { paint-order: stroke; stroke: #fafafa; stroke-width: 6px }",
        "    .band { fill: #fafafa; stroke: #c4c4c4 }",
        "    .arrow { fill: none; stroke: #666666; stroke-width: 1.3 }",
        "    .tip { fill: #666666 }",
        *(f"    .{kind} {{ fill: {fill}; stroke: {line}; stroke-width: 1.4 }}" for kind, (_, fill, line) in KINDS.items()),
        "  </style>",
        f'  <rect width="{WIDTH:.0f}" height="{end:.0f}" rx="8" fill="#ffffff"/>',
        *_legend(),
    ]
    titles = []
    for number, (first, last) in sorted(bands.items()):
        title = ("plugins", "core (inlaid)", "runtime (inlaid_runtime)")[number]
        out.append(
            f'  <rect class="band" x="12" y="{first - 26:.0f}" width="{WIDTH - 24:.0f}" height="{last - first + 38:.0f}" rx="8"/>'
        )
        titles.append(f'  <text class="title" x="24" y="{first - 9:.0f}">{title}</text>')
    out += [*_arrow_paths(arrows, top, height), *titles]
    for row, level in enumerate(levels):
        for node in level:
            if node.room:
                out += _box(node, top[row], 34.0 + LINE * len(node.texts))
    return "\n".join([*out, "</svg>", ""])


def _legend() -> Iterator[str]:
    """Yield a sample of each kind of room, above the picture."""
    text = "An arrow leads from a room to one that it imports, unless another path of arrows leads there."
    yield f'  <text class="title" x="24" y="30">{text}</text>'
    x = WIDTH - 24 - sum(44 + 7.2 * len(title) for title, *_ in KINDS.values())
    for kind, (title, *_) in KINDS.items():
        yield f'  <rect class="{kind}" x="{x:.0f}" y="17" width="20" height="16" rx="3"/>'
        yield f'  <text class="title" x="{x + 26:.0f}" y="30">{title}</text>'
        x += 44 + 7.2 * len(title)


def _box(node: Node, y: float, height: float) -> Iterator[str]:
    """Yield the box of a room."""
    assert node.room is not None
    left = node.x - node.width / 2
    yield f'  <rect class="{node.room.kind}" x="{left:.1f}" y="{y:.1f}" width="{node.width:.1f}" height="{height:.1f}" rx="4"/>'
    yield f'  <text class="name" x="{node.x:.1f}" y="{y + 20:.1f}">{escape(short_name(node.room))}</text>'
    for position, text in enumerate(node.texts):
        yield f'  <text x="{node.x:.1f}" y="{y + 37 + LINE * position:.1f}">{escape(text)}</text>'


def _ports(segments: Iterable[tuple[Node, Node]]) -> dict[tuple[Node, Node, bool], float]:
    """Return the x at which each segment leaves its upper node (True) and enters its lower node (False). The ends at a node are
    ordered by the x of the nodes at the other ends."""
    ends: dict[tuple[Node, bool], list[Node]] = defaultdict(list)
    for upper, lower in segments:
        ends[upper, True].append(lower)
        ends[lower, False].append(upper)
    result = {}
    for (node, leaves), partners in ends.items():
        step = min(18.0, (node.width - 24) / max(len(partners) - 1, 1)) if node.room else 0.0
        for position, other in enumerate(sorted(partners, key=lambda item: item.x)):
            x = node.x + step * (position - (len(partners) - 1) / 2)
            result[(node, other, True) if leaves else (other, node, False)] = x
    return result


def _arrow_paths(arrows: Sequence[Sequence[Node]], top: Mapping[int, float], height: Mapping[int, float]) -> Iterator[str]:
    """Yield the arrows. Parts that arrows share are drawn once."""
    segments = list(dict.fromkeys(pair for path in arrows for pair in pairwise(path)))
    ports = _ports(segments)
    for upper, lower in segments:
        start, end = ports[upper, lower, True], ports[upper, lower, False]
        y = top[upper.row] + (34.0 + LINE * len(upper.texts) if upper.room else height[upper.row])
        rail = top[upper.row] + height[upper.row]
        goal = top[lower.row] - (7 if lower.room else 0)
        middle = (goal - rail) / 2
        through = f" V {top[lower.row] + height[lower.row]:.1f}" if not lower.room else ""
        curve = f"C {start:.1f} {rail + middle:.1f} {end:.1f} {goal - middle:.1f} {end:.1f} {goal:.1f}"
        yield f'  <path class="arrow" d="M {start:.1f} {y:.1f} V {rail:.1f} {curve}{through}"/>'
        if lower.room:
            yield f'  <path class="tip" d="M {end - 4:.1f} {goal - 1:.1f} h 8 l -4 8 z"/>'


def table(names: Mapping[str, Room]) -> str:
    """Return the table of the page. Lines are rounded to hundreds."""
    rows = ["", "| room | what it is | lines |", "|---|---|---|"]
    for room in names.values():
        lines = f"{max(round(room.lines, -2), 100):,}" if room.lines >= 50 else "< 50"
        name = f"single modules of `{RUNTIME}`" if room.name == MODULES else f"`{room.name}`"
        rows.append(f"| {name} | {room.description} | {lines} |")
    return "\n".join([*rows, "", ""])


def without_lines(text: str) -> str:
    """Return a page without the numbers of lines in its table, which the check ignores."""
    return re.sub(r" \| (?:[\d,]+|< 50) \|$", " |", text, flags=re.MULTILINE)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if picture or table differ, and write nothing")
    parser.add_argument("--root", metavar="FOLDER", type=Path, default=ROOT, help="the checkout to read and write")
    options = parser.parse_args()
    names = rooms(options.root)
    try:
        graph = reduced(import_graph(options.root, names))
    except ValueError as error:
        print(error)
        return 1
    picture = draw(names, graph)
    before, begin, rest = (options.root / PAGE).read_text(encoding="utf-8").partition(BEGIN)
    old_table, end, after = rest.partition(END)
    if not (begin and end):
        print(f"{PAGE}: expected the lines {BEGIN.strip()!r} and {END.strip()!r}")
        return 1
    if not options.check:
        (options.root / PICTURE).write_text(picture, encoding="utf-8")
        (options.root / PAGE).write_text(before + begin + table(names) + end + after, encoding="utf-8")
    elif without_lines(old_table) != without_lines(table(names)) or (options.root / PICTURE).read_text(encoding="utf-8") != picture:
        print(f"{PICTURE} or the table of {PAGE} differ from the code: run python tools/code_map.py")
        return 1
    print(f"{len(names)} rooms, {sum(map(len, graph.values()))} arrows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
