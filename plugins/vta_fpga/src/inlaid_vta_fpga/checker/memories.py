"""Memory rules: no races, reads of initialized elements only, the OUT buffer, and the accesses of GEMM and ALU.

The checker walks the stream in one order of execution and keeps the last access of each module to each element. An access races
with every access that its vector clock does not cover (Flanagan and Freund, FastTrack, 2009). A stream without races computes the
same values in every timing, so the other rules then hold in every timing as well.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.checker.footprints import DISTANCE, Footprints
from inlaid_vta_fpga.checker.tokens import Order
from inlaid_vta_fpga.checker.violations import Reporter, Rule
from inlaid_vta_fpga.isa.config import UOP_BYTES, Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, Finish, Gemm, Instruction, Load, Module, Store

Indices = npt.NDArray[np.int64]
_ACCESSORS = {
    "INP": (Module.LOAD, Module.COMPUTE),
    "WGT": (Module.LOAD, Module.COMPUTE),
    "OUT": (Module.COMPUTE, Module.STORE),
    "DRAM": (Module.STORE, Module.LOAD, Module.COMPUTE),
}
"""The modules that access each memory: the writer, then readers. ACC and UOP are absent: only one module accesses them."""


class _Out(IntEnum):
    """State of an element of OUT, in order from unusable to usable for a STORE."""

    UNDEFINED = 0
    LOADED = 1
    RESET = 2
    COMPUTED = 3


_TO_COMPUTE = {_Out.UNDEFINED: "compute it before", _Out.LOADED: "copy it by ALU SHR 0", _Out.RESET: "add to it by GEMM or ALU"}


class MemoryRules:
    """Checks the instructions of a stream one by one in order of execution."""

    def __init__(self, config: Config, dram: npt.NDArray[np.uint8], order: Order, report: Reporter) -> None:
        self._config = config
        self._dram = dram
        self._order = order
        self._report = report
        self._footprints = Footprints(config)
        # DRAM is tracked in units of the smallest element, of which all other element sizes are multiples.
        self._grain = min(config.element_bytes(memory) for memory in Memory)
        sizes = {memory.name: config.depth(memory) for memory in Memory} | {"DRAM": len(dram) // self._grain + 1}
        self._last = {name: {module: np.zeros(sizes[name], np.int32) for module in _ACCESSORS[name]} for name in _ACCESSORS}
        """Last access of each module to each element: 1-based position in the module's program; 0 if there is no access."""
        self._initialized = {memory: np.zeros(config.depth(memory), np.bool_) for memory in Memory}
        self._out = np.zeros(config.depth(Memory.OUT), np.int8)
        self._uops = np.zeros(config.depth(Memory.UOP), np.uint32)
        self._tracks_uops = True

    def check(self, number: int, instruction: Instruction) -> None:
        """Report the violations of an instruction and apply its effects to the tracked state."""
        match instruction:
            case Load() if instruction.x_size:
                self._load(number, instruction)
            case Store() if instruction.x_size:
                self._store(number, instruction)
            case Gemm() | Alu():
                self._compute(number, instruction)
            case Load() | Store() | Finish():
                pass

    def skip(self, number: int, instruction: Instruction) -> None:
        """Apply an instruction with unknown effects. Marks all elements that it may write as initialized, to avoid follow-up
        errors."""
        match instruction:
            case Load(memory=Memory.UOP):
                self._tracks_uops = False
            case Load(memory=Memory.INP | Memory.WGT):
                self._initialized[instruction.memory][:] = True
            case Load() | Gemm() | Alu():
                self._initialized[Memory.ACC][:] = True
                self._out[:] = _Out.COMPUTED
            case Store() | Finish():
                pass

    def _load(self, number: int, load: Load) -> None:
        memory = Memory.ACC if load.memory is Memory.ACC_8BIT else load.memory
        elements = slice(load.sram_base, load.sram_base + load.sram_size)
        rows = self._rows(load, load.memory)
        self._access(number, load, "DRAM", rows)
        self._initialized[memory][elements] = True
        if memory is Memory.ACC:
            # LOAD ACC does not write OUT, but it makes the element stale for a STORE.
            self._access(number, load, "OUT", elements)
            self._out[elements] = _Out.LOADED
        elif memory is Memory.UOP:
            start = load.dram_base * UOP_BYTES
            self._uops[elements] = self._dram[start : start + load.x_size * UOP_BYTES].view("<u4")
            if last := int(self._last["DRAM"][Module.STORE][rows].max()):
                text = (
                    f"expected micro-ops that no STORE overwrites, found instruction {self._order.numbers[Module.STORE][last - 1]}"
                )
                self._report(number, Rule.CONSTANT_UOPS, f"{text}; store elsewhere")
                self._tracks_uops = False
        else:
            self._access(number, load, memory.name, elements)

    def _store(self, number: int, store: Store) -> None:
        elements = slice(store.sram_base, store.sram_base + store.sram_size)
        self._access(number, store, "OUT", elements)
        self._access(number, store, "DRAM", self._rows(store, Memory.OUT))
        worst = int(self._out[elements].argmin())
        state = _Out(int(self._out[elements][worst]))
        if state is not _Out.COMPUTED:
            text = f"expected elements that GEMM or ALU wrote last, found OUT {store.sram_base + worst} {state.name.lower()}"
            rule = Rule.INITIALIZED if state is _Out.UNDEFINED else Rule.OUT_BUFFER
            self._report(number, rule, f"{text}; {_TO_COMPUTE[state]}")

    def _compute(self, number: int, compute: Gemm | Alu) -> None:
        uops = slice(compute.uop_begin, compute.uop_end)
        if not self._tracks_uops or not self._check_initialized(number, Memory.UOP, np.arange(uops.start, uops.stop)):
            self.skip(number, compute)
            return
        footprint = self._footprints.lookup(compute, self._uops[uops])
        if footprint.outside is not None:
            memory, index = footprint.outside
            text = f"expected {memory.name} indices below {self._config.depth(memory)}, found {index}; choose a smaller tile"
            self._report(number, Rule.SRAM_RANGE, text)
            self.skip(number, compute)
            return
        if footprint.close:
            text = f"expected {DISTANCE} micro-ops from the write of an accumulator to its next access, found fewer"
            self._report(number, Rule.DISTANCE, f"{text}; make the innermost loop move dst")
        for memory, indices in footprint.read:
            self._check_initialized(number, memory, indices)
            if memory is not Memory.ACC:
                self._access(number, compute, memory.name, indices)
        self._access(number, compute, "OUT", footprint.written)
        self._initialized[Memory.ACC][footprint.written] = True
        self._out[footprint.written] = _Out.RESET if isinstance(compute, Gemm) and compute.reset else _Out.COMPUTED

    def _check_initialized(self, number: int, memory: Memory, indices: Indices) -> bool:
        initialized = self._initialized[memory][indices]
        if not initialized.all():
            text = f"expected initialized elements, found {memory.name} {indices[initialized.argmin()]} unwritten; write it before"
            self._report(number, Rule.INITIALIZED, text)
            return False
        return True

    def _rows(self, transfer: Load | Store, memory: Memory) -> slice | npt.NDArray[Any]:
        """Return the indices of the DRAM elements of a transfer, in units of `_grain` bytes."""
        scale = self._config.element_bytes(memory) // self._grain
        base, row, stride = (scale * size for size in (transfer.dram_base, transfer.x_size, transfer.x_stride))
        if transfer.y_size == 1 or row == stride:
            return slice(base, base + transfer.y_size * row)
        return base + np.arange(transfer.y_size)[:, None] * stride + np.arange(row)

    def _access(self, number: int, instruction: Instruction, name: str, elements: slice | npt.NDArray[Any]) -> None:
        module, clock = instruction.module, self._order.clocks[number]
        writer, *readers = _ACCESSORS[name]
        for other in readers if module is writer else (writer,):
            last = int(self._last[name][other][elements].max())
            if last > clock[other]:
                early, late = sorted((number, self._order.numbers[other][last - 1]))
                text = f"expected tokens to order accesses to {name}, found none between instructions {early} and {late}"
                self._report(late, Rule.RACE, f"{text}; push and pop a token between them")
        self._last[name][module][elements] = clock[module] + 1
