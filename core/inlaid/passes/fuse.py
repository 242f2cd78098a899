"""Operator fusion: groups of operators that become one kernel each.

The algorithm is TVM's (Chen et al., OSDI 2018, section 3, and Relay's FuseOps). The immediate post-dominator of an operator is the
first operator through which every use of its value passes. An operator joins its post-dominator's group if every operator on the
paths between the two may be fused. So a group has one result, and no other value leaves the group: fusion cannot create a cycle.

* injective operators fuse into injective operators and reductions that follow;
* reductions and complex operators absorb subsequent element-wise operators of the same shape (the epilogue);
* convolutions absorb the padding of their data, which they copy to another layout anyway;
* concatenations at symbolic positions fuse with each other while they have few operands, as in `group_concats`;
* opaque operators do not fuse. Neither do reshapes, which are views of the same bytes and cost nothing;
* with vectors, transposes that move the last axis of a tensor that a cache holds do not fuse: element-wise operators at a stride
  take four to six times as long as a transposed copy in tiles and a kernel for the operators. Memory bounds larger tensors.

Each scope (a function's body, a branch) is fused separately: a value that an inner scope reads must be the result of a group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from inlaid import ops
from inlaid.graph.ir import Call, Constant, Expr, Function, Var, children, operator_traits, post_order, rebuild, var
from inlaid.graph.ir import function as make_function
from inlaid.graph.operator import Attrs, FusionKind, Operator
from inlaid.graph.scopes import Scope, analyse, opens_scope
from inlaid.ops.shape import TransposeAttrs
from inlaid.passes.group_concats import WIDEST, symbolic_concat_arity
from inlaid_runtime import arith
from inlaid_runtime.types import TensorType

PRIMITIVE = ("primitive", "fused")
"""The attribute that marks a fused function."""
LIMIT = 64
"""Maximum number of operators in a group, which bounds the compile time of a kernel."""


@dataclass(frozen=True)
class VectorUnit:
    """A target's vectors of `lanes` float32 elements, and the bytes of the cache from which a core reads them fast."""

    lanes: int
    cache_bytes: int


_NOWHERE = -1
"""Post-dominator of an expression whose value leaves its scope."""


def fuse(function: Function, limit: int = LIMIT, frugal: bool = False, vectors: VectorUnit | None = None) -> Function:
    """Replace groups of two or more operators by calls of functions marked `PRIMITIVE`. Returns the same object if nothing fuses.
    `frugal` favors memory over time: readers compute padding themselves, and transposes are views. `vectors`: of the target, None
    without vectors.

    Time is linear in the graph: paths from an operator to its post-dominator are followed for at most `limit` steps.
    """
    scopes = analyse(function)
    groups: dict[int, list[Call]] = {}
    inner_ids: set[int] = set()
    all_scopes = [scopes.root, *scopes.inner.values()]
    leaving = _leaving(all_scopes, scopes.expr_scopes)
    for scope in all_scopes:
        if isinstance(scope.owner, Function) and PRIMITIVE in scope.owner.attrs:
            continue
        for group in _Groups(scope, leaving, limit, frugal, vectors).list_groups():
            groups[id(group[-1])] = group
            inner_ids.update(id(member) for member in group[:-1])
    replacements: dict[int, Expr] = {}
    for expr in post_order(function):
        if id(expr) in groups:
            replacements[id(expr)] = _outline(groups[id(expr)], replacements)
        elif id(expr) not in inner_ids:
            replacements[id(expr)] = rebuild(expr, tuple(replacements[id(child)] for child in children(expr)))
    result = replacements[id(function)]
    assert isinstance(result, Function)
    return result


def _leaving(all_scopes: list[Scope], expr_scopes: dict[int, Scope]) -> set[int]:
    """Collect the ids of expressions whose value leaves its scope, as the scope's result or into an inner scope."""
    leaving_ids: set[int] = set()
    for scope in all_scopes:
        leaving_ids.add(id(scope.result))
        for expr in scope.order:
            for index, child in enumerate(children(expr)):
                if expr_scopes.get(id(child)) is not scope or opens_scope(expr, index):
                    leaving_ids.add(id(child))
    return leaving_ids


@dataclass
class _Node:
    """An expression of a scope. `users` are positions in the scope; `parent` is the immediate post-dominator, `depth` the depth in
    the post-dominator tree."""

    expr: Expr
    kind: FusionKind
    users: list[int] = field(default_factory=list)
    parent: int = _NOWHERE
    depth: int = 0


class _Groups:
    """Union-find over the operators of a scope. The `root` of a group is the operator that computes its result."""

    def __init__(self, scope: Scope, leaving: set[int], limit: int, frugal: bool, vectors: VectorUnit | None) -> None:
        self.limit = limit
        self.frugal = frugal
        self.nodes = [_Node(expr, _kind(expr, frugal, vectors)) for expr in scope.order]
        position = {id(expr): number for number, expr in enumerate(scope.order)}
        for number, expr in enumerate(scope.order):
            for child in dict.fromkeys(map(id, children(expr))):
                if child in position:
                    self.nodes[position[child]].users.append(number)
        self._post_dominators(leaving)
        self.root = list(range(len(self.nodes)))
        self.size = [1] * len(self.nodes)
        self.parts = [symbolic_concat_arity(node.expr) for node in self.nodes]
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

    def list_groups(self) -> list[list[Call]]:
        """List the groups of two or more operators, each in order, its root last."""
        members: dict[int, list[Call]] = {}
        for number, node in enumerate(self.nodes):
            if isinstance(node.expr, Call):
                members.setdefault(self.find(number), []).append(node.expr)
        return [group for group in members.values() if len(group) > 1]

    def find(self, number: int) -> int:
        """Find the root of an operator's group."""
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
        """Find the nearest common ancestor in the post-dominator tree; `_NOWHERE` if it is too far away for one group."""
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
        """Collect the operators on the paths between `start` and `end`, without the two; truncated at the size limit of a group."""
        path_numbers: dict[int, None] = {}
        stack = [user for user in self.nodes[start].users if user != end]
        while stack and len(path_numbers) <= self.limit:
            number = stack.pop()
            if number not in path_numbers:
                path_numbers[number] = None
                stack += [user for user in self.nodes[number].users if user != end]
        return list(path_numbers)

    def _fuse_epilogue(self, anchor: int) -> None:
        """Fuse an anchor with subsequent element-wise operators of its shape.

        If the next operator is in another anchor's epilogue or, with `frugal`, is a reduction, trailing widening operators are not
        fused here: the next operator's group can widen its input and then reads fewer bytes.
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
        """Test whether an epilogue step is a single operator whose result dtype is wider than those of its operands."""
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
            return  # an operand of an epilogue fuses into it only if it is element-wise too
        members = self._between(number, target)
        if all(self.nodes[item].kind is FusionKind.INJECTIVE and not self.anchored[self.find(item)] for item in members):
            self._join(number, members, target)

    def _takes(self, kind: FusionKind, expr: Expr) -> bool:
        """Test whether an operator of a fusion kind can absorb an injective operand."""
        if kind is FusionKind.COMPLEX_OUT_FUSABLE:
            moves = operator_traits(expr).moves
            return self.frugal and moves is not None and moves.fill is not None
        return kind in (FusionKind.INJECTIVE, FusionKind.REDUCTION)

    def _elementwise(self, number: int, shape: tuple[object, ...]) -> bool:
        node = self.nodes[number]
        if node.kind is not FusionKind.INJECTIVE or _shape(node.expr) != shape:
            return False
        assert isinstance(node.expr, Call) and isinstance(node.expr.callee, Operator)
        return node.expr.callee.elementwise

    def _join(self, number: int, members: list[int], target: int) -> bool:
        """Merge the groups of `number`, `members` and `target` under the target's root; False if the result exceeds a limit."""
        roots = {self.find(item) for item in (number, *members, target)}
        total = sum(self.size[root] for root in roots)
        parts = [self.parts[root] for root in roots if self.parts[root]]
        if total > self.limit or (len(parts) > 1 and sum(parts) > WIDEST):
            return False
        final = self.find(target)
        for root in roots:
            self.root[root] = final
        self.size[final], self.parts[final] = total, sum(parts)
        return True


_ANCHORS = (FusionKind.REDUCTION, FusionKind.COMPLEX_OUT_FUSABLE)
"""A group has at most one operator of these fusion kinds."""


def _kind(expr: Expr, frugal: bool, vectors: VectorUnit | None) -> FusionKind:
    """Return the fusion kind of an expression: opaque unless it is an operator with a tensor-level `compute` and one result. Views
    are opaque, since they need no kernel; if `frugal`, transposes are views, too."""
    if not isinstance(expr, Call) or not isinstance(expr.callee, Operator) or not isinstance(expr.type, TensorType):
        return FusionKind.OPAQUE
    operator = expr.callee
    is_view = operator.traits.view or (frugal and operator is ops.transpose)
    if is_view or operator.compute is None or (vectors is not None and _reads_at_stride(expr, vectors)):
        return FusionKind.OPAQUE
    return operator.fusion


def _reads_at_stride(expr: Call, vectors: VectorUnit) -> bool:
    """Test whether a call is a transpose that moves the last axis, of at least one vector of elements on either side, in a tensor
    that the cache holds."""
    if not isinstance(expr.attrs, TransposeAttrs) or not isinstance(expr.type, TensorType):
        return False
    shape, perm = [arith.size_hint(dim) for dim in expr.type.shape], expr.attrs.perm
    last = len(perm) - 1
    if not perm or perm[-1] == last or math.prod(shape) * expr.type.dtype.bytes > vectors.cache_bytes:
        return False
    return min(shape[-1], shape[perm.index(last)]) >= vectors.lanes


def _pads_images(expr: Expr, reader: Expr) -> bool:
    """Test whether an expression pads the data of convolution `reader` by a constant, and the convolution has no padding."""
    match expr, reader:
        case Call(callee=ops.pad, args=(x, Constant())), Call(callee=ops.conv, args=(data, _)):
            pads, rank = expr.attrs.pads, len(_shape(x))
            outer_pads = (*pads[:2], *pads[rank : rank + 2])
            return (
                data is expr
                and not any((*outer_pads, *reader.attrs.pads))
                and all(isinstance(pad, int) and pad >= 0 for pad in pads)
            )
    return False


def _shape(expr: Expr) -> tuple[object, ...]:
    assert isinstance(expr.type, TensorType)
    return expr.type.shape


def _outline(members: list[Call], replacements: dict[int, Expr]) -> Call:
    """Outline a group as a call of a new function. `replacements` holds the rewritten operands."""
    root = members[-1]
    inner: dict[int, Expr] = {}
    params: list[Var] = []
    args: list[Expr] = []
    for member in members:
        for child in children(member):
            if id(child) not in inner:
                param = var(f"p{len(params)}", child.type, span=child.span)
                inner[id(child)] = param
                params.append(param)
                args.append(replacements[id(child)])
        inner[id(member)] = rebuild(member, tuple(inner[id(child)] for child in children(member)))
    kernel = make_function(params, inner[id(root)], (PRIMITIVE,), span=root.span)
    return Call(root.type, root.span, kernel, tuple(args), Attrs())
