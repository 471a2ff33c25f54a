"""``manage.py pulse_postgres``: a PostgreSQL server in a folder of the project, for development."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from pulse_django.embedded.programs import NoPostgresError
from pulse_django.embedded.server import DATABASE, PORT, Server, server_in
from pulse_django.operations.arguments import require_unix

FOLDER = ".pulse_postgres"
NOT_RUNNING = 3  # the exit code that systemctl uses


class Command(BaseCommand):
    help = (
        "Start or stop a PostgreSQL server for development. It keeps its data in .pulse_postgres in the folder of the "
        "project, or in the environment variable PULSE_PG_HOME, and only your user can connect. start prints "
        "the setting DATABASES, and requires DEBUG. status exits with 3 when the server is not running."
    )
    requires_system_checks = ()  # DATABASES need not work yet

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("verb", choices=["start", "stop", "status"], help="start, stop or status")

    def handle(self, *args: Any, **options: Any) -> None:
        require_unix("pulse_postgres")
        from pulse_django.embedded import starter

        try:
            server = server_in(Path(getattr(settings, "BASE_DIR", "")) / FOLDER)
            if options["verb"] == "start":
                if not settings.DEBUG:
                    raise CommandError(
                        "pulse_postgres start is for development and requires DEBUG = True: its server has no password "
                        "and nobody backs it up. In production, use a PostgreSQL server of your own."
                    )
                starter.start(server)
            elif options["verb"] == "stop":
                self.stdout.write("Stopped." if starter.stop(server) else "It was not running.")
                return
        except NoPostgresError as error:
            raise CommandError(str(error)) from error
        if not server.answers():
            self.stdout.write(f"PostgreSQL {server.version} in {server.home} is not running.")
            sys.exit(NOT_RUNNING)
        self.stdout.write(_said_of(server))


def _said_of(server: Server) -> str:
    return f"""\
PostgreSQL {server.version} is running in {server.home}. Its log: {server.log}
The setting:

DATABASES = {{
    "default": {{
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "{DATABASE}",
        "USER": "postgres",
        "HOST": {str(server.home)!r},
        "PORT": "{PORT}",
    }}
}}

As a URL: {server.url}"""
