"""Static checker of VTA streams. It proves that a stream terminates and that its results do not depend on timing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inlaid_vta_fpga.checker.instructions import InstructionRules
from inlaid_vta_fpga.checker.memories import MemoryRules
from inlaid_vta_fpga.checker.tokens import check_tokens
from inlaid_vta_fpga.checker.violations import Rule, Violation
from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.isa.instructions import Instruction

__all__ = ["Rule", "Violation", "check"]


def check(
    instructions: Sequence[Instruction],
    dram: npt.NDArray[np.uint8],
    config: Config,
    sources: Sequence[str] = (),
    *,
    acc_8bit: bool = False,
    mul: bool = False,
) -> list[Violation]:
    """Check a stream against every `Rule`. Returns the violations in order of instruction number; empty for a legal stream.

    dram: contents of physical memory at launch, from address 0. LOAD UOP reads micro-ops from it. sources: the source operator of
    each instruction. acc_8bit, mul: the device implements LOAD ACC_8BIT and ALU MUL. Properties that depend on data are not
    checked. An example is that shift amounts of SHR with a tensor operand must be 0 to 15.
    """
    violations: list[Violation] = []

    def report(number: int, rule: Rule, message: str) -> None:
        violations.append(Violation(number, rule, message, sources[number] if number < len(sources) else ""))

    rules = InstructionRules(config, len(dram), acc_8bit, mul)
    for number, instruction in enumerate(instructions):
        for rule, message in rules.broken(instruction):
            report(number, rule, message)
    undefined = {violation.number for violation in violations}
    order = check_tokens(instructions, report)
    if order is not None:
        memories = MemoryRules(config, dram, order, report)
        for number in order.sequence:
            (memories.skip if number in undefined else memories.check)(number, instructions[number])
    return sorted(violations, key=lambda violation: violation.number)
