"""``manage.py pulse_schedules``: list schedules, show their next times, run, pause and resume them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from pulse_django.health.known_names import UnknownName, nearest
from pulse_django.models import Schedule
from pulse_django.operations import arguments
from pulse_django.operations.arguments import user_of
from pulse_django.queue.words.display import in_words, inert
from pulse_django.schedules import facts
from pulse_django.schedules.ticking import run_now
from pulse_django.schedules.verbs import clock
from pulse_django.shards.command import ActCommand, Said

MOST_LISTED = 1_000
MOST_NEXT = 1_000


class Command(ActCommand):
    help = "List schedules, show their next times, run, pause and resume them."
    acts = ("list", "next", "run", "pause", "resume")
    subject, wanted = "name", "name the schedule."

    def add_arguments(self, parser: CommandParser) -> None:
        self.add_act(parser)
        name = "name of the schedule; required except by list"
        parser.add_argument("name", type=arguments.text, nargs="?", help=name)
        parser.add_argument("--task", type=arguments.text, metavar="NAME", help="list: only schedules of this task")
        count = arguments.whole_number(1, MOST_NEXT)
        parser.add_argument("--count", type=count, default=10, metavar="N", help="next: how many; default: 10")
        parser.add_argument("--reason", default="", help="pause: reason, also shown on ticks that do not fire")
        arguments.add_duration(parser, "pause: length of the pause; default: until resumed")
        arguments.add_output(parser)

    def _list(self, alias: str, options: dict[str, Any]) -> Said:
        found = Schedule.objects.using(alias).order_by("name")
        if options["task"]:
            found = found.filter(task=options["task"])
        rows, now = list(found[: MOST_LISTED + 1]), clock(alias)
        latest = {key: ticks[0] for key, ticks in facts.recent(alias, [row.pk for row in rows], 1).items()}
        shown = rows[:MOST_LISTED]
        lines = [self._line(row, now, latest.get(row.pk)) for row in shown] or ["There are no schedules."]
        if len(rows) > MOST_LISTED:
            lines.append(f"There are more than {MOST_LISTED}. Use --task.")
        return {"schedules": [facts.as_json(row, now, latest.get(row.pk)) for row in shown]}, lines

    def _line(self, row: Schedule, now: datetime, last: facts.RecentTick | None) -> str:
        state = facts.state_of(row, now)
        if state == "active" and row.next_at is not None:
            seconds = (row.next_at - now).total_seconds()
            state = f"due in {in_words(seconds)}" if seconds >= 0 else f"overdue for {in_words(-seconds)}"
        elif state == "paused" and row.pause_reason:
            state = f"paused: {row.pause_reason}"
        was = (
            "" if last is None else f"; last {last.at:%Y-%m-%d %H:%M:%S%z} {last.outcome.value} {last.status}".rstrip()
        )
        return inert(f"{row.name}  {row.task}  {facts.in_words(row)}  {state}{was}")

    def _next(self, alias: str, options: dict[str, Any]) -> Said:
        row, now = self._named(alias, options["name"]), clock(alias)
        found = facts.next_instants(row, now, options["count"])
        lines = [f"{one.local:%Y-%m-%d %H:%M:%S %Z}{'  (clocks were changed)' if one.changes else ''}" for one in found]
        state = facts.state_of(row, now)
        if state != "active":
            lines.append(f"The schedule is {state}.")
        said = [{"at": one.at.isoformat(), "local": one.local.isoformat(), "changes": one.changes} for one in found]
        return {"name": row.name, "state": state, "next": said}, lines

    def _run(self, alias: str, options: dict[str, Any]) -> Said:
        row = self._named(alias, options["name"])
        job_id = run_now(alias, row.pk, by=user_of("pulse_schedules"))
        return {"name": row.name, "job": job_id}, [f"Job {job_id} was enqueued."]

    def _pause(self, alias: str, options: dict[str, Any]) -> Said:
        row = self._named(alias, options["name"])
        given = {"reason": options["reason"], "duration": options["duration"], "by": user_of("pulse_schedules")}
        if not Schedule.objects.db_manager(alias).pause(row.pk, **given):
            raise CommandError(f"{row.name!r} is not declared by the code any more: it does not run.")
        return {"name": row.name, "paused": True}, [f"{inert(row.name)} is paused."]

    def _resume(self, alias: str, options: dict[str, Any]) -> Said:
        row = self._named(alias, options["name"])
        done = bool(Schedule.objects.db_manager(alias).resume(row.pk, by=user_of("pulse_schedules")))
        return {"name": row.name, "resumed": done}, [f"{inert(row.name)} {'is resumed' if done else 'was not paused'}."]

    @staticmethod
    def _named(alias: str, name: str) -> Schedule:
        row: Schedule | None = Schedule.objects.using(alias).filter(name=name).first()
        if row is None:
            names = Schedule.objects.using(alias).order_by("name").values_list("name", flat=True)[:MOST_LISTED]
            raise CommandError(inert(f"{UnknownName('schedule', name, nearest(name, names))}"))
        return row
