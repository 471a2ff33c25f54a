"""``manage.py pulse_worker``: run jobs until told to stop."""

from __future__ import annotations

import signal
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from pulse_django.identity import Identity
from pulse_django.worker import Worker


class Command(BaseCommand):
    help = "Run jobs, one at a time. SIGTERM and Ctrl-C let the job at hand finish."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", help="only these, separated by commas; without it all")
        parser.add_argument("--name", help="what locked_by begins with; without it host and pid")
        parser.add_argument("--burst", action="store_true", help="stop when nothing is due")

    def handle(self, *args: Any, **options: Any) -> None:
        queues = options["queues"].split(",") if options["queues"] else None
        identity = Identity(options["name"]) if options["name"] else Identity.of_this_process()
        worker = Worker(identity, queues=queues)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stopping.set())
        self.stdout.write(f"{identity.name} is waiting for jobs")
        self.stdout.flush()
        worker.run(burst=options["burst"])
        self.stdout.write(f"{identity.name} has stopped")
