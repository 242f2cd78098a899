"""Picks random execution orders of the stages of decoupled access-execute hardware."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from inlaid.tensor import ir
from inlaid.tensor.analysis.stages import Queue, Stage, Staged, Task
from inlaid.tensor.transform.rewrite import Rewriter
from inlaid_runtime import arith


def random_stage_order(
    program: ir.LoopProgram, stages: Sequence[Stage], sizes: Mapping[arith.SizeVar, int], seed: int
) -> ir.LoopProgram:
    """Serialize the tasks of a program in a random order that its stages allow: each stage runs in program order, and a pop waits
    for a token. `seed` determines the order. A buffer that several stages use is allocated once. Raises `VerifyError` on deadlock,
    i.e. if all stages wait."""
    staged = Staged(program, stages)
    size_values: dict[arith.Expr, int] = dict(sizes.items())

    def decide(stmt: ir.Stmt, value: arith.Expr | None) -> int:
        if value is None:
            raise staged.error("control around tasks must depend only on sizes, got data", stmt)
        return arith.evaluate(value, size_values)

    waiting: list[deque[Task]] = [deque() for _ in stages]
    for task in staged.expand(decide):
        waiting[task.stage].append(task)
    order: list[ir.Stmt] = []
    tokens: dict[Queue, int] = defaultdict(int)
    random = np.random.default_rng(seed)
    weights = random.random(len(stages)) ** 3  # some stages run far ahead
    while any(waiting):
        candidates = [
            number
            for number, tasks in enumerate(waiting)
            if tasks and (tasks[0].queue is None or tasks[0].push or tokens[tasks[0].queue])
        ]
        if not candidates:
            stuck = next(tasks[0] for tasks in waiting if tasks)
            raise staged.error(f"expected a token for {staged.names[stuck.stage]}, found all stages waiting", stuck.stmt)
        probabilities = weights[candidates] / weights[candidates].sum()
        task = waiting[int(random.choice(candidates, p=probabilities))].popleft()
        if task.queue is not None:
            tokens[task.queue] += 1 if task.push else -1
        else:
            order.append(Rewriter(task.values).stmt(task.stmt))
    body: ir.Stmt = ir.Seq(tuple(order))
    for buffer in dict.fromkeys(staged.allocations()):
        body = ir.Alloc(buffer, body)
    return replace(program, body=body)
