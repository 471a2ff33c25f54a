"""``manage.py pulse_import_schedules``: import the schedules of django-celery-beat."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connections

from pulse_django.exceptions import PulseError
from pulse_django.models import Schedule
from pulse_django.operations import arguments
from pulse_django.operations.arguments import PulseCommand
from pulse_django.operations.terminal import showable
from pulse_django.queue.database.tables import require_tables
from pulse_django.queue.words.display import inert
from pulse_django.run.registry import key_of, registry
from pulse_django.schedules.definitions import MAX_NAME
from pulse_django.schedules.imports import SOURCES, Found, NothingToRead
from pulse_django.schedules.verbs import check

CREATED, EXISTS, WOULD, SKIPPED = "created", "exists", "would be created", "skipped"


class Command(PulseCommand):
    help = "Read the schedules of another package. Without --yes, only list what would be created."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("source", choices=sorted(SOURCES), help=", ".join(sorted(SOURCES)))
        parser.add_argument("--yes", action="store_true", help="create the schedules")
        parser.add_argument("--from-database", metavar="ALIAS", help="alias of the database with the other tables")
        arguments.add_output(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        alias = arguments.alias_of(options)
        require_tables(alias)
        source = options["from_database"] or alias
        if source not in connections:
            raise CommandError(f"--from-database: {source!r} is not in DATABASES.")
        try:
            found = SOURCES[options["source"]](source)
        except NothingToRead as error:
            raise CommandError(str(error)) from error
        said = [self._taken(one, alias, is_real=options["yes"], source=options["source"]) for one in found]
        if options["json"]:
            self.stdout.write(json.dumps({"command": "pulse_import_schedules", "database": alias, "schedules": said}))
            return
        for one in said:
            what = f": {one['why']}" if one["why"] else ""
            line = f"{one['name']}  {one['task']}  {one['when']}  {one['state']}{what}"
            self.stdout.write(showable(inert(line), self.stdout))
        self.stdout.write(self._summary(said, options["source"], is_real=options["yes"]))

    def _taken(self, found: Found, alias: str, *, is_real: bool, source: str) -> dict[str, Any]:
        state, why = self._create(found, alias, source, is_real=is_real)
        notes = [*([why] if why else []), *found.notes, *(["it is disabled there"] if found.is_disabled else [])]
        when = found.timing.in_words() if found.timing is not None else ""
        return {"name": found.name, "task": found.task, "when": when, "state": state, "why": "; ".join(notes)}

    def _create(self, found: Found, alias: str, source: str, *, is_real: bool) -> tuple[str, str]:
        if found.why_not or found.timing is None:
            return SKIPPED, found.why_not
        schedules, name = Schedule.objects.db_manager(alias), found.name[:MAX_NAME]
        if schedules.filter(name=name).exists():
            return EXISTS, ""
        same = {column: getattr(found, column) for column in ("args", "kwargs", "queue", "priority", "starts_at")}
        columns: Any = {"name": name, "task": _task_called(found.task), **schedules.columns_of(found.timing), **same}
        try:
            if not is_real:
                check(Schedule(**columns))
                return WOULD, ""
            row = schedules.create(**columns)
        except PulseError as error:
            return SKIPPED, str(error)
        if found.is_disabled:
            schedules.pause(row.pk, reason=f"disabled in {source}")
        return CREATED, ""

    @staticmethod
    def _summary(said: list[dict[str, Any]], source: str, *, is_real: bool) -> str:
        counts = {state: sum(one["state"] == state for one in said) for state in (CREATED, WOULD, EXISTS, SKIPPED)}
        numbers = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "nothing found"
        return f"{source}: {numbers}." + ("" if is_real else " Nothing was written. --yes creates them.")


def _task_called(name: str) -> str:
    """Return the key of the task with this key or this path of its function."""
    registry.discover()
    if registry.get(name) is not None:
        return name
    for key in registry:
        task = registry.get(key)
        if task is not None and task.module_path == name:
            return key_of(task)
    return name
