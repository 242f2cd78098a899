"""Packing of launch arguments for the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from inlaid_cuda.driver import MAP_ALIGNMENT, MAP_BYTES


class Arguments:
    """Arguments of a launch. `pointers`: one pointer per argument, to an 8-byte value or an aligned tensor map. The object owns the
    memory of both."""

    def __init__(self, arguments: Sequence[int | bytes]) -> None:
        maps = [argument for argument in arguments if isinstance(argument, bytes)]
        size = len(maps) * MAP_BYTES + 8 * (len(arguments) - len(maps))
        self._memory = (ctypes.c_char * (size + MAP_ALIGNMENT))()
        first = -(-ctypes.addressof(self._memory) // MAP_ALIGNMENT) * MAP_ALIGNMENT
        at_map, at_value = first, first + len(maps) * MAP_BYTES
        addresses = []
        for argument in arguments:
            if isinstance(argument, bytes):
                addresses.append(at_map)
                ctypes.memmove(at_map, argument, MAP_BYTES)
                at_map += MAP_BYTES
            else:
                addresses.append(at_value)
                ctypes.c_uint64.from_address(at_value).value = argument & (1 << 64) - 1
                at_value += 8
        self.pointers = (ctypes.c_void_p * len(addresses))(*addresses)
