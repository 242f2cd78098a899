"""Choose one option per node of a graph to minimize the sum of node costs and edge costs.

The problem is partitioned Boolean quadratic programming (PBQP). Scholz and Eckstein solve it by reductions ("Register Allocation
for Irregular Architectures", LCTES 2002); Anderson and Gregg apply it to DNN layouts ("Optimal DNN Primitive Selection with
Partitioned Boolean Quadratic Programming", CGO 2018). A node with one or two neighbors is eliminated exactly by moving its cost to
them, so chains, trees and series-parallel graphs (residual and inception blocks) are solved exactly in linear time. If only nodes
with more neighbors remain, the node with the most neighbors greedily takes its locally best option.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

Matrix = tuple[tuple[float, ...], ...]
"""Edge costs, indexed by option of the first node, then of the second."""


@dataclass
class Assignment:
    """A PBQP instance. Costs may be infinite for options that exclude each other."""

    costs: list[list[float]] = field(default_factory=list)
    edges: list[dict[int, Matrix]] = field(default_factory=list)

    def node(self, costs: list[float]) -> int:
        """Add a node with the costs of its options; returns its number."""
        self.costs.append(list(costs))
        self.edges.append({})
        return len(self.costs) - 1

    def edge(self, a: int, b: int, matrix: Matrix) -> None:
        """Add a cost for each pair of options of nodes `a` and `b` to the costs of earlier edges between them."""
        assert a != b
        earlier_costs = self.edges[a].get(b)
        if earlier_costs is not None:
            matrix = tuple(tuple(x + y for x, y in zip(*rows, strict=True)) for rows in zip(earlier_costs, matrix, strict=True))
        self.edges[a][b] = matrix
        self.edges[b][a] = tuple(zip(*matrix, strict=True))

    def solve(self) -> list[int]:
        """Choose an option per node, by number. Consumes the instance."""
        order: list[tuple[int, dict[int, Matrix]]] = []
        chosen = [-1] * len(self.costs)
        # Nodes with a single option first: fixing them adds no edges between their neighbors.
        for number, costs in enumerate(self.costs):
            if len(costs) == 1:
                self._settle(number, 0, chosen)
        waiting = [number for number, option in enumerate(chosen) if option < 0]
        removed = [option >= 0 for option in chosen]
        queue = [(-len(self.edges[number]), number) for number in waiting]
        heapq.heapify(queue)
        while True:
            while waiting:
                number = waiting.pop()
                if removed[number] or len(self.edges[number]) > 2:
                    continue
                removed[number] = True
                neighbors = dict(self.edges[number])
                order.append((number, neighbors))
                self._reduce(number, neighbors)
                for other in neighbors:
                    waiting.append(other)
                    heapq.heappush(queue, (-len(self.edges[other]), other))
            while queue and (removed[queue[0][1]] or -queue[0][0] != len(self.edges[queue[0][1]])):
                heapq.heappop(queue)
            if not queue:
                break
            number = heapq.heappop(queue)[1]
            removed[number] = True
            neighbors = dict(self.edges[number])
            waiting += neighbors
            self._settle(number, self._best(number), chosen)
            for other in neighbors:
                heapq.heappush(queue, (-len(self.edges[other]), other))
        for number, neighbors in reversed(order):
            sums = [
                cost + sum(matrix[option][chosen[other]] for other, matrix in neighbors.items())
                for option, cost in enumerate(self.costs[number])
            ]
            chosen[number] = sums.index(min(sums))
        return chosen

    def _settle(self, number: int, option: int, chosen: list[int]) -> None:
        """Fix a node's option and move the edge costs to its neighbors."""
        chosen[number] = option
        for other, matrix in self.edges[number].items():
            self.costs[other] = [cost + extra for cost, extra in zip(self.costs[other], matrix[option], strict=True)]
            del self.edges[other][number]
        self.edges[number] = {}

    def _best(self, number: int) -> int:
        sums = list(self.costs[number])
        for other, matrix in self.edges[number].items():
            for option, row in enumerate(matrix):
                sums[option] += min(map(math.fsum, zip(row, self.costs[other], strict=True)))
        return sums.index(min(sums))

    def _reduce(self, number: int, neighbors: dict[int, Matrix]) -> None:
        """Eliminate a node with at most two `neighbors`: add its cost under each combination of their options to theirs."""
        costs = self.costs[number]
        for other in neighbors:
            del self.edges[other][number]
        self.edges[number] = {}
        match tuple(neighbors.items()):
            case ((other, matrix),):
                best = [
                    min(cost + row[option] for cost, row in zip(costs, matrix, strict=True)) for option in range(len(matrix[0]))
                ]
                self.costs[other] = [cost + extra for cost, extra in zip(self.costs[other], best, strict=True)]
            case ((a, left), (b, right)):
                self.edge(
                    a,
                    b,
                    tuple(
                        tuple(
                            min(cost + x[i] + y[j] for cost, x, y in zip(costs, left, right, strict=True))
                            for j in range(len(right[0]))
                        )
                        for i in range(len(left[0]))
                    ),
                )
