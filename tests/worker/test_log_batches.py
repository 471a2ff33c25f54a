"""Lines of a batch are written at once, and each of them as ``logging`` would."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from pulse_django.worker.log_batches import write_all


class Counting(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


class Shouting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).upper()


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("tests.log_batches")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers.clear()
    logger.filters.clear()
    logger.disabled = False


def lines(logger: logging.Logger, *texts: str, level: int = logging.INFO) -> list[Any]:
    return [(logger, logger.makeRecord(logger.name, level, "file", 1, text, (), None)) for text in texts]


def handler(stream: Any, level: int = logging.NOTSET) -> logging.StreamHandler[Any]:
    made = logging.StreamHandler(stream)
    made.setLevel(level)
    return made


def test_one_write_for_a_batch_and_one_order(logger: logging.Logger) -> None:
    stream = Counting()
    other = logger.getChild("other")
    other.propagate = False
    for one in (logger, other):
        one.handlers = [handler(stream)]
    write_all([*lines(logger, "a"), *lines(other, "b"), *lines(logger, "c")])
    assert (stream.getvalue(), stream.writes) == ("a\nb\nc\n", 1)
    other.handlers.clear()


def test_levels_filters_formats_and_terminators_are_the_handlers(logger: logging.Logger) -> None:
    loud, quiet, rest = Counting(), Counting(), Counting()
    logger.addHandler(shouting := handler(loud))
    shouting.setFormatter(Shouting())
    shouting.terminator = "!\n"
    logger.addHandler(handler(quiet, logging.ERROR))
    logger.addHandler(filtering := handler(rest))
    filtering.addFilter(lambda record: record.getMessage() != "a")
    write_all([*lines(logger, "a", "b"), *lines(logger, "c", level=logging.ERROR)])
    assert loud.getvalue() == "A!\nB!\nC!\n"
    assert quiet.getvalue() == "c\n"
    assert rest.getvalue() == "b\nc\n"


def test_handlers_of_other_kinds_are_called_for_each(logger: logging.Logger) -> None:
    class Own(logging.StreamHandler[Any]):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    seen: list[str] = []
    logger.addHandler(Own(io.StringIO()))
    write_all(lines(logger, "a", "b"))
    assert seen == ["a", "b"]


def test_what_raises_costs_its_own_line_and_nothing_else(logger: logging.Logger) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit

    class Unformattable(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            if record.getMessage() == "a":
                raise ValueError
            return super().format(record)

    closed, stream = io.StringIO(), Counting()
    closed.close()
    logger.addHandler(Broken())
    logger.addHandler(handler(closed))
    logger.addHandler(picky := handler(stream))
    picky.setFormatter(Unformattable())
    write_all(lines(logger, "a", "b"))
    assert stream.getvalue() == "b\n"


def test_a_logger_that_decides_for_itself_is_asked(logger: logging.Logger) -> None:
    stream = Counting()
    logger.addHandler(handler(stream))
    logger.addFilter(lambda record: record.getMessage() == "b")
    write_all(lines(logger, "a", "b"))
    logger.filters.clear()
    logger.disabled = True
    write_all(lines(logger, "c"))
    assert stream.getvalue() == "b\n"


def test_parents_write_too(logger: logging.Logger) -> None:
    stream, own = Counting(), Counting()
    logger.addHandler(handler(stream))
    child = logger.getChild("child")
    child.addHandler(handler(own))
    write_all(lines(child, "a"))
    assert (stream.getvalue(), own.getvalue()) == ("a\n", "a\n")
    child.handlers.clear()
