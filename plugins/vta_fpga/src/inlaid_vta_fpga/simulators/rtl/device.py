"""Device that runs streams on the verilated RTL core. It is cycle-accurate and simulates about a million cycles per second."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

from inlaid_runtime.errors import KernelFault, TargetError
from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, Config
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Instruction, Module
from inlaid_vta_fpga.simulators.commands import Commands
from inlaid_vta_fpga.simulators.device import Dram, Report, fault, stream_bytes
from inlaid_vta_fpga.simulators.rtl import build

CYCLES = 100_000_000
"""Default limit of a run in cycles."""
UOPS = 2048
"""Depth of the UOP memory of the core in micro-ops. The encoding can address more."""
_SLICE = 100_000
"""Number of cycles between checks for signals such as Ctrl-C."""


class _Status(IntEnum):
    """State of a run, with the values of `Status` in harness.cpp."""

    RUNNING = 0
    DONE = 1
    RULE = 2
    ADDRESS = 3
    DEADLOCK = 4


class _Progress(ctypes.Structure):
    """Progress of a run, with the memory layout of `Progress` in harness.cpp."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("cycles", "gemm", "reset", "alu", "read_beats", "write_beats", "address")),
        ("dispatched", ctypes.c_uint32),
        ("completed", ctypes.c_uint32 * 3),
        ("rule", ctypes.c_int32),
        ("module", ctypes.c_int32),
    )


_RULES = {
    1: "expected an opcode from 0 to 4, found another",
    2: "expected LOAD of UOP, INP, WGT or ACC, or STORE of OUT without padding, found another memory or padding",
    3: "expected no `prev` flag of a LOAD of INP or WGT, and no `next` flag of a STORE, found one",
    4: "expected one row without padding in a LOAD of UOP, found more",
    5: f"expected micro-op indices below {UOPS}, found a larger one",
    6: "expected an ALU operation from 0 to 3, found another",
    7: "expected micro-ops, loop counts and rows >= 1, found none",
    8: "expected indices within the memory's depth, found a larger one",
    9: "expected at most 255 tokens in a queue, found more",
}
"""Text of each rule, keyed by the value of `rule_t` in vta_types.sv."""


class RtlDevice:
    """The verilated core; implements `inlaid_vta_fpga.simulators.device.Device`.

    limit: cycles after which a run stops with a `KernelFault`. The core also raises `KernelFault` for operations that it does not
    implement: MUL, ACC_8BIT, micro-op indices of 2048 or more. Each run starts with random, reproducible SRAM contents. Raises
    `TargetError` for a configuration other than the default, and for a missing tool.
    """

    def __init__(self, config: Config | None = None, limit: int = CYCLES) -> None:
        self._config = config or Config()
        if self._config != Config():
            raise TargetError(f"simulator rtl: expected the default configuration, found {config}", remedy="use simulator=timing")
        self._limit = limit
        self._library = _library()

    def run(self, dram: Dram, instructions: int, count: int) -> Report:
        """Run a stream; see `Device.run`. Also raises `KernelFault` if the cycle limit is reached."""
        code = stream_bytes(dram, instructions, count)
        if not dram.flags.c_contiguous or not dram.flags.writeable:
            raise fault(None, "DRAM must be a contiguous, writeable array", "pass a new numpy array")
        handle = self._library.vta_create(dram.ctypes.data, dram.nbytes, instructions, count)
        progress = _Progress()
        try:
            status = _Status.RUNNING
            while status == _Status.RUNNING and progress.cycles < self._limit:
                status = _Status(self._library.vta_run(handle, min(_SLICE, self._limit - progress.cycles), ctypes.byref(progress)))
        finally:
            self._library.vta_destroy(handle)
        if status != _Status.DONE:
            raise self._fault(status, progress, code)
        if progress.dispatched < count:
            raise fault(None, f"expected FINISH as instruction {count - 1}, found it before {progress.dispatched}")
        report = Commands.split(self._decode(code, progress)).report(self._config)
        return replace(report, cycles=progress.cycles, gemm_uops=progress.gemm, reset_uops=progress.reset, alu_uops=progress.alu)

    def _decode(self, code: bytes, progress: _Progress) -> list[Instruction]:
        """Decode the instructions that fetch dispatched."""
        return Encoding(self._config).decode_program(code[: INSTRUCTION_BYTES * progress.dispatched])

    def _fault(self, status: _Status, progress: _Progress, code: bytes) -> KernelFault:
        """Create the error for a run that did not reach FINISH."""
        fetched = self._decode(code, progress)
        current = [_number(fetched, module, progress.completed[module]) for module in Module]
        instruction_number = progress.dispatched if progress.module == 0 else current[progress.module - 1]
        if status == _Status.RULE:
            return fault(instruction_number, _RULES[progress.rule])
        if status == _Status.ADDRESS:
            return fault(instruction_number, f"expected DRAM addresses from page 1 to its end, found {progress.address:#x}")
        heads = {module.name.lower(): number for module, number in zip(Module, current, strict=True) if number is not None}
        waiting = [f"{module} at instruction {number}" for module, number in heads.items()]
        if status == _Status.DEADLOCK and not waiting:
            return fault(None, "expected FINISH, found none")
        location = ", ".join(waiting) or "fetch"
        if status == _Status.DEADLOCK:
            return fault(None, f"expected tokens, found a deadlock: waiting: {location}", remedy="balance pushes and pops")
        return fault(
            None, f"expected FINISH within {self._limit} cycles, found {location}", "shorten the stream or raise the limit"
        )


def _number(instructions: Sequence[Instruction], module: Module, completed: int) -> int | None:
    """Return the stream number of the first instruction that a module has not completed; None if all are completed."""
    module_numbers = [number for number, instruction in enumerate(instructions) if instruction.module is module]
    return module_numbers[completed] if completed < len(module_numbers) else None


def _library() -> ctypes.CDLL:
    library = build.load()
    library.vta_create.restype = ctypes.c_void_p
    library.vta_create.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)
    library.vta_run.restype = ctypes.c_int32
    library.vta_run.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(_Progress))
    library.vta_destroy.restype = None
    library.vta_destroy.argtypes = (ctypes.c_void_p,)
    return library
