"""Takes large initializers out of a serialized ONNX model before it is parsed, since protobuf's message would copy them twice.

A message is a sequence of fields: a key (number << 3 | wire type), for wire type 2 a length, and the value. Keys and lengths are
variable-length integers of 7 bits per byte, least significant first.
"""

from __future__ import annotations

from collections.abc import Iterator

LARGE = 1 << 14
"""Minimum size in bytes of an initializer whose raw data is taken out."""
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Field numbers of ModelProto.graph, GraphProto.initializer and TensorProto.raw_data in onnx.proto."""
_BYTES = 2
_SIZES = {1: 8, 5: 4}
"""Bytes of a value by wire type, for values of fixed size."""


def without_weights(model: memoryview) -> tuple[bytes, dict[int, memoryview]]:
    """Return a model without the raw data of large initializers of its graph, and the removed data by index of the initializer.
    Raises ValueError for a damaged message."""
    pieces: list[memoryview | bytes] = []
    weights: dict[int, memoryview] = {}
    count = 0
    for number, start, begin, end in _fields(model, 0, len(model)):
        if number != _GRAPH:
            pieces.append(model[start:end])
            continue
        graph_pieces: list[memoryview | bytes] = []
        for inner, inner_start, inner_begin, inner_end in _fields(model, begin, end):
            raw_fields = []
            if inner == _INITIALIZER and inner_end - inner_begin >= LARGE:
                raw_fields = [field for field in _fields(model, inner_begin, inner_end) if field[0] == _RAW_DATA]
            if len(raw_fields) == 1:
                _, field_start, data_start, data_end = raw_fields[0]
                weights[count] = model[data_start:data_end]
                graph_pieces += _field(_INITIALIZER, [model[inner_begin:field_start], model[data_end:inner_end]])
            else:
                graph_pieces.append(model[inner_start:inner_end])
            count += inner == _INITIALIZER
        pieces += _field(_GRAPH, graph_pieces)
    return b"".join(pieces), weights


def _fields(data: memoryview, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the number of each field (0 unless its wire type is 2), where it starts, and where its value begins and ends."""
    while position < end:
        start = position
        key, position = _integer(data, position)
        wire = key & 7
        if wire == _BYTES:
            size, position = _integer(data, position)
        else:
            size = _integer(data, position)[1] - position if wire == 0 else _SIZES.get(wire, end)
        if position + size > end:
            raise ValueError("a field exceeds its message")
        yield key >> 3 if wire == _BYTES else 0, start, position, position + size
        position += size


def _integer(data: memoryview, position: int) -> tuple[int, int]:
    """Read a variable-length integer. Returns it, and the position after it."""
    value = 0
    for index, byte in enumerate(data[position : position + 10]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, position + index + 1
    raise ValueError("an integer has no end")


def _field(number: int, value: list[memoryview | bytes]) -> list[memoryview | bytes]:
    """Return a field of wire type 2 as pieces: its key and length, then the pieces of `value`."""
    size, length = sum(map(len, value)), bytearray()
    while size >= 128:
        length.append(size & 127 | 128)
        size >>= 7
    return [bytes([number << 3 | _BYTES, *length, size]), *value]
