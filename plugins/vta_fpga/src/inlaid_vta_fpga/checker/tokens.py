"""Execution order of a stream: dependence tokens, command queues, happens-before.

A token queue has one producer and one consumer module, and both run in order. So the k-th pop takes the token of the k-th push,
and the happens-before order is a static graph: program order of each module, and an edge from each push to its pop. Vector clocks
(Fidge 1988, Mattern 1989) over the three modules represent it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from inlaid_vta_fpga.checker.violations import Report, Rule
from inlaid_vta_fpga.isa.instructions import Finish, Instruction, Module

COMMANDS = 512
"""Instructions that the command queue of a module holds, the running one included."""
TOKENS = 255
"""Tokens that a queue holds: its counter saturates there."""
Queue = tuple[Module, Module]
"""Producer and consumer of tokens."""
QUEUES: tuple[Queue, ...] = tuple((Module(a), Module(b)) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1)))
Clock = tuple[int, int, int]
"""Instructions of each module that are complete."""


@dataclass(frozen=True)
class Order:
    """Happens-before order of a stream that runs to its end.

    sequence: instruction numbers in one order of execution. clocks: of each instruction by number, the instructions of each module
    that are complete before it starts, in every timing. numbers: instruction numbers of each module.
    """

    sequence: Sequence[int]
    clocks: Sequence[Clock]
    numbers: Sequence[Sequence[int]]


def check_tokens(instructions: Sequence[Instruction], report: Report) -> Order | None:
    """Check flags, balance, deadlock, overflow, and FINISH; None for a stream that does not run to its end."""
    _check_flags(instructions, report)
    pops, pushes = [_pops(instruction) for instruction in instructions], [_pushes(instruction) for instruction in instructions]
    starved = False
    for queue in QUEUES:
        pushing = [number for number, queues in enumerate(pushes) if queue in queues]
        popping = [number for number, queues in enumerate(pops) if queue in queues]
        counts = f"{len(pushing)} pushes and {len(popping)} pops"
        if len(popping) > len(pushing):
            starved = True
            report(
                popping[len(pushing)], Rule.TOKEN_BALANCE, f"expected a push for each pop of {_name(queue)}, found {counts}; push"
            )
        elif len(pushing) > len(popping):
            report(
                pushing[len(popping)], Rule.TOKEN_BALANCE, f"expected a pop for each push of {_name(queue)}, found {counts}; pop"
            )
    order = _run(instructions, pops, pushes, None if starved else report)
    if order is not None:
        _check_overflow(order, pops, pushes, report)
        _check_finish(instructions, order, report)
    return order


def _pops(instruction: Instruction) -> list[Queue]:
    own, flags = instruction.module, instruction.flags
    found = [(Module(own - 1), own)] if flags.pop_prev and own > Module.LOAD else []
    return found + ([(Module(own + 1), own)] if flags.pop_next and own < Module.STORE else [])


def _pushes(instruction: Instruction) -> list[Queue]:
    own, flags = instruction.module, instruction.flags
    found = [(own, Module(own - 1))] if flags.push_prev and own > Module.LOAD else []
    return found + ([(own, Module(own + 1))] if flags.push_next and own < Module.STORE else [])


def _name(queue: Queue) -> str:
    return " -> ".join(module.name.lower() for module in queue)


def _check_flags(instructions: Sequence[Instruction], report: Report) -> None:
    for number, instruction in enumerate(instructions):
        own, flags = instruction.module, instruction.flags
        absent = {
            Module.LOAD: ("previous", flags.pop_prev, flags.push_prev),
            Module.STORE: ("next", flags.pop_next, flags.push_next),
        }
        side, pop, push = absent.get(own, ("", False, False))
        if pop or push:
            report(number, Rule.FLAGS, f"expected no token for the {side} module of {own.name}, found {flags}; clear the flag")
    ends = [number for number, instruction in enumerate(instructions) if isinstance(instruction, Finish)]
    last = len(instructions) - 1
    for number in ends:
        if number != last:
            report(number, Rule.FINISH, f"expected FINISH as the last instruction, {last}, alone, found it before; remove it")
    if not ends:
        report(max(0, last), Rule.FINISH, "expected FINISH as the last instruction, found none; append it")


def _run(
    instructions: Sequence[Instruction], pops: Sequence[list[Queue]], pushes: Sequence[list[Queue]], report: Report | None
) -> Order | None:
    """Run the stream as far as it goes. Whether it ends does not depend on timing: modules share queues alone, each with one
    producer and one consumer (Kahn 1974)."""
    tokens: dict[Queue, deque[Clock]] = {queue: deque() for queue in QUEUES}
    commands: list[deque[int]] = [deque() for _ in Module]
    numbers: list[list[int]] = [[] for _ in Module]
    clocks: list[Clock] = [(0, 0, 0)] * len(instructions)
    now = [[0, 0, 0] for _ in Module]
    sequence: list[int] = []
    fetched = 0
    progress = True
    while progress:
        progress = False
        while fetched < len(instructions) and len(commands[instructions[fetched].module]) < COMMANDS:
            commands[instructions[fetched].module].append(fetched)
            fetched, progress = fetched + 1, True
        for own, queue in enumerate(commands):
            while queue and all(tokens[popped] for popped in pops[queue[0]]):
                number, progress = queue.popleft(), True
                clock = now[own]
                for popped in pops[number]:
                    clock[:] = map(max, clock, tokens[popped].popleft())
                clocks[number] = (clock[0], clock[1], clock[2])
                numbers[own].append(number)
                sequence.append(number)
                clock[own] += 1
                for pushed in pushes[number]:
                    tokens[pushed].append((clock[0], clock[1], clock[2]))
    if len(sequence) == len(instructions):
        return Order(sequence, clocks, numbers)
    for queue in commands if report else ():
        for popped in [popped for popped in pops[queue[0]] if not tokens[popped]] if queue else ():
            full = "" if fetched == len(instructions) else f"; fetch is blocked at instruction {fetched} by a full command queue"
            text = f"expected a token of {_name(popped)}, found that its push never runs{full}; reorder the stream or its tokens"
            assert report
            report(queue[0], Rule.DEADLOCK, text)
    return None


def _check_overflow(order: Order, pops: Sequence[list[Queue]], pushes: Sequence[list[Queue]], report: Report) -> None:
    for queue in QUEUES:
        producer, consumer = queue
        taken = [0]
        for number in order.numbers[consumer]:
            taken.append(taken[-1] + (queue in pops[number]))
        pushing = [number for number in order.numbers[producer] if queue in pushes[number]]
        for given, number in enumerate(pushing, 1):
            # In the worst timing, the consumer has completed only what happens before the push.
            if (held := given - taken[order.clocks[number][consumer]]) > TOKENS:
                report(
                    number, Rule.TOKEN_OVERFLOW, f"expected at most {TOKENS} tokens in {_name(queue)}, found {held}; wait earlier"
                )
                break


def _check_finish(instructions: Sequence[Instruction], order: Order, report: Report) -> None:
    if not instructions or not isinstance(instructions[-1], Finish):
        return
    for module, complete in zip(Module, order.clocks[-1], strict=True):
        late = order.numbers[module][complete:]
        if late and module is not Module.COMPUTE:
            text = f"expected {module.name} to be complete at FINISH, found instructions {late[0]} to {late[-1]} unordered"
            report(late[-1], Rule.BEFORE_FINISH, f"{text}; push a token that FINISH or an instruction before it pops")
