"""``pulse_check``: exit codes for probes."""

from __future__ import annotations

import json
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test.utils import override_settings

from pulse_django.models import Worker
from pulse_django.queue.words.states import Status
from tests.database import empty_tables
from tests.factories import make_job, now, presence
from tests.faults import each_of
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")


def ask(*arguments: str) -> tuple[int, dict[str, Any]]:
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("pulse_check", *arguments, "--json", stdout=out)
    return int(str(ended.value.code)), json.loads(out.getvalue())


def worker(*queues: str) -> None:
    Worker.objects.note(presence(queues=queues, slots=1))


@pytest.mark.usefixtures("vacuumed")
def test_an_empty_fleet_is_well() -> None:
    code, said = ask()
    assert (code, said["is_well"], said["conditions"]) == (0, True, [])


@pytest.mark.usefixtures("vacuumed")
@each_of((), ("--allow", "queue-overdue=30"))
def test_each_threshold_has_its_say(*, allowed: Any) -> None:
    empty_tables()
    worker()
    make_job(queue="mail", next_run_at=now(timedelta(seconds=-60)))
    code, said = ask(*allowed)
    assert code == (1 if allowed else 0)
    assert [one["name"] for one in said["conditions"]] == (["queue-overdue"] if allowed else [])


def test_a_queue_that_nobody_serves_is_unwell_and_one_that_is_paused_is_not() -> None:
    worker("other")
    make_job(queue="mail")
    assert ask()[0] == 0, "as between two workers of a deploy"
    make_job(queue="mail", next_run_at=now(timedelta(seconds=-61)))
    code, said = ask()
    assert code == 1
    assert "no live worker" in said["says"]
    sql("INSERT INTO pulse_django_pause (queue) VALUES ('mail')")
    assert ask()[0] == 0


def test_leases_that_nobody_reaps_are_unwell_after_some_ticks() -> None:
    sql("SELECT setval('pulse_django_token', last_value + 1000000) FROM pulse_django_token")  # no claim was made
    make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-55)))
    assert ask()[0] == 0, "a watchdog is on its way"
    make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-61)))
    code, said = ask()
    assert code == 1
    assert "lease-not-reaped: " in said["says"]


def test_dead_letters_of_the_last_hour_count_and_older_ones_do_not() -> None:
    for ago in (1, 30, 59, 61, 120):
        make_job(Status.DEAD_LETTERED, attempts=0, finished_at=now(timedelta(minutes=-ago)))
    assert ask("--allow", "dead-letters=3")[0] == 0
    assert ask("--allow", "dead-letters=2")[0] == 1
    call_command("pulse_check", "--all", "--allow", "dead-letters=3", stdout=StringIO())
    with pytest.raises(CommandError, match=r"are problems: dead-letters\.$"):
        call_command("pulse_check", "--all", "--allow", "dead-letters=2", stdout=StringIO())


@override_settings(PULSE={"ALERTS": {"dead-letters": 0}})
def test_what_alerts_allow_is_what_probes_allow() -> None:
    make_job(Status.DEAD_LETTERED, attempts=0)
    assert ask()[0] == 1
    assert ask("--allow", "dead-letters=1")[0] == 0


def test_a_database_that_does_not_answer_is_unknown_and_not_unwell(monkeypatch: pytest.MonkeyPatch) -> None:
    from django.db import OperationalError

    def fail(*args: Any, **options: Any) -> None:
        raise OperationalError("connection refused\n\tis it running?")

    monkeypatch.setattr("pulse_django.shards.fleet.ask_all", fail)
    code, said = ask()
    assert (code, said["says"]) == (2, "connection refused is it running?")


@each_of("queue-overdue", "queue-overdue=x", "queue-overdue=-1", "queue-overdue=nan", "table-bloat=1", "AGE=1")
def test_nonsense_is_refused(*, nonsense: Any) -> None:
    empty_tables()
    with pytest.raises(Exception, match="use NAME=NUMBER"):
        call_command("pulse_check", "--allow", nonsense)


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/live" else 503)
        self.end_headers()
        self.wfile.write(json.dumps({"ready": False, "reason": "the worker is stopping"}).encode())

    def log_message(self, *args: Any) -> None:
        pass


def test_a_worker_is_asked_at_its_port() -> None:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    Thread(target=server.serve_forever, daemon=True).start()
    port = str(server.server_address[1])
    assert ask("--live", "--port", port)[0] == 0
    code, said = ask("--ready", "--port", port)
    assert (code, said["says"]) == (1, "the worker is stopping")
    server.shutdown()
    server.server_close()
    assert ask("--live", "--port", port)[0] == 1
    assert ask("--live")[0] == 2
