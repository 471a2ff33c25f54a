"""The data of workflows for templates: states and times as text, the drawing, and the same as a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.statuses import STATUSES
from pulse_django.queue.words.display import in_words, inert
from pulse_django.workflows.reading import BatchFacts, Edge, Graph, GraphNode

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
    """Return the data of a batch for the templates."""
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
    """Return the status of a job, or the state of a batch or an event, as text."""
    return str(STATES[state] if state in STATES else STATUSES.get(state, state))


def shown_graph(graph: Graph, url_of: Callable[[GraphNode], str]) -> dict[str, Any]:
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


def _lines_of(node: GraphNode) -> list[str]:
    kind = "" if node.kind == "job" else f"{KINDS[node.kind]}: "
    took = "" if node.ran is None else f" {in_words(node.ran)}"
    outside = f", {gettext('outside')}" if node.is_outside else ""
    return [f"{kind}{state_in_words(node.state)}{took}{outside}"]


def _rows(graph: Graph, url_of: Callable[[GraphNode], str]) -> list[dict[str, Any]]:
    """Return the nodes from the first layer to the last, each with the names of its needs."""
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
    """Return the duration of the critical path as text."""
    if len(graph.critical) < 2:
        return ""
    seconds = {node.key: node.seconds for node in graph.nodes}
    return in_words(sum(seconds[key] for key in graph.critical))


# The geometry of the drawing: boxes in columns from left to right, and a curve for each need.


WIDTH, LINE = 190, 16  # of a box, and of a line in it
GAP, ROW_GAP, MARGIN = 70, 14, 12
LONGEST_NAME = 26  # characters

GOOD, BAD, BUSY, WAITS, LEFT = "good", "bad", "running", "wait", "neutral"
# The class of the style sheet, and a sign with the same meaning, for users who cannot see colours.
NODE_KINDS = {
    "COMPLETED": (GOOD, "✓"),
    "done": (GOOD, "✓"),
    "sent": (GOOD, "✓"),
    "DEAD_LETTERED": (BAD, "✕"),
    "held": (BAD, "✕"),
    "RUNNING": (BUSY, "▶"),
    "open": (BUSY, "▶"),
    "PENDING": (WAITS, "○"),
    "RETRYING": (WAITS, "↻"),
    "WAITING": (WAITS, "…"),
    "awaited": (WAITS, "…"),
    "paused": (WAITS, "‖"),
    "CANCELLED": (LEFT, "⊘"),
    "cancelled": (LEFT, "⊘"),
}


class Text(NamedTuple):
    x: str
    y: str
    says: str


class Box(NamedTuple):
    kind: str  # a class of the style sheet
    shape: str  # job, batch, event or layer
    x: str
    y: str
    height: str
    texts: Sequence[Text]
    says: str  # the full text, for hovering
    url: str = ""
    corner: str = "4"  # the radius: an event is round
    is_critical: bool = False
    is_outside: bool = False


class Curve(NamedTuple):
    path: str
    is_met: bool
    is_critical: bool


class Drawing(NamedTuple):
    width: str
    height: str
    boxes: Sequence[Box]
    curves: Sequence[Curve]
    box_width: str = str(WIDTH)


class _Place(NamedTuple):
    x: float
    y: float
    height: float


def draw(graph: Graph, lines_of: Callable[[GraphNode], Sequence[str]], url_of: Callable[[GraphNode], str]) -> Drawing:
    """Draw the nodes of a graph. ``lines_of`` returns the lines below the name of a node."""
    columns = _columns(graph)
    lines = {node.key: [inert(node.name, LONGEST_NAME), *lines_of(node)] for node in graph.nodes}
    places = _places([[(key, len(lines[key])) for key in column] for column in columns])
    critical = set(zip(graph.critical, graph.critical[1:], strict=False))
    boxes = [
        _box(node, places[node.key], lines[node.key], url_of(node), is_critical=node.key in graph.critical)
        for node in graph.nodes
    ]
    curves = [_curve(edge, places, is_critical=(edge.needs, edge.node) in critical) for edge in graph.edges]
    return _drawing(places, boxes, curves)


def draw_layers(layers: Sequence[Sequence[str]]) -> Drawing:
    """Draw one box for each layer, with these lines."""
    places = _places([[(str(number), len(lines))] for number, lines in enumerate(layers)])
    boxes = [
        Box(
            kind=WAITS, shape="layer", texts=_texts(places[str(number)], lines), says=", ".join(lines),
            **_corner(places[str(number)]),
        )
        for number, lines in enumerate(layers)
    ]  # fmt: skip
    edges = [Edge(str(number), str(number + 1), True) for number in range(len(layers) - 1)]
    return _drawing(places, boxes, [_curve(edge, places, is_critical=False) for edge in edges])


def _columns(graph: Graph) -> list[list[str]]:
    """Return the keys of each layer, ordered so that a node is near its needs."""
    needs: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        needs[edge.node].append(edge.needs)
    columns: list[list[str]] = [[] for _ in range(max(graph.layers.values(), default=-1) + 1)]
    for node in graph.nodes:
        columns[graph.layers[node.key]].append(node.key)
    rank: dict[str, float] = {}
    for column in columns:
        wanted = {}
        for place, key in enumerate(column):
            known = [rank[need] for need in needs[key] if need in rank]
            wanted[key] = sum(known) / len(known) if known else place / max(1, len(column) - 1)
        column.sort(key=lambda key: wanted[key])
        rank |= {key: place / max(1, len(column) - 1) for place, key in enumerate(column)}
    return columns


def _places(columns: Sequence[Sequence[tuple[str, int]]]) -> dict[str, _Place]:
    """Return the position of each box, from the numbers of lines."""
    heights = [[lines * LINE + 10 for _, lines in column] for column in columns]
    tall = [sum(column) + ROW_GAP * (len(column) - 1) for column in heights]
    places = {}
    for number, column in enumerate(columns):
        y = MARGIN + (max(tall) - tall[number]) / 2
        for (key, _lines), height in zip(column, heights[number], strict=True):
            places[key] = _Place(MARGIN + number * (WIDTH + GAP), y, height)
            y += height + ROW_GAP
    return places


def _box(node: GraphNode, place: _Place, lines: Sequence[str], url: str, *, is_critical: bool) -> Box:
    kind, sign = NODE_KINDS.get(node.state, (WAITS, "?"))
    name, state, *others = lines
    return Box(
        kind=kind,
        shape=node.kind,
        texts=_texts(place, [name, f"{sign} {state}", *others]),
        says=", ".join([inert(node.name), *lines[1:]]),
        url=url,
        corner=str(int(place.height / 2)) if node.kind == "event" else "4",
        is_critical=is_critical,
        is_outside=node.is_outside,
        **_corner(place),
    )


def _corner(place: _Place) -> dict[str, Any]:
    return {"x": f"{place.x:.1f}", "y": f"{place.y:.1f}", "height": f"{place.height:.1f}"}


def _texts(place: _Place, lines: Sequence[str]) -> list[Text]:
    x = f"{place.x + 12:.1f}"
    return [Text(x=x, y=f"{place.y + 17 + LINE * line:.1f}", says=says) for line, says in enumerate(lines)]


def _curve(edge: Edge, places: Mapping[str, _Place], *, is_critical: bool) -> Curve:
    begin, end = places[edge.needs], places[edge.node]
    x1, y1 = begin.x + WIDTH, begin.y + begin.height / 2
    x2, y2 = end.x, end.y + end.height / 2
    bend = max(GAP / 2, abs(x2 - x1) / 2)
    path = f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    return Curve(path=path, is_met=edge.is_met, is_critical=is_critical)


def _drawing(places: Mapping[str, _Place], boxes: Sequence[Box], curves: Sequence[Curve]) -> Drawing:
    right = max((place.x + WIDTH for place in places.values()), default=0.0)
    bottom = max((place.y + place.height for place in places.values()), default=0.0)
    return Drawing(width=f"{right + MARGIN:.0f}", height=f"{bottom + MARGIN:.0f}", boxes=boxes, curves=curves)
