"""Operator fusion: groups of operators that become one kernel each.

The algorithm is that of TVM (Chen et al., OSDI 2018, section 3, and Relay's FuseOps): the immediate post-dominator of an operator
is the first operator through which every use of its value passes. An operator joins its post-dominator's group when everything on
the ways between the two may be fused. So a group has one result, and no value leaves it on the way: fusing cannot close a cycle.

* injective operators fuse into injective ones and into reductions that follow;
* reductions and complex operators take element-wise operators of their own shape that follow (the epilogue);
* opaque operators stay alone. So does a reshape, which costs nothing on its own: it is another view of the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from inlay.graph import ir
from inlay.graph.operator import FusionKind, Operator
from inlay.types import TensorType

PRIMITIVE = ("primitive", "fused")
"""The attribute of a fused function."""
LIMIT = 64
"""Operators of one group, so that kernels stay of a size that compiles fast."""
VIEWS = ("reshape",)
"""Names of operators that lowering turns into views."""


def fuse(function: ir.Function, limit: int = LIMIT) -> ir.Function:
    """The function with groups of operators as calls of functions marked `PRIMITIVE`.

    Its body is straight-line: calls of operators, constants and tuples. Cost is linear in practice: finding a post-dominator walks
    no further than to it.
    """
    groups = _Groups(function.body, limit)
    body = _emit(function.body, groups)
    return function if body is function.body else ir.function(function.params, body, function.attrs, span=function.span)


@dataclass
class _Node:
    """An expression in the graph of uses. `users` are positions; `parent` its immediate post-dominator, -1 for none."""

    expr: ir.Expr
    kind: FusionKind
    users: list[int]
    parent: int = -1
    depth: int = 0


class _Groups:
    """Union-find over the operators of a body. A group's `root` is the operator whose value leaves it."""

    def __init__(self, body: ir.Expr, limit: int) -> None:
        self.limit = limit
        self.order = list(ir.post_order(body))
        self.position = {id(expr): number for number, expr in enumerate(self.order)}
        self.nodes = [_Node(expr, _kind(expr), []) for expr in self.order]
        for number, expr in enumerate(self.order):
            for child in ir.children(expr):
                self.nodes[self.position[id(child)]].users.append(number)
        self._post_dominators()
        self.root = list(range(len(self.order)))
        self.size = [1] * len(self.order)
        self.anchored = [node.kind in (FusionKind.REDUCTION, FusionKind.COMPLEX_OUT_FUSABLE) for node in self.nodes]
        for number in range(len(self.order)):
            if self.nodes[number].kind in (FusionKind.REDUCTION, FusionKind.COMPLEX_OUT_FUSABLE):
                self._fuse_epilogue(number)
        for number in range(len(self.order)):
            if self.nodes[number].kind is FusionKind.INJECTIVE:
                self._fuse_injective(number)

    def find(self, number: int) -> int:
        """The root of an operator's group."""
        while self.root[number] != number:
            self.root[number] = self.root[self.root[number]]
            number = self.root[number]
        return number

    def _post_dominators(self) -> None:
        for number in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[number]
            parent = -1
            for index, user in enumerate(dict.fromkeys(node.users)):
                parent = user if index == 0 else self._common(parent, user)
                if parent == -1:
                    break
            node.parent = parent
            node.depth = 0 if parent == -1 else self.nodes[parent].depth + 1

    def _common(self, a: int, b: int) -> int:
        """The nearest common ancestor in the tree of post-dominators, -1 for none."""
        while a != b:
            if a == -1 or b == -1:
                return -1
            if self.nodes[a].depth < self.nodes[b].depth:
                a, b = b, a
            a = self.nodes[a].parent
        return a

    def _between(self, start: int, end: int) -> list[int]:
        """Everything on the ways from `start` to `end`, both left out."""
        found: dict[int, None] = {}
        stack = [user for user in self.nodes[start].users if user != end]
        while stack:
            number = stack.pop()
            if number not in found:
                found[number] = None
                stack += [user for user in self.nodes[number].users if user != end]
                if len(found) > self.limit:
                    break
        return list(found)

    def _fuse_epilogue(self, number: int) -> None:
        """Take in what follows an anchor, as long as it is element-wise and of the anchor's shape."""
        shape = _shape(self.nodes[number].expr)
        current = number
        while shape is not None:
            target = self.nodes[current].parent
            if target == -1:
                return
            members = [*self._between(current, target), target]
            if any(not self._elementwise(item, shape) or self.anchored[self.find(item)] for item in members):
                return
            if not self._join(number, members, target):
                return
            self.anchored[self.find(target)] = True
            current = target

    def _fuse_injective(self, number: int) -> None:
        target = self.nodes[number].parent
        if target == -1 or self.nodes[target].kind not in (FusionKind.INJECTIVE, FusionKind.REDUCTION):
            return
        if self.anchored[self.find(number)]:
            return
        if self.nodes[target].kind is FusionKind.INJECTIVE and self.anchored[self.find(target)]:
            # An operand of an epilogue may be computed in it, where that is element-wise too.
            shape = _shape(self.nodes[target].expr)
            if shape is None or not self._elementwise(number, shape):
                return
        members = self._between(number, target)
        if all(self.nodes[item].kind is FusionKind.INJECTIVE and not self.anchored[self.find(item)] for item in members):
            self._join(number, members, target)

    def _elementwise(self, number: int, shape: tuple[object, ...]) -> bool:
        expr = self.nodes[number].expr
        return (
            isinstance(expr, ir.Call)
            and isinstance(expr.callee, Operator)
            and self.nodes[number].kind is FusionKind.INJECTIVE
            and expr.callee.elementwise
            and _shape(expr) == shape
        )

    def _join(self, number: int, members: list[int], target: int) -> bool:
        """Put the groups of a start, of members and of a target together, with the target's root, unless that is too large."""
        roots = {self.find(item) for item in (number, *members, target)}
        total = sum(self.size[root] for root in roots)
        if total > self.limit:
            return False
        final = self.find(target)
        for root in roots:
            self.root[root] = final
        self.size[final] = total
        return True


def _kind(expr: ir.Expr) -> FusionKind:
    if isinstance(expr, ir.Call) and isinstance(expr.callee, Operator) and isinstance(expr.type, TensorType):
        return FusionKind.OPAQUE if expr.callee.name in VIEWS else expr.callee.fusion
    return FusionKind.OPAQUE


def _shape(expr: ir.Expr) -> tuple[object, ...] | None:
    return expr.type.shape if isinstance(expr.type, TensorType) else None


def _emit(body: ir.Expr, groups: _Groups) -> ir.Expr:
    members: dict[int, list[int]] = {}
    for number, expr in enumerate(groups.order):
        if isinstance(expr, ir.Call):
            members.setdefault(groups.find(number), []).append(number)
    memo: dict[int, ir.Expr] = {}
    for number, expr in enumerate(groups.order):
        group = members.get(number, ())
        if len(group) > 1:
            memo[id(expr)] = _group(expr, [groups.order[item] for item in group], memo)
        elif groups.find(number) == number:
            memo[id(expr)] = ir.rebuild(expr, tuple(memo[id(child)] for child in ir.children(expr)))
    return memo[id(body)]


def _group(root: ir.Expr, members: list[ir.Expr], memo: dict[int, ir.Expr]) -> ir.Expr:
    """A call of a new function that computes the members."""
    inner: dict[int, ir.Expr] = {}
    params: list[ir.Var] = []
    args: list[ir.Expr] = []
    for member in members:
        for child in ir.children(member):
            if id(child) not in inner:
                param = ir.var(f"p{len(params)}", child.type, child.span)
                inner[id(child)] = param
                params.append(param)
                args.append(memo[id(child)])
        inner[id(member)] = ir.rebuild(member, tuple(inner[id(child)] for child in ir.children(member)))
    return ir.call(ir.function(params, inner[id(root)], (PRIMITIVE,), span=root.span), args, span=root.span)
