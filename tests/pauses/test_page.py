"""Paused tasks on the page of limits: the list, the form and the button."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings
from django.urls import reverse

from pulse_django.models import Job, Pause
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from tests.console.staff import staff
from tests.faults import combined, each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db

MAY_ACT = ("pulse_view_limits", "pulse_change_limits")
HOSTILE = "<script>alert(1)</script>'\"%s{{7*7}}"


def page(client: Client) -> str:
    response = client.get(reverse("admin:pulse_django_limiter_changelist"))
    assert response.status_code == 200
    return str(response.content.decode())


def act(client: Client, name: str, task: str = "shop.send", follow: bool = True, **data: Any) -> Any:
    form = {
        "task-task": task,
        "task-reason": "the mail server is down",
        "task-duration": 3_600,
        "task-force": "on",
    } | data
    return client.post(reverse(f"admin:pulse_django_limiter_{name}_task"), form, follow=follow)


def test_a_task_is_paused_and_resumed_and_the_log_says_by_whom() -> None:
    client = staff(*MAY_ACT)
    Job.objects.enqueue_many([NewJob(task="shop.send")] * 3)
    shown = act(client, "pause").content.decode()
    assert "Task shop.send paused: the mail server is down" in shown
    assert "Paused tasks" in shown
    assert "the mail server is down (operator)" in shown
    assert '<td class="pulse-number">3</td>' in shown
    assert not Job.objects.claim(Identity("me"))
    assert "Task shop.send resumed" in act(client, "resume").content.decode()
    assert Job.objects.claim(Identity("me"))
    entries = LogEntry.objects.order_by("pk")
    assert [(one.object_id, one.user.get_username()) for one in entries] == [("shop.send", "operator")] * 2
    assert "the mail server is down" in entries[0].get_change_message()
    assert client.get(reverse("admin:index")).status_code == 200, "which lists what was done"


def test_in_one_queue_alone() -> None:
    client = staff(*MAY_ACT)
    Job.objects.enqueue_many([NewJob(task="shop.send", queue="mail"), NewJob(task="shop.send")])
    in_mail = {"task-queue": "mail"}
    shown = act(client, "pause", **in_mail).content.decode()
    assert "Task shop.send in queue mail paused: the mail server is down" in shown
    assert "shop.send, in queue mail</th>" in shown
    assert '<input type="hidden" name="task-queue" value="mail">' in shown
    assert [claim.queue for claim in Job.objects.claim(Identity("me"), limit=9)] == ["default"]
    assert "Task shop.send in queue mail resumed" in act(client, "resume", **in_mail).content.decode()
    assert [claim.queue for claim in Job.objects.claim(Identity("me"), limit=9)] == ["mail"]
    for entry in LogEntry.objects.all():
        assert entry.object_id == "shop.send in queue mail"


def test_a_name_that_nobody_knows_is_asked_back() -> None:
    client = staff(*MAY_ACT)
    Job.objects.enqueue_many([NewJob(task="store.tasks.post_letter", queue="mail")] * 3)
    told = {
        "post_letter": "No task is called post_letter. Did you mean store.tasks.post_letter?",
        "zzz": "No task is called zzz.",
    }
    for task, said in told.items():
        shown = act(client, "pause", task, **{"task-force": ""}).content.decode()
        assert said in shown
        assert 'class="error"' in shown
    queue = {"task-force": "", "task-queue": "mial"}
    shown = act(client, "pause", "store.tasks.post_letter", **queue).content.decode()
    assert "No queue is called mial. Did you mean mail?" in shown
    assert not Pause.objects.exists()
    shown = act(client, "pause", "store.tasks.post_letter", **{"task-force": ""}).content.decode()
    assert "It stops 3 waiting jobs." in shown


def test_what_changes_nothing_says_so() -> None:
    client = staff(*MAY_ACT)
    assert "Nothing was changed." in act(client, "resume").content.decode()
    act(client, "pause", **{"task-duration": 0})
    assert Pause.objects.get().paused_until is None
    assert "Nothing was changed." in act(client, "pause").content.decode()
    assert LogEntry.objects.count() == 1


@each_of(
    {"task-task": ""},
    {"task-task": "x" * 201},
    {"task-task": "a\nb"},
    {"task-task": "a\0b"},
    {"task-queue": "x" * 101},
    {"task-queue": "a\nb"},
    {"task-reason": ""},
    {"task-duration": 7},
    {"task-duration": "for ever"},
)
def test_what_is_wrong_with_a_form_is_said(*, data: Any) -> None:
    with undone():
        response = act(staff(*MAY_ACT), "pause", **data)
        assert response.status_code == 200
        assert 'class="error"' in response.content.decode()
        assert not Pause.objects.exists()


@each_of(*combined([[], ["pulse_view_limits"], ["pulse_operate_queues", "pulse_view_limits"]], ["pause", "resume"]))
def test_who_may_not_change_limits_may_neither(*, permissions: Any, name: Any) -> None:
    with undone():
        Pause.objects.pause("shop.paused")
        client = staff(*permissions)
        for task in ("shop.send", "shop.paused"):
            assert act(client, name, task).status_code == 403
        assert Pause.objects.get().task == "shop.paused"


def test_who_may_look_sees_no_form() -> None:
    Pause.objects.pause("shop.send", reason="down")
    shown = page(staff("pulse_view_limits"))
    assert "shop.send" in shown
    assert "Pause a task" not in shown
    assert "<button" not in shown.partition("Paused tasks")[2]


def test_hostile_names_and_reasons_are_text() -> None:
    client = staff(*MAY_ACT)
    shown = act(client, "pause", HOSTILE, **{"task-reason": HOSTILE}).content.decode()
    assert "<script>alert" not in shown
    assert "{{7*7}}" in shown.partition("Paused tasks")[2].partition("</table>")[0], "not 49"
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert Pause.objects.get().task == HOSTILE
    act(client, "resume", HOSTILE)
    assert not Pause.objects.exists()


def test_the_form_offers_the_tasks_that_are_known() -> None:
    assert '<datalist id="pulse-known-tasks"><option value="' in page(staff(*MAY_ACT))


@override_settings(LANGUAGE_CODE="de")
def test_the_page_speaks_german() -> None:
    Pause.objects.pause("shop.send")
    shown = page(staff(*MAY_ACT))
    assert "Angehaltene Tasks" in shown
    assert "Einen Task anhalten" in shown
