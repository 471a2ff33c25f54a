"""Which chain of nodes that are done took the most time: to make the workflow faster, make these faster. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .facts import Edge, Node


def critical_path(nodes: Sequence[Node], edges: Iterable[Edge], layers: Mapping[str, int]) -> list[str]:
    """Return the keys of the chain whose nodes took the most time together, the first to run first.

    A node took the time in which it could have run and waited, and the time in which it ran.
    """
    done = {node.key: node for node in nodes if node.is_done and not node.is_outside}
    needs: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        if edge.needs in done and edge.node in done and layers[edge.needs] < layers[edge.node]:
            needs[edge.node].append(edge.needs)
    total: dict[str, float] = {}
    before: dict[str, str | None] = {}
    for key in sorted(done, key=lambda key: layers[key]):
        longest = max(needs[key], key=lambda need: total[need], default=None)
        total[key] = done[key].seconds + (0.0 if longest is None else total[longest])
        before[key] = longest
    path: list[str] = []
    last = max(total, key=lambda key: total[key], default=None)
    while last is not None:
        path.append(last)
        last = before[last]
    return path[::-1]
