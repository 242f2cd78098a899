"""Timing simulator. Computes functional results, and the cycles of fetch, load, compute, store and one DRAM port.

The simulator is transaction-level: an instruction takes a number of cycles from its start, plus the time that it waits for the DRAM
port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from inlaid_vta_fpga.isa.config import INSTRUCTION_BYTES, Config, Memory
from inlaid_vta_fpga.isa.instructions import Alu, Finish, Gemm, Instruction, Load, Module, Store
from inlaid_vta_fpga.simulators.commands import Commands, TokenQueue
from inlaid_vta_fpga.simulators.device import Dram, fault
from inlaid_vta_fpga.simulators.functional import LIMIT, Functional
from inlaid_vta_fpga.simulators.loops import micro_ops
from inlaid_vta_fpga.simulators.port import CLIENTS, Client, Clock, ReadPort, bursts
from inlaid_vta_fpga.simulators.timing import BUSY, FINISHED, INSTRUCTIONS, PORT, Span, Timeline, Timing


class Timed:
    """Executes streams with a clock; implements `Device`. `Functional` computes the data and documents `strict` and `limit`."""

    def __init__(
        self, config: Config | None = None, timing: Timing | None = None, *, strict: bool = True, limit: int = LIMIT
    ) -> None:
        self.config = config or Config()
        self.timing = timing or Timing()
        self._functional = Functional(self.config, strict=strict, limit=limit)

    def run(self, dram: Dram, instructions: int, count: int) -> Timeline:
        """Run a stream; see `Device.run`. Also raises `KernelFault` for a deadlock due to full command queues and for a token queue
        that overflows."""
        commands = self._functional.read(dram, instructions, count)
        self._functional.execute(dram, commands)
        return self.time(commands.instructions, instructions)

    def time(self, instructions: Sequence[Instruction], address: int) -> Timeline:
        """Time a legal stream at byte address `address` without computing data, for example to compare schedules.

        Raises `KernelFault` for a deadlock, an overflow of a token queue, and a missing FINISH.
        """
        return _Run(Commands.split(instructions), address, self.config, self.timing).timeline()


class _Module:
    """State of a module: its next instruction, its current activity, and the cycle in which the activity began."""

    def __init__(self, module: Module, numbers: Sequence[int]) -> None:
        self.module, self.numbers = module, numbers
        self.next = 0
        self.arrived = 0
        """Number of instructions that have passed through the command queue to its head or wait behind it."""
        self.occupancy = 0
        """Number of instructions that occupy the command queue."""
        self.running = False
        self.doing, self.since = INSTRUCTIONS, 0
        self.activity: Counter[str] = Counter()

    def begin_activity(self, doing: str, now: int) -> None:
        """Record the start of an activity at cycle `now`."""
        self.activity[self.doing] += now - self.since
        self.doing, self.since = doing, now


class _Run:
    """One run of a stream: modules, token queues, fetch and read port, driven by a clock."""

    def __init__(self, commands: Commands, address: int, config: Config, timing: Timing) -> None:
        self.commands, self.address, self.config, self.timing = commands, address, config, timing
        self.clock = Clock()
        self.port = ReadPort(self.clock, timing.latency, timing.outstanding)
        self.modules = {module: _Module(module, numbers) for module, numbers in commands.queues.items()}
        self.tokens = dict.fromkeys(TokenQueue, 0)
        self.spans: list[Span] = []
        self.fetches: list[tuple[int, int, int]] = []
        self.fetched = self.dispatched = 0
        self.blocked: _Module | None = None
        """The module whose full command queue blocks fetch."""
        self.finished = False

    def timeline(self) -> Timeline:
        """Run to FINISH and return the timeline."""
        self.clock.at(self.timing.launch, self._fetch)
        while not self.finished:
            if not self.clock.step():
                raise self._deadlock()
        for module in self.modules.values():
            module.begin_activity(FINISHED, self.clock.now)
        counters = self.commands.report(self.config)
        return Timeline(
            self.clock.now, counters.gemm_uops, counters.reset_uops, counters.alu_uops, counters.loaded, counters.stored,
            tuple(self.spans), tuple(self.fetches), {module: dict(state.activity) for module, state in self.modules.items()},
            len(self.commands.instructions) * INSTRUCTION_BYTES, self.port.beats,
        )  # fmt: skip

    def _fetch(self) -> None:
        """Request the next batch of instructions."""
        count = min(self.timing.batch, len(self.commands.instructions) - self.dispatched)
        if not count:
            return
        now, first = self.clock.now, self.dispatched * INSTRUCTION_BYTES
        self.fetches.append((now, now, count))
        self.fetched += count
        lengths = bursts(self.address + first, count * INSTRUCTION_BYTES, self.config)
        self.clock.at(
            now + self.timing.request,
            lambda: self.port.read(
                Client.FETCH, lengths, lambda: self.clock.at(self.clock.now + self.timing.response, self._dispatch)
            ),
        )

    def _dispatch(self) -> None:
        """Move an instruction into its command queue, or block until there is room."""
        module = self.modules[self.commands.instructions[self.dispatched].module]
        self.blocked = module if module.occupancy == self.timing.commands else None
        if self.blocked:
            return
        module.occupancy += 1
        self.dispatched += 1
        now = self.clock.now
        self.clock.at(now + self.timing.queue, lambda: self._arrive(module))
        start, _, count = self.fetches[-1]
        self.fetches[-1] = start, now + 1, count
        self.clock.at(now + 1, self._dispatch if self.dispatched < self.fetched else self._fetch)

    def _arrive(self, module: _Module) -> None:
        module.arrived += 1
        self._try(module)

    def _try(self, module: _Module) -> None:
        """Start the next instruction of an idle module, or record what the module waits for."""
        if module.running:
            return
        if module.next == module.arrived:
            module.begin_activity(INSTRUCTIONS if module.next < len(module.numbers) else FINISHED, self.clock.now)
            return
        number = module.numbers[module.next]
        missing = [queue for queue in self.commands.pops[number] if not self.tokens[queue]]
        if missing:
            module.begin_activity(missing[0].value, self.clock.now)
            return
        for queue in self.commands.pops[number]:
            self.tokens[queue] -= 1
        module.running = True
        module.begin_activity(BUSY, self.clock.now)
        self._start(module, number, self.commands.instructions[number])

    def _start(self, module: _Module, number: int, instruction: Instruction) -> None:
        clock, timing, started = self.clock, self.timing, self.clock.now
        if isinstance(instruction, Load) and instruction.x_size:
            lengths = self._bursts(instruction, instruction.memory)
            beats = sum(lengths)
            least = timing.start + timing.completion + beats

            def loaded() -> None:
                running = started + timing.start
                last = running + _writes(instruction, clock.now + timing.response - running, beats)
                end = last + timing.written + timing.completion
                zeros = instruction.sram_size - instruction.y_size * instruction.x_size
                port = max(0, end - started - least - zeros)
                clock.at(end, lambda: self._complete(module, Span(number, module.module, started, end, port)))

            client = CLIENTS[instruction.memory]
            request_time = started + timing.start + instruction.y_pad_0 + timing.request
            clock.at(request_time, lambda: self.port.read(client, lengths, loaded))
            return
        end = started + timing.start + self._cycles(instruction) + timing.completion
        clock.at(end, lambda: self._complete(module, Span(number, module.module, started, end)))

    def _cycles(self, instruction: Instruction) -> int:
        """Return the cycles between start and completion of an instruction that does not read DRAM."""
        timing = self.timing
        match instruction:
            case Store() if instruction.x_size:
                lengths = self._bursts(instruction, Memory.OUT)
                return len(lengths) * timing.store_burst + sum(lengths) + instruction.sram_size * timing.store_read
            case Gemm():
                return micro_ops(instruction) * timing.gemm + timing.pipeline
            case Alu():
                rate = timing.alu_tensor if instruction.imm is None else timing.alu_immediate
                return micro_ops(instruction) * rate + timing.pipeline
        return 0

    def _bursts(self, instruction: Load | Store, memory: Memory) -> list[int]:
        """Return the beats of each burst of a transfer; each row starts a new burst."""
        size = self.config.element_bytes(memory)
        rows = (instruction.dram_base + y * instruction.x_stride for y in range(instruction.y_size))
        return [beats for row in rows for beats in bursts(row * size, instruction.x_size * size, self.config)]

    def _complete(self, module: _Module, span: Span) -> None:
        now = self.clock.now
        self.spans.append(span)
        module.begin_activity(INSTRUCTIONS, now)
        module.activity[BUSY] -= span.port
        module.activity[PORT] += span.port
        module.running = False
        module.next += 1
        module.occupancy -= 1
        if isinstance(self.commands.instructions[span.number], Finish):
            self.finished = True
            return
        if self.blocked is module:
            self.blocked = None
            self.clock.at(now, self._dispatch)
        for queue in self.commands.pushes[span.number]:
            self.tokens[queue] += 1
            if self.tokens[queue] > self.timing.tokens:
                raise fault(span.number, f"expected at most {self.timing.tokens} tokens from {queue.value}, found more")
        for other in self.modules.values():
            self._try(other)

    def _deadlock(self) -> Exception:
        """Create the error for a run without further events."""
        waits = [
            f"{state.module.name} instruction {state.numbers[state.next]} for {state.doing}"
            for state in self.modules.values()
            if state.next < len(state.numbers)
        ]
        first = min(state.numbers[state.next] for state in self.modules.values() if state.next < len(state.numbers))
        full = f"; fetch for the full command queue of {self.blocked.module.name}" if self.blocked else ""
        return fault(first, f"expected a runnable instruction, found a deadlock: waiting: {', '.join(waits)}{full}")


def _writes(load: Load, arrived: int, beats: int) -> int:
    """Return the number of cycles until a load has written its last element, including zero padding.

    arrived: number of cycles until the last beat has arrived. In `beats` of these cycles, a beat is written. In each other cycle,
    one zero element can be written; these cycles are assumed to precede the first beat. The padding writer spends one cycle on a
    row without padding.
    """
    idle = arrived - beats

    def zeros(start: int, count: int) -> int:
        early_count = min(count, max(0, idle - start))
        return start + count if early_count == count else max(start, arrived) + count - early_count

    now = zeros(0, load.y_pad_0 * load.row)
    sides = load.y_size * (load.x_pad_0 + load.x_pad_1)
    now = zeros(now, sides) if sides else now + load.y_size
    return max(arrived, zeros(now, load.y_pad_1 * load.row))
