"""Calls of every operator in which every size is a variable of its own."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inlaid import ops
from inlaid.graph import ir
from inlaid.graph.arguments import normalized
from inlaid.graph.attrs import Attrs, attr_items, substitute_attrs
from inlaid.ops.unfold import unfold
from inlaid.ops.upper_half import multiply_high
from inlaid.ops.winograd import transform_weights, winograd_conv
from inlaid_conformance.corpus import CORPUS, Choices, Entry, Example
from inlaid_runtime import arith
from inlaid_runtime.arith import SizeVar
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import OptionalType, SequenceType, TensorType, Type, from_numpy, substitute_type

from .sizes import Program, Sizes, largest

SEED = 20
EXAMPLES = 6
"""Number of examples that are drawn for an operator; of examples with equal shapes and attributes, one is kept."""
ELEMENTWISE_EXAMPLES = 2
"""Number of examples of an element-wise operator of one operand, which relates no sizes."""


def _more() -> tuple[Example, ...]:
    """Make examples of what the corpus of the conformance suite lacks: operators that are instructions of plans or that only passes
    build, and operands that give operators further relations."""
    numbers = np.random.default_rng(SEED).standard_normal
    floats = [numbers(shape).astype(np.float32) for shape in ((2, 2, 4, 8), (2, 2, 5, 8), (2, 2, 5, 6), (4, 3, 5), (4, 5, 2))]
    q, k, v, left, right = floats
    image, untransformed = numbers((2, 3, 7, 5)).astype(np.float32), numbers((8, 3, 3, 3)).astype(np.float32)
    weights = transform_weights(untransformed, 4)
    integers = [np.arange(1, 1 + int(np.prod(shape)), dtype=np.int32).reshape(shape) for shape in ((4, 3), (3,), (), (3,))]
    words = np.array([["one", "Two", "3"]], object)
    return (
        Example(ops.attention, (q, k, v, np.array([5, 3])), {"scale": 0.5, "padded": True}),
        Example(ops.matmul, (left, right)),
        Example(ops.sequence_at, ([image, image], np.array([1])), {}, {0: SequenceType(TensorType(image.shape, "float32"))}),
        Example(ops.string_normalize, (words,), {"case": "UPPER"}, {0: TensorType(words.shape, "string")}),
        Example(ops.bind_size, (np.array([2, 5, 3]),), {"message": "a size", "element": 1}),
        Example(ops.assert_true, (np.array(True),), {"message": "a condition"}),
        Example(ops.fail, (), {"kinds": (), "dtype": "float32", "shape": (3, 4), "message": "a failure"}),
        Example(unfold, (image,), {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 0)}),
        Example(winograd_conv, (image, weights), {"pads": (1, 1, 1, 1)}),
        Example(winograd_conv, (image, weights, untransformed), {"pads": (1, 1, 1, 1)}),
        Example(multiply_high, tuple(integers), {"low": 1, "axis": 1}),
    )


MORE = _more()
NAMES = tuple(dict.fromkeys([*(entry.operator.name for entry in CORPUS), *(example.operator.name for example in MORE)]))
"""The operators that have programs."""


def operator_programs(names: Sequence[str] | None = None, bounded: bool = False) -> Iterator[Program]:
    """Yield programs of all operators, or of those named, in a fixed order. With `bounded`, sizes have upper bounds."""
    for name, source in _sources(names, bounded):
        yield from source.programs(name)


def static_variants(names: Sequence[str] | None = None) -> Iterator[tuple[str, str, Callable[[], object]]]:
    """Yield the calls with another static size where an operator requires a static one: the name of the program, the size, and a
    function that makes the call or raises `TypeInferenceError`."""
    for name, source in _sources(names, False):
        yield from ((f"{name}-all", label, build) for label, build in source.variants())


def _sources(names: Sequence[str] | None, bounded: bool) -> Iterator[tuple[str, _Source]]:
    for operator_name in NAMES:
        if names is not None and operator_name not in names:
            continue
        for entry in CORPUS:
            if entry.operator.name == operator_name:
                yield from (
                    (f"{operator_name}-{number}", _source(example_, entry.exact, bounded)) for number, example_ in _examples(entry)
                )
        for number, example in enumerate(MORE):
            if example.operator.name == operator_name:
                yield f"{operator_name}-more{number}", _source(example, operator_name not in _ROUNDING, bounded)


_ROUNDING = ("attention", "matmul", "winograd_conv")


def _examples(entry: Entry) -> Iterator[tuple[int, Example]]:
    keys = set()
    operator = entry.operator
    for number in range(ELEMENTWISE_EXAMPLES if operator.elementwise and operator.arity == (1, 1) else EXAMPLES):
        choose = random.Random(SEED + number).randrange if number else lambda count: 0
        example = entry.example(Choices(choose, "plain"), entry.dtypes[number % min(len(entry.dtypes), 5)])
        key = (*(np.shape(value) for value in example.inputs), repr(example.attrs))
        if key not in keys:
            keys.add(key)
            yield number, example


def operator_call(module: ir.Module) -> ir.Call:
    """Return the call of the operator in a program that consists of one."""
    body = module.main.body
    assert isinstance(body, ir.Call)
    return body


Site = tuple[str, int | str, int]
"""A size: of an operand ("operand", number, axis) or of an attribute ("attribute", name, index; index -1 for the value itself)."""


def _tensor_type(type_: Type) -> TensorType:
    """Return a tensor type, or that of the elements of a sequence or optional."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    assert isinstance(type_, TensorType)
    return type_


def _with_size(type_: Type, axis: int, size: arith.Dim) -> Type:
    """Replace a size of a tensor type, or of the elements of a sequence or optional."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(_with_size(type_.element, axis, size))
    assert isinstance(type_, TensorType)
    return TensorType((*type_.shape[:axis], size, *type_.shape[axis + 1 :]), type_.dtype)


@dataclass(frozen=True)
class _Source:
    """An example of which programs are made."""

    example: Example
    types: tuple[Type, ...]
    attrs: Attrs
    exact: bool
    bounded: bool

    def programs(self, name: str) -> Iterator[Program]:
        """Yield programs: with all sizes symbolic; with those of operands alone; and with those of the first operand alone, and
        constants as others. An operator may need some sizes to be static: then as many as possible are symbolic, first those of the
        first operands, and once more first those of the last."""
        operand_sites, attr_sites = self.sites_of_operands(), self.sites_of_attrs()
        kinds = [("all", (*operand_sites, *attr_sites)), ("last", (*attr_sites, *operand_sites)[::-1]), ("operands", operand_sites)]
        if len(self.types) > 1 and not self.example.types:
            kinds.append(("first", tuple(site for site in operand_sites if site[1] == 0)))
        choices = set()
        for label, sites in kinds:
            chosen = self.chosen(sites, label == "first")
            if chosen not in choices and (chosen or label == "all"):
                choices.add(chosen)
                yield self.program(f"{name}-{label}", chosen, label == "first")

    def variants(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the sizes that must be static, each with another value, and functions that make the call with it."""
        sites = (*self.sites_of_operands(), *self.sites_of_attrs())
        for site in sorted({*sites} - {*self.chosen(sites, False)}, key=str):
            usual = self.size(site)
            for value in dict.fromkeys((0, 1, usual - 1, usual + 1)):
                if value not in (usual, -1):
                    yield f"{_label(site)}={value}", functools.partial(self._static_call, site, value)

    def _static_call(self, site: Site, value: int) -> ir.Call:
        types, items = list(self.types), dict(attr_items(self.attrs))
        self.replace(types, items, site, value)
        params = [ir.var(f"x{number}", type_) for number, type_ in enumerate(types)]
        return ir.call(self.example.operator, params, type(self.attrs)(**items))

    def sites_of_operands(self) -> tuple[Site, ...]:
        """Return the sizes of operands."""
        ranks = (_tensor_type(type_).rank for type_ in self.types)
        return tuple(("operand", number, axis) for number, rank in enumerate(ranks) for axis in range(rank))

    def sites_of_attrs(self) -> tuple[Site, ...]:
        """Return the sizes in attributes. A negative begin or pad is none, since a size is not negative."""
        kinds = {item.name: str(item.type) for item in dataclasses.fields(self.attrs)}
        sites: list[Site] = []
        for name, value in attr_items(self.attrs):
            if kinds[name] == "Dim" and value >= 0:
                sites.append(("attribute", name, -1))
            elif kinds[name].startswith("tuple[Dim"):
                sites += [("attribute", name, index) for index, item in enumerate(value) if item >= 0]
        return tuple(sites)

    def size(self, site: Site) -> int:
        """Return the usual size at a site."""
        kind, where, index = site
        if kind == "operand":
            assert isinstance(where, int)
            extent = _tensor_type(self.types[where]).shape[index]
        else:
            value = getattr(self.attrs, str(where))
            extent = value if index < 0 else value[index]
        assert isinstance(extent, int)
        return extent

    @staticmethod
    def replace(types: list[Type], items: dict[str, Any], site: Site, size: arith.Dim) -> None:
        """Replace the size at a site, in the types of operands or in the attributes."""
        kind, where, index = site
        if kind == "operand":
            assert isinstance(where, int)
            types[where] = _with_size(types[where], index, size)
        else:
            assert isinstance(where, str)
            value = items[where]
            items[where] = size if index < 0 else (*value[:index], size, *value[index + 1 :])

    def chosen(self, sites: Sequence[Site], constants: bool) -> tuple[Site, ...]:
        """Choose the sites that become variables: all, or, if the type relation refuses that, each in turn that it accepts."""
        every = tuple(sorted(sites, key=str))
        if self._accepts(every, constants):
            return every
        accepted_sites: tuple[Site, ...] = ()
        for site in sites:
            if self._accepts((*accepted_sites, site), constants):
                accepted_sites = (*accepted_sites, site)
        return tuple(sorted(accepted_sites, key=str))

    def _accepts(self, sites: tuple[Site, ...], constants: bool) -> bool:
        try:
            self.program("", sites, constants)
        except InlaidError:
            return False
        return True

    def program(self, name: str, sites: tuple[Site, ...], constants: bool) -> Program:
        """Make a program with variables as the sizes at `sites`. Sizes that are extents of no tensor among the parameters are bound
        by further parameters, which are not read. With `constants`, all operands but the first are constants. Raises
        `TypeInferenceError`."""
        base: dict[SizeVar, int] = {}
        types, items, unbound = list(self.types), dict(attr_items(self.attrs)), []
        for site in sites:
            usual = self.size(site)
            size = SizeVar(_label(site), 0, largest(usual) if self.bounded else None)
            base[size] = usual
            self.replace(types, items, site, size)
            kind, where, _ = site
            if kind == "attribute" or not isinstance(self.types[int(where)], TensorType):
                unbound.append(size)
        params = [ir.var(f"x{number}", type_) for number, type_ in enumerate(types)]
        inputs = list(self.example.inputs)
        args: list[ir.Expr] = [*params]
        if constants:
            args[1:] = map(ir.constant, inputs[1:])
            del params[1:], inputs[1:]
        params += [ir.var(f"s{number}", TensorType((size,), "uint8")) for number, size in enumerate(unbound)]
        inputs += [np.zeros(base[size], np.uint8) for size in unbound]
        operator, attrs = self.example.operator, type(self.attrs)(**items)

        def at(sizes: Sizes) -> ir.Module:
            mapping: dict[arith.Expr, arith.Expr] = {size: arith.Const(value) for size, value in sizes.items()}
            static = {id(param): ir.var(param.name, substitute_type(param.type, mapping)) for param in params}
            call = ir.call(operator, [static.get(id(arg), arg) for arg in args], substitute_attrs(attrs, mapping))
            return ir.Module({"main": ir.function(tuple(static.values()), call)})

        module = ir.Module({"main": ir.function(tuple(params), ir.call(operator, args, attrs))})
        return Program(name, operator.name, module, at, tuple(inputs), base, self.exact)


def _label(site: Site) -> str:
    """Return a name of the size at a site."""
    kind, where, index = site
    return f"x{where}_{index}" if kind == "operand" else str(where) if index < 0 else f"{where}_{index}"


def _source(example: Example, exact: bool, bounded: bool) -> _Source:
    types = tuple(
        example.types[number] if number in example.types else TensorType(value.shape, from_numpy(value.dtype))
        for number, value in enumerate(example.inputs)
    )
    static = tuple(ir.var(f"x{number}", type_) for number, type_ in enumerate(types))
    attrs = example.operator.attrs(**normalized(dict(example.attrs), static, example.operator))
    return _Source(example, types, attrs, exact, bounded)
