"""Lines are lost only to a log handler that hangs. However many there are, others are written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from pulse_django.worker import log_writer
from pulse_django.worker.log_writer import LogWriter
from tests.crash.workers import wait_until

LINES = 2_000


class Keeping(logging.Handler):
    """Stores the records that it gets. It blocks while the test holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.goes_on = threading.Event()
        self.goes_on.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.goes_on.wait(60)
        self.texts.append(record.getMessage())


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeping]:
    logger, handler = logging.getLogger("pulse_django.worker"), Keeping()
    monkeypatch.setattr(log_writer, "MOST_WAITING", 50)
    logger.addHandler(handler)
    yield handler
    handler.goes_on.set()
    logger.removeHandler(handler)


@pytest.fixture
def writer() -> Iterator[LogWriter]:
    writer = LogWriter()
    thread = threading.Thread(target=writer.run)
    thread.start()
    yield writer
    writer.close(20)
    thread.join(20)
    assert not thread.is_alive()


def log(writer: LogWriter, count: int) -> None:
    logger = logging.getLogger("pulse_django.worker")
    for number in range(count):
        writer.put(logger, logger.makeRecord(logger.name, logging.WARNING, "", 0, "line %d", (number,), None))


def test_a_flood_waits_for_room_and_loses_no_line(handler: Keeping, writer: LogWriter) -> None:
    log(writer, LINES)
    wait_until(lambda: len(handler.texts) == LINES)
    assert handler.texts == [f"line {number}" for number in range(LINES)]
    assert writer.dropped == 0


def test_a_handler_that_hangs_costs_lines_and_keeps_nobody_waiting(
    handler: Keeping, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "PATIENCE", 0.05)
    handler.goes_on.clear()
    log(writer, LINES)  # comes back, or this test does not
    assert writer.dropped > LINES / 2
    dropped = writer.dropped
    handler.goes_on.set()
    wait_until(lambda: any(text.startswith(f"Dropped {dropped} log lines") for text in handler.texts))
    assert len([text for text in handler.texts if text.startswith("line")]) == LINES - dropped
