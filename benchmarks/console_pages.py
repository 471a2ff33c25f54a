"""Open the pages of the admin of the project that this runs in, and print figures: for ``benchmarks/console.py``."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import django

django.setup()

from django.contrib.auth import get_user_model
from django.db import connection
from django.http import HttpResponseBase
from django.test import Client
from django.urls import reverse

from pulse_django.metrics.spans import WINDOWS
from pulse_django.models import Job, Worker
from pulse_django.queue.words.states import Status

ERROR = "ValueError: order # of kind a"


def main() -> None:
    times = int(sys.argv[1])
    client = Client(SERVER_NAME="localhost")
    client.force_login(get_user_model().objects.create(username="operator", is_staff=True, is_superuser=True))
    figures = {name: opened(client, address, times) for name, address in pages().items()}
    print(json.dumps({"django": django.get_version(), "python": sys.version.split()[0], "pages": figures}))


def pages() -> dict[str, str]:
    jobs, dead = reverse("admin:pulse_django_job_changelist"), reverse("admin:pulse_django_deadletter_group")
    tasks, task = reverse("admin:pulse_django_taskoverview_changelist"), reverse("admin:pulse_django_taskoverview_one")
    middle = Job.objects.order_by("pk").values_list("pk", flat=True).last() // 2
    letter = Job.objects.filter(status=Status.DEAD_LETTERED).order_by("finished_at").values_list("pk", flat=True).last()
    return {
        "jobs": jobs,
        "jobs, from the middle on": f"{jobs}?older={middle}",
        "jobs, completed": f"{jobs}?status__exact=COMPLETED",
        "jobs, dead letters": f"{jobs}?status__exact=DEAD_LETTERED",
        "jobs, one queue": f"{jobs}?queue=queue-7",
        "jobs, one task": f"{jobs}?task=tests.task_7",
        "jobs, a task that has none": f"{jobs}?task=tests.none",
        "jobs, words that are nowhere": f"{jobs}?q=nowhere",
        "jobs, by the error of some": f"{jobs}?q=error:%22order 4750%22",
        "jobs, by an argument": f"{jobs}?q=order_id:{middle}",
        "jobs, by an argument that a thousandth share": f"{jobs}?q=customer_id:7",
        "jobs, by a number": f"{jobs}?q={middle}",
        "jobs, by a number that is nowhere": f"{jobs}?q=999999999",
        "jobs, by parent": f"{jobs}?q=parent:{middle}",
        "jobs, by tag": f"{jobs}?q=tag:nowhere",
        "a dead job": reverse("admin:pulse_django_job_change", args=[letter]),
        "dead letters by error": reverse("admin:pulse_django_deadletter_changelist"),
        "dead letters of one error": f"{dead}?error={ERROR.replace('#', '%23')}",
        "board": reverse("admin:pulse_django_board_changelist"),
        "queues": reverse("admin:pulse_django_queue_changelist"),
        "a queue": f"{reverse('admin:pulse_django_queue_one')}?name=queue-7",
        **{f"tasks, {window}": f"{tasks}?window={window}" for window in WINDOWS},
        **{f"a task, {window}": f"{task}?name=tests.task_7&window={window}" for window in WINDOWS},
        "workers": reverse("admin:pulse_django_worker_changelist"),
        "a worker": reverse("admin:pulse_django_worker_change", args=[Worker.objects.values_list("pk", flat=True)[0]]),
    }


class Cost:
    """What an answer costs the database."""

    def __init__(self) -> None:
        self.statements, self.seconds = 0, 0.0

    def timed(self, execute: Callable[..., Any], *statement: Any) -> Any:
        self.statements += 1
        began = time.perf_counter()
        try:
            return execute(*statement)
        finally:
            self.seconds += time.perf_counter() - began

    @property
    def milliseconds(self) -> float:
        return round(self.seconds * 1_000, 1)


@contextmanager
def measured() -> Iterator[Cost]:
    cost = Cost()
    with connection.execute_wrapper(cost.timed):
        yield cost


def asked(client: Client, address: str, statuses: set[int], **headers: str) -> tuple[HttpResponseBase, Cost]:
    with measured() as cost:
        response = client.get(address, headers=headers)
    if response.status_code not in statuses:
        raise SystemExit(f"{address}: {response.status_code}")
    return response, cost


def asked_whether_changed(client: Client, address: str) -> Cost:
    """Return what the answer costs that a page is unchanged.

    Its ETag changes twice a minute, also when no row was written: then ask once more, with the new one.
    """
    for statuses in ({200, 304}, {304}):
        tag = asked(client, address, {200})[0].headers["ETag"]
        response, cost = asked(client, address, statuses, **{"If-None-Match": tag})
        if response.status_code == HTTPStatus.NOT_MODIFIED:
            break
    return cost


def opened(client: Client, address: str, times: int) -> dict[str, Any]:
    """Open a page again and again, and ask whether it has changed. Return what that cost."""
    costs, anew = [], []
    for _ in range(times):
        response, cost = asked(client, address, {200})
        costs.append(cost)
    for _ in range(times):
        connection.close()  # as Django does after each request, unless CONN_MAX_AGE is set
        anew.append(asked(client, address, {200})[1].milliseconds)
    later = [cost.milliseconds for cost in costs[1:]] or [costs[0].milliseconds]
    figures = {
        "statements": costs[-1].statements,
        "first_ms": costs[0].milliseconds,
        "median_ms": round(statistics.median(later), 1),
        "most_ms": max(later),
        "new_connection_ms": round(statistics.median(anew), 1),
    }
    if response.has_header("ETag"):
        unchanged = [asked_whether_changed(client, address) for _ in range(times)]
        figures |= {
            "unchanged_statements": unchanged[-1].statements,
            "unchanged_ms": statistics.median(cost.milliseconds for cost in unchanged),
            "unchanged_most_ms": max(cost.milliseconds for cost in unchanged),
        }
    return figures


if __name__ == "__main__":
    main()
