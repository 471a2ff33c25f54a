"""The jobs of a filtered list as a file: CSV or JSON, row by row, in the order of their ids.

A file of a million rows needs the memory of one batch. No transaction and no cursor stays open during the download. A
download that fails in the middle ends with an error, so that a part is not taken for the whole list.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any

from django.http import Http404, HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.utils.decorators import method_decorator
from django.utils.functional import Promise
from django.views.decorators.http import require_safe

from pulse_django.console.mass.criteria import Criteria, InvalidCriteria
from pulse_django.console.mass.page import MassPage
from pulse_django.models import Job
from pulse_django.queue.words.display import inert
from pulse_django.shards.page import shard_of

from .arguments_shown import arguments_shown, result_shown

COLUMNS = (
    *("id", "task", "queue", "priority", "status", "attempts", "max_attempts", "parent_id", "batch_id", "locked_by"),
    *("tags", "created_at", "next_run_at", "started_at", "finished_at", "last_error"),
)
SECRETS = ("args", "kwargs", "result")  # only for users who may see them
BATCH, BATCH_WITH_ARGUMENTS = 1_000, 50  # rows in memory; the arguments of each may have a megabyte
_FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20\t\r\n")  # including full-width characters
# Some programs split at other characters than the comma, even within quotes. A cell may begin there.
_MAY_BEGIN = re.compile(r'[,;\t\r\n][,;\s"]*')

Row = dict[str, Any]


class ExportPage(MassPage):
    """The part of ``JobAdmin`` with the downloads."""

    @method_decorator(require_safe)
    def export_view(self, request: HttpRequest, name: str) -> HttpResponseBase:
        """Send the jobs that match the filter in the address."""
        if (written := FORMATS.get(name)) is None:
            raise Http404
        try:
            criteria = Criteria.read(request.META.get("QUERY_STRING", ""), request)
        except InvalidCriteria as error:
            return self.back(request, str(error))
        sees_arguments = request.user.has_perm("pulse_django.pulse_view_arguments")
        rows = _rows(shard_of(request, reads=True), criteria, sees_arguments=sees_arguments)
        first = list(islice(rows, 1))  # read before the response starts, so that an error shows a page
        columns = [*COLUMNS, *(SECRETS if sees_arguments else ())]
        kind, write = written
        response = StreamingHttpResponse(write(columns, chain(first, rows)), content_type=kind)
        response["Content-Disposition"] = f'attachment; filename="jobs.{name}"'
        response["Cache-Control"] = "no-store"
        return response

    def export_links(self, request: HttpRequest) -> list[dict[str, str]]:
        """Return the addresses of the files, if the list is filtered."""
        try:
            criteria = Criteria.read(request.META.get("QUERY_STRING", ""), request)
        except InvalidCriteria:
            return []
        return [{"label": name.upper(), "url": f"{self.url('job_export', name)}?{criteria.query}"} for name in FORMATS]


def _rows(alias: str, criteria: Criteria, *, sees_arguments: bool) -> Iterator[Row]:
    """Yield the rows, and read them in batches."""
    names = ("sensitive", *COLUMNS, *(SECRETS if sees_arguments else ()))
    most = BATCH_WITH_ARGUMENTS if sees_arguments else BATCH
    jobs = criteria.jobs(alias).order_by("pk").only(*names)
    batch = list(jobs[:most])
    while batch:
        for job in batch:
            yield _row_of(job, sees_arguments=sees_arguments)
        batch = list(jobs.filter(pk__gt=batch[-1].pk)[:most]) if len(batch) == most else []


def _row_of(job: Job, *, sees_arguments: bool) -> Row:
    row = {name: getattr(job, name) for name in COLUMNS}
    if sees_arguments:
        seen = arguments_shown(job)
        row["args"], row["kwargs"] = seen if isinstance(seen, tuple) else (str(seen), str(seen))
        result = result_shown(job, job.result)
        row["result"] = str(result) if isinstance(result, Promise) else result
    return row


class _Line:
    """A file for ``csv``, whose ``write()`` returns the text."""

    def write(self, text: str) -> str:
        return text


def _as_csv(columns: Iterable[str], rows: Iterable[Row]) -> Iterator[str]:
    columns = list(columns)
    writer = csv.writer(_Line(), quoting=csv.QUOTE_ALL)
    yield writer.writerow(columns)
    for row in rows:
        yield writer.writerow([_cell(row[name]) for name in columns])


def _cell(value: Any) -> str:
    """Return a value as one line that no spreadsheet interprets as a formula."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    text = value if isinstance(value, str) else json.dumps(value)
    shown = inert(_MAY_BEGIN.sub(_no_formula_after, text))
    return f"'{shown}" if text.lstrip()[:1] in _FORMULA or text[:1] in _FORMULA else shown


def _no_formula_after(found: re.Match[str]) -> str:
    is_before_formula = found.string[found.end() : found.end() + 1] in _FORMULA
    return f"{found[0]}'" if is_before_formula else found[0]


def _as_json(columns: Iterable[str], rows: Iterable[Row]) -> Iterator[str]:
    columns, mark = list(columns), "["
    for row in rows:
        yield f"{mark}\n{json.dumps({name: row[name] for name in columns}, default=_spelt)}"
        mark = ","
    yield "[]\n" if mark == "[" else "\n]\n"


def _spelt(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


FORMATS: dict[str, tuple[str, Callable[[Iterable[str], Iterable[Row]], Iterator[str]]]] = {
    "csv": ("text/csv; charset=utf-8", _as_csv),
    "json": ("application/json", _as_json),
}
