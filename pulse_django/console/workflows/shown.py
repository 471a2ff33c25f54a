"""What the templates of workflows show: states and times in words, the drawing, and the same as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.statuses import STATUSES
from pulse_django.fleet.workflows import BatchFacts, Graph, Node
from pulse_django.words.display import in_words, inert

from .drawing import draw, draw_layers

STATES = {
    "open": _("open"),
    "held": _("held by dead letters"),
    "paused": _("paused"),
    "cancelled": _("cancelled"),
    "done": _("done"),
    "awaited": _("awaited"),
    "sent": _("sent"),
}
KINDS = {"job": _("job"), "batch": _("workflow"), "event": _("event")}


def shown(batch: BatchFacts) -> dict[str, Any]:
    """Return what the templates need of a batch."""
    return {
        "facts": batch,
        "state": STATES[batch.state],
        "age": in_words(batch.age),
        "took": "" if batch.took is None else in_words(batch.took),
        "done": batch.progress.done,
        "percent": str(batch.progress.percent),
        "id": str(batch.id),
    }


def state_in_words(state: str) -> str:
    """Say the status of a job, or the state of a batch or an event."""
    return str(STATES[state] if state in STATES else STATUSES.get(state, state))


def shown_graph(graph: Graph, url_of: Callable[[Node], str]) -> dict[str, Any]:
    """Return the drawing and the table."""
    if graph.is_cut:
        return {"is_cut": True}
    if not graph.is_drawn:
        layers = [_lines_of_layer(number, counts) for number, counts in enumerate(graph.counts)]
        shown = {"drawing": draw_layers(layers), "layers": layers, "more_layers": graph.more_layers}
        return shown if layers else {}
    return {"drawing": draw(graph, _lines_of, url_of), "rows": _rows(graph, url_of), "path": _path(graph)}


def _lines_of_layer(number: int, counts: Any) -> list[str]:
    title = gettext("Layer %(number)d") % {"number": number + 1}
    return [title, *(f"{count} × {state_in_words(state)}" for state, count in counts.items())]


def _lines_of(node: Node) -> list[str]:
    kind = "" if node.kind == "job" else f"{KINDS[node.kind]}: "
    took = "" if node.ran is None else f" {in_words(node.ran)}"
    outside = f", {gettext('outside')}" if node.is_outside else ""
    return [f"{kind}{state_in_words(node.state)}{took}{outside}"]


def _rows(graph: Graph, url_of: Callable[[Node], str]) -> list[dict[str, Any]]:
    """Return the nodes from the first layer to the last, each with the names of what it needs."""
    names = {node.key: node.name for node in graph.nodes}
    needs = defaultdict(list)
    for edge in graph.edges:
        needs[edge.node].append({"name": inert(names[edge.needs]), "is_met": edge.is_met})
    return [
        {
            "node": node,
            "name": inert(node.name),
            "url": url_of(node),
            "kind": KINDS[node.kind],
            "state": state_in_words(node.state),
            "waited": "" if node.waited is None else in_words(node.waited),
            "ran": "" if node.ran is None else in_words(node.ran),
            "needs": needs[node.key],
            "is_critical": node.key in graph.critical,
        }
        for node in sorted(graph.nodes, key=lambda node: graph.layers[node.key])
    ]


def _path(graph: Graph) -> str:
    """Say how long the critical path took."""
    if len(graph.critical) < 2:
        return ""
    seconds = {node.key: node.seconds for node in graph.nodes}
    return in_words(sum(seconds[key] for key in graph.critical))
