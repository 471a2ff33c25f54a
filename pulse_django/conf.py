"""The ``PULSE`` setting: one dict, parsed once into a frozen value, with all problems reported at once.

System checks print the problems (``checks.py``); ``current()`` raises them all when a project went on regardless.
"""

from __future__ import annotations

import difflib
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
_DEPLOYMENT = Text(64)  # of the column that keeps it


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseSettings:
    """Every setting, its default and what it does. Durations are given as seconds or as a timedelta."""

    # How long a lease lives without a heartbeat: the worst case until a dead worker's job is seen. Shorter recovers
    # sooner and tolerates less.
    lease_ttl: timedelta = timedelta(seconds=30)
    # How often a worker extends its leases. Three beats to a lease let two be lost without harm.
    heartbeat_interval: timedelta = timedelta(seconds=10)
    # How often expired leases are looked for; adds to the worst case of recovery.
    watchdog_interval: timedelta = timedelta(seconds=10)
    # How long completed jobs are kept, with their attempts. A watchdog deletes those of a whole day (in UTC) at once,
    # when the last of them is that old. 0: for ever.
    keep_completed: timedelta = timedelta(days=7)
    # The same for cancelled jobs.
    keep_cancelled: timedelta = timedelta(days=7)
    # The same for dead letters: an operator should have read them by then. 0: for ever.
    keep_dead_letters: timedelta = timedelta()
    # How long a due job may wait, while workers of its queue are idle, until `pulse_check --all` calls it stuck.
    overdue_after: timedelta = timedelta(minutes=5)
    # How often an idle worker looks for due jobs. While it hears notifications it makes one look in five.
    poll_interval: timedelta = timedelta(seconds=1)
    # How many runs a job may have before it is dead-lettered, unless its task says otherwise.
    max_attempts: int = 10
    # How many workers a job may lose until it is dead-lettered. An operator's retry gives it one more.
    max_lost_workers: int = 5
    # The longest JSON that arguments, or a result, may be.
    max_payload_bytes: int = 1_000_000
    # The longest pause between two attempts, whatever attempt² says.
    retry_backoff_cap: timedelta = timedelta(hours=1)
    # Modules to import at start-up for their tasks, beside each app's `tasks` and the root URLconf with its views.
    task_modules: tuple[str, ...] = ()
    # How long a job whose task this worker does not know waits for one that does, each time it is put back.
    unknown_task_delay: timedelta = timedelta(seconds=30)
    # How long such a job may be put back until it is dead-lettered. Longer than a deploy takes.
    unknown_task_age: timedelta = timedelta(hours=1)
    # How many processes run handlers (`--processes`).
    processes: int = 1
    # How many handlers of a kind a process runs at a time (`--concurrency`): that many threads for sync handlers, and
    # that many async ones on its event loop.
    concurrency: int = 8
    # The queues that workers serve (`--queues`). None named: all.
    queues: tuple[str, ...] = ()
    # How long handlers may go on after SIGTERM before the worker ends them and hands their jobs back
    # (`--shutdown-grace`). Keep it below the time that systemd or Kubernetes wait before they kill.
    shutdown_grace: timedelta = timedelta(seconds=25)
    # After how many runs a process is replaced by a fresh one (`--max-jobs`). 0: never.
    max_jobs: int = 0
    # At how many MiB of resident memory a process is replaced (`--max-rss-mib`). 0: never.
    max_rss_mib: int = 0
    # After how long without a sign of life a process is killed and its jobs are recovered. Longer than any handler
    # holds the interpreter: a regular expression can do that for a minute.
    child_timeout: timedelta = timedelta(seconds=120)
    # Whether enqueueing wakes idle workers with NOTIFY after the commit. Without it they find jobs by polling.
    notify: bool = True
    # Where to LISTEN, as a libpq connection string, if the usual connection leads through a transaction pooler. Empty:
    # the usual one.
    listen_dsn: str = ""
    # Options of tasks, also of third-party apps, by patterns of their names: {"wagtail.*": {"queue_name": "a"}}. The
    # first pattern that fits counts. Or a function of the name that returns options or None, or its dotted path.
    routes: Routes = field(default_factory=lambda: MappingProxyType({}))
    # Context managers that stand around every handler, as dotted paths; the first is the outermost.
    middleware: tuple[str, ...] = ()
    # Whether the log lines of failed runs show the arguments.
    log_arguments: bool = False
    # By condition (reference/conditions.md lists them): the number that is allowed, as {"queue-overdue": 600}, for all
    # outlets; or True or False, to raise alerts or not. Without an entry, problems raise alerts and risks do not.
    alerts: Mapping[str, float | bool] = field(default_factory=lambda: MappingProxyType({}))
    # Whether jobs carry the OpenTelemetry trace that they are enqueued in, and runs are spans of it.
    opentelemetry: bool = False
    # Whether alerts are mailed to ADMINS, beside the log and the signal.
    alert_mail: bool = True
    # The share by which a pause is made longer or shorter at random, so that failures do not come back in step.
    retry_jitter: float = 0.1
    # The keys of encrypted tasks by their ids, each as base64 of 32 bytes. The first encrypts, and each decrypts.
    encryption_keys: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    # Whether all tasks are encrypted, and not only those with `encrypted=True`.
    encrypt_all: bool = False
    # In how long a job that is due gains a level of priority. Then low priorities do not wait for ever. 0: never.
    priority_ageing: timedelta = timedelta()
    # For tasks of a queue that say nothing themselves: the parameter whose values share the queue's slots.
    fair_by_queue: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # By share or key: how many times as many slots it gets as one that is not named.
    fair_weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    # By queue: how many of its jobs run at once, and how many start in a time, as {"mail": {"max_running": 50}}.
    queue_limits: Mapping[str, Limit] = field(default_factory=lambda: MappingProxyType({}))
    # The databases that hold jobs, as {"default": 0, "jobs_1": 1}: each alias with a number of its own, which stands in
    # its ids. A number never changes. Empty: one database.
    shards: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    # Which shard a new job is stored in: "by_queue", "by_key", "where_the_data_is", or the dotted path of a function
    # that takes a queue, the name of a task and a key, and returns an alias.
    placement: str = "by_queue"
    # By queue: the shard of its jobs, or a list of shards over which "by_key" spreads them.
    queue_shards: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    # The version of your project, such as a tag or a commit. Workers say it, and charts mark when it changed.
    project_version: str = ""
    # The name of this deployment, such as "production". In a database of another one, as a copy of it is, workers do
    # nothing. Empty: nobody asks.
    deployment: str = ""
    # The queue of the jobs that do what an operator asked, in the admin, of all jobs that match a filter.
    admin_queue: str = "default"
    # What Prometheus shows to read the numbers of the fleet: `Authorization: Bearer <token>`. Empty: no token opens
    # them, and only users with the permission `pulse_view_board` see them.
    metrics_token: str = field(default="", repr=False)

    @property
    def worker_silence(self) -> timedelta:
        """How long a worker may say nothing until it counts as gone."""
        return self.lease_ttl + 3 * self.heartbeat_interval

    @property
    def unreaped_after(self) -> timedelta:
        """How long after its end a lease counts as not recovered. Watchdogs wait for a lease after an outage."""
        return self.lease_ttl + 3 * self.watchdog_interval

    @property
    def retention(self) -> Mapping[Status, timedelta]:
        """How long jobs are kept that ended so. 0: for ever."""
        return {
            Status.COMPLETED: self.keep_completed,
            Status.CANCELLED: self.keep_cancelled,
            Status.DEAD_LETTERED: self.keep_dead_letters,
        }

    @property
    def retention_of_days(self) -> timedelta:
        """How long after its end all jobs may be deleted that were completed or cancelled on one day. 0: never."""
        kept = self.keep_completed, self.keep_cancelled
        return max(kept) if all(kept) else timedelta()

    @property
    def longest_lease(self) -> timedelta:
        """What no worker's lease exceeds, as far as one can know: hosts may have other settings than this one."""
        return max(3 * self.lease_ttl, timedelta(minutes=5))

    @property
    def backoff(self) -> Backoff:
        return _backoff(self.retry_backoff_cap, self.retry_jitter)


@lru_cache(maxsize=8)  # it is checked when it is made, and needed for every run that fails
def _backoff(cap: timedelta, jitter: float) -> Backoff:
    return Backoff(cap=cap, jitter=jitter)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the setting, as the system checks report it."""

    id: str
    message: str
    hint: str
    is_error: bool = True


_SECRET = ("METRICS_TOKEN", "ENCRYPTION_KEYS")  # their values are shown nowhere


def parse(raw: object) -> tuple[PulseSettings, list[Problem]]:
    """Turn the dict of the project into settings, with everything that is wrong with it.

    A key with a problem keeps its default, so that one mistake does not hide the next.
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
    """Return the settings of this project; they are read once and again after ``setting_changed``."""
    parsed, problems = parse(getattr(settings, SETTING, {}))
    if errors := [problem for problem in problems if problem.is_error]:
        raise ImproperlyConfigured("\n".join(f"({error.id}) {error.message} {error.hint}" for error in errors))
    return parsed


def forget(*, setting: str, **_: object) -> None:
    """Receive ``setting_changed``: tests that override PULSE see their own values."""
    if setting == SETTING:
        current.cache_clear()


def _cross_rules(parsed: PulseSettings) -> list[Problem]:
    problems = []
    beats = parsed.lease_ttl / parsed.heartbeat_interval
    if beats < 3:
        late = "one late beat loses" if beats < 2 else "two late beats in a row lose"
        message = f"LEASE_TTL is only {beats:.1f} heartbeats long: {late} healthy jobs."
        hint = "Set LEASE_TTL to at least three times HEARTBEAT_INTERVAL, such as 30 and 10."
        name = "pulse_django.E005" if beats < 2 else "pulse_django.W001"
        problems.append(Problem(name, message, hint, is_error=beats < 2))
    if parsed.watchdog_interval > parsed.lease_ttl:
        message = "WATCHDOG_INTERVAL is longer than LEASE_TTL: recovery would mostly wait for the watchdog."
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
        problems.append(Problem("pulse_django.E016", message, f"Add {alias!r} to SHARDS, with a number of its own."))
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
    """Return the project's, for what names none."""
    return settings.TIME_ZONE or "UTC"
