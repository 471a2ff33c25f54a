"""Batches and workflows as people see them: how far they are, what holds them, graphs, and what took the time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from pulse_django import Batch, Workflow, chain, group
from pulse_django.health import snapshot
from pulse_django.metrics.exporters.readings import read as readings_of
from pulse_django.metrics.vital_signs import BATCH_DURATION
from pulse_django.models import Job, Minute, Pause, StoredBatch
from pulse_django.queue.words import counters
from pulse_django.testing import drain
from pulse_django.workflows import reading as workflows
from pulse_django.workflows.reading.facts import BatchFacts, Edge, Graph, GraphNode, critical_path, layers_of
from tests.database import empty_tables
from tests.factories import now
from tests.faults import each_of
from tests.queue.steps import sql
from tests.workflows.tasks import BROKEN, approved, note

pytestmark = pytest.mark.usefixtures("pulse_db")


def diamond() -> Workflow:
    flow = Workflow("order 42")
    flow.add("charge", note.prepare("charge")).add("left", note.prepare("left"), needs=["charge"])
    flow.add("right", note.prepare("right"), needs=["charge"])
    return flow.add("ship", note.prepare("ship"), needs=["left", "right"])


def only() -> BatchFacts:
    [found] = workflows.batches("default")
    return found


def graph_of(batch: Batch) -> Graph:
    found = workflows.one_batch("default", batch.id)
    assert found is not None
    return workflows.graph_of("default", found)


def by_name(graph: Graph) -> dict[str, GraphNode]:
    return {node.name: node for node in graph.nodes}


def edges(graph: Graph) -> set[tuple[str, str, bool]]:
    names = {node.key: node.name for node in graph.nodes}
    return {(names[edge.needs], names[edge.node], edge.is_met) for edge in graph.edges}


def layers(graph: Graph) -> dict[str, int]:
    return {node.name: graph.layers[node.key] for node in graph.nodes}


class TestListing:
    def test_a_batch_is_open_until_all_is_done(self) -> None:
        diamond().enqueue()
        found = only()
        assert (found.name, found.kind, found.state) == ("order 42", "workflow", "open")
        assert (found.progress.total, found.progress.percent, found.took) == (4, 0, None)
        drain()
        found = only()
        assert (found.state, found.progress.percent, found.holders) == ("done", 100, ())
        assert found.took is not None

    def test_dead_letters_hold_a_batch_and_are_named(self) -> None:
        BROKEN.add("left")
        placed = diamond().enqueue()
        drain(failures="keep")
        found = only()
        assert found.state == "held"
        assert [(one.job_id, one.name) for one in found.dead_letters] == [(placed.job_ids["left"], "left")]
        assert found.as_json()["held_by"] == [{"job": placed.job_ids["left"], "name": "left", "event": None}]

    def test_what_holds_a_batch_within_is_named_too(self) -> None:
        BROKEN.add("x")
        inner = Workflow("inner").add("x", note.prepare("x"))
        Workflow("outer").add_workflow("inner", inner).enqueue()
        drain(failures="keep")
        assert only().state == "held"
        assert [one.name for one in only().dead_letters] == ["x"]
        assert [one.name for one in workflows.batches("default", inside=True)] == ["inner", "outer"]

    def test_cancelled_and_paused_batches(self) -> None:
        placed = diamond().enqueue()
        StoredBatch.objects.update(paused_at=now())
        assert only().state == "paused"
        placed.cancel(reason="no")
        assert only().state == "cancelled"

    @each_of(1, 20)
    def test_a_page_takes_three_statements_whatever_it_shows(self, *, count: Any) -> None:
        empty_tables()
        for _ in range(count):
            diamond().enqueue()
        with transaction.atomic(), CaptureQueriesContext(connection) as sent:
            assert len(workflows.batches("default")) == count
        assert len(sent) == 3


class TestGraph:
    def test_nodes_stand_to_the_right_of_what_they_need(self) -> None:
        placed = diamond().enqueue()
        graph = graph_of(placed)
        assert layers(graph) == {"charge": 0, "left": 1, "right": 1, "ship": 2}
        assert edges(graph) == {
            ("charge", "left", False), ("charge", "right", False), ("left", "ship", False), ("right", "ship", False),
        }  # fmt: skip
        assert by_name(graph)["ship"].state == "WAITING"
        drain()
        graph = graph_of(placed)
        assert all(edge.is_met for edge in graph.edges)
        assert all(node.ran is not None and node.waited is not None for node in graph.nodes)

    def test_the_longest_chain_of_what_is_done_is_critical(self) -> None:
        placed = diamond().enqueue()
        drain()
        graph = graph_of(placed)
        names = {node.key: node.name for node in graph.nodes}
        assert [names[key] for key in graph.critical] in (["charge", "left", "ship"], ["charge", "right", "ship"])

    def test_a_batch_within_is_one_node_with_what_it_needs_and_what_needs_it(self) -> None:
        inner = Workflow("inner").add("x", note.prepare("x")).add("y", note.prepare("y"), needs=["x"])
        flow = Workflow("outer").add("a", note.prepare("a")).add_workflow("part", inner, needs=["a"])
        placed = flow.add("z", note.prepare("z"), needs=["part"]).enqueue()
        graph = graph_of(placed)
        assert layers(graph) == {"a": 0, "inner": 1, "z": 2}
        assert by_name(graph)["inner"].kind == "batch"
        drain()
        assert edges(graph_of(placed)) == {("a", "inner", True), ("inner", "z", True)}
        assert len(graph_of(placed).critical) == 3

    def test_what_is_needed_from_elsewhere_is_drawn_as_such(self) -> None:
        before = note.enqueue("before")
        placed = Workflow().add("next", note.prepare("next"), needs={"before": before}).enqueue()
        node = next(node for node in graph_of(placed).nodes if node.is_outside)
        assert (node.kind, node.id, node.state) == ("job", int(before.id), "PENDING")

    def test_events_are_nodes(self) -> None:
        placed = Workflow().add("ask", approved.prepare("approved:8")).enqueue()
        drain()
        graph = graph_of(placed)
        assert by_name(graph)["approved:8"].state == "awaited"
        assert edges(graph) == {("approved:8", "ask", False)}

    @each_of(1, 30)
    def test_it_takes_the_same_statements_whatever_the_size(self, *, width: Any) -> None:
        empty_tables()
        inner = chain(note.prepare("x"), note.prepare("y"))
        flow = chain(note.prepare("a"), group(*[note.prepare(str(one)) for one in range(width)]), note.prepare("z"))
        for number in range(width):
            flow.add_workflow(f"inner {number}", inner)
        placed = flow.enqueue()
        found = workflows.one_batch("default", placed.id)
        assert found is not None
        with transaction.atomic(), CaptureQueriesContext(connection) as sent:
            workflows.graph_of("default", found)
        assert len(sent) == 7


class TestNeeds:
    def test_what_a_job_needs_and_what_needs_it(self) -> None:
        BROKEN.add("left")
        placed = diamond().enqueue()
        drain(failures="keep")
        left, right = sorted(workflows.needs_of("default", placed.job_ids["ship"]), key=lambda need: need.name)
        assert (left.name, left.status, left.met_at, left.held_by) == ("left", "DEAD_LETTERED", None, [left.job])
        assert (right.name, right.met, right.held_by) == ("right", "done", [])
        assert len(workflows.needs_of("default", placed.job_ids["ship"], unmet_only=True)) == 1
        charge = Job.objects.get(pk=placed.job_ids["charge"])
        found = workflows.needed_by("default", charge.pk, charge.batch_id)
        assert [(one.name, one.is_met) for one in found] == [("left", True), ("right", True)]
        [ship] = workflows.needed_by("default", placed.job_ids["left"], None)
        assert (ship.name, ship.is_met) == ("ship", False)

    def test_dead_letters_of_a_batch_hold_what_needs_it(self) -> None:
        BROKEN.add("x")
        batch = Batch.open("some")
        dead = batch.add(note.prepare("x"))
        batch.seal(on_success=note.prepare("after"), on_end=note.prepare("end"))
        drain(failures="keep")
        waiting = Job.objects.get(status="WAITING")
        [need] = workflows.needs_of("default", waiting.pk)
        assert (need.batch, need.held_by) == (batch.id, [int(dead.id)])


class TestMetrics:
    def test_open_and_held_batches_and_waiting_jobs_are_counted(self) -> None:
        BROKEN.add("left")
        diamond().enqueue()
        drain(failures="keep")
        BROKEN.clear()
        diamond().enqueue()
        found = snapshot.glance("default").workflows
        assert (found.open, found.held, found.waiting) == (2, 1, 4)
        readings = {one.sign.name: one.value for one in readings_of("default")}
        assert (readings["batches_open"], readings["batches_held"], readings["waiting_jobs"]) == (2, 1, 4)

    def test_they_cost_no_statement_of_their_own(self) -> None:
        with transaction.atomic(), CaptureQueriesContext(connection) as sent:
            snapshot.glance("default")
        assert len(sent) == 2

    def test_a_paused_queue_is_told_beside_them(self) -> None:
        Pause.objects.pause(queue="mail", reason="deploy")
        [queue] = snapshot.glance("default").queues
        assert (queue.name, queue.is_paused, queue.pause_reason) == ("mail", True, "deploy")

    def test_the_time_that_a_workflow_took_is_measured_in_its_minute(self) -> None:
        inner = Workflow("inner").add("x", note.prepare("x"))
        Workflow("outer").add_workflow("part", inner).enqueue()
        cancelled = diamond().enqueue()
        cancelled.cancel()
        drain()
        [(minute,)] = sql("SELECT date_trunc('minute', finished_at) FROM pulse_django_batch WHERE name = 'outer'")
        StoredBatch.objects.filter(name="outer").update(created_at=F("finished_at") - timedelta(seconds=90))
        Minute.objects.write(minute, is_latest=False)
        signs = Minute.objects.get().signs
        [((kind,), took)] = counters.leaves(signs, BATCH_DURATION)
        assert (kind, took["count"], took["sum"]) == ("workflow", 1, 90)


def node(key: str, seconds: float, **fields: Any) -> GraphNode:
    return GraphNode(key=key, kind="job", id=1, name=key, state="COMPLETED", ran=seconds, **{"is_done": True} | fields)


def test_jobs_that_wait_for_each_other_stand_behind() -> None:
    edges = [Edge("a", "b", False), Edge("b", "c", False), Edge("c", "b", False)]
    assert layers_of(["a", "b", "c"], edges) == {"a": 0, "b": 1, "c": 1}
    assert layers_of(["b", "c"], edges[1:]) == {"b": 0, "c": 0}
    assert critical_path([node("b", 1), node("c", 2)], edges[1:], {"b": 0, "c": 0}) == ["c"]


def test_the_critical_path_is_by_time_and_not_by_number() -> None:
    edges = [Edge("a", "b", True), Edge("b", "d", True), Edge("c", "d", True)]
    nodes = [node("a", 1), node("b", 1), node("c", 5), node("d", 1), node("open", 99, is_done=False)]
    layers = layers_of([one.key for one in nodes], edges)
    assert critical_path(nodes, edges, layers) == ["c", "d"]
    assert critical_path([], [], {}) == []
