"""Lines of a batch are written at once, and each of them as ``logging`` would."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from django.test import override_settings
from django.utils.log import AdminEmailHandler, RequireDebugFalse, RequireDebugTrue

from pulse_django.run.django_log import DeferredRecord, Place
from pulse_django.worker.logs import Plain, write_all
from tests.faults import all_faults, each_of


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


class Recordless(DeferredRecord):
    """A line of which no record can be made."""

    __slots__ = ()

    def record(self) -> logging.LogRecord:
        raise AssertionError("a record was made")


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


def test_one_write_for_a_batch_in_one_order_and_parents_write_too(logger: logging.Logger) -> None:
    stream, own = Counting(), Counting()
    other, child = logger.getChild("other"), logger.getChild("child")
    other.propagate = False
    for one in (logger, other):
        one.handlers = [handler(stream)]
    child.handlers = [handler(own)]
    write_all([*lines(logger, "a"), *lines(other, "b"), *lines(child, "c")])
    assert (stream.getvalue(), stream.writes, own.getvalue()) == ("a\nb\nc\n", 1, "c\n")
    for one in (other, child):
        one.handlers.clear()


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


class TestLinesWithoutRecords:
    """A line that goes to a stream as it is looks as its record would."""

    PLACE = Place("tests.log_batches", "file.py", "function")

    @pytest.fixture
    def logger(self) -> logging.Logger:
        return self.new_logger()

    def new_logger(self) -> logging.Logger:
        """Return a logger that is not registered: pytest adds its own handlers to registered ones."""
        return logging.Logger(self.PLACE.logger, logging.DEBUG)

    def line(self, kind: type[DeferredRecord] = DeferredRecord) -> DeferredRecord:
        return kind(self.PLACE, logging.INFO, "job %d %s", (7, "a\x1bb\n"), lambda: {"job_id": 7})

    def test_they_look_the_same(self) -> None:
        with all_faults() as about:
            for formatter, debug, one in product(
                [None, logging.Formatter(), Plain()], [True, False], [None, RequireDebugTrue(), RequireDebugFalse()]
            ):
                with about((formatter, debug, one)):
                    logger = self.new_logger()
                    logger.addHandler(plain := handler(stream := Counting()))
                    plain.setFormatter(formatter)
                    if one is not None:
                        plain.addFilter(one)
                    logger.addHandler(AdminEmailHandler())  # of level ERROR: it needs no record of this line
                    logger.handlers[-1].setLevel(logging.ERROR)
                    line, recordless = self.line(), self.line(Recordless)
                    recordless.created = line.created
                    with override_settings(DEBUG=debug):
                        write_all([(logger, line.record())])
                        expected = stream.getvalue()
                        assert bool(expected) == (one is None or isinstance(one, RequireDebugTrue) == debug)
                        write_all([(logger, recordless)])
                    assert stream.getvalue() == expected * 2

    @each_of("a filter", "a formatter", "a handler", "an error", "a format", "disabled")
    def test_a_record_is_made_where_something_reads_it(self, *, reason: Any) -> None:
        logger = self.new_logger()
        logger.addHandler(plain := handler(stream := Counting()))
        line = self.line()
        if reason == "a filter":
            plain.addFilter(lambda record: record.job_id == 7)
        elif reason == "a formatter":
            plain.setFormatter(Shouting())
        elif reason == "a handler":
            logger.addHandler(logging.NullHandler())
        elif reason == "an error":
            line.error = ValueError("that was it")
        elif reason == "a format":
            plain.setFormatter(logging.Formatter("%(job_id)s %(message)s"))
        else:
            logger.disabled = True
        write_all([(logger, line)])
        text = stream.getvalue()
        assert text.lower().startswith({"a format": "7 job 7", "disabled": ""}.get(reason, "job 7")), text
        assert ("that was it" in text) == (reason == "an error")

    def test_a_value_that_cannot_be_shown_costs_its_line_and_no_other(self, logger: logging.Logger) -> None:
        class Unshowable:
            def __str__(self) -> str:
                raise SystemExit

        logger.addHandler(handler(stream := Counting()))
        broken = DeferredRecord(self.PLACE, logging.INFO, "%s", (Unshowable(),))
        write_all([*lines(logger, "a"), (logger, broken), *lines(logger, "b")])
        assert stream.getvalue() == "a\nb\n"

    def test_what_stands_in_the_way_of_all_records_gets_them(
        self, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Error trackers replace this method of ``logging``."""
        seen = []
        monkeypatch.setattr(logging.Logger, "callHandlers", lambda self, record: seen.append(record.getMessage()))
        logger.addHandler(handler(Counting()))
        write_all([(logger, self.line()), *lines(logger, "b")])
        assert [text[:5] for text in seen] == ["job 7", "b"]

    def test_the_order_is_kept_among_lines_and_records(self, logger: logging.Logger) -> None:
        logger.addHandler(handler(stream := Counting()))
        write_all([*lines(logger, "a"), (logger, self.line()), *lines(logger, "b")])
        assert stream.getvalue().split("\n")[0] == "a"
        assert stream.getvalue().endswith("\nb\n")
        assert stream.writes == 1
