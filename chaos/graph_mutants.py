"""Bugs for the chaos of graphs to find: each breaks one rule of needs, batches or steps, in the workers of a run.

A worker imports this module as one of its task modules when ``CHAOS_MUTANT`` names a bug.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from types import ModuleType
from typing import Any

from pulse_django.managers import JobManager
from pulse_django.queue.database.transactions import is_in_transaction, joined
from pulse_django.queue.words.verb_results import Report, Settled
from pulse_django.workflows import batch_verbs as batches
from pulse_django.workflows import resolve, steps

SLOW_COMMIT = 0.05  # seconds, as with a standby that has to confirm

_settle = JobManager.settle


def _replaced(module: ModuleType, name: str, *pairs: tuple[str, str]) -> None:
    statement: str = getattr(module, name)
    for old, new in pairs:
        if old not in statement:
            raise SystemExit(f"{name} does not contain {old!r}: the mutant needs a new place")
        statement = statement.replace(old, new)
    setattr(module, name, statement)


def _that_notes_nothing() -> ModuleType:
    """Return another ``resolve`` that leaves no row for a job that another call has locked."""
    spec = importlib.util.find_spec(resolve.__name__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    _replaced(copy, "_MARK", ("WHERE job.finished_at IS NULL AND", "WHERE false AND"))
    return copy


def look_before_the_commit() -> None:
    """Judge what a settle frees in its own transaction, and note nothing for afterwards."""
    blind = _that_notes_nothing()

    def settle(self: Any, reports: Collection[Report], *, wait: bool = True) -> Settled:
        with joined(self.write_alias):
            settled = _settle(self, reports, wait=wait)
            if settled.has_notes:
                blind.resolve(self)
                time.sleep(SLOW_COMMIT)
        return replace(settled, has_notes=False)

    JobManager.settle = settle  # type: ignore[method-assign]


def resolve_inside_atomic() -> None:
    """Judge what ``context.atomic()`` frees in the handler's transaction, and note nothing for afterwards."""
    blind = _that_notes_nothing()

    def settle(self: Any, reports: Collection[Report], *, wait: bool = True) -> Settled:
        settled = _settle(self, reports, wait=wait)
        if not is_in_transaction(self.write_alias) or not settled.has_notes:
            return settled
        blind.resolve(self)
        time.sleep(SLOW_COMMIT)
        return replace(settled, has_notes=False)

    JobManager.settle = settle  # type: ignore[method-assign]


def no_sweep() -> None:
    """Look at the changes of this worker, and of clients, but never at those of another worker."""
    mine = "WHERE made_by IN ('', pg_catalog.current_setting('chaos.worker', true)) AND id"
    _replaced(resolve, "_FIND", ("WHERE id", mine))


def callback_before_seal() -> None:
    """Close a batch as soon as all members so far are over."""
    _replaced(batches, "_JUDGE_BATCHES", ("SELECT sealed_at IS NOT NULL AND NOT has_open", "SELECT NOT has_open"))


def step_without_fence() -> None:
    """Write a step down, whoever has the lease."""
    steps._STORE = """
    INSERT INTO pulse_django_step AS step (job_id, name, number, attempt, token, result, seconds)
    SELECT
        run.id, %s, 1 + (SELECT count(*) FROM pulse_django_step WHERE job_id = run.id), run.attempt, 0, %s::jsonb,
        %s::float8
    FROM (SELECT %s::bigint AS id, %s::text AS holder, %s::int AS attempt) AS run
    ON CONFLICT (job_id, name) DO UPDATE SET attempt = EXCLUDED.attempt, result = EXCLUDED.result
    RETURNING job_id
    """
    run_joined = steps.run_joined

    def in_another_order(alias: str, sql: str, params: Any) -> Any:
        if sql == steps._STORE:
            params = [*params[3:], *params[:3]]
        return run_joined(alias, sql, params)

    steps.run_joined = in_another_order  # type: ignore[assignment]


GRAPH_MUTANTS: dict[str, Callable[[], None]] = {
    "look before the commit": look_before_the_commit,
    "no sweep": no_sweep,
    "resolve inside atomic()": resolve_inside_atomic,
    "callback before seal": callback_before_seal,
    "step without fence": step_without_fence,
}


if (name := os.environ.get("CHAOS_MUTANT")) in GRAPH_MUTANTS:
    GRAPH_MUTANTS[name]()
