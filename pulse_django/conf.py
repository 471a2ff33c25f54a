"""The ``PULSE`` setting: one dict, parsed once into a frozen value, with all problems reported at once.

System checks print the problems (``checks.py``). ``current()`` raises all of them, if a project ignores the checks.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from .exceptions import InvalidJob
from .limits.rules import Limit
from .queue.words.job_options import QUEUE_NAME
from .queue.words.options import Text
from .queue.words.retry_policies import Backoff
from .queue.words.setting_values import PARSER_OF_TYPE, RANGES, Routes
from .queue.words.states import Status

SETTING = "PULSE"
LOADED_AT = time.monotonic()  # when this process began to load the apps, for ``--reload``
_DEPLOYMENT = Text(64)  # the length of its column


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseSettings:
    """All settings with their defaults and meaning. Durations are seconds or a timedelta."""

    # How long a lease is valid without a heartbeat. It is the longest time until a dead worker's job is detected. A
    # shorter lease recovers jobs sooner, but tolerates shorter interruptions.
    lease_ttl: timedelta = timedelta(seconds=30)
    # How often a worker extends its leases. With three heartbeats in a lease, two may be lost without harm.
    heartbeat_interval: timedelta = timedelta(seconds=10)
    # How often watchdogs look for expired leases. Recovery takes up to this much longer than a lease.
    watchdog_interval: timedelta = timedelta(seconds=10)
    # How long completed jobs are kept, with their attempts. A watchdog deletes the jobs of a day (in UTC) together,
    # when the last of them is old enough. 0: for ever.
    keep_completed: timedelta = timedelta(days=7)
    # The same for cancelled jobs.
    keep_cancelled: timedelta = timedelta(days=7)
    # The same for dead letters. Leave operators enough time to read them. 0: for ever.
    keep_dead_letters: timedelta = timedelta()
    # How long a due job may wait while workers of its queue are idle, before `pulse_check --all` reports it as stuck.
    overdue_after: timedelta = timedelta(minutes=5)
    # How often an idle worker polls for due jobs. While notifications arrive, it polls five times less often.
    poll_interval: timedelta = timedelta(seconds=1)
    # How many runs a job may have before it becomes a dead letter, unless its task sets another number.
    max_attempts: int = 10
    # How many workers a job may lose before it becomes a dead letter. An operator's retry allows one more.
    max_lost_workers: int = 5
    # The maximum size of arguments, or of a result, as JSON.
    max_payload_bytes: int = 1_000_000
    # The maximum delay between two attempts. It caps attempt² seconds.
    retry_backoff_cap: timedelta = timedelta(hours=1)
    # Modules with tasks to import at start-up, in addition to each app's `tasks` and the root URLconf with its views.
    task_modules: tuple[str, ...] = ()
    # How long a job waits after a worker put it back because it does not know the task.
    unknown_task_delay: timedelta = timedelta(seconds=30)
    # How long such a job may be put back before it becomes a dead letter. Use a longer time than a deploy takes.
    unknown_task_age: timedelta = timedelta(hours=1)
    # How many processes run handlers (`--processes`).
    processes: int = 1
    # How many handlers a process runs at a time (`--concurrency`): that many sync handlers in threads, and that many
    # async handlers on its event loop.
    concurrency: int = 8
    # The queues that workers serve (`--queues`). Empty: all.
    queues: tuple[str, ...] = ()
    # How long handlers may go on after SIGTERM, before the worker stops them and returns their jobs to the queue
    # (`--shutdown-grace`). Use a shorter time than systemd or Kubernetes wait before they kill the worker.
    shutdown_grace: timedelta = timedelta(seconds=25)
    # After how many runs a process is replaced (`--max-jobs`). 0: never.
    max_jobs: int = 0
    # At how many MiB of resident memory a process is replaced (`--max-rss-mib`). 0: never.
    max_rss_mib: int = 0
    # After how long without a sign of life a process is killed and its jobs are recovered. Use a longer time than any
    # handler holds the interpreter: a regular expression can do so for a minute.
    child_timeout: timedelta = timedelta(seconds=120)
    # Whether enqueueing wakes idle workers with NOTIFY after the commit. Without it they find jobs by polling.
    notify: bool = True
    # A libpq connection string for LISTEN, if the usual connection goes through a transaction pooler. Empty: the usual
    # connection.
    listen_dsn: str = ""
    # Options of tasks, also of third-party apps, by patterns of their names: {"wagtail.*": {"queue_name": "a"}}. The
    # first matching pattern is used. Or a function that takes the name and returns options or None, or its dotted path.
    routes: Routes = field(default_factory=lambda: MappingProxyType({}))
    # Dotted paths of context managers that wrap every handler. The first one is the outermost.
    middleware: tuple[str, ...] = ()
    # Whether the log lines of failed runs show the arguments.
    log_arguments: bool = False
    # By condition (see reference/conditions.md): a threshold, as {"queue-overdue": 600}, or True or False to turn its
    # alert on or off. Without an entry, problems raise alerts and risks do not. A threshold also applies to pages and
    # commands.
    alerts: Mapping[str, float | bool] = field(default_factory=lambda: MappingProxyType({}))
    # Whether jobs keep the OpenTelemetry trace in which they are enqueued, and runs are spans of it.
    opentelemetry: bool = False
    # Whether alerts are mailed to ADMINS, in addition to the log and the signal.
    alert_mail: bool = True
    # The share by which a delay is made longer or shorter at random, so that failed jobs do not all return at the same
    # time.
    retry_jitter: float = 0.1
    # The encryption keys by id, each as base64 of 32 bytes. The first key encrypts, and all keys decrypt.
    encryption_keys: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    # Whether to encrypt all tasks, not only those with `encrypted=True`.
    encrypt_all: bool = False
    # After how long a due job gains a level of priority, so that low priorities do not wait for ever. 0: never.
    priority_ageing: timedelta = timedelta()
    # By queue: the parameter whose values share the slots fairly, for tasks without `limit_key` and `fair_by`.
    fair_by_queue: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # By share or key: its weight. It gets so many times as many slots as a key without an entry.
    fair_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    # By queue: how many of its jobs run at once, and how many start in a period, as {"mail": {"max_running": 50}}.
    queue_limits: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))
    # The databases that store jobs, each with its own number, as {"default": 0, "jobs_1": 1}. Job ids contain the
    # number, so it must never change. Empty: one database.
    shards: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    # How the shard of a new job is chosen: "by_queue", "by_key", "where_the_data_is", or the dotted path of a function
    # that takes a queue, the name of a task and a key, and returns an alias.
    placement: str = "by_queue"
    # By queue: the shard of its jobs, or a list of shards among which "by_key" spreads them.
    queue_shards: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    # The version of your project, such as a tag or a commit. Workers report it, and charts mark its changes.
    project_version: str = ""
    # The name of this deployment, such as "production". Workers do nothing in a database of another deployment, as in a
    # copy of production. Empty: not checked.
    deployment: str = ""
    # The queue for the jobs that carry out admin actions on all jobs that match a filter.
    admin_queue: str = "default"
    # The token with which Prometheus reads the metrics of the fleet: `Authorization: Bearer <token>`. Empty: only users
    # with the permission `pulse_view_board` can read them.
    metrics_token: str = field(default="", repr=False)

    @property
    def worker_silence(self) -> timedelta:
        """How long a worker may be silent before it counts as gone."""
        return self.lease_ttl + 3 * self.heartbeat_interval

    @property
    def unreaped_after(self) -> timedelta:
        """How long after its expiry a lease counts as not recovered. After an outage, watchdogs wait for a lease."""
        return self.lease_ttl + 3 * self.watchdog_interval

    @property
    def retention(self) -> Mapping[Status, timedelta]:
        """How long jobs are kept, by final status. 0: for ever."""
        return {
            Status.COMPLETED: self.keep_completed,
            Status.CANCELLED: self.keep_cancelled,
            Status.DEAD_LETTERED: self.keep_dead_letters,
        }

    @property
    def retention_of_days(self) -> timedelta:
        """How long after a day all jobs that were completed or cancelled on it may be deleted. 0: never."""
        kept = self.keep_completed, self.keep_cancelled
        return max(kept) if all(kept) else timedelta()

    @property
    def longest_lease(self) -> timedelta:
        """An estimate of the longest lease of any worker: other hosts may have other settings."""
        return max(3 * self.lease_ttl, timedelta(minutes=5))

    @property
    def backoff(self) -> Backoff:
        return _backoff(self.retry_backoff_cap, self.retry_jitter)


@lru_cache(maxsize=8)  # its creation checks it, and every failed run needs it
def _backoff(cap: timedelta, jitter: float) -> Backoff:
    return Backoff(cap=cap, jitter=jitter)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with the setting, as system checks report it."""

    id: str
    message: str
    hint: str
    is_error: bool = True


_SECRET = ("METRICS_TOKEN", "ENCRYPTION_KEYS")  # their values are never shown


def parse(raw: object) -> tuple[PulseSettings, list[Problem]]:
    """Parse the project's dict. Return the settings and all problems.

    A setting with a problem keeps its default, so that one mistake does not hide the next.
    """
    if not isinstance(raw, Mapping):
        hint = 'Write PULSE = {"LEASE_TTL": 30} or leave it out.'
        return PulseSettings(), [Problem("pulse_django.E001", f"{SETTING} is not a dict.", hint)]
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for key, value in raw.items():
        field = _FIELDS.get(key) if isinstance(key, str) else None
        if field is None:
            problems.append(_unknown(key))
            continue
        try:
            values[field] = _within(field, _PARSERS[field](value))
        except TypeError as error:
            shown = f"of type {type(value).__name__}" if key in _SECRET else repr(value)
            message = f"{SETTING}[{key!r}] is {shown}, which is not {error}."
            problems.append(Problem("pulse_django.E003", message, f"Use {error}."))
        except ValueError as error:
            problems.append(_out_of_range(key, value, error))
    parsed = PulseSettings(**values)
    return parsed, problems + _cross_rules(parsed)


@lru_cache(maxsize=1)
def current() -> PulseSettings:
    """Return the settings of this project. They are read once, and again after ``setting_changed``."""
    parsed, problems = parse(getattr(settings, SETTING, {}))
    if errors := [problem for problem in problems if problem.is_error]:
        raise ImproperlyConfigured("\n".join(f"({error.id}) {error.message} {error.hint}" for error in errors))
    return parsed


def forget(*, setting: str, **_: object) -> None:
    """Handle ``setting_changed``, so that tests that override PULSE see their own values."""
    if setting == SETTING:
        current.cache_clear()


def _cross_rules(parsed: PulseSettings) -> list[Problem]:
    problems = []
    beats = parsed.lease_ttl / parsed.heartbeat_interval
    if beats < 3:
        late = "one late heartbeat loses" if beats < 2 else "two late heartbeats in a row lose"
        message = f"LEASE_TTL is only {beats:.1f} heartbeats long: {late} healthy jobs."
        hint = "Set LEASE_TTL to at least three times HEARTBEAT_INTERVAL, such as 30 and 10."
        name = "pulse_django.E005" if beats < 2 else "pulse_django.W001"
        problems.append(Problem(name, message, hint, is_error=beats < 2))
    if parsed.watchdog_interval > parsed.lease_ttl:
        message = "WATCHDOG_INTERVAL is longer than LEASE_TTL: recovery would mainly wait for the watchdog."
        problems.append(Problem("pulse_django.E006", message, "Set WATCHDOG_INTERVAL to at most LEASE_TTL."))
    texts = {"admin_queue": QUEUE_NAME, **({"deployment": _DEPLOYMENT} if parsed.deployment else {})}
    for name, kind in texts.items():
        try:
            kind.check(name, getattr(parsed, name))
        except InvalidJob as error:
            problems.append(_out_of_range(name.upper(), getattr(parsed, name), ValueError(str(error))))
    return problems + _rules_of_shards(parsed)


def _rules_of_shards(parsed: PulseSettings) -> list[Problem]:
    problems = []
    for alias in sorted({one for shards in parsed.queue_shards.values() for one in shards} - parsed.shards.keys()):
        message = f"QUEUE_SHARDS names {alias!r}, which is not in SHARDS."
        problems.append(Problem("pulse_django.E016", message, f"Add {alias!r} to SHARDS, with its own number."))
    spread = [queue for queue, shards in parsed.queue_shards.items() if len(shards) > 1]
    if spread and parsed.placement in ("by_queue", "where_the_data_is"):
        message = f"QUEUE_SHARDS lists several shards for {spread[0]!r}, but PLACEMENT is {parsed.placement!r}."
        problems.append(Problem("pulse_django.E016", message, "Use PLACEMENT 'by_key', or name a single shard."))
    return problems


def _unknown(key: object) -> Problem:
    close = difflib.get_close_matches(str(key).upper(), _FIELDS, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"Known settings: {', '.join(sorted(_FIELDS))}."
    return Problem("pulse_django.E002", f"{SETTING} has no setting {key!r}.", hint)


def _out_of_range(key: str, value: object, error: ValueError) -> Problem:
    wrong = "is invalid" if key in _SECRET else f"is {value!r}, out of range"
    return Problem("pulse_django.E004", f"{SETTING}[{key!r}] {wrong}.", str(error))


def _within(field: str, value: Any) -> Any:
    allowed = RANGES.get(field)
    if allowed is None:
        return value
    if not allowed.least <= value <= allowed.most:  # also refuses NaN
        raise ValueError(f"Allowed range: {allowed.least} to {allowed.most}. Reason: {allowed.why}.")
    return value


_PARSERS = {field.name: PARSER_OF_TYPE[str(field.type)] for field in fields(PulseSettings)}
_FIELDS = {field.name.upper(): field.name for field in fields(PulseSettings)}


def time_zone() -> str:
    """Return the project's time zone, for schedules without their own."""
    return settings.TIME_ZONE or "UTC"
