"""What a worker was told: settings are defaults, flags win, and what makes no sense is refused."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from pulse_django.conf import PulseSettings
from pulse_django.management.commands.pulse_worker import Command, reloads
from pulse_django.worker.worker_options import WorkerOptions
from tests.faults import all_faults, each_of

SETTINGS = PulseSettings(
    processes=2, concurrency=3, queues=("mail",), shutdown_grace=timedelta(seconds=7), max_jobs=100, max_rss_mib=200
)


def test_settings_are_the_defaults() -> None:
    options = WorkerOptions.of(SETTINGS, "me", {})
    assert (options.name, options.aliases) == ("me", ("default",))
    assert (options.processes, options.concurrency, options.queues) == (2, 3, ("mail",))
    assert (options.shutdown_grace, options.max_jobs, options.max_rss_mib) == (7.0, 100, 200)
    assert (options.burst, options.watchdog) == (False, True)


@each_of(
    ("processes", 5),
    ("concurrency", 1),
    ("queues", ("a", "b")),
    ("shutdown_grace", 0.0),
    ("max_jobs", 0),
    ("max_rss_mib", 0),
    ("burst", True),
    ("watchdog", False),
    ("aliases", ("other",)),
)
def test_flags_win(*, flag: Any, value: Any) -> None:
    assert getattr(WorkerOptions.of(SETTINGS, "me", {flag: value}), flag) == value


def test_flags_that_were_not_given_and_flags_of_others_change_nothing() -> None:
    flags = {"processes": None, "queues": None, "verbosity": 1, "settings": "x"}
    assert WorkerOptions.of(SETTINGS, "me", flags) == WorkerOptions.of(SETTINGS, "me", {})


def test_a_worker_reloads_on_a_terminal_while_developing(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    cases = [
        ([], True, True, True),
        ([], True, False, False),  # no terminal
        ([], False, True, False),  # no DEBUG
        (["--burst"], True, True, False),
        (["--no-reload"], True, True, False),
        (["--reload"], True, False, True),
    ]
    parser = Command().create_parser("manage.py", "pulse_worker")
    with all_faults() as about:
        for flags, debug, is_terminal, expected in cases:
            with about((flags, debug, is_terminal)):
                settings.DEBUG = debug
                for stream in (sys.stdin, sys.stderr):
                    monkeypatch.setattr(stream, "isatty", lambda said=is_terminal: said)
                assert reloads(vars(parser.parse_args(flags))) is expected


@each_of(
    (["--processes", "0"], "--processes must be at least 1"),
    (["--concurrency", "-1"], "--concurrency must be at least 1"),
    (["--shutdown-grace", "-1"], "--shutdown-grace cannot be negative"),
    (["--max-jobs", "-1"], "--max-jobs cannot be negative"),
    (["--max-rss-mib", "-1"], "--max-rss-mib cannot be negative"),
    (["--queues", "a\x07b"], "unprintable characters"),
    (["--shard", "nowhere"], "'nowhere' is not in DATABASES"),
    (["--metrics-port", "65536"], "--metrics-port must be a port from 1 to 65535, or 0 to disable"),
    (["--reload"], "requires DEBUG = True"),
    (["-Q", "mail"], "-Q is Celery's: write --queues mail"),
    (["-c", "8"], "-c is Celery's: write --processes 8 --concurrency 1, or --concurrency 8 for threads"),
    (["-l", "info"], "-l is Celery's: set the level in LOGGING"),
    (["-n", "w1"], "-n is Celery's: write --name w1"),
    (["-B"], "-B is Celery's: leave it out. There is no beat"),
)
def test_flags_that_make_no_sense_are_refused(*, flags: Any, message: Any) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("pulse_worker", *flags)
