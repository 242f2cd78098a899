"""Mutators: of bytes, of JSON values, of protobuf messages, and of files of 32-bit words."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

Json = Any

INTEGERS = (-1, 0, 1, 2, 3, 7, 63, 64, 65, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, 1 << 61, -(1 << 31), -(1 << 62))
"""Integers that replace others."""
WORDS = (0, 1, 4, 255, 65535, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
"""32-bit words that replace others."""


def integer(value: int, rng: Random) -> int:
    """Return another integer: near the value, a fraction or a multiple of it, or one of `INTEGERS`."""
    neighbors = (value - 1, value + 1, value + 64, value - 64, value * 2, value // 2, -value, value ^ (1 << rng.randrange(16)))
    return rng.choice(neighbors) if rng.random() < 0.6 else rng.choice(INTEGERS)


# --- bytes ----------------------------------------------------------------------------------------------------------------


def mutated_bytes(data: bytes, rng: Random, donors: Sequence[bytes] = ()) -> bytes:
    """Flip, replace, delete, insert, repeat and truncate bytes, or splice in a piece of one of the `donors`."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        offset = rng.randrange(len(changed)) if changed else 0
        match rng.randrange(9):
            case 0 | 1 if changed:
                changed[offset] ^= 1 << rng.randrange(8)
            case 2 if changed:
                changed[offset] = rng.randrange(256)
            case 3:
                del changed[offset : offset + rng.randint(1, 8)]
            case 4:
                changed[offset:offset] = rng.randbytes(rng.randint(1, 4))
            case 5:
                changed[offset:offset] = changed[offset : offset + rng.randint(1, 64)]
            case 6 if donors:
                other = rng.choice(donors)
                start = rng.randrange(len(other))
                piece = other[start : start + rng.randint(1, 64)]
                changed[offset : offset + len(piece)] = piece
            case 7:
                changed[offset : offset + 4] = struct.pack("<I", rng.choice(WORDS))
            case 8 if rng.random() < 0.2:
                del changed[offset:]
    return bytes(changed)


def mutated_words(data: bytes, rng: Random, donors: Sequence[bytes] = ()) -> bytes:
    """Replace aligned 32-bit words, as flatbuffers have: by extremes, neighbors, and words at other places."""
    if rng.random() < 0.2:
        return mutated_bytes(data, rng, donors)
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        offset = 4 * rng.randrange(len(changed) // 4)
        (word,) = struct.unpack_from("<I", changed, offset)
        other = 4 * rng.randrange(len(changed) // 4)
        (at_other,) = struct.unpack_from("<I", changed, other)
        match rng.randrange(6):
            case 0:
                word = rng.choice(WORDS)
            case 1:
                word += rng.choice((-4, -2, -1, 1, 2, 4))
            case 2:
                word = at_other
            case 3:
                struct.pack_into("<I", changed, other, word)
                word = at_other
            case 4:
                word ^= 1 << rng.randrange(32)
            case 5:
                half = rng.choice((0, 16))
                word = word & ~(0xFFFF << half) | rng.randrange(32) << half
        struct.pack_into("<I", changed, offset, word & 0xFFFFFFFF)
    return bytes(changed)


# --- JSON -----------------------------------------------------------------------------------------------------------------


def mutated_json(document: Json, rng: Random) -> Json:
    """Change one to three values of a JSON document: most changes keep the type of a value, and exchange it with values of the same
    field elsewhere."""
    changed = _copied(document)
    count = rng.choice((1, 1, 1, 2, 3))
    for attempt in range(20):
        places = list(_places(changed))
        if not places or (attempt >= count and changed != document):
            break
        if rng.random() < 0.1:
            _mutate_everywhere(places, rng)
        else:
            _mutate_value(places, *rng.choice(places), rng)
    return changed


def _mutate_everywhere(places: Sequence[tuple[Json, Any]], rng: Random) -> None:
    """Replace an integer or a string by another at all or at half of its places, so that checks of one place against another may
    not notice."""
    atoms = [holder[key] for holder, key in places if type(holder[key]) in (int, str)]
    if not atoms:
        return
    old = rng.choice(atoms)
    new = integer(old, rng) if isinstance(old, int) else rng.choice([atom for atom in atoms if isinstance(atom, str)])
    share = rng.choice((0.5, 1.0))
    for holder, key in places:
        if type(holder[key]) is type(old) and holder[key] == old and rng.random() < share:
            holder[key] = new


def _places(document: Json) -> Iterator[tuple[Json, Any]]:
    """Yield (container, key) of each value in a document."""
    stack = [document]
    while stack:
        top = stack.pop()
        for key in list(top) if isinstance(top, dict) else range(len(top)):
            yield top, key
            if isinstance(top[key], (dict, list)):
                stack.append(top[key])


def _copied(value: Json) -> Json:
    return json.loads(json.dumps(value))


def _mutate_value(places: Sequence[tuple[Json, Any]], holder: Json, key: Any, rng: Random) -> None:
    value = holder[key]
    choice = rng.random()
    if choice < 0.25:
        alike = [other[at] for other, at in places if (at == key or type(at) is int) and type(other[at]) is type(value)]
        holder[key] = _copied(rng.choice(alike))
    elif choice < 0.3:
        other, at = rng.choice(places)
        holder[key] = _copied(other[at])
    elif choice < 0.35:
        holder[key] = rng.choice((None, True, -1, 0, 1, 1.5, "", "main", [], {}, [0], 1 << 80))
    elif choice < 0.39:
        del holder[key]
    elif choice < 0.4 and isinstance(holder, dict):
        names = [at for other, at in places if isinstance(at, str)]
        holder[rng.choice((*names, f"{key}x"))] = holder.pop(key)
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = integer(value, rng)
        if rng.random() < 0.1:
            holder[key] = [rng.choice(("add", "mul", "floordiv", "floormod", "min", "max")), value, rng.choice((0, 1, 2, 64))]
    elif isinstance(value, list):
        _mutate_list(value, holder, key, rng)
    elif isinstance(value, dict) and value:
        name = rng.choice(list(value))
        alike = [other[at] for other, at in places if at == name]
        value[name] = _copied(rng.choice(alike))
    elif isinstance(value, str):
        texts = [other[at] for other, at in places if isinstance(other[at], str)]
        holder[key] = rng.choice((*texts, value + "x", value[1:]))


def _mutate_list(value: list[Json], holder: Json, key: Any, rng: Random) -> None:
    if value and isinstance(value[0], str) and rng.random() < 0.5:  # a size expression
        holder[key] = rng.choice(
            (
                ["add", value, rng.choice((-64, -1, 1, 64))],
                ["mul", value, rng.choice((0, 2, 1 << 30))],
                ["floordiv", value, rng.choice((0, 2, -1))],
                value[1] if len(value) > 1 and isinstance(value[1], (int, list)) else 0,
                rng.choice(INTEGERS),
            )
        )
        return
    if not value:
        value.append(rng.choice((0, 1, -1, "x")))
        return
    first, second = rng.randrange(len(value)), rng.randrange(len(value))
    match rng.randrange(4):
        case 0:
            del value[first]
        case 1:
            value.insert(second, _copied(value[first]))
        case 2:
            value[first], value[second] = value[second], value[first]
        case 3:
            value[first] = _copied(value[second])


# --- protobuf -------------------------------------------------------------------------------------------------------------


def mutated_message(message: Any, rng: Random, texts: Sequence[str]) -> None:
    """Change one to three fields of a protobuf message in place. `texts` are strings that replace others, such as names of
    operators."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holders = [item for item in _messages(message) if item.ListFields()]
        if not holders:
            return
        holder = rng.choice(holders)
        field, value = rng.choice(holder.ListFields())
        repeated = field.is_repeated if hasattr(type(field), "is_repeated") else field.label == field.LABEL_REPEATED
        if repeated:
            _mutate_repeated(holder, field, value, holders, rng, texts)
        elif rng.random() < 0.15:
            holder.ClearField(field.name)
        elif field.message_type is not None:
            alike = [other for other in holders if other.DESCRIPTOR is value.DESCRIPTOR]
            if alike:
                value.CopyFrom(type(value).FromString(rng.choice(alike).SerializeToString()))
        else:
            setattr(holder, field.name, _scalar(field, value, holders, rng, texts))


def _messages(message: Any) -> Iterator[Any]:
    stack = [message]
    while stack:
        top = stack.pop()
        yield top
        for field, value in top.ListFields():
            if field.message_type is not None:
                stack += value if hasattr(value, "add") else [value]


def _mutate_repeated(holder: Any, field: Any, values: Any, holders: Sequence[Any], rng: Random, texts: Sequence[str]) -> None:
    first, second = rng.randrange(len(values)), rng.randrange(len(values))
    choice = rng.randrange(5)
    if choice == 0:
        del values[first]
    elif field.message_type is not None:
        alike = [other for other in holders if other.DESCRIPTOR is values[0].DESCRIPTOR] or [values[first]]
        copy = type(values[0]).FromString(rng.choice(alike).SerializeToString())
        if choice == 1:
            values.append(copy)
        elif choice == 2:
            values[first].CopyFrom(copy)
        else:
            other = type(values[0]).FromString(values[second].SerializeToString())
            values[second].CopyFrom(values[first])
            values[first].CopyFrom(other)
    elif choice == 1:
        values.append(values[second])
    elif choice == 2:
        values[first], values[second] = values[second], values[first]
    else:
        values[first] = _scalar(field, values[first], holders, rng, texts)


def _scalar(field: Any, value: Any, holders: Sequence[Any], rng: Random, texts: Sequence[str]) -> Any:
    if isinstance(value, bool):
        return not value
    if field.enum_type is not None:
        return rng.choice([item.number for item in field.enum_type.values])
    if isinstance(value, int):
        return _fitting(field, integer(value, rng))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, -1e30, float("inf"), float("nan"), value * 2, 0.5))
    if isinstance(value, bytes):
        return mutated_bytes(value, rng) if value else rng.randbytes(4)
    siblings = [getattr(other, field.name) for other in holders if other.DESCRIPTOR is field.containing_type]
    names = [item for item in siblings if isinstance(item, str)]
    listed = [item for other in holders for _, values in other.ListFields() if hasattr(values, "append") for item in values]
    chosen_names = [item for item in listed if isinstance(item, str)]
    return rng.choice(rng.choice([choice for choice in (names, chosen_names, texts, ["", value + "x"]) if choice]))


def _fitting(field: Any, value: int) -> int:
    """Wrap an integer to the type of a field."""
    kinds = {field.CPPTYPE_INT32: (32, True), field.CPPTYPE_UINT32: (32, False)}
    bits, signed = kinds.get(field.cpp_type, (64, field.cpp_type == field.CPPTYPE_INT64))
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


Mutator = Callable[[bytes, Random, Sequence[bytes]], bytes]
