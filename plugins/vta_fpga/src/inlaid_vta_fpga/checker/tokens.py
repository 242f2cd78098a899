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
    lacks_push = False
    for queue in ((Module(producer), Module(consumer)) for producer, consumer in ((0, 1), (1, 0), (1, 2), (2, 1))):
        pushing = [number for number, queues in enumerate(pushes) if queue in queues]
        popping = [number for number, queues in enumerate(pops) if queue in queues]
        if len(pushing) != len(popping):
            lacks_push |= len(popping) > len(pushing)
            number = max(pushing, popping, key=len)[min(len(pushing), len(popping))]
            text = f"expected a pop for each push of {_name(queue)}, found {len(pushing)} pushes and {len(popping)} pops"
            report(number, Rule.TOKEN_BALANCE, f"{text}; add the missing flag")
    order = _run(instructions, pops, pushes, (lambda *_: None) if lacks_push else report)
    if order is not None:
        _check_overflow(order, pops, pushes, report)
        _check_finish(instructions, order, report)
    return order


def _queues(instruction: Instruction, kind: str) -> list[Queue]:
    """Return the queues that an instruction pops or pushes. Flags that refer to absent neighbors are ignored."""
    module, flags = instruction.module, instruction.flags
    neighbor_flags = [(-1, flags.pop_prev), (1, flags.pop_next)] if kind == "pop" else [(-1, flags.push_prev), (1, flags.push_next)]
    neighbors = [Module(module + step) for step, flag in neighbor_flags if flag and module + step in (0, 1, 2)]
    return [(other, module) if kind == "pop" else (module, other) for other in neighbors]


def _name(queue: Queue) -> str:
    return " -> ".join(module.name.lower() for module in queue)


def _check_flags(instructions: Sequence[Instruction], report: Reporter) -> None:
    for number, instruction in enumerate(instructions):
        module, flags = instruction.module, instruction.flags
        if module is not Module.COMPUTE:
            side, *absent_flags = (
                ("prev", flags.pop_prev, flags.push_prev) if module is Module.LOAD else ("next", flags.pop_next, flags.push_next)
            )
            if any(absent_flags):
                report(number, Rule.FLAGS, f"expected no flag pop_{side} or push_{side} in {module.name}, found {flags}; clear it")
    ends = [number for number, instruction in enumerate(instructions) if isinstance(instruction, Finish)]
    last = max(0, len(instructions) - 1)
    for number in [number for number in ends if number != last] if ends else [last]:
        report(
            number, Rule.FINISH, f"expected one FINISH, as instruction {last}, found {ends or 'none'}; end the stream by one FINISH"
        )


def _run(instructions: Sequence[Instruction], pops: Queues, pushes: Queues, report: Reporter) -> Order | None:
    """Run the stream until no module can proceed. Termination does not depend on timing: modules communicate only through queues
    with one producer and one consumer each (Kahn 1974)."""
    tokens: dict[Queue, deque[Clock]] = {(module, other): deque() for module in Module for other in Module}
    commands: list[deque[int]] = [deque() for _ in Module]
    numbers: list[list[int]] = [[] for _ in Module]
    clocks: list[Clock] = [(0, 0, 0)] * len(instructions)
    module_clocks: list[Clock] = [(0, 0, 0)] * len(Module)
    sequence: list[int] = []
    fetched = 0
    while True:
        while fetched < len(instructions) and len(commands[instructions[fetched].module]) < COMMANDS:
            commands[instructions[fetched].module].append(fetched)
            fetched += 1
        runnable = [queue[0] for queue in commands if queue and all(tokens[popped_queue] for popped_queue in pops[queue[0]])]
        if not runnable:
            break
        # Run the earliest runnable instruction, so that the result is program order where that is a legal execution order.
        number = min(runnable)
        module = instructions[number].module
        commands[module].popleft()
        joined_clocks = [module_clocks[module], *(tokens[popped_queue].popleft() for popped_queue in pops[number])]
        load, compute, store = clocks[number] = (
            max(c[0] for c in joined_clocks),
            max(c[1] for c in joined_clocks),
            max(c[2] for c in joined_clocks),
        )
        module_clocks[module] = (load + (module == 0), compute + (module == 1), store + (module == 2))
        for pushed_queue in pushes[number]:
            tokens[pushed_queue].append(module_clocks[module])
        numbers[module].append(number)
        sequence.append(number)
    if len(sequence) == len(instructions):
        return Order(sequence, clocks, numbers)
    blocked = "" if fetched == len(instructions) else f"; a full command queue blocks the fetch of instruction {fetched}"
    for number in [queue[0] for queue in commands if queue]:
        for popped_queue in [popped_queue for popped_queue in pops[number] if not tokens[popped_queue]]:
            text = f"expected a token of {_name(popped_queue)}, found that its push never runs{blocked}"
            report(number, Rule.DEADLOCK, f"{text}; push it earlier in the stream")
    return None


def _check_overflow(order: Order, pops: Queues, pushes: Queues, report: Reporter) -> None:
    for queue in {queue for queues in pushes for queue in queues}:
        producer, consumer = queue
        pop_counts = [0]
        for number in order.numbers[consumer]:
            pop_counts.append(pop_counts[-1] + (queue in pops[number]))
        pushing = [number for number in order.numbers[producer] if queue in pushes[number]]
        for push_count, number in enumerate(pushing, 1):
            # Worst case: the consumer has completed only the instructions that happen before the push.
            if (queued := push_count - pop_counts[order.clocks[number][consumer]]) > TOKENS:
                report(
                    number,
                    Rule.TOKEN_OVERFLOW,
                    f"expected at most {TOKENS} tokens in {_name(queue)}, found {queued}; pop more before",
                )
                break


def _check_finish(instructions: Sequence[Instruction], order: Order, report: Reporter) -> None:
    if instructions and isinstance(instructions[-1], Finish):
        for module, complete in zip(Module, order.clocks[-1], strict=True):
            late = order.numbers[module][complete:]
            if late and module is not Module.COMPUTE:
                text = f"expected {module.name} to be complete at FINISH, found instructions {late[0]} to {late[-1]} unordered"
                report(late[-1], Rule.BEFORE_FINISH, f"{text}; push a token that FINISH or an instruction before it pops")
