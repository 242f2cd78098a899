"""Makes a failing model smaller, as long as it fails in the same way: outputs are dropped, and nodes become inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from inlaid.graph import ir
from inlaid.graph.interp import evaluate
from inlaid.graph.scopes import analyse
from inlaid.graph.transform import transform
from inlaid_runtime.errors import InlaidError
from inlaid_runtime.types import TensorType, type_vars

from . import processes
from .check import Case, Outcome, Variant, check
from .extents import RUNS
from .modules import ModuleCase
from .onnx_models import OnnxCase

ATTEMPTS = 150
"""Greatest number of smaller models that are tried."""


def shrunk(case: Case, outcome: Outcome, variants: Sequence[Variant], limit: float) -> Case:
    """Return a smaller model that fails in the same way in one of some variants. Each candidate runs in a process of its own."""
    failing = [variant for variant in variants if str(variant) == outcome.variant] or list(variants)
    attempts = 0
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(case):
            attempts += 1
            if attempts > ATTEMPTS:
                return case
            ended = processes.alone(partial(check, candidate, failing), limit)
            candidate_outcome = ended.result or Outcome(ended.problem, ended.reason)
            if candidate_outcome.failed and candidate_outcome.kind == outcome.kind:
                case, smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    match case:
        case ModuleCase():
            yield from _smaller_modules(case)
        case OnnxCase():
            yield from _smaller_models(case)


def _smaller_models(case: OnnxCase) -> Iterator[OnnxCase]:
    names = [item.name for item in case.model.graph.output]
    for name in names if len(names) > 1 else ():
        yield case.part(case.model.graph.node, [name])
    for number in range(len(case.model.graph.node)):
        nodes = [node for position, node in enumerate(case.model.graph.node) if position != number]
        node_outputs = {name for node in nodes for name in node.output}
        outputs = [name for name in names if name in node_outputs]
        if outputs:
            yield case.part(nodes, outputs)


def _smaller_modules(case: ModuleCase) -> Iterator[ModuleCase]:
    main = case.module.main
    results = main.body.fields if isinstance(main.body, ir.Tuple) else (main.body,)
    if len(results) > 1:
        for result in results:
            yield from _module(case, result)
    for expr in reversed(analyse(main).root.order):
        if not isinstance(expr, (ir.Call, ir.If, ir.Loop, ir.TupleItem)) or any(expr is result for result in results):
            continue
        if any(ir.existential(size) for size in type_vars(expr.type)) or not isinstance(expr.type, TensorType):
            continue
        param = ir.var(f"cut{len(main.params)}", expr.type)
        try:
            values = tuple(
                evaluate(ir.Module({**case.module.functions, "main": ir.function(main.params, expr)}), case.inputs[run])
                for run in range(RUNS)
            )
        except InlaidError:
            continue
        body = transform(main.body, lambda old, new, cut=expr, value=param: value if old is cut else new)
        yield from _module(case, body, (param, values))


def _module(case: ModuleCase, body: ir.Expr, added: tuple[ir.Var, Sequence[object]] | None = None) -> Iterator[ModuleCase]:
    """Make a module of another body, with the parameters that it reads. Yields nothing if that has no type."""
    read = {
        id(expr) for each in (body, *case.module.functions.values()) for expr in ir.post_order(each) if each is not case.module.main
    }
    params = [param for param in case.module.main.params if id(param) in read or _binds(param)]
    inputs = [{param.name: each[param.name] for param in params} for each in case.inputs]
    if added is not None:
        params.append(added[0])
        inputs = [{**each, added[0].name: value} for each, value in zip(inputs, added[1], strict=True)]
    called = _called(body, case.module)
    try:
        module = ir.Module({**{name: case.module[name] for name in called}, "main": ir.function(params, body)})
    except InlaidError:
        return
    yield replace(case, module=module, inputs=tuple(inputs))


def _binds(param: ir.Var) -> bool:
    """Test whether a parameter may bind a size that others need."""
    return isinstance(param.type, TensorType) and bool(type_vars(param.type))


def _called(body: ir.Expr, module: ir.Module) -> list[str]:
    names: list[str] = []
    waiting = [body]
    while waiting:
        for expr in ir.post_order(waiting.pop()):
            if isinstance(expr, ir.GlobalVar) and expr.name not in names:
                names.append(expr.name)
                waiting.append(module[expr.name])
    return names
