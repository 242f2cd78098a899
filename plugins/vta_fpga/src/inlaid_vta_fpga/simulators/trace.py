"""Chrome trace of a timeline, with one lane per module and events named by source operators."""

from __future__ import annotations

import json
from collections.abc import Sequence

from inlaid_vta_fpga.isa.instructions import Alu, Finish, Gemm, Instruction, Load, Store
from inlaid_vta_fpga.simulators.timing import Timeline, Timing

FETCH = "fetch"
NO_OP = "no-op"
RESET = "reset"


def kind(instruction: Instruction) -> str:
    """Return the kind of an instruction: LOAD INP, GEMM, reset, ALU SHR, STORE, no-op, FINISH."""
    match instruction:
        case Load() | Store() if not instruction.x_size:
            return NO_OP
        case Load():
            return f"LOAD {instruction.memory.name}"
        case Store():
            return "STORE"
        case Gemm():
            return RESET if instruction.reset else "GEMM"
        case Alu():
            return f"ALU {instruction.op.name}"
        case Finish():
            return "FINISH"


def chrome_trace(timeline: Timeline, instructions: Sequence[Instruction], timing: Timing, sources: Sequence[str] = ()) -> str:
    """Export JSON in Chrome's trace event format, for chrome://tracing and Perfetto. Times are in microseconds at the clock rate of
    `timing`.

    The name of an event is the source operator of the instruction (`sources[number]`), or the kind of the instruction if unknown.
    The arguments of an event are number, kind, cycles, and cycles spent waiting for DRAM.
    """
    lanes = {name: number for number, name in enumerate((FETCH, *(module.name.lower() for module in timeline.activity)), 1)}
    microseconds = 1e6 / timing.hertz
    events: list[dict[str, object]] = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": name}} for name, number in lanes.items()
    ]

    def add(name: str, lane: str, start: int, end: int, arguments: dict[str, object]) -> None:
        times = {"ts": round(start * microseconds, 4), "dur": round((end - start) * microseconds, 4)}
        events.append({"name": name, "ph": "X", "pid": 1, "tid": lanes[lane], **times, "args": arguments})

    for span in timeline.spans:
        instruction_kind = kind(instructions[span.number])
        source = sources[span.number] if span.number < len(sources) else ""
        arguments = {"number": span.number, "kind": instruction_kind, "cycles": span.end - span.start, "port": span.port}
        add(source or instruction_kind, span.module.name.lower(), span.start, span.end, arguments)
    for start, end, count in timeline.fetches:
        add(FETCH, FETCH, start, end, {"instructions": count})
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"})
