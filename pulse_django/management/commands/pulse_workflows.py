"""``manage.py pulse_workflows``: list workflows and batches, show one, pause it, cancel it, retry its dead letters."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from pulse_django.operations import arguments
from pulse_django.operations.acts import ACTS
from pulse_django.operations.arguments import user_of
from pulse_django.operations.terminal import bar, table
from pulse_django.queue.words.display import in_words, inert
from pulse_django.queue.words.job_ids import MAX_ID
from pulse_django.shards.command import ActCommand, Said
from pulse_django.shards.placement import alias_of_id
from pulse_django.workflows import reading as workflows
from pulse_django.workflows.acts import retry_dead_letters
from pulse_django.workflows.batches import Batch
from pulse_django.workflows.reading import BatchFacts, Graph, GraphNode

MOST_LISTED = 1_000


class Command(ActCommand):
    help = (
        "List workflows and batches, show the jobs of one and what it waits for, pause, resume or cancel it, or retry "
        "its dead letters."
    )
    acts = ("list", "show", "pause", "resume", "cancel", "retry")
    subject, wanted = "id", "give the id of a workflow."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_act(parser)
        any_id = arguments.whole_number(1, MAX_ID)
        parser.add_argument("id", nargs="?", type=any_id, metavar="ID", help="required except by list")
        parser.add_argument("--open", action="store_true", help="list: only unfinished ones")
        parser.add_argument("--inside", action="store_true", help="list: include nested ones")
        before = "list: show those before this id"
        parser.add_argument("--before", type=any_id, metavar="ID", help=before)
        most = arguments.whole_number(1, MOST_LISTED)
        parser.add_argument("--most", type=most, default=20, metavar="N", help="list: how many; default: 20")
        parser.add_argument("--reason", default="", help="cancel: reason to store with each job")
        runs = arguments.whole_number(1, 1_000)
        parser.add_argument("--runs", type=runs, default=1, metavar="N", help="retry: minimum of more runs; default: 1")
        arguments.add_cancelled_too(parser, "retry: ")
        arguments.add_output(parser)

    def aliases(self, options: dict[str, Any]) -> list[str]:
        found = super().aliases(options)
        return found if options["act"] == "list" else [alias_of_id(options["id"], options["shard"])]

    def _list(self, alias: str, options: dict[str, Any]) -> Said:
        of_list = {name: options[name] for name in ("before", "inside", "most")}
        found = workflows.batches(alias, open_only=options["open"], **of_list)
        over = "{0.progress.done} / {0.progress.total}".format
        rows = [(one.id, one.name, one.kind, one.state, over(one), _time(one), _held(one)) for one in found]
        headers = ("id", "name", "kind", "state", "over", "time", "held by")
        lines = table(headers, rows, indent="") if rows else ["There are no workflows."]
        return {"workflows": [one.as_json() for one in found]}, lines

    def _show(self, alias: str, options: dict[str, Any]) -> Said:
        batch = _named(alias, options["id"])
        graph = workflows.graph_of(alias, batch)
        progress = batch.progress
        lines = [
            f"{inert(batch.name)} #{batch.id}: {batch.state}, {bar(progress.percent / 100)} {progress.percent} %",
            f"completed {progress.completed}, cancelled {progress.cancelled}, dead letters {progress.dead}, "
            f"open {progress.open}",
            f"time: {_time(batch)}",
            *([f"held by: {inert(_held(batch))}"] if batch.holders else []),
            *_lines_of(graph),
        ]
        names = {node.key: node for node in graph.nodes}
        shown = {
            "nodes": [
                node.as_json() | {"layer": graph.layers[node.key], "is_critical": node.key in graph.critical}
                for node in graph.nodes
            ],
            "edges": [
                {"needs": _id_of(names[edge.needs]), "node": _id_of(names[edge.node]), "is_met": edge.is_met}
                for edge in graph.edges
            ],
            "layers": list(graph.counts),
        }
        return {"workflow": batch.as_json(), "graph": shown}, lines

    def _pause(self, alias: str, options: dict[str, Any]) -> Said:
        batch = _named(alias, options["id"])
        if not Batch(batch.id, alias).pause():
            raise CommandError(f"Workflow {batch.id} is over or was paused before. Nothing was changed.")
        return {"workflow": _named(alias, batch.id).as_json()}, [f"Workflow {batch.id} paused. Running jobs continue."]

    def _resume(self, alias: str, options: dict[str, Any]) -> Said:
        batch = _named(alias, options["id"])
        if not Batch(batch.id, alias).resume():
            raise CommandError(f"Workflow {batch.id} is not paused. Nothing was changed.")
        return {"workflow": _named(alias, batch.id).as_json()}, [f"Workflow {batch.id} resumed."]

    def _cancel(self, alias: str, options: dict[str, Any]) -> Said:
        batch = _named(alias, options["id"])
        reason = options["reason"] or f"cancelled by {user_of('pulse_workflows')}"
        if not Batch(batch.id, alias).cancel(reason=reason):
            raise CommandError(f"Workflow {batch.id} is over or was cancelled before. Nothing was changed.")
        after = _named(alias, batch.id)
        said = (
            f"Workflow {batch.id} cancelled. {after.progress.open} of its jobs have not ended: running ones end soon."
        )
        return {"workflow": after.as_json()}, [said]

    def _retry(self, alias: str, options: dict[str, Any]) -> Said:
        batch = _named(alias, options["id"])
        too = options["cancelled_too"]
        counts, has_more = retry_dead_letters(alias, batch.id, runs=options["runs"], cancelled_too=too)
        lines = [ACTS["retry"].in_words(counts)]
        if has_more:
            lines.append("There are more: run it again.")
        by_result = {name: counts[name] for name in ACTS["retry"].answers}
        return {"workflow": _named(alias, batch.id).as_json(), **by_result, "has_more": has_more}, lines


def _named(alias: str, batch_id: int) -> BatchFacts:
    found = workflows.one_batch(alias, batch_id)
    if found is None:
        raise CommandError(f"There is no workflow {batch_id}.")
    return found


def _time(batch: BatchFacts) -> str:
    return f"opened {in_words(batch.age)} ago" if batch.took is None else f"took {in_words(batch.took)}"


def _held(batch: BatchFacts) -> str:
    return ", ".join(
        f"dead letter {one.name} #{one.job_id}" if one.event is None else f"event {one.event}" for one in batch.holders
    )


def _lines_of(graph: Graph) -> list[str]:
    if graph.is_cut:
        return ["It has too many jobs to list."]
    if not graph.is_drawn:
        lines = [
            f"  layer {layer}: {', '.join(f'{count} {state}' for state, count in counts.items())}"
            for layer, counts in enumerate(graph.counts, 1)
        ]
        return [*lines, f"  and {graph.more_layers} more layers"] if graph.more_layers else lines
    needs: dict[str, list[str]] = {node.key: [] for node in graph.nodes}
    names = {node.key: node.name for node in graph.nodes}
    for edge in graph.edges:
        needs[edge.node].append(names[edge.needs])
    rows = [
        (
            _id_of(node), node.name, node.state, *(_seconds(one) for one in (node.waited, node.ran)),
            "*" if node.key in graph.critical else "", ", ".join(needs[node.key]),
        )
        for node in sorted(graph.nodes, key=lambda node: graph.layers[node.key])
    ]  # fmt: skip
    lines = table(("", "name", "state", "waited", "ran", "*", "needs"), rows)
    return [*lines, "  * on the critical path"] if graph.critical else lines


def _id_of(node: GraphNode) -> str:
    return node.kind if node.id is None else f"{node.kind} {node.id}"


def _seconds(time: float | None) -> str:
    return "" if time is None else in_words(time)
