"""Django logs each task. What this package writes in its place are the same lines, under the same conditions."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings
from django.utils.log import RequireDebugFalse, RequireDebugTrue

from pulse_django.run import django_log, execute
from pulse_django.run.registry import LOGGER, task_finished, task_started
from pulse_django.testing import drain
from testproject.shop import tasks as shop

pytestmark = pytest.mark.usefixtures("pulse_db")
FACTS = ("name", "levelno", "msg", "args", "pathname", "funcName", "exc_text", "threadName", "processName")


class Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.records]


@pytest.fixture
def log() -> Iterator[Keeping]:
    """What is logged of tasks, whatever the settings of the tests say."""
    handler, level = Keeping(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    yield handler
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(level)


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Replace Django's logger by one that is not registered: pytest adds its own handlers to registered ones."""
    logger = logging.Logger(LOGGER.name, logging.INFO)
    logger.propagate = False
    monkeypatch.setattr(django_log, "LOGGER", logger)
    return logger


@pytest.fixture
def handler(logger: logging.Logger) -> Keeping:
    handler = Keeping()
    logger.addHandler(handler)
    return handler


@pytest.fixture
def receive() -> Iterator[list[Any]]:
    """Receive both signals as a project does."""
    received: list[Any] = []

    def receiver(task_result: Any, **_: Any) -> None:
        received.append(task_result)

    for signal in (task_started, task_finished):
        signal.connect(receiver)
    yield received
    for signal in (task_started, task_finished):
        signal.disconnect(receiver)


def facts(records: list[logging.LogRecord], result: Any) -> list[dict[str, Any]]:
    """Return what records say, with the id of their job left out."""
    found = []
    for record in records:
        fact = {name: getattr(record, name) for name in FACTS} | {"text": record.getMessage()}
        assert result.id in fact["text"]
        found.append(fact | {"args": record.args[1:], "text": fact["text"].replace(result.id, "ID")})  # type: ignore[index]
    return found


def test_a_success_is_logged_as_django_logs_it(log: Keeping, request: pytest.FixtureRequest) -> None:
    ours = shop.add.enqueue(1, 2)
    drain()
    written, log.records = log.records, []
    received = request.getfixturevalue("receive")  # now Django's own receivers write the lines
    djangos = shop.add.enqueue(1, 2)
    drain()
    assert [result.id for result in received] == [djangos.id] * 2
    assert len(written) == 2
    assert facts(written, ours) == facts(log.records, djangos)


@pytest.mark.parametrize("is_received", [False, True], ids=["Django's log alone", "a receiver of the project's"])
def test_a_failure_is_logged_once_with_its_traceback_and_is_no_error_that_is_mailed(
    log: Keeping, request: pytest.FixtureRequest, is_received: bool
) -> None:
    received = request.getfixturevalue("receive") if is_received else []
    shop.fail.using(max_attempts=1).enqueue("no")
    drain(failures="keep")
    assert [str(result.status) for result in received] == (["FAILED"] * 2 if is_received else [])
    started, failed = log.records
    assert started.getMessage().endswith("state=RUNNING")
    assert failed.getMessage().endswith("state=FAILED")
    assert failed.levelno == logging.WARNING
    assert failed.exc_info


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("it must not be made")


@pytest.mark.parametrize(
    ("debug", "one", "is_on"),
    [
        (False, RequireDebugTrue(), False),
        (True, RequireDebugTrue(), True),
        (True, RequireDebugFalse(), False),
        (False, RequireDebugFalse(), True),
        (False, lambda record: False, True),  # a filter of the project's may say anything
    ],
)
def test_a_line_that_no_handler_takes_costs_nothing(
    handler: Keeping, monkeypatch: pytest.MonkeyPatch, debug: bool, one: Any, is_on: bool
) -> None:
    handler.addFilter(one)
    with override_settings(DEBUG=debug):
        assert django_log.is_on(logging.INFO) == is_on
        if not is_on:
            monkeypatch.setattr(django_log, "make_line", refuse)
            monkeypatch.setattr(execute, "result_of_run", refuse)
            shop.add.enqueue(1, 2)
            [ran] = drain()
            assert ran.status == "COMPLETED"


def test_levels_are_those_of_the_logger_and_its_handlers(logger: logging.Logger, handler: Keeping) -> None:
    handler.setLevel(logging.ERROR)
    assert (django_log.is_on(logging.INFO), django_log.is_on(logging.ERROR)) == (False, True)
    handler.setLevel(logging.NOTSET)
    assert django_log.is_on(logging.INFO) is True
    logger.setLevel(logging.WARNING)
    logger._cache.clear()  # a logger that is registered does it itself
    assert django_log.is_on(logging.INFO) is False


def test_handlers_of_parents_count_as_far_as_lines_reach_them(logger: logging.Logger) -> None:
    logger.parent = logging.Logger("parent")
    logger.parent.addHandler(Keeping())
    assert django_log.is_on(logging.INFO) is False
    logger.propagate = True
    assert django_log.is_on(logging.INFO) is True


def test_a_record_factory_that_raises_costs_lines_and_no_run(log: Keeping) -> None:
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(refuse)
    try:
        shop.add.enqueue(1, 2)
        [ran] = drain()
    finally:
        logging.setLogRecordFactory(before)
    assert (ran.status, log.records) == ("COMPLETED", [])


def test_without_djangos_receivers_nothing_is_logged(log: Keeping, monkeypatch: pytest.MonkeyPatch) -> None:
    for signal in (task_started, task_finished):
        monkeypatch.setattr(signal, "receivers", [])
    shop.add.enqueue(1, 2)
    drain()
    assert log.records == []
