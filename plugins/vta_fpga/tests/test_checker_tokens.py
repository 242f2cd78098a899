"""The static checker's token rules: flags, balance, deadlock, overflow, FINISH."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlaid_vta_fpga.checker import Rule, check
from inlaid_vta_fpga.checker.tokens import check_tokens
from inlaid_vta_fpga.isa.assembler import parse_program
from inlaid_vta_fpga.isa.config import Config
from inlaid_vta_fpga.isa.instructions import Finish, Flags, Load, Memory, Module, Store

from .programs import with_tokens

LOAD, COMPUTE, STORE = (
    lambda **flags: Load(Memory.INP, flags=Flags(**flags)),
    lambda **flags: Load(Memory.UOP, flags=Flags(**flags)),
    lambda **flags: Store(flags=Flags(**flags)),
)


def violations(code):
    instructions = parse_program(code, Config()).instructions if isinstance(code, str) else code
    return [(violation.number, violation.rule) for violation in check(instructions, np.zeros(8192, np.uint8), Config())]


def test_tail_of_the_official_runtime():
    assert not violations("store push_prev\nload.inp push_next\nload.uop pop_prev pop_next\nfinish")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("load.uop", [(0, Rule.FINISH)]),
        ("", [(0, Rule.FINISH)]),
        ("finish\nload.uop", [(0, Rule.FINISH)]),
        ("load.uop\nfinish\nload.uop\nfinish", [(1, Rule.FINISH)]),
        ("load.inp push_prev push_next\nload.uop pop_prev\nfinish", [(0, Rule.FLAGS)]),
        ("store pop_next push_prev\nload.uop pop_next\nfinish", [(0, Rule.FLAGS)]),
        ("load.inp pop_next push_next\nload.uop push_prev\nload.uop push_prev\nfinish pop_prev", [(2, Rule.TOKEN_BALANCE)]),
        ("load.uop pop_next\nfinish", [(0, Rule.TOKEN_BALANCE)]),
        ("store push_prev\nload.uop pop_next\nload.uop pop_next\nfinish", [(2, Rule.TOKEN_BALANCE)]),
        ("load.inp\nfinish", [(0, Rule.BEFORE_FINISH)]),
        ("load.inp push_next\nload.inp\nstore\nfinish pop_prev", [(1, Rule.BEFORE_FINISH), (2, Rule.BEFORE_FINISH)]),
        # Each module waits for the other.
        ("load.inp pop_next push_next\nload.uop pop_prev push_prev\nfinish", [(0, Rule.DEADLOCK), (1, Rule.DEADLOCK)]),
        # The push comes behind its pop in the same module.
        (
            "load.uop pop_next\nload.uop push_next\nstore pop_prev push_prev\nfinish",
            [(0, Rule.DEADLOCK), (2, Rule.DEADLOCK)],
        ),
    ],
)
def test_each_rule(code, expected):
    assert violations(code) == expected


def test_a_pop_may_come_before_its_push_in_the_stream():
    assert not violations("load.uop pop_prev\nload.inp push_next\nfinish")


@pytest.mark.parametrize(("count", "expected"), [(512, []), (513, [(0, Rule.DEADLOCK)])])
def test_command_queues_hold_512_instructions(count, expected):
    code = [
        LOAD(pop_next=True),
        *[LOAD()] * (count - 2),
        LOAD(push_next=True),
        COMPUTE(push_prev=True),
        Finish(Flags(pop_prev=True)),
    ]
    assert violations(code) == expected


@pytest.mark.parametrize(("count", "expected"), [(255, []), (256, [(255, Rule.TOKEN_OVERFLOW)])])
def test_token_queues_hold_255_tokens(count, expected):
    code = [*[LOAD(push_next=True)] * count, *[COMPUTE(pop_prev=True)] * count, Finish()]
    assert violations(code) == expected


def test_tokens_returned_in_time_do_not_overflow():
    """Load runs ahead by two tiles, for more tiles than tokens fit."""
    code = [COMPUTE(push_prev=True)] * 2
    for _ in range(400):
        code += [LOAD(pop_next=True, push_next=True), COMPUTE(pop_prev=True, push_prev=True)]
    assert not violations([*code, LOAD(pop_next=True), LOAD(pop_next=True, push_next=True), Finish(Flags(pop_prev=True))])


def completes(code, commands, tokens=None):
    """Whether a stream runs to its end with random choices of the module that advances: an oracle for small queues."""
    visited = set()
    pending = [(0, ((), (), ()), (0,) * 4)]
    names = [(0, 1), (1, 0), (1, 2), (2, 1)]
    ends = []
    while pending:
        state = pending.pop()
        if state in visited:
            continue
        visited.add(state)
        fetched, queues, counts = state
        following = []
        if fetched < len(code) and len(queues[code[fetched].module]) < commands:
            grown = tuple(queue + (fetched,) * (unit == code[fetched].module) for unit, queue in enumerate(queues))
            following.append((fetched + 1, grown, counts))
        for unit, queue in enumerate(queues):
            if not queue:
                continue
            flags = code[queue[0]].flags
            left = dict(zip(names, counts, strict=True))
            for other, pop in ((unit - 1, flags.pop_prev), (unit + 1, flags.pop_next)):
                if pop and 0 <= other <= 2:
                    left[other, unit] -= 1
            if min(left.values()) < 0:
                continue
            for other, push in ((unit - 1, flags.push_prev), (unit + 1, flags.push_next)):
                if push and 0 <= other <= 2:
                    left[unit, other] += 1
            rest = tuple(queue[1:] if unit == index else other for index, other in enumerate(queues))
            following.append((fetched, rest, tuple(left.values())))
        pending += following
        if not following:
            ends.append(state)
    return {(fetched == len(code) and not any(queues), not any(counts)) for fetched, queues, counts in ends}


CODE = st.lists(
    st.builds(lambda make, flags: make(**flags), st.sampled_from([LOAD, COMPUTE, STORE]), st.fixed_dictionaries({
        name: st.booleans() for name in ("pop_prev", "pop_next", "push_prev", "push_next")})), max_size=7)  # fmt: skip


PLAIN = st.lists(st.sampled_from([LOAD(), COMPUTE(), STORE()]), max_size=7)


@given(CODE | PLAIN.flatmap(with_tokens), st.integers(1, 3))
def test_deadlock_and_balance_equal_exhaustive_execution(monkeypatch_module, code, commands):
    monkeypatch_module.setattr("inlaid_vta_fpga.checker.tokens.COMMANDS", commands)
    outcomes = completes(code, commands)
    assert len(outcomes) == 1  # the outcome does not depend on timing
    ((ends, balanced),) = outcomes
    rules = {rule for _, rule in violations(code)}
    stuck = rules & {Rule.DEADLOCK, Rule.TOKEN_BALANCE}
    assert ends and balanced if not stuck else not (ends and balanced)
    assert Rule.DEADLOCK not in rules or not ends


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@given(CODE | PLAIN.flatmap(with_tokens))
def test_clocks_are_what_precedes_in_every_execution(code):
    """Enumerate small executions: an instruction's clock is the least number of complete instructions when it starts."""
    order = check_tokens(code, lambda *violation: None)
    if order is None:
        return
    least = [[len(code)] * 3 for _ in code]
    owns = [instruction.module for instruction in code]
    lists = [[number for number, unit in enumerate(owns) if unit == module] for module in Module]
    for progress in itertools.product(*(range(len(numbers) + 1) for numbers in lists)):
        tokens = {}
        for unit, (numbers, count) in enumerate(zip(lists, progress, strict=True)):
            for number in numbers[:count]:
                flags = code[number].flags
                for other, push, pop in ((unit - 1, flags.push_prev, flags.pop_prev), (unit + 1, flags.push_next, flags.pop_next)):
                    if 0 <= other <= 2:
                        tokens[unit, other] = tokens.get((unit, other), 0) + push
                        tokens[other, unit] = tokens.get((other, unit), 0) - pop
        if min(tokens.values(), default=0) < 0:
            continue  # no execution gets there
        for unit, (numbers, count) in enumerate(zip(lists, progress, strict=True)):
            if count == len(numbers):
                continue
            flags = code[numbers[count]].flags
            if all(
                not pop or not 0 <= other <= 2 or tokens.get((other, unit), 0) > 0
                for other, pop in ((unit - 1, flags.pop_prev), (unit + 1, flags.pop_next))
            ):
                least[numbers[count]] = list(map(min, least[numbers[count]], progress))
    assert [list(clock) for clock in order.clocks] == least
