"""Lines are lost only to a log handler that hangs. However many there are, others are written."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator

import pytest

from pulse_django.worker import logs
from pulse_django.worker.logs import LogWriter
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
    monkeypatch.setattr(logs, "MOST_WAITING_OF_HANDLER", 50)
    monkeypatch.setattr(logs, "MOST_WAITING", 50)
    logger.addHandler(handler)
    yield handler
    handler.goes_on.set()
    logger.removeHandler(handler)


@pytest.fixture
def others() -> Iterator[Keeping]:
    logger, handler = logging.getLogger("pulse_django.worker"), Keeping()
    logger.addHandler(handler)
    yield handler
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


def test_a_handler_that_hangs_costs_its_own_lines_and_holds_up_no_other(
    handler: Keeping, others: Keeping, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the other handler's thread may wait for a processor.
    monkeypatch.setattr(logs, "PATIENCE_WITH_HANDLER", 1.0)
    monkeypatch.setattr(logs, "PATIENCE", 10.0)
    monkeypatch.setattr(logs, "BETWEEN_NOTICES", 0.1)
    handler.goes_on.clear()
    log(writer, LINES)  # comes back, or this test does not
    wait_until(lambda: len(lines_of(others)) == LINES)
    assert lines_of(others) == [f"line {number}" for number in range(LINES)]
    wait_until(lambda: dropped_by_keeping(others) > LINES / 2)
    handler.goes_on.set()
    wait_until(lambda: len(lines_of(handler)) + dropped_by_keeping(others) == LINES)


def lines_of(handler: Keeping) -> list[str]:
    return [text for text in handler.texts if text.startswith("line")]


def dropped_by_keeping(handler: Keeping) -> int:
    told = [re.fullmatch(r"Dropped (\d+) log lines of the log handler Keeping: .*", text) for text in handler.texts]
    return sum(int(one[1]) for one in told if one is not None)


def test_the_end_does_not_wait_for_a_handler_that_hangs_and_says_what_it_cost(
    handler: Keeping, writer: LogWriter, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = logging.StreamHandler()
    handler.goes_on.clear()
    logger = logging.getLogger("pulse_django.worker")
    logger.addHandler(stream)
    try:
        log(writer, 3)
        writer.close(0.2)
    finally:
        logger.removeHandler(stream)
        handler.goes_on.set()
    said = capfd.readouterr().err.splitlines()
    assert said[:3] == ["line 0", "line 1", "line 2"]
    assert said[3].startswith("Dropped 3 log lines of the log handler Keeping")


class Stuck:
    """A stream that is not read."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()

    def write(self, text: str) -> None:
        self.goes_on.wait(60)

    def flush(self) -> None:
        pass


def test_a_stream_that_hangs_costs_lines_and_holds_up_no_other(
    handler: Keeping, writer: LogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "PATIENCE", 0.05)
    stuck = Stuck()
    stream = logging.StreamHandler(stuck)
    logger = logging.getLogger("pulse_django.worker")
    logger.addHandler(stream)
    try:
        log(writer, LINES)  # comes back, or this test does not
        dropped = writer.dropped
        assert dropped > LINES / 2
        stuck.goes_on.set()
        wait_until(lambda: any(text.startswith(f"Dropped {dropped} log lines") for text in handler.texts))
    finally:
        logger.removeHandler(stream)
    assert len(lines_of(handler)) == LINES - dropped
