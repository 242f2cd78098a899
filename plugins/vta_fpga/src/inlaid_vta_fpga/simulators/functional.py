"""Functional simulator: computes the exact results of a stream, without a clock."""

from __future__ import annotations

from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.isa.encoding import Encoding
from inlaid_vta_fpga.isa.instructions import Module
from inlaid_vta_fpga.simulators.commands import Commands, TokenQueue
from inlaid_vta_fpga.simulators.core import STEP, Core
from inlaid_vta_fpga.simulators.device import Dram, Report, fault
from inlaid_vta_fpga.simulators.products import Plans

LIMIT = 1 << 27
"""Default work limit of one stream, about 1.3 s on VTA at 100 MHz. ResNet-18 takes 2^23."""


class Functional:
    """Executes streams with numpy; implements `Device`.

    SRAM is zero at the start of a run. Modules take turns to execute one instruction each, as tokens permit. A stream without races
    computes the same result in any order. GEMM and ALU write results to ACC and, truncated to int8, to OUT. As on hardware, loads
    and resets of ACC do not change OUT.

    strict: also raise `KernelFault` for reads of unwritten elements, for an accumulator that repeats at distance 1 or 2 within a
    GEMM, and for tokens that remain at FINISH. An element of OUT is unwritten after a load or reset of its accumulator. limit:
    maximum work of a stream, in micro-op executions and transferred elements.
    """

    def __init__(self, config: Config | None = None, *, strict: bool = True, limit: int = LIMIT) -> None:
        self.config = config or Config()
        self.strict = strict
        self.limit = limit
        self._encoding = Encoding(self.config)
        self._plans = Plans(self.config.block, self.config.batch)

    def run(self, dram: Dram, instructions: int, count: int) -> Report:
        """Run a stream; see `Device.run`. `cycles` of the report is None."""
        return self.execute(dram, self.read(dram, instructions, count))

    def read(self, dram: Dram, instructions: int, count: int) -> Commands:
        """Decode a stream. Raises `KernelFault` if the stream is illegal or too long."""
        if count * STEP > self.limit:
            raise fault(
                None, f"expected at most {self.limit // STEP} instructions, found {count}", "raise `limit` of the simulator"
            )
        return Commands.read(dram, instructions, count, self._encoding)

    def execute(self, dram: Dram, commands: Commands) -> Report:
        """Run a decoded stream. Raises the same errors as `run`."""
        core = Core(self._encoding, self._plans, dram, self.strict, self.limit)
        tokens = dict.fromkeys(TokenQueue, 0)
        positions = dict.fromkeys(Module, 0)
        completed = 0
        while completed < len(commands.instructions):
            before = completed
            for module, numbers in commands.queues.items():
                if positions[module] == len(numbers):
                    continue
                number = numbers[positions[module]]
                if any(not tokens[queue] for queue in commands.pops[number]):
                    continue
                for queue in commands.pops[number]:
                    tokens[queue] -= 1
                core.execute(number, commands.instructions[number])
                for queue in commands.pushes[number]:
                    tokens[queue] += 1
                positions[module] += 1
                completed += 1
            if completed == before:
                raise _deadlock(commands, tokens, positions)
        left = [f"{tokens[queue]} from {queue.value}" for queue in TokenQueue if tokens[queue]]
        if left and self.strict:
            raise fault(None, f"expected empty token queues at FINISH, found {', '.join(left)}", "balance pushes and pops")
        return commands.report(self.config)


def _deadlock(commands: Commands, tokens: dict[TokenQueue, int], positions: dict[Module, int]) -> Exception:
    heads = [numbers[positions[module]] for module, numbers in commands.queues.items() if positions[module] < len(numbers)]
    empty = {number: [queue.value for queue in commands.pops[number] if not tokens[queue]] for number in heads}
    waits = [f"instruction {number} waits for a token from {' and '.join(queues)}" for number, queues in empty.items()]
    return fault(min(heads), f"expected a runnable instruction, found a deadlock: {'; '.join(waits)}", "push the missing token")
