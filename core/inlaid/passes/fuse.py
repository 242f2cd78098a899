"""Operator fusion: groups of operators that become one kernel each.

The algorithm is that of TVM (Chen et al., OSDI 2018, section 3, and Relay's FuseOps): the immediate post-dominator of an operator
is the first operator through which every use of its value passes. An operator joins its post-dominator's group when everything on
the ways between the two may be fused. So a group has one result, and no value leaves it on the way: fusing cannot close a cycle.

* injective operators fuse into injective ones and into reductions that follow;
* reductions and complex operators take element-wise operators of their own shape that follow (the epilogue);
* convolutions take the zeros around the images that they read, which they copy into a layout of their own;
* opaque operators stay alone. So does a reshape, which costs nothing on its own: it is another view of the same bytes.

Each scope (a function's body, a branch) is fused by itself: a value that an inner scope reads leaves its group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, Var, children, post_order, rebuild, traits_of, var
from inlaid.graph.ir import function as make_function
from inlaid.graph.operator import Attrs, FusionKind, Operator
from inlaid.graph.scopes import Scope, analyse, opens_scope
from inlaid.types import TensorType

PRIMITIVE = ("primitive", "fused")
"""The attribute of a fused function."""
LIMIT = 64
"""Operators of one group, so that kernels stay of a size that compiles fast."""

_NOWHERE = -1
"""The post-dominator of what leaves its scope."""


def fuse(function: Function, limit: int = LIMIT, frugal: bool = False) -> Function:
    """The function with groups of two and more operators as calls of functions marked `PRIMITIVE`; the same object where nothing
    fuses. `frugal`: memory is dearer than time, so that padding is left to what reads it, and transposes are views.

    Cost is linear in the graph: ways between an operator and its post-dominator are followed for `limit` steps at most.
    """
    scopes = analyse(function)
    groups: dict[int, list[Call]] = {}
    inside: set[int] = set()
    every = [scopes.root, *scopes.inner.values()]
    leaving = _leaving(every, scopes.of)
    for scope in every:
        if isinstance(scope.owner, Function) and PRIMITIVE in scope.owner.attrs:
            continue
        for group in _Groups(scope, leaving, limit, frugal).found():
            groups[id(group[-1])] = group
            inside.update(id(member) for member in group[:-1])
    done: dict[int, Expr] = {}
    for expr in post_order(function):
        if id(expr) in groups:
            done[id(expr)] = _outline(groups[id(expr)], done)
        elif id(expr) not in inside:
            done[id(expr)] = rebuild(expr, tuple(done[id(child)] for child in children(expr)))
    found = done[id(function)]
    assert isinstance(found, Function)
    return found


def _leaving(every: list[Scope], of: dict[int, Scope]) -> set[int]:
    """The ids of the expressions whose value leaves the scope that computes it: as its result, or into an inner scope."""
    found: set[int] = set()
    for scope in every:
        found.add(id(scope.result))
        for expr in scope.order:
            for index, child in enumerate(children(expr)):
                if of.get(id(child)) is not scope or opens_scope(expr, index):
                    found.add(id(child))
    return found


@dataclass
class _Node:
    """An expression of a scope. `users` are positions in the scope; `parent` is its immediate post-dominator, `depth` its depth in
    the tree of post-dominators."""

    expr: Expr
    kind: FusionKind
    users: list[int] = field(default_factory=list)
    parent: int = _NOWHERE
    depth: int = 0


class _Groups:
    """Union-find over the operators of a scope. A group's `root` is the operator whose value leaves it."""

    def __init__(self, scope: Scope, leaving: set[int], limit: int, frugal: bool) -> None:
        self.limit = limit
        self.frugal = frugal
        self.nodes = [_Node(expr, _kind(expr, frugal)) for expr in scope.order]
        position = {id(expr): number for number, expr in enumerate(scope.order)}
        for number, expr in enumerate(scope.order):
            for child in dict.fromkeys(map(id, children(expr))):
                if child in position:
                    self.nodes[position[child]].users.append(number)
        self._post_dominators(leaving)
        self.root = list(range(len(self.nodes)))
        self.size = [1] * len(self.nodes)
        self.anchored = [node.kind in _ANCHORS for node in self.nodes]
        for number, node in enumerate(self.nodes):
            if node.kind in _ANCHORS:
                self._fuse_epilogue(number)
        for number, node in enumerate(self.nodes):
            if node.parent != _NOWHERE and _pads_images(node.expr, self.nodes[node.parent].expr):
                self._join(number, [], node.parent)
        for number, node in enumerate(self.nodes):
            if node.kind is FusionKind.INJECTIVE:
                self._fuse_injective(number)

    def found(self) -> list[list[Call]]:
        """The groups of two and more, each in order, its root last."""
        members: dict[int, list[Call]] = {}
        for number, node in enumerate(self.nodes):
            if isinstance(node.expr, Call):
                members.setdefault(self.find(number), []).append(node.expr)
        return [group for group in members.values() if len(group) > 1]

    def find(self, number: int) -> int:
        """The root of an operator's group."""
        while self.root[number] != number:
            self.root[number] = self.root[self.root[number]]
            number = self.root[number]
        return number

    def _post_dominators(self, leaving: set[int]) -> None:
        for node in reversed(self.nodes):
            if id(node.expr) in leaving or not node.users:
                continue
            parent = node.users[0]
            for user in node.users[1:]:
                parent = self._common(parent, user)
                if parent == _NOWHERE:
                    break
            node.parent = parent
            node.depth = 0 if parent == _NOWHERE else self.nodes[parent].depth + 1

    def _common(self, a: int, b: int) -> int:
        """The nearest common ancestor in the tree of post-dominators. One further away than a group reaches does not count."""
        for _ in range(2 * self.limit):
            if a == b:
                return a
            if _NOWHERE in (a, b):
                break
            if self.nodes[a].depth < self.nodes[b].depth:
                a, b = b, a
            a = self.nodes[a].parent
        return _NOWHERE

    def _between(self, start: int, end: int) -> list[int]:
        """Everything on the ways from `start` to `end`, both left out; cut off when it is more than a group can hold."""
        found: dict[int, None] = {}
        stack = [user for user in self.nodes[start].users if user != end]
        while stack and len(found) <= self.limit:
            number = stack.pop()
            if number not in found:
                found[number] = None
                stack += [user for user in self.nodes[number].users if user != end]
        return list(found)

    def _fuse_epilogue(self, anchor: int) -> None:
        """Take in what follows an anchor, as long as it is element-wise and of the anchor's shape.

        Where that ends in front of another anchor's epilogue, or, frugally, of a reduction, what only makes elements wider is left
        to that one: it can do so itself, and reads fewer bytes.
        """
        shape = _shape(self.nodes[anchor].expr)
        current = anchor
        steps: list[tuple[list[int], int]] = []
        while (target := self.nodes[current].parent) != _NOWHERE:
            members = [*self._between(current, target), target]
            if any(not self._elementwise(item, shape) for item in members):
                while self.frugal and self.nodes[target].kind is FusionKind.REDUCTION and steps and self._widens(*steps[-1]):
                    steps.pop()
                break
            if any(self.anchored[self.find(item)] for item in members):
                while steps and self._widens(*steps[-1]):
                    steps.pop()
                break
            steps.append((members, target))
            current = target
        for members, target in steps:
            if not self._join(anchor, members, target):
                return
            self.anchored[self.find(target)] = True

    def _widens(self, members: list[int], target: int) -> bool:
        """Whether a step of an epilogue is one operator whose elements are larger than those it is computed from."""
        expr = self.nodes[target].expr
        sources = [
            child.type.dtype.bits
            for child in children(expr)
            if isinstance(child.type, TensorType) and _shape(child) == _shape(expr)
        ]
        assert isinstance(expr.type, TensorType)
        return len(members) == 1 and bool(sources) and max(sources) < expr.type.dtype.bits

    def _fuse_injective(self, number: int) -> None:
        """Join an injective operator with its post-dominator."""
        target = self.nodes[number].parent
        if target == _NOWHERE or not self._takes(self.nodes[target].kind, self.nodes[number].expr):
            return
        if self.anchored[self.find(number)]:
            return
        in_epilogue = self.nodes[target].kind is FusionKind.INJECTIVE and self.anchored[self.find(target)]
        if in_epilogue and not self._elementwise(number, _shape(self.nodes[target].expr)):
            return  # an operand of an epilogue is computed in it only where that is element-wise too
        members = self._between(number, target)
        if all(self.nodes[item].kind is FusionKind.INJECTIVE and not self.anchored[self.find(item)] for item in members):
            self._join(number, members, target)

    def _takes(self, kind: FusionKind, expr: Expr) -> bool:
        """Whether an operator of a kind computes what it reads, of an injective operator, itself."""
        if kind is FusionKind.COMPLEX_OUT_FUSABLE:
            moves = traits_of(expr).moves
            return self.frugal and moves is not None and moves.fill is not None
        return kind in (FusionKind.INJECTIVE, FusionKind.REDUCTION)

    def _elementwise(self, number: int, shape: tuple[object, ...]) -> bool:
        node = self.nodes[number]
        if node.kind is not FusionKind.INJECTIVE or _shape(node.expr) != shape:
            return False
        assert isinstance(node.expr, Call) and isinstance(node.expr.callee, Operator)
        return node.expr.callee.elementwise

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


_ANCHORS = (FusionKind.REDUCTION, FusionKind.COMPLEX_OUT_FUSABLE)
"""The kinds of which a group holds at most one."""


def _kind(expr: Expr, frugal: bool) -> FusionKind:
    """How an expression may fuse: opaque unless it is an operator with a tensor-level meaning and one result. Views take no kernel:
    where memory is scarce, transposes are views too."""
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator) or not isinstance(expr.type, TensorType):
        return FusionKind.OPAQUE
    operator = expr.callee
    is_view = operator.traits.view or (frugal and operator is ops.transpose)
    return FusionKind.OPAQUE if is_view or operator.compute is None else operator.fusion


def _pads_images(expr: Expr, reader: Expr) -> bool:
    """Whether an expression puts a constant around the images that a convolution, which pads no further, reads."""
    match expr, reader:
        case Call(callee=ops.pad, args=(x, Constant())), Call(callee=ops.conv, args=(data, _)):
            pads, rank = expr.attrs.pads, len(_shape(x))
            around = (*pads[:2], *pads[rank : rank + 2])
            return (
                data is expr and not any((*around, *reader.attrs.pads)) and all(isinstance(pad, int) and pad >= 0 for pad in pads)
            )
    return False


def _shape(expr: Expr) -> tuple[object, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


def _outline(members: list[Call], done: dict[int, Expr]) -> Call:
    """A call of a new function that computes the members; `done` has what they read."""
    root = members[-1]
    inner: dict[int, Expr] = {}
    params: list[Var] = []
    args: list[Expr] = []
    for member in members:
        for child in children(member):
            if id(child) not in inner:
                param = var(f"p{len(params)}", child.type, child.span)
                inner[id(child)] = param
                params.append(param)
                args.append(done[id(child)])
        inner[id(member)] = rebuild(member, tuple(inner[id(child)] for child in children(member)))
    kernel = make_function(params, inner[id(root)], (PRIMITIVE,), span=root.span)
    return Call(root.type, root.span, kernel, tuple(args), Attrs())
