"""Execution order of a stream, from its dependence tokens and command queues, as a happens-before order.

A token queue has one producer and one consumer module, and both run in order. So the k-th pop takes the token of the k-th push. The
happens-before order is a static graph: the program order of each module plus an edge from each push to its pop. Vector clocks over
the three modules represent the order (Fidge 1988, Mattern 1989).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from inlaid_vta_fpga.checker.violations import Reporter, Rule
from inlaid_vta_fpga.isa.instructions import Finish, Instruction, Module

COMMANDS = 512
"""Capacity of a module's command queue in instructions, including the running instruction."""
TOKENS = 255
"""Capacity of a token queue. The counter of the queue saturates at this value."""
Queue = tuple[Module, Module]
"""A token queue: its producer and its consumer. `simulators.commands.TokenQueue` names the same four queues."""
Queues = Sequence[Sequence[Queue]]
"""The queues that each instruction pops or pushes, indexed by instruction number."""
Clock = tuple[int, int, int]
"""Vector clock: number of completed instructions of each module."""


@dataclass(frozen=True)
class Order:
    """Happens-before order of a stream that terminates.

    sequence: instruction numbers in one order of execution. clocks: for each instruction, how many instructions of each module are
    complete before it starts, in every timing. numbers: instruction numbers of each module.
    """

    sequence: Sequence[int]
    clocks: Sequence[Clock]
    numbers: Sequence[Sequence[int]]


def check_tokens(instructions: Sequence[Instruction], report: Reporter) -> Order | None:
    """Check flags, token balance, deadlock, overflow and FINISH. Returns the order; None for a stream that does not terminate."""
    _check_flags(instructions, report)
    pops = [_queues(instruction, "pop") for instruction in instructions]
    pushes = [_queues(instruction, "push") for instruction in instructions]
    starved = False
    for queue in ((Module(own), Module(other)) for own, other in ((0, 1), (1, 0), (1, 2), (2, 1))):
        pushing = [number for number, queues in enumerate(pushes) if queue in queues]
        popping = [number for number, queues in enumerate(pops) if queue in queues]
        if len(pushing) != len(popping):
            starved |= len(popping) > len(pushing)
            number = max(pushing, popping, key=len)[min(len(pushing), len(popping))]
            text = f"expected a pop for each push of {_name(queue)}, found {len(pushing)} pushes and {len(popping)} pops"
            report(number, Rule.TOKEN_BALANCE, f"{text}; add the missing flag")
    order = _run(instructions, pops, pushes, (lambda *_: None) if starved else report)
    if order is not None:
        _check_overflow(order, pops, pushes, report)
        _check_finish(instructions, order, report)
    return order


def _queues(instruction: Instruction, kind: str) -> list[Queue]:
    """Return the queues that an instruction pops or pushes. Flags that refer to absent neighbors are ignored."""
    own, flags = instruction.module, instruction.flags
    others = [(-1, flags.pop_prev), (1, flags.pop_next)] if kind == "pop" else [(-1, flags.push_prev), (1, flags.push_next)]
    found = [Module(own + step) for step, given in others if given and own + step in (0, 1, 2)]
    return [(other, own) if kind == "pop" else (own, other) for other in found]


def _name(queue: Queue) -> str:
    return " -> ".join(module.name.lower() for module in queue)


def _check_flags(instructions: Sequence[Instruction], report: Reporter) -> None:
    for number, instruction in enumerate(instructions):
        own, flags = instruction.module, instruction.flags
        if own is not Module.COMPUTE:
            side, *given = (
                ("prev", flags.pop_prev, flags.push_prev) if own is Module.LOAD else ("next", flags.pop_next, flags.push_next)
            )
            if any(given):
                report(number, Rule.FLAGS, f"expected no flag pop_{side} or push_{side} in {own.name}, found {flags}; clear it")
    ends = [number for number, instruction in enumerate(instructions) if isinstance(instruction, Finish)]
    last = max(0, len(instructions) - 1)
    for number in [number for number in ends if number != last] if ends else [last]:
        report(
            number, Rule.FINISH, f"expected one FINISH, as instruction {last}, found {ends or 'none'}; end the stream by one FINISH"
        )


def _run(instructions: Sequence[Instruction], pops: Queues, pushes: Queues, report: Reporter) -> Order | None:
    """Run the stream until no module can proceed. Termination does not depend on timing: modules communicate only through queues
    with one producer and one consumer each (Kahn 1974)."""
    tokens: dict[Queue, deque[Clock]] = {(own, other): deque() for own in Module for other in Module}
    commands: list[deque[int]] = [deque() for _ in Module]
    numbers: list[list[int]] = [[] for _ in Module]
    clocks: list[Clock] = [(0, 0, 0)] * len(instructions)
    now: list[Clock] = [(0, 0, 0)] * len(Module)
    sequence: list[int] = []
    fetched = 0
    while True:
        while fetched < len(instructions) and len(commands[instructions[fetched].module]) < COMMANDS:
            commands[instructions[fetched].module].append(fetched)
            fetched += 1
        ready = [queue[0] for queue in commands if queue and all(tokens[popped] for popped in pops[queue[0]])]
        if not ready:
            break
        # Run the earliest runnable instruction, so that the result is program order where that is a legal execution order.
        number = min(ready)
        own = instructions[number].module
        commands[own].popleft()
        taken = [now[own], *(tokens[popped].popleft() for popped in pops[number])]
        load, compute, store = clocks[number] = (max(c[0] for c in taken), max(c[1] for c in taken), max(c[2] for c in taken))
        now[own] = (load + (own == 0), compute + (own == 1), store + (own == 2))
        for pushed in pushes[number]:
            tokens[pushed].append(now[own])
        numbers[own].append(number)
        sequence.append(number)
    if len(sequence) == len(instructions):
        return Order(sequence, clocks, numbers)
    blocked = "" if fetched == len(instructions) else f"; a full command queue blocks the fetch of instruction {fetched}"
    for number in [queue[0] for queue in commands if queue]:
        for popped in [popped for popped in pops[number] if not tokens[popped]]:
            text = f"expected a token of {_name(popped)}, found that its push never runs{blocked}"
            report(number, Rule.DEADLOCK, f"{text}; push it earlier in the stream")
    return None


def _check_overflow(order: Order, pops: Queues, pushes: Queues, report: Reporter) -> None:
    for queue in {queue for queues in pushes for queue in queues}:
        producer, consumer = queue
        taken = [0]
        for number in order.numbers[consumer]:
            taken.append(taken[-1] + (queue in pops[number]))
        pushing = [number for number in order.numbers[producer] if queue in pushes[number]]
        for given, number in enumerate(pushing, 1):
            # Worst case: the consumer has completed only the instructions that happen before the push.
            if (held := given - taken[order.clocks[number][consumer]]) > TOKENS:
                report(
                    number,
                    Rule.TOKEN_OVERFLOW,
                    f"expected at most {TOKENS} tokens in {_name(queue)}, found {held}; pop more before",
                )
                break


def _check_finish(instructions: Sequence[Instruction], order: Order, report: Reporter) -> None:
    if instructions and isinstance(instructions[-1], Finish):
        for module, complete in zip(Module, order.clocks[-1], strict=True):
            late = order.numbers[module][complete:]
            if late and module is not Module.COMPUTE:
                text = f"expected {module.name} to be complete at FINISH, found instructions {late[0]} to {late[-1]} unordered"
                report(late[-1], Rule.BEFORE_FINISH, f"{text}; push a token that FINISH or an instruction before it pops")
