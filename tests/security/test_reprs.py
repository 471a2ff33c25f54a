"""What objects and errors of Pulse's say in a log line or a traceback: nothing of arguments, progress or results."""

from __future__ import annotations

import pkgutil
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from django.dispatch import Signal

import pulse_django
from pulse_django import Context, enqueue_many, signals, task
from pulse_django.backend import new_job
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from pulse_django.run.execute import perform, prepared
from pulse_django.run.registry import task_enqueued, task_finished, task_started
from pulse_django.run.run import Run
from pulse_django.testing import drain
from tests.faults import all_faults, each_of
from tests.security.handlers import CANARY

# Fields that hold what a handler is given or gives. Whoever adds another kind, names it here.
CARRIERS = {
    *("args", "kwargs", "args_json", "kwargs_json", "arguments", "payload"),
    *("progress", "progress_json", "checkpoint", "result", "_return_value"),
}
# Fields of any type that hold nothing of a job's.
HARMLESS = {
    "Clauses.conflict_params", "Clauses.take_params", "Given.rows", "NewJob.alike",  # their reprs leave these out
    "Gate.sentence", "Gate.sentence_until",
    "Capability.conditions",
    "StepDone.said", "Swept.said",  # names and numbers
    "Act.answers", "Act.done", "Act.form", "Act.label", "Act.label_of_all", "Act.refusals", "Act.says",
    "Act.says_of_all", "RowAct.do", "RowAct.fits", "RowAct.label", "RowAct.refused", "RowAct.says",
    "LimitFacts.numbers",
    "LimitFacts.of_code", "LimitFacts.override", "Option.annotation", "Option.default",
    "PulseSettings.alerts", "PulseTask.func", "PulseTask.on_dead", "Presence.vitals", "Reading.value", "Reason.facts",
    "Refused.why", "Repair.act", "Sign.label", "Sign.means", "Subject.key", "Range.least", "Range.most",
}  # fmt: skip


@task(name="security.reprs", sensitive=("card", "options", "return"), takes_context=True)
def charge(context: Context, order: Any, card: Any = "", **options: Any) -> Any:
    if order == "fails":
        raise RuntimeError("refused")
    if order == "completes with a set":
        with context.atomic() as completion:
            completion.result = {card: {1, 2}}
    context.progress(1, 2, saved=card)
    return {card: {1, 2}} if order == "returns a set" else {"card": card}


# ------------------------------------------------------------------------------------------------- every class there is


@cache
def classes() -> list[type]:
    """Every dataclass and named tuple of the package."""
    found: set[type] = set()
    for module in pkgutil.walk_packages(pulse_django.__path__, "pulse_django."):
        if ".migrations" in module.name or module.name.endswith((".prometheus", ".opentelemetry")):
            continue
        for one in vars(import_module(module.name)).values():
            if isinstance(one, type) and one.__module__.startswith("pulse_django") and names_of(one):
                found.add(one)
    return sorted(found, key=lambda one: (one.__module__, one.__qualname__))


def names_of(kind: type) -> dict[str, str]:
    """Return its fields with their types as text."""
    if is_dataclass(kind):
        if vars(kind).get("__slots__") == ():
            return {}  # a base, of which none can be made
        return {one.name: str(one.type) for one in fields(kind)}
    return {name: str(kind.__annotations__.get(name)) for name in getattr(kind, "_fields", ())}


class Word(str):
    """A text that has every attribute."""

    def __getattr__(self, name: str) -> Word:
        return Word()


def planted(kind: type) -> Any:
    """Make one without asking it, each field with a word of its own."""
    words = {name: Word(f"{CANARY}-{name}-") for name in names_of(kind)}
    if not is_dataclass(kind):
        return kind(**words)
    made = object.__new__(kind)
    for name, word in words.items():
        object.__setattr__(made, name, word)
    return made


def test_no_class_tells_what_it_carries() -> None:
    names = {kind.__name__ for kind in classes()}
    assert len(classes()) > 200
    assert names >= {"Claim", "NewJob", "Payload", "Call", "Report", "Succeeded", "Complete", "Performed", "Completion"}
    with all_faults() as about:
        for kind in classes():
            with about(f"{kind.__module__}.{kind.__qualname__}"):
                said = f"{planted(kind)!r} {planted(kind)!s}"
                assert [name for name in names_of(kind) if name in CARRIERS and f"{CANARY}-{name}-" in said] == []


def test_every_field_that_may_hold_anything_is_known() -> None:
    loose = [
        f"{kind.__name__}.{name}"
        for kind in classes()
        for name, said in names_of(kind).items()
        if "Any" in said or said == "object"
    ]
    unknown = [name for name in loose if name.partition(".")[2] not in CARRIERS and name not in HARMLESS]
    assert not unknown, "\n".join(unknown)


# ----------------------------------------------------------------------------------------------- what a job meets


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """What every receiver of every signal could print."""
    told: list[str] = []

    def listen(**facts: Any) -> None:
        told.extend(f"{name}: {fact!r} {fact!s}" for name, fact in facts.items())

    known = [one for one in vars(signals).values() if isinstance(one, Signal)]
    for signal in (*known, task_enqueued, task_started, task_finished):
        signal.connect(listen, weak=False)
    yield told
    for signal in (*known, task_enqueued, task_started, task_finished):
        signal.disconnect(listen)


@pytest.mark.django_db
def test_nothing_that_a_signal_sends_tells_arguments(heard: list[str]) -> None:
    results = [charge.enqueue(order, CANARY, note=CANARY) for order in ("works", "fails")]
    drain(failures="keep")
    for result in results:
        result.refresh()
        assert CANARY in str(result.args), "it is told to whoever asks"
        assert CANARY not in repr(result)
        assert f"id={result.id!r}" in repr(result)
    assert {line.partition(":")[0] for line in heard} >= {"claim", "outcome", "task", "task_result"}
    assert [line for line in heard if CANARY in line] == []


@pytest.mark.django_db
def test_nothing_on_the_way_of_a_job_tells_arguments() -> None:
    new = new_job(charge, ["works", CANARY], {"note": CANARY})
    job = Job.objects.enqueue(new)
    job.progress = CANARY
    [claim] = Job.objects.claim_these(Identity("me"), [job.pk])
    run = Run(claim)
    call = prepared(run, charge)
    performed = perform(run)
    report = performed.report
    assert report is not None
    met = (
        *(new, new.encoded(10_000), new.head, job, claim, run, call, call.context, performed, performed.result),
        *(report, report.outcome, report.decision, Job.objects.all()),
    )
    assert [type(one).__name__ for one in met if CANARY in f"{one!r} {one!s}"] == []


# ------------------------------------------------------------------------------------------------------------- errors


class Hostile:
    def __repr__(self) -> str:
        return CANARY


class Unreadable(dict):  # type: ignore[type-arg]
    def items(self) -> Any:
        raise KeyError(CANARY) from None


REFUSED: dict[str, Callable[[], Any]] = {
    "a text for many": lambda: enqueue_many(charge, [["fine"], CANARY]),
    "bytes for many": lambda: enqueue_many(charge, [CANARY.encode()]),
    "a value without parts for many": lambda: enqueue_many(charge, [Hostile()]),  # type: ignore[list-item]
    "too many for many": lambda: enqueue_many(charge, [[1, CANARY, CANARY]]),
    "too many": lambda: charge.enqueue(1, CANARY, CANARY),  # type: ignore[call-arg]
    "twice": lambda: charge.enqueue(1, CANARY, card=CANARY),
    "none": lambda: charge.enqueue(card=CANARY),
    "of another type": lambda: charge.enqueue(1, Hostile()),
    "within a list": lambda: charge.enqueue(1, [CANARY, Hostile()]),
    "under a key": lambda: charge.enqueue(1, {CANARY: uuid4()}),
    "under a key of an option": lambda: charge.enqueue(1, option={CANARY: [uuid4()]}),
    "of many, under a key": lambda: enqueue_many(charge, [{"order": 1, "card": {CANARY: uuid4()}}]),
    "not by name": lambda: Job.objects.enqueue(
        NewJob(task="x", args=[{CANARY: uuid4()}], sensitive='{"positions":[0]}'),
    ),
    "by an odd name": lambda: charge.enqueue(1, **{"an odd name": {CANARY: uuid4()}}),
    "a key": lambda: charge.enqueue(1, {f"{CANARY}\x00": 1}),
    "a key that is none": lambda: charge.enqueue(1, {CANARY: {1: 1}}),
    "NUL": lambda: charge.enqueue(1, f"{CANARY}\x00"),
    "NaN": lambda: charge.enqueue(1, {CANARY: float("nan")}),
    "too large": lambda: charge.enqueue(1, CANARY * 1_000_000),
    "too deep": lambda: charge.enqueue(1, {CANARY: nested(200)}),
    "a mapping that cannot be read": lambda: charge.enqueue(1, Unreadable(a=1)),
    "an instant": lambda: charge.enqueue(1, {CANARY: datetime(2026, 1, 1, tzinfo=UTC)}),
}


def nested(depth: int) -> list[Any]:
    return [nested(depth - 1)] if depth else []


@pytest.mark.django_db
@each_of(*REFUSED)
def test_no_error_repeats_what_is_masked(*, refused: Any) -> None:
    with pytest.raises((InvalidJob, TypeError)) as caught:
        REFUSED[refused]()
    told = "".join(traceback.format_exception(caught.value))
    assert CANARY not in f"{caught.value!r} {caught.value!s} {told}"


@pytest.mark.django_db
def test_what_cannot_be_read_or_is_no_sequence_is_told_by_its_place_and_type() -> None:
    with pytest.raises(InvalidJob, match="args: JSON cannot hold this value: reading it raised KeyError"):
        charge.enqueue(1, Unreadable(a=1))
    said = r"^arguments\[1\]: str is a single value; write \[value\] for a single argument$"
    with pytest.raises(InvalidJob, match=said):
        enqueue_many(charge, [["fine"], "secret"])
    assert not Job.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("order", ["returns a set", "completes with a set"])
def test_a_result_that_cannot_be_stored_is_told_without_its_keys_where_it_is_masked(order: str) -> None:
    charge.enqueue(order, CANARY)
    [ran] = drain(failures="keep")
    attempt = Attempt.objects.get()
    assert ran.status == Status.DEAD_LETTERED
    assert "result: set is not JSON" in attempt.message
    assert CANARY not in Job.objects.get().last_error + attempt.message + attempt.traceback
