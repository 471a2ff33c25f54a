"""A dead letter of a cancelled batch is not retried, unless the caller says that such jobs are meant, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.http import urlencode

from pulse_django import Batch, retry
from pulse_django.exceptions import InvalidWorkflow
from pulse_django.models import Job, Step
from pulse_django.queue.database.sql_functions import Fingerprint
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from pulse_django.workflows import rewind
from tests.console.staff import staff
from tests.faults import all_faults
from tests.operations.steps import run, run_json
from tests.undoing import undone
from tests.workflows.tasks import BROKEN, note, stepwise

pytestmark = pytest.mark.django_db

PERMISSIONS = ("pulse_view_jobs", "pulse_view_workflows", "pulse_retry_jobs")
LEFT, BOTH = [Status.DEAD_LETTERED, Status.PENDING], [Status.PENDING] * 2


@pytest.fixture(autouse=True)
def _broken() -> None:
    BROKEN.add("broken")


@pytest.fixture
def dead() -> list[int]:
    """A dead letter of a batch that is within a cancelled one, and one of no batch."""
    outer = Batch.open("outer")
    inner = Batch.open("inner", parent=outer)
    of_batch, alone = inner.add(note.prepare("broken")), note.enqueue("broken")
    drain(failures="keep")
    assert outer.cancel(reason="not wanted")
    drain()
    return [int(of_batch.id), int(alone.id)]


def statuses(ids: list[int]) -> list[str]:
    return [Job.objects.get(pk=job_id).status for job_id in ids]


def test_the_verb_leaves_it_and_says_so(dead: list[int]) -> None:
    answer = retry(*dead)
    assert (answer.revived, answer.of_cancelled, answer.moved_on) == ({dead[1]}, {dead[0]}, frozenset())
    assert statuses(dead) == LEFT
    assert retry(dead[0], cancelled_too=True).revived == {dead[0]}
    drain(failures="keep")
    assert statuses(dead) == [Status.DEAD_LETTERED] * 2


def test_a_job_with_a_unique_key_is_left_as_well() -> None:
    batch = Batch.open("outer")
    job_id = int(batch.add(note.using(idempotency_key="7").prepare("broken")).id)
    drain(failures="keep")
    batch.cancel()
    assert retry(job_id).of_cancelled == {job_id}
    assert retry(job_id, cancelled_too=True).revived == {job_id}


def test_a_batch_that_was_not_cancelled_is_retried() -> None:
    job_id = int(Batch.open("outer").add(note.prepare("broken")).id)
    drain(failures="keep")
    assert retry(job_id).revived == {job_id}


def test_commands_leave_it_and_count_it(dead: list[int]) -> None:
    preview = run("pulse_retry", "--task", note.module_path)
    assert "1 of them belongs to a cancelled workflow" in preview
    assert "--cancelled-too" in preview
    with undone():
        assert run_json("pulse_retry", *dead, "--yes")["of_cancelled"] == 1
        assert statuses(dead) == LEFT
    assert "1 left: the workflow was cancelled." in run("pulse_retry", *dead, "--yes")
    assert "1 retried" in run("pulse_retry", *dead, "--yes", "--cancelled-too")
    assert statuses(dead) == BOTH


def test_the_command_of_workflows_leaves_it(dead: list[int]) -> None:
    batch = Job.objects.get(pk=dead[0]).batch_id
    said = run("pulse_workflows", "retry", batch)
    assert said == "0 retried. 1 left: the workflow was cancelled.\n"
    assert run("pulse_workflows", "retry", batch, "--cancelled-too") == "1 retried.\n"


def _one(client: Client, ids: list[int], **given: Any) -> str:
    pages = []
    for job_id in reversed(ids):
        url = reverse("admin:pulse_django_job_act", args=[job_id, "retry"])
        data = {f"retry-{name}": value for name, value in {"attempts": 1, "runs": 1, **given}.items()}
        pages.append(client.post(url, data, follow=True).content.decode())
    return str(pages[-1])


def _selected(client: Client, ids: list[int], **given: Any) -> str:
    data = {"action": "retry_dead_letters", "_selected_action": ids}
    return str(client.post(reverse("admin:pulse_django_job_changelist"), data, follow=True).content.decode())


def _group(client: Client, ids: list[int], **given: Any) -> str:
    [error] = set(Job.objects.filter(pk__in=ids).values_list(Fingerprint("last_error"), flat=True))
    url = f"{reverse('admin:pulse_django_deadletter_mass', args=['retry'])}?{urlencode({'error': error})}"
    data = {"runs": 1, "scope": "selected", "id": ids, **given}
    return str(client.post(url, data, follow=True).content.decode())


def _filter(client: Client, ids: list[int], **given: Any) -> str:
    url = f"{reverse('admin:pulse_django_job_mass', args=['retry'])}?status__exact=DEAD_LETTERED"
    assert 'name="cancelled_too"' in client.get(url).content.decode()
    return str(client.post(url, {"runs": 1, **given}, follow=True).content.decode())


def test_pages_leave_it_and_count_it(dead: list[int]) -> None:
    pages: list[tuple[Callable[..., str], str]] = [
        (_one, "Its workflow was cancelled."),
        (_selected, "1 left: the workflow was cancelled."),
        (_group, "1 left: the workflow was cancelled."),
        (_filter, "1 left: the workflow was cancelled."),
    ]
    client = staff(*PERMISSIONS)
    with all_faults() as about:
        for page, said in pages:
            with about(page.__name__):
                with undone():
                    assert said in page(client, dead)
                    assert statuses(dead) == LEFT
                if page is not _selected:
                    with undone():
                        page(client, dead, cancelled_too="on")
                        assert statuses(dead) == BOTH


def test_the_page_of_a_job_of_no_batch_offers_no_box(dead: list[int]) -> None:
    client = staff(*PERMISSIONS)
    for job_id, is_offered in zip(dead, (True, False), strict=True):
        page = client.get(reverse("admin:pulse_django_job_change", args=[job_id])).content.decode()
        assert ("retry-cancelled_too" in page) is is_offered


def test_a_step_is_not_done_again() -> None:
    batch = Batch.open("outer")
    job_id = int(batch.add(stepwise.prepare("broken")).id)
    drain(failures="keep")
    batch.cancel()
    with pytest.raises(InvalidWorkflow, match="its batch was cancelled"):
        rewind.retry_from(job_id, "first")
    assert Step.objects.filter(job_id=job_id).count() == 1, "nothing was forgotten"
    assert rewind.retry_from(job_id, "first", cancelled_too=True).repeated == ["first"]
