"""Records behave as the frozen dataclasses of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict
from typing import Any, ClassVar, get_type_hints

import pytest

from inlaid_runtime import records

MAKERS = pytest.mark.parametrize("maker", [records.dataclass, dataclasses.dataclass], ids=["inlaid", "standard"])
SLOTS = pytest.mark.parametrize("slots", [False, True], ids=["dict", "slots"])


def classes(maker: Callable[..., Any], slots: bool) -> Any:
    """A class with all kinds of fields."""

    @maker(frozen=True, slots=slots)
    class Item:
        """An item."""

        limit: ClassVar[int] = 3
        name: str
        size: int = 1
        parts: list[int] = records.field(default_factory=list)
        note: str = records.field(default="", compare=False, repr=False)
        double: int = records.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "double", 2 * self.size)

    return Item


@MAKERS
@SLOTS
def test_a_record_is_a_frozen_dataclass(maker: Callable[..., Any], slots: bool) -> None:
    kind = classes(maker, slots)
    item = kind("a", size=2, note="b")
    assert (item.name, item.size, item.parts, item.note, item.double, kind.limit) == ("a", 2, [], "b", 4, 3)
    assert repr(item).endswith("Item(name='a', size=2, parts=[], double=4)")
    assert item == kind("a", 2) != kind("a", 3)
    assert item.__eq__(("a", 2)) is NotImplemented
    assert [field.name for field in records.fields(item)] == ["name", "size", "parts", "note", "double"]
    assert asdict(item) == {"name": "a", "size": 2, "parts": [], "note": "b", "double": 4}
    assert records.replace(item, size=5).double == 10
    assert kind("a").parts is not kind("a").parts
    assert copy.copy(item) == copy.deepcopy(item) == item
    assert kind.__match_args__ == ("name", "size", "parts", "note")
    assert list(inspect.signature(kind).parameters) == ["name", "size", "parts", "note"]
    assert hasattr(item, "__dict__") is not slots
    for change in (lambda: setattr(item, "size", 3), lambda: delattr(item, "size"), lambda: setattr(item, "other", 3)):
        with pytest.raises((FrozenInstanceError, TypeError)):  # with slots, the standard library may raise TypeError
            change()
    with pytest.raises(TypeError, match="name"):
        kind()


@MAKERS
@SLOTS
def test_what_a_class_defines_stays(maker: Callable[..., Any], slots: bool) -> None:
    @maker(frozen=True, slots=slots)
    class Custom:
        """Has methods of its own, and a default that is no parameter."""

        size: int
        kind: str = records.field(default="own", init=False)

        def __init__(self, text: str) -> None:
            object.__setattr__(self, "size", len(text))
            object.__setattr__(self, "kind", "text")

        def __repr__(self) -> str:
            return "Custom()"

    @maker(frozen=True, slots=slots)
    class Fixed:
        """Has a default that is no parameter."""

        size: int
        kind: str = records.field(default="fixed", init=False)

    assert (repr(Custom("abc")), Custom("abc").size, Custom("abc").kind) == ("Custom()", 3, "text")
    assert Fixed(3).kind == "fixed" and Fixed(3) == Fixed(3)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace exists from Python 3.13")
@MAKERS
@SLOTS
def test_copies_with_changes(maker: Callable[..., Any], slots: bool) -> None:
    kind = classes(maker, slots)
    assert copy.replace(kind("a"), size=5) == kind("a", 5)  # type: ignore[attr-defined] # of Python 3.13


@MAKERS
@SLOTS
def test_records_inherit(maker: Callable[..., Any], slots: bool) -> None:
    base = classes(maker, slots)
    for other in (records.dataclass, dataclasses.dataclass):

        @other(frozen=True, slots=slots)
        class More(base):
            """More than an item."""

            size: int = 7
            more: tuple[int, ...] = ()

        item = More("a", more=(1,))
        assert (item.size, item.double, item.more) == (7, 14, (1,))
        assert item != base("a", 7)
        assert [field.name for field in records.fields(More)] == ["name", "size", "parts", "note", "double", "more"]


@SLOTS
def test_plain_subclasses_have_further_attributes(slots: bool) -> None:
    class Plain(classes(records.dataclass, slots)):  # type: ignore[misc]
        """Has further attributes."""

    plain = Plain("a")
    plain.further = 1
    del plain.further
    for change in (lambda: setattr(plain, "size", 2), lambda: delattr(plain, "size")):
        with pytest.raises(FrozenInstanceError):
            change()


@MAKERS
@SLOTS
def test_own_methods_stay(maker: Callable[..., Any], slots: bool) -> None:
    @maker(frozen=True, slots=slots)
    class Folded:
        """Equal regardless of case."""

        text: str

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Folded) and self.text.lower() == other.text.lower()

        def __hash__(self) -> int:
            return hash(self.text.lower())

        def __repr__(self) -> str:
            return self.text

    @maker(frozen=True, slots=slots, eq=False)
    class Identity:
        """Compares by identity."""

        text: str

    @maker(frozen=True, slots=slots)
    class Empty:
        """Has no fields."""

    assert {Folded("a"), Folded("A")} == {Folded("A")}
    assert repr(Folded("A")) == "A"
    assert Identity("a") != Identity("a")
    assert {Empty()} == {Empty()}


@records.dataclass(frozen=True, slots=True)
class Slotted:
    """Can be pickled by its name."""

    name: str
    number: float = float("nan")


def test_annotations_can_be_evaluated() -> None:
    assert get_type_hints(Slotted.__init__) == {"name": str, "number": float, "return": type(None)}
    assert str(inspect.signature(classes(records.dataclass, False)).parameters["parts"]) == "parts: 'list[int]' = <factory>"


def test_records_with_slots_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Slotted("a", 1.0))) == Slotted("a", 1.0)


def test_equal_values_have_equal_hashes() -> None:
    number = float("nan")
    assert Slotted("a", number) == Slotted("a", number)  # as tuples: identical elements are equal
    assert hash(Slotted("a", 1)) == hash(Slotted("a", 1.0))


def test_other_options_are_those_of_the_standard_library() -> None:
    @records.dataclass
    class Mutable:
        """Can change."""

        size: int = 1

    @records.dataclass(frozen=True, init=False)
    class Custom:
        """Has its own __init__."""

        size: int

        def __init__(self) -> None:
            object.__setattr__(self, "size", 4)

    item = Mutable()
    item.size = 2
    assert item == Mutable(2)
    assert Custom().size == 4
