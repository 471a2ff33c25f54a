"""The pages of workflows: the list, the graph in words and shapes, and the buttons."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django import Batch, Workflow
from pulse_django.models import Event, Job, StoredBatch
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from pulse_django.workflows.batch_progress import members
from pulse_django.workflows.batch_verbs import members_of
from pulse_django.workflows.console.shown import NODE_KINDS, draw, draw_layers
from pulse_django.workflows.reading import graph as graphs
from pulse_django.workflows.reading.facts import AWAITED, SENT, STATES, Edge, Graph, GraphNode
from tests.console.staff import staff, text
from tests.faults import each_of
from tests.queue.steps import sql
from tests.undoing import undone
from tests.workflows.tasks import BROKEN, approved, note, stepwise

pytestmark = pytest.mark.django_db

VIEW = ("pulse_view_workflows", "pulse_view_jobs")


def order(*, broken: str = "") -> Workflow:
    BROKEN.add(broken)
    flow = Workflow("order 42", context={"customer": 7})
    flow.add("charge", note.prepare("charge")).add("pack", note.prepare("pack"), needs=["charge"])
    return flow.add("ship", note.prepare("ship"), needs=["pack"])


def list_of(client: Client, query: str = "") -> str:
    return text(client, reverse("admin:pulse_django_storedbatch_changelist") + query)


def page_of(client: Client, batch_id: int) -> str:
    return text(client, reverse("admin:pulse_django_storedbatch_change", args=[batch_id]))


def act(client: Client, batch: Batch, name: str, **data: object) -> str:
    url = reverse("admin:pulse_django_storedbatch_act", args=[batch.id, name])
    answer = client.post(url, {f"{name}-{key}": value for key, value in data.items()}, follow=True)
    assert answer.status_code == 200
    return str(answer.content.decode())


class TestList:
    def test_it_says_what_each_workflow_waits_for(self) -> None:
        order(broken="pack").enqueue()
        Workflow("approval").add("ask", approved.prepare("approved:7")).enqueue()
        drain(failures="keep")
        page = list_of(staff(*VIEW))
        assert "held by dead letters" in page
        assert "1 / 3" in page
        assert "<bdi>approved:7</bdi>" in page

    def test_those_within_others_and_those_that_are_over_are_a_choice(self) -> None:
        inner = Workflow("inner part").add("x", note.prepare("x"))
        Workflow("outer").add_workflow("part", inner).enqueue()
        client = staff(*VIEW)
        assert "inner part" not in list_of(client)
        assert "inner part" in list_of(client, "?inside")
        drain()
        assert "outer" not in list_of(client, "?open")

    def test_it_goes_on_from_the_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pulse_django.workflows.reading.PAGE", 1)
        first, second = Batch.open("first one"), Batch.open("second one")
        client = staff(*VIEW)
        page = list_of(client)
        assert "second one" in page
        assert "first one" not in page
        assert f"?before={second.id}" in page
        page = list_of(client, f"?before={second.id}")
        assert f"#{first.id}" in page
        assert "?before=" not in page

    def test_it_needs_the_permission(self) -> None:
        assert staff("pulse_view_jobs").get(reverse("admin:pulse_django_storedbatch_changelist")).status_code == 403

    @override_settings(LANGUAGE_CODE="de")
    def test_it_speaks_german(self) -> None:
        order(broken="pack").enqueue()
        drain(failures="keep")
        page = list_of(staff(*VIEW))
        assert "von Dead Letters aufgehalten" in page
        assert "There are" not in page


class TestPage:
    def test_each_node_is_a_link_with_a_word_and_a_sign(self) -> None:
        placed = order(broken="pack").enqueue()
        drain(failures="keep")
        page = page_of(staff(*VIEW), placed.id)
        for name, said in (("charge", "✓ Completed"), ("pack", "✕ Dead lettered"), ("ship", "… Waiting")):
            url = reverse("admin:pulse_django_job_change", args=[placed.job_ids[name]])
            assert f'<a href="{url}"><g' in page
            assert said in page
        assert page.count("pulse-need-open") == 1
        assert re.search(r'<th scope="row"><a href="[^"]+">ship</a>', page)
        assert "pack (not met)" in page

    def test_the_critical_path_is_marked(self) -> None:
        placed = order().enqueue()
        drain()
        page = page_of(staff(*VIEW), placed.id)
        assert page.count("on the critical path") == 3
        assert "pulse-need pulse-critical" in page

    def test_who_may_not_view_jobs_gets_no_links_to_them(self) -> None:
        placed = order().enqueue()
        page = page_of(staff("pulse_view_workflows"), placed.id)
        assert "charge" in page
        assert "/pulse_django/job/" not in page

    def test_the_context_is_for_those_who_may_see_arguments(self) -> None:
        placed = order().enqueue()
        assert "customer" in page_of(staff(*VIEW, "pulse_view_arguments"), placed.id)
        User.objects.all().delete()
        assert "customer" not in page_of(staff(*VIEW), placed.id)

    def test_a_large_one_is_drawn_in_layers_and_a_very_large_one_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(graphs, "MOST_DRAWN", 2)
        client, placed = staff(*VIEW), order().enqueue()
        page = page_of(client, placed.id)
        assert "Layer 3" in page
        assert "1 × Waiting" in page
        monkeypatch.setattr(graphs, "MOST_READ", 2)
        assert "too many jobs to draw" in page_of(client, placed.id)

    def test_what_is_not_there_is_not_found(self) -> None:
        client = staff(*VIEW)
        for given in ("0", "x", "9" * 30, "_3C"):
            assert client.get(f"/admin/pulse_django/storedbatch/{given}/change/").status_code == 404

    def test_it_takes_the_same_statements_whatever_the_size(self) -> None:
        counts = []
        client = staff(*VIEW)
        for width in (1, 30):
            flow = order()
            for number in range(width):
                flow.add(f"one {number}", note.prepare("x"), needs=["charge"])
            placed = flow.enqueue()
            with CaptureQueriesContext(connection) as sent:
                page_of(client, placed.id)
            counts.append(len(sent))
        assert counts[0] == counts[1]


class TestActs:
    def test_cancel_all(self) -> None:
        placed = order().enqueue()
        client = staff(*VIEW, "pulse_cancel_jobs")
        page = act(client, placed, "cancel", reason="wrong order")
        assert "Cancelled: wrong order" in page
        drain()
        assert {*placed.jobs.values_list("status", flat=True)} == {Status.CANCELLED}
        assert LogEntry.objects.get().change_message == "Cancelled: wrong order"
        assert "Cancel all" not in page_of(client, placed.id)

    def test_retry_its_dead_letters(self) -> None:
        placed = order(broken="pack").enqueue()
        drain(failures="keep")
        BROKEN.clear()
        assert "1 retried." in act(staff(*VIEW, "pulse_retry_jobs"), placed, "retry", runs=1)
        drain()
        assert StoredBatch.objects.get().finished_at is not None

    def test_send_an_event_in_ones_own_name(self) -> None:
        placed = Workflow("approval").add("ask", approved.prepare("approved:7")).enqueue()
        drain()
        client = staff(*VIEW, "pulse_schedule_jobs")
        assert (
            "approved:7"
            not in act(client, placed, "approve", event="approved:8")
            .split("pulse-verdict")[0]
            .split("messagelist")[-1]
            .split("</ul>")[0]
        )
        assert not Event.objects.exists()
        assert "Event sent: approved:7" in act(client, placed, "approve", event="approved:7")
        event = Event.objects.get()
        assert (event.name, event.sent_by, event.payload) == ("approved:7", "operator", {"by": "operator"})
        drain()
        assert Job.objects.get().status == Status.COMPLETED

    def test_pause_and_resume(self) -> None:
        placed = order().enqueue()
        client = staff(*VIEW, "pulse_schedule_jobs")
        assert "Paused" in act(client, placed, "pause")
        assert placed.row.paused_at is not None
        assert "act/pause/" not in page_of(client, placed.id)
        assert "Resumed" in act(client, placed, "resume")
        assert placed.row.paused_at is None
        assert "Nothing was changed" in act(client, placed, "resume")

    @each_of("cancel", "retry", "approve", "pause", "resume", around=undone)
    def test_each_needs_its_permission(self, *, name: Any) -> None:
        placed = order().enqueue()
        url = reverse("admin:pulse_django_storedbatch_act", args=[placed.id, name])
        assert staff(*VIEW).post(url, {f"{name}-reason": "x", f"{name}-runs": 1}).status_code == 403
        assert StoredBatch.objects.get().cancelled_at is None

    def test_what_has_changed_meanwhile_is_left_alone(self) -> None:
        placed = order().enqueue()
        drain()
        client = staff(*VIEW, "pulse_cancel_jobs", "pulse_retry_jobs", "pulse_schedule_jobs")
        for name in ("cancel", "retry", "approve", "pause", "resume"):
            assert "Nothing was changed" in act(client, placed, name, reason="x", runs=1, event="x")


class TestBoard:
    def test_it_counts_held_workflows_and_says_nothing_where_there_are_none(self) -> None:
        client, board = staff("pulse_view_board"), reverse("admin:pulse_django_board_changelist")
        assert "Open workflows" not in text(client, board)
        order(broken="pack").enqueue()
        drain(failures="keep")
        assert "1, of which 1 held by dead letters" in text(client, board)


class TestJobs:
    def page(self, client: Client, job_id: int) -> str:
        return text(client, reverse("admin:pulse_django_job_change", args=[job_id]))

    def test_the_page_of_a_job_says_what_it_needs_and_what_needs_it(self) -> None:
        placed = order(broken="pack").enqueue()
        drain(failures="keep")
        client = staff(*VIEW)
        page = self.page(client, placed.job_ids["ship"])
        assert f'/pulse_django/storedbatch/{placed.id}/change/"><bdi>order 42</bdi>' in page
        assert f'/pulse_django/job/{placed.job_ids["pack"]}/change/"><bdi>pack</bdi>' in page
        assert "<strong>not met</strong>, held by dead letters" in page
        assert "It needs dead letters: #" in page
        page = self.page(client, placed.job_ids["charge"])
        assert "Needed by" in page
        assert re.search(r"<bdi>pack</bdi> #\d+</a> <span [^>]+><span [^>]+>✖</span> Dead lettered</span>: met", page)

    def test_a_job_that_has_nothing_to_do_with_workflows_has_no_such_section(self) -> None:
        page = self.page(staff(*VIEW), int(note.enqueue("x").id))
        assert "Durable steps" not in page
        assert "Needed by" not in page

    def test_a_workflow_is_a_link_only_for_who_may_see_it(self) -> None:
        placed = order().enqueue()
        page = self.page(staff("pulse_view_jobs"), placed.job_ids["charge"])
        assert "order 42" in page
        assert "storedbatch" not in page

    def test_durable_steps_are_listed_with_results_for_those_who_may_see_arguments(self) -> None:
        job = stepwise.enqueue("order")
        drain()
        page = self.page(staff(*VIEW), int(job.id))
        assert re.search(r"<bdi>first</bdi></td><td class=\"pulse-number\">1</td>", page)
        assert "<td><pre>" not in page
        User.objects.all().delete()
        assert self.page(staff(*VIEW, "pulse_view_arguments"), int(job.id)).count("<td><pre>1</pre></td>") == 2

    def test_a_job_that_waits_for_others_can_be_cancelled(self) -> None:
        placed = order().enqueue()
        client = staff(*VIEW, "pulse_cancel_jobs")
        assert "act/cancel/" in self.page(client, placed.job_ids["ship"])
        url = reverse("admin:pulse_django_job_act", args=[placed.job_ids["ship"], "cancel"])
        client.post(url, {"cancel-attempts": 0, "cancel-reason": "x"})
        assert Job.objects.get(pk=placed.job_ids["ship"]).status == Status.CANCELLED

    def test_the_list_shows_those_of_one_workflow_and_those_that_wait(self) -> None:
        placed = order(broken="pack").enqueue()
        note.enqueue("alone")
        drain(failures="keep")
        url, client = reverse("admin:pulse_django_job_changelist"), staff(*VIEW)

        def listed(query: str) -> list[int]:
            page = client.get(f"{url}?{query}")
            assert page.status_code == 200
            return [job.pk for job in page.context["cl"].result_list]

        charge, pack, ship = (placed.job_ids[name] for name in ("charge", "pack", "ship"))
        assert sorted(listed(f"batch={placed.id}")) == sorted([charge, pack, ship])
        assert listed(f"batch={placed.id}&status__exact=WAITING") == [ship]
        assert listed("status__exact=WAITING") == [ship]
        for nonsense in ("batch=x", f"batch={'9' * 30}"):
            assert client.get(f"{url}?{nonsense}").status_code == 200

    def test_members_of_a_workflow_are_found_by_indexes(self) -> None:
        """In a table with so many others that the planner has a choice to make."""
        Job.objects.enqueue_many([NewJob(task="other")] * 3_000)
        sql("ANALYZE pulse_django_job_hot")
        jobs = members_of(Job.objects.all(), 7)
        for statement in (str(jobs.order_by().query), members("id", "7", "10")):
            plan = "\n".join(line for (line,) in sql(f"EXPLAIN {statement}"))
            assert "pulse_job_batch_open" in plan
            assert "pulse_job_batch_dead" in plan
            assert "Seq Scan on pulse_django_job_hot" not in plan


def node(key: str, state: str = "COMPLETED", kind: str = "job") -> GraphNode:
    return GraphNode(key=key, kind=kind, id=1, name=key, state=state)


def test_every_state_has_a_sign_of_its_own_colour() -> None:
    assert NODE_KINDS.keys() == {*Status, *STATES, AWAITED, SENT}
    colours: dict[str, set[str]] = {}
    for colour, sign in NODE_KINDS.values():
        colours.setdefault(sign, set()).add(colour)
    assert all(len(found) == 1 for found in colours.values())


def test_boxes_do_not_overlap_and_curves_go_from_left_to_right() -> None:
    nodes = [node(name) for name in "abcd"]
    edges = [Edge("a", "b", True), Edge("a", "c", True), Edge("b", "d", True), Edge("c", "d", False)]
    graph = Graph(nodes=nodes, edges=edges, layers={"a": 0, "b": 1, "c": 1, "d": 2}, critical=["a", "b", "d"])
    drawing = draw(graph, lambda node: [node.state], lambda node: "")
    corners = {(box.x, box.y) for box in drawing.boxes}
    assert len(corners) == 4
    _, b, c, _ = drawing.boxes
    assert b.x == c.x
    assert float(b.y) + float(b.height) < float(c.y)
    assert [curve.is_critical for curve in drawing.curves] == [True, False, True, False]
    for curve in drawing.curves:
        begin, *_, end = re.findall(r"[-\d.]+ [-\d.]+", curve.path)
        assert float(begin.split()[0]) < float(end.split()[0])


def test_a_long_name_is_cut_and_cannot_turn_text_around() -> None:
    graph = Graph(nodes=[node("\u202e" + "x" * 99)], layers={"\u202e" + "x" * 99: 0})
    [box] = draw(graph, lambda node: ["x"], lambda node: "").boxes
    assert len(box.texts[0].says) <= 26
    assert "\u202e" not in box.says


def test_layers_are_boxes_in_a_row() -> None:
    drawing = draw_layers([["Layer 1", "1 × x"], ["Layer 2", "2 × y", "3 × z"]])
    assert len(drawing.boxes) == 2
    assert len(drawing.curves) == 1
