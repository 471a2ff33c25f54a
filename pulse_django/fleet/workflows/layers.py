"""In which layer each node of a graph stands: one to the right of the last thing that it needs. Pure."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from .facts import Edge


def layers_of(keys: Sequence[str], edges: Iterable[Edge]) -> dict[str, int]:
    """Return the layer of each node, from 0. Nodes that wait for each other in a circle stand behind all others."""
    followers, open_needs = defaultdict(list), dict.fromkeys(keys, 0)
    for edge in edges:
        followers[edge.needs].append(edge.node)
        open_needs[edge.node] += 1
    layers: dict[str, int] = {}
    ready = deque(key for key in keys if not open_needs[key])
    deepest = dict.fromkeys(keys, 0)
    while ready:
        key = ready.popleft()
        layers[key] = deepest[key]
        for follower in followers[key]:
            deepest[follower] = max(deepest[follower], layers[key] + 1)
            open_needs[follower] -= 1
            if not open_needs[follower]:
                ready.append(follower)
    behind = max(layers.values(), default=-1) + 1
    return {key: layers.get(key, behind) for key in keys}


def counts_of(layers: Mapping[str, int], states: Mapping[str, str]) -> list[dict[str, int]]:
    """Count the nodes of each layer by their states."""
    counts: list[dict[str, int]] = [defaultdict(int) for _ in range(max(layers.values(), default=-1) + 1)]
    for key, layer in layers.items():
        counts[layer][states[key]] += 1
    return [dict(sorted(one.items())) for one in counts]
