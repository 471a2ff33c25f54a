"""``manage.py pulse_demo``: kill real workers, and see their jobs recovered. The first thing to run."""

from __future__ import annotations

import secrets
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError, CommandParser
from django.db import Error, connections, router
from django.db.models import Value

from pulse_django import conf
from pulse_django.models import Worker
from pulse_django.operations.arguments import PulseCommand
from pulse_django.queue.database.sql_functions import ClockTimestamp
from pulse_django.queue.database.tables import require_tables
from pulse_django.queue.words.display import in_words
from testproject.demo.pace import REAL_TIME, SCALED
from testproject.demo.screen import Screen
from testproject.demo.stage import Stage, set_up
from testproject.demo.story import play
from testproject.demo.telling import Telling, WentOtherwise

MISSED_BEATS = 3  # after which a worker that never said goodbye is taken for gone
PATIENCE_WITH_SESSIONS = 2.0  # seconds; behind a pool, sessions outlive their workers

_SESSIONS_OF_WORKERS = """
SELECT pg_catalog.count(*)
FROM pg_catalog.pg_stat_activity
WHERE datname = pg_catalog.current_database()
    AND application_name LIKE 'pulse %'
    AND pid <> pg_catalog.pg_backend_pid()
"""


class Command(PulseCommand):
    help = (
        "Show how jobs survive when workers are killed or frozen, with real workers, signals and tables. Takes about "
        "half a minute. Exits with 1 if any step did not happen."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--migrate", action="store_true", help="migrate the database of the project first")
        parser.add_argument(
            "--real-time", action="store_true", help="use leases of 30 s, as in production; takes four minutes"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        pace = REAL_TIME if options["real_time"] else SCALED
        screen = Screen(self.stdout, self.style)
        if options["migrate"]:
            screen.say("Migrating the database")
            call_command("migrate", verbosity=0)
        try:
            require_tables(router.db_for_write(Worker))
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        self._refuse_company()
        queue = f"demo-{secrets.token_hex(4)}"
        screen.say(
            f"The workers run on a separate queue, {queue}. Leases last {pace.ttl:g} s, a heartbeat extends them "
            f"every {pace.beat:g} s, and a watchdog looks for expired leases every {pace.tick:g} s."
        )
        with _terminated_as_by_ctrl_c(), set_up(queue, pace.settings) as stage:
            try:
                play(Telling(screen, stage, pace, queue, patience=pace.patience))
            except WentOtherwise as error:
                for worker in stage.started:
                    screen.say(self.style.WARNING(f"\nThe log of {worker.name} ends:"), worker.log_end)
                raise CommandError(f"The demo failed: {error}") from error
            except KeyboardInterrupt as error:
                raise CommandError("Interrupted. The demo's workers are stopped.", returncode=130) from error
            finally:
                _say_goodbye_for_the_dead(stage)
        screen.say(
            self.style.SUCCESS(f"\nNothing was lost. It took {screen.elapsed:.1f} s."),
            "Open the dead letter in the Django admin to see its runs.",
        )

    def _refuse_company(self) -> None:
        """Other workers would take the demo's jobs, and the demo's would look after theirs."""
        silence = conf.current().heartbeat_interval * MISSED_BEATS
        live = Worker.objects.using(router.db_for_write(Worker)).filter(
            stopped_at=None, last_beat_at__gt=ClockTimestamp() - Value(silence)
        )
        if names := [f"{worker} on {worker.host} (pid {worker.pid})" for worker in live]:
            raise CommandError(
                f"Workers are running on this database: {', '.join(names)}. They would interfere with the demo. Stop "
                f"them; a killed worker is considered gone after {in_words(silence.total_seconds())}."
            )


def _say_goodbye_for_the_dead(stage: Stage) -> None:
    """Who was killed could not: without it the next demo would take them for alive for a while."""
    stage.kill()
    if not stage.started:
        return
    with suppress(Error):
        _await_end_of_sessions(alias := router.db_for_write(Worker))
        rows = Worker.objects.using(alias).filter(stopped_at=None, name__in=[worker.name for worker in stage.started])
        for row in rows.filter(pid__in=[worker.pid for worker in stage.started]):
            Worker.objects.db_manager(alias).farewell(row.name, row.boot_id)


def _await_end_of_sessions(alias: str) -> None:
    """Wait a little for the sessions of killed workers: a last heartbeat would mark its worker as alive again."""
    deadline = time.monotonic() + PATIENCE_WITH_SESSIONS
    while time.monotonic() < deadline:
        with connections[alias].cursor() as cursor:
            cursor.execute(_SESSIONS_OF_WORKERS)
            if cursor.fetchone() == (0,):
                return
        time.sleep(0.05)


@contextmanager
def _terminated_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM would end this process and leave its workers behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
