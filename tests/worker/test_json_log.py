"""Log lines as JSON: one object a line, whatever is in it."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulse_django.run.django_log import DeferredRecord, Place
from pulse_django.worker import logs
from pulse_django.worker.logs import Json, write_all
from tests.faults import all_faults

PLACE = Place("tests.json_log", __file__, "a_test")
FORGED = 'x\n2026-01-01 00:00:00,000 CRITICAL forged"}\r\x1b[2K\u202e\u2028'


def facts() -> dict[str, Any]:
    return {"job_id": 7, "task": "shop.send", "meta": {"by": "ada"}}


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def logger(stream: io.StringIO) -> Iterator[logging.Logger]:
    """A logger that writes JSON to the stream."""
    logger = logging.getLogger(PLACE.logger)
    logger.propagate, logger.handlers = False, [logging.StreamHandler(stream)]
    logger.handlers[0].setFormatter(Json())
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers.clear()


@pytest.fixture
def _restored() -> Iterator[None]:
    """Leave handlers that others share as they were."""
    handlers = [*logging.getLogger().handlers, logging.lastResort]
    formatters = [handler.formatter for handler in handlers if handler is not None]
    yield
    for handler, formatter in zip(handlers, formatters, strict=True):
        if handler is not None:
            handler.setFormatter(formatter)


def written(stream: io.StringIO) -> list[dict[str, Any]]:
    return parsed(stream.getvalue())


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("is_fast", [True, False], ids=["written without a record", "written as a record"])
def test_a_line_is_an_object_with_its_facts(logger: logging.Logger, stream: io.StringIO, is_fast: bool) -> None:
    line = DeferredRecord(PLACE, logging.WARNING, "job %d %s", (7, FORGED), facts)
    write_all([(logger, line if is_fast else line.record())])
    [said] = written(stream)
    assert said.pop("time").endswith("+00:00")
    assert said == {
        **facts(), "level": "WARNING", "logger": PLACE.logger, "message": f"job 7 {FORGED}"
    }  # fmt: skip
    assert stream.getvalue().isascii()


def test_an_exception_and_a_stack_are_in_the_object_of_their_line(logger: logging.Logger, stream: io.StringIO) -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("it failed", stack_info=True)
    [said] = written(stream)
    assert said["message"] == "it failed"
    assert said["traceback"].startswith("Traceback")
    assert "ValueError" in said["traceback"]
    assert "test_an_exception_and_a_stack_are_in_the_object_of_their_line" in said["stack"]


class Sulky:
    def __repr__(self) -> str:
        raise LookupError


def test_a_fact_that_json_has_no_word_for_costs_no_line(logger: logging.Logger, stream: io.StringIO) -> None:
    values = [float("nan"), {1: {2, 3}}, {(1, 2): 3}, object(), Sulky(), 10**5_000]
    circle: list[Any] = []
    circle.append(circle)
    with all_faults() as about:
        for value in [*values, circle]:
            with about(type(value)):
                logger.info("here", extra={"fact": value, "job_id": 7})
                said = written(stream)[-1]
                assert (said["message"], said["job_id"], bool(said["fact"])) == ("here", 7, True)


@pytest.mark.usefixtures("_restored")
def test_what_goes_to_a_standard_stream_becomes_json_and_a_file_does_not(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = logging.FileHandler(tmp_path / "log")
    logger.handlers = [logging.StreamHandler(sys.stdout), logging.StreamHandler(elsewhere := io.StringIO()), file]
    logs.configure("json")
    logger.warning("%s", "a")
    assert logging.lastResort is not None
    logging.lastResort.handle(DeferredRecord(PLACE, logging.WARNING, "alone", ()).record())
    file.close()
    out, err = capsys.readouterr()
    assert [[said["message"] for said in parsed(text)] for text in (out, err)] == [["a"], ["alone"]]
    assert elsewhere.getvalue() == (tmp_path / "log").read_text() == "a\n"


def test_text_changes_no_handler_of_the_project(logger: logging.Logger, stream: io.StringIO) -> None:
    logger.handlers = [logging.StreamHandler(stream)]
    logs.configure("text")
    logger.warning("as it was")
    assert stream.getvalue() == "as it was\n"
