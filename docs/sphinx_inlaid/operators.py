"""The reference of operators: from their table, their attributes, and the examples of the conformance suite."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.operator import Operator
from inlaid_conformance.corpus import Choices, Example, find_entry
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import DTYPES, TensorType, from_numpy

TITLES: Mapping[str, str] = {
    "elementwise": "Element-wise",
    "activation": "Activations",
    "conversion": "Conversions of element types",
    "convolution": "Convolution",
    "deform": "Deformable convolution",
    "transposed": "Transposed convolution",
    "linear": "Matrix products",
    "attend": "Attention",
    "recurrent": "Recurrent layers",
    "pool": "Pooling",
    "normalize": "Normalization",
    "reduce": "Reductions and scans",
    "shape": "Shapes",
    "slicing": "Slices",
    "index": "Gather",
    "scatter": "Scatter",
    "sort": "Sorting",
    "select": "Selection by data",
    "interpolation": "Interpolation",
    "sample": "Sampling",
    "roi": "Regions of interest",
    "quantized": "Quantization",
    "fixed_point": "Fixed point",
    "random": "Random numbers",
    "container": "Strings, sequences, optionals",
    "plan": "Instructions of the plan",
}
"""Titles of families of operators, by module of `inlaid.ops`, in the order of the page."""
PRELUDE = """\
import inlaid
from inlaid import ops
from inlaid.types import OptionalType, SequenceType
"""
"""What examples begin with."""
_HIDDEN = ("span",)
_WIDTH = 100


def families() -> Iterator[tuple[str, tuple[Operator, ...]]]:
    """Titles and operators: those of `TITLES`, then families that it does not list."""
    for name in (*TITLES, *(name for name in ops.FAMILIES if name not in TITLES)):
        yield TITLES.get(name, name.replace("_", " ").capitalize()), ops.FAMILIES[name]


@cache
def render() -> str:
    """All families, each operator a section in Markdown."""
    parts = []
    for title, operators in families():
        parts += [f"## {title}", *map(section, operators)]
    functions = ("split", "sum", "mean", "subscript")
    parts += ["## Functions of several operators", *(_function(name) for name in functions)]
    return "\n\n".join(parts)


def section(operator: Operator) -> str:
    """An operator: what it computes, its signature, attributes, element types and an example."""
    parts = [f"### {operator.name}", operator.doc, f"```text\n{signature(operator)}\n```"]
    described = inspect.cleandoc(operator.attrs.__doc__ or "") if dataclasses.fields(operator.attrs) else ""
    if described and not described.startswith(operator.attrs.__name__ + "("):
        parts.append(_described(described))
    entry = find_entry(operator)
    if entry is not None and entry.dtypes:
        parts.append(f"Element types: {', '.join(entry.dtypes)}.")
    shown = example(operator)
    if shown is not None:
        parts.append(f"```py\n{shown}\n```")
    return "\n\n".join(filter(None, parts))


def _described(text: str) -> str:
    """A docstring as a list: names and what is indented below them, paragraphs as they are."""
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        name = ""
        for line in paragraph.splitlines():
            if line.startswith(" "):
                lines.append(f"  {line.strip()}" if name else line.strip())
            elif paragraph.splitlines()[-1].startswith(" "):
                name = line.strip()
                lines.append(f"* **{name.replace('`', '')}**: ".rstrip() if name else line)
            else:
                lines.append(line)
        lines.append("")
    return "\n".join(lines).strip()


def signature(operator: Operator) -> str:
    """The signature of a call with the types of its arguments, a line for each where they are many."""
    texts, starred = [], False
    for name, item in inspect.signature(operator).parameters.items():
        if name in _HIDDEN:
            continue
        if item.kind is item.KEYWORD_ONLY and not starred:
            texts.append("*")
        starred = starred or item.kind in (item.KEYWORD_ONLY, item.VAR_POSITIONAL)
        default = "" if item.default is item.empty else f" = {_literal(item.default)}"
        texts.append(f"{'*' if item.kind is item.VAR_POSITIONAL else ''}{name}: {_annotation(item)}{default}")
    line = f"{operator.name}({', '.join(texts)}) -> Call"
    if len(line) <= _WIDTH:
        return line
    inner = "".join(f"    {text},\n" for text in texts)
    return f"{operator.name}(\n{inner}) -> Call"


def _annotation(item: inspect.Parameter) -> str:
    if item.kind is item.KEYWORD_ONLY:
        text = str(item.annotation)
        return f"Sequence[{text[6:-6]}]" if text.startswith("tuple[") and text.endswith(", ...]") else text
    return "Operand" if item.default is item.empty else "Operand | None"


def _literal(value: object) -> str:
    """A value as Python, with strings in double quotes."""
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def example(operator: Operator) -> str | None:
    """Code that calls an operator and prints the type of the result, with that type as a comment; None for plan instructions."""
    entry = find_entry(operator)
    if entry is None:
        return None
    entry_example = entry.example(Choices.pinned(0), "float32" if "float32" in entry.dtypes else next(iter(entry.dtypes), ""))
    return _code(operator, entry_example)


def _code(operator: Operator, example: Example) -> str:
    names = [_name(operator, number) for number in range(len(example.inputs))]
    constant = [False] * len(names)
    params = [ir.var(name, _type(example, number)) for number, name in enumerate(names)]
    try:
        call = operator(*params, **example.attrs)
    except InlaidError:  # such as indices, whose values decide the result's shape
        constant = [number > 0 for number in range(len(names))]
        call = operator(params[0], *map(ir.constant, example.inputs[1:]), **example.attrs)
    lines = [
        f"{name} = {_constant(example.inputs[number]) if fixed else _variable(name, params[number])}"
        for number, (name, fixed) in enumerate(zip(names, constant, strict=True))
    ]
    usual = {item.name: item.default for item in dataclasses.fields(operator.attrs)}
    attrs = [f"{name}={_literal(value)}" for name, value in example.attrs.items() if value != usual[name]]
    lines.append(_call(operator.name, [*names, *attrs]))
    return "\n".join([*lines, f"print(result.type)  # {shown_type(repr(call.type))}"])


def _call(name: str, arguments: list[str]) -> str:
    line = f"result = ops.{name}({', '.join(arguments)})"
    if len(line) <= _WIDTH:
        return line
    inner = "".join(f"    {text},\n" for text in arguments)
    return f"result = ops.{name}(\n{inner})"


def shown_type(text: str) -> str:
    """The text of a type; data-dependent dimensions without the numbers that keep them apart."""
    return re.sub(r"__\d+", "", text)


def _name(operator: Operator, number: int) -> str:
    named = operator.inputs or ("x",)
    if number < len(named) and not (operator.arity[1] is None and number >= len(named) - 1):
        return named[number]
    return f"{named[-1]}{number - len(named) + 1}"


def _type(example: Example, number: int) -> ir.Type:
    value = example.inputs[number]
    return example.types.get(number) or TensorType(np.shape(value), from_numpy(np.asarray(value).dtype))


def _variable(name: str, param: ir.Var) -> str:
    type_ = param.type
    if not isinstance(type_, TensorType):
        return f'inlaid.var("{name}", {_spelt(type_)})'
    dtype_argument = "" if type_.dtype.name == "float32" else f', dtype="{type_.dtype}"'
    return f'inlaid.var("{name}", {type_.shape!r}{dtype_argument})'


def _spelt(type_: object) -> str:
    """A type as Python."""
    if isinstance(type_, TensorType):
        return f'inlaid.TensorType({type_.shape!r}, "{type_.dtype}")'
    element = type_.element  # type: ignore[attr-defined]
    return f"{type(type_).__name__}({_spelt(element)})"


def _constant(value: object) -> str:
    array = np.asarray(value)
    return f'inlaid.constant({array.tolist()!r}, "{from_numpy(array.dtype)}")'


def _function(name: str) -> str:
    function = getattr(ops, name)
    return f"### {name}\n\n```text\n{name}{inspect.signature(function)}\n```\n\n{inspect.getdoc(function)}"


def render_dtypes() -> str:
    """A table of the element types."""
    groups: dict[str, list[str]] = {}
    for name, dtype in DTYPES.items():
        groups.setdefault(dtype.kind, []).append(f"`{name}`")
    return "\n".join(["| kind | names |", "|---|---|", *(f"| {kind} | {', '.join(names)} |" for kind, names in groups.items())])
