"""A worker whose project mails errors, with a mail server that accepts connections and says nothing."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pulse_django.queue.words.states import Status
from tests.crash.workers import Workers, wait_for, wait_until
from tests.worker.handlers import registered

pytestmark = pytest.mark.usefixtures("pulse_db")

JOBS = 10
SOON = 5.0  # seconds: a mail server that does not answer is waited for much longer


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """It accepts connections, as far as its queue of them is long, and never greets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def settings_of(server: socket.socket, **more: str) -> dict[str, str]:
    port = str(server.getsockname()[1])
    return {"DJANGO_SETTINGS_MODULE": "tests.settings_of_mail", "PULSE_TEST_MAIL_PORT": port, **more}


def connections_to(server: socket.socket) -> list[socket.socket]:
    """Return those that were made. They stay open until they are closed."""
    found = []
    with suppress(BlockingIOError):
        while True:
            found.append(server.accept()[0])
    return found


def dead_letters_of(worker: object) -> int:
    return str(getattr(worker, "log", "")).count("DEAD_LETTERED in")


def test_by_default_a_dead_letter_is_no_mail(workers: Workers, silent: socket.socket) -> None:
    worker = workers.ready(env=settings_of(silent))
    jobs = [registered("thread.raises").enqueue("ValueError").id for _ in range(JOBS)]
    wait_for(Status.DEAD_LETTERED, *jobs)
    wait_until(lambda: dead_letters_of(worker) == JOBS, lambda: worker.log, patience=SOON)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert connections_to(silent) == []


def test_a_mail_server_that_hangs_costs_mails_and_no_line_of_the_log(workers: Workers, silent: socket.socket) -> None:
    worker = workers.ready(env=settings_of(silent, PULSE_TEST_MAILS_ERRORS="1"))
    jobs = [registered("thread.raises").enqueue("ValueError").id for _ in range(JOBS)]
    wait_for(Status.DEAD_LETTERED, *jobs)
    wait_until(lambda: dead_letters_of(worker) == JOBS, lambda: worker.log, patience=SOON)
    mails: list[socket.socket] = []
    wait_until(lambda: mails.extend(connections_to(silent)) or mails, lambda: worker.log)
    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert time.monotonic() - began < SOON
    assert f"Dropped {JOBS} log lines of the log handler AdminEmailHandler" in worker.log
    for one in mails:
        one.close()
