"""The mix of jobs that a soak is made of, and how long the worker's claims took, noted where they are sent.

A worker imports this by TASK_MODULES. With ``BENCH_CLAIMS`` in its environment each claim adds a line to that file: the
time of day, and how many seconds its statement took as the worker saw it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from django.db.backends.signals import connection_created

from pulse_django import Context, task
from pulse_django.queue.database.prepared_statements import PreparedStatements

CLAIMS = "BENCH_CLAIMS"
# Of a hundred jobs. The rest does nothing at all.
FAIL_ONCE, REPORT_PROGRESS = 1, 2
ONLY_IN_A_CLAIM = "nextval('pulse_django_token')"


@task
def nothing() -> None:
    pass


@task(takes_context=True)
def fail_once(context: Context) -> None:
    if context.attempt == 1:
        raise RuntimeError("the first attempt fails")


@task(takes_context=True)
def report_progress(context: Context) -> int:
    context.progress(1, 2)
    context.progress(2, 2)
    return 2


def kind_of(number: int) -> Any:
    """Return the task of the job of this number."""
    place = number % 100
    if place < FAIL_ONCE:
        return fail_once
    return report_progress if place < FAIL_ONCE + REPORT_PROGRESS else nothing


def _note_claims(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    if ONLY_IN_A_CLAIM not in sql:
        return execute(sql, params, many, context)
    began = time.perf_counter()
    answer = execute(sql, params, many, context)
    line = f"{time.time():.3f} {time.perf_counter() - began:.6f}\n"
    file = os.open(os.environ[CLAIMS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
    return answer


def _watch(connection: Any, **_: object) -> None:
    connection.execute_wrappers.append(_note_claims)


def _watch_prepared() -> None:
    """Note claims that are prepared: Django does not see these."""
    run = PreparedStatements.run

    def noted(self: PreparedStatements, connection: Any, sql: str, params: Any) -> Any:
        return _note_claims(lambda *_: run(self, connection, sql, params), sql, params, False, {})

    PreparedStatements.run = noted  # type: ignore[method-assign]


if os.environ.get(CLAIMS):
    connection_created.connect(_watch)
    _watch_prepared()
