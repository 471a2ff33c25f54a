"""The vital signs of a fleet: what each number is called, what it means, and what to do when it moves.

Every outlet (Prometheus, OpenTelemetry, the board, alerts) reads its words here, and a test compares them with the
dashboard and the rules of the documentation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

# What a vital sign is made of: its name, its kind, what it means and what to do.


class SignKind(StrEnum):
    GAUGE = "gauge"  # how things stand
    COUNTER = "counter"  # since the first minute that was written; only ever rises
    HISTOGRAM = "histogram"  # of seconds, counted as a counter is


@dataclass(frozen=True, slots=True, kw_only=True)
class VitalSign:
    name: str  # without the prefix of an outlet
    kind: SignKind
    means: str
    to_do: str
    unit: str = ""
    labels: tuple[str, ...] = ()


# The vital signs of workflows: a part of ``vital_signs``.


WAITING_JOBS = VitalSign(
    name="waiting_jobs",
    kind=SignKind.GAUGE,
    means="Number of jobs that wait for other jobs, batches or events. Counting stops at a limit.",
    to_do="Normal while workflows run. If it does not fall, look for held workflows and for events that were never "
    "sent.",
)
BATCHES_OPEN = VitalSign(
    name="batches_open",
    kind=SignKind.GAUGE,
    means="Number of batches and workflows that are not over. Counting stops at a limit.",
    to_do="If it only rises, workflows are held, wait for events, or are never sealed. Run manage.py pulse_workflows.",
)
BATCHES_HELD = VitalSign(
    name="batches_held",
    kind=SignKind.GAUGE,
    means="Number of these that have dead letters. They are over once those are retried or the whole is cancelled.",
    to_do="Fix what the dead letters died of, and retry them: manage.py pulse_workflows retry.",
)
BATCH_DURATION = VitalSign(
    name="batch_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    labels=("kind",),
    means="Time from the opening of a batch or workflow to its end. Those within others are not counted.",
    to_do="If it rises, the critical path on the page of a workflow says which of its jobs take the time.",
)


ACTIVE_LEASES = VitalSign(
    name="active_leases",
    kind=SignKind.GAUGE,
    labels=("queue",),
    means="Number of running jobs. Each has exactly one lease.",
    to_do="If it always equals the number of slots, add workers. If it is zero while jobs are due, see the symptom "
    "'jobs wait'.",
)
LEASE_ACQUISITION = VitalSign(
    name="lease_acquisition_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    labels=("queue",),
    means="Time from when a job was due to its claim.",
    to_do="Rises when there are too few slots or claims are slow. Compare it with the queue depth.",
)
HEARTBEATS = VitalSign(
    name="heartbeats_total",
    kind=SignKind.COUNTER,
    labels=("result",),
    means="Number of successful and failed heartbeats.",
    to_do="Failures mean that the host could not reach the database. Leases survive outages shorter than a lease.",
)
HEARTBEAT_DELAY = VitalSign(
    name="heartbeat_delay_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    means="Time from when a heartbeat was due to its response.",
    to_do="If p99 is near a third of the lease, lengthen the lease, or find what slows down the worker.",
)
LEASE_EXPIRATIONS = VitalSign(
    name="lease_expirations_total",
    kind=SignKind.COUNTER,
    means="Number of leases that expired and were reaped.",
    to_do="Workers were killed, frozen or disconnected. See the symptom 'leases expire'.",
)
RECOVERY_REQUEUES = VitalSign(
    name="recovery_requeues_total",
    kind=SignKind.COUNTER,
    means="Number of jobs that were requeued after losing their worker.",
    to_do="Their handlers may have run twice. Use the attempt and the token to detect this.",
)
FENCING_REJECTIONS = VitalSign(
    name="fencing_rejections_total",
    kind=SignKind.COUNTER,
    labels=("verb",),
    means="Number of rejected writes from workers that had lost their lease.",
    to_do="A few after expirations are normal. If there are many, lengthen the lease.",
)
ORPHANED_JOBS = VitalSign(
    name="orphaned_jobs",
    kind=SignKind.GAUGE,
    labels=("condition",),
    means="Number of jobs, queues and other objects that are broken or stuck, by condition. Counting stops at a limit.",
    to_do="Run manage.py pulse_watchdog --check for an explanation; --repair repairs most.",
)
DEATH_TO_REQUEUE = VitalSign(
    name="death_to_requeue_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    means="Time from a worker's last heartbeat to the end of its lost run.",
    to_do="Normally at most a lease plus a watchdog tick. If longer, the database was away or no watchdog was running.",
)

# The eight; the third is two numbers.
THE_EIGHT = (
    ACTIVE_LEASES,
    LEASE_ACQUISITION,
    HEARTBEATS,
    HEARTBEAT_DELAY,
    LEASE_EXPIRATIONS,
    RECOVERY_REQUEUES,
    FENCING_REJECTIONS,
    ORPHANED_JOBS,
    DEATH_TO_REQUEUE,
)

ENQUEUE_TO_START = VitalSign(
    name="enqueue_to_start_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    labels=("queue",),
    means="Time from enqueueing a job to the start of its first run, including a requested delay.",
    to_do="The latency that users see. Compare it with lease_acquisition_seconds, which excludes requested delays.",
)
QUEUE_DUE = VitalSign(
    name="queue_due",
    kind=SignKind.GAUGE,
    labels=("queue",),
    means="Number of due jobs that wait for a worker. Deep queues are counted up to a limit.",
    to_do="Grows when jobs arrive faster than they complete.",
)
QUEUE_LATER = VitalSign(
    name="queue_later",
    kind=SignKind.GAUGE,
    labels=("queue",),
    means="Number of jobs scheduled for later, or set aside because their task is paused.",
    to_do="Many, together with errors, indicate a retry storm.",
)
QUEUE_OLDEST_DUE = VitalSign(
    name="queue_oldest_due_seconds",
    kind=SignKind.GAUGE,
    unit="seconds",
    labels=("queue",),
    means="How long the oldest due job of a queue has been due.",
    to_do="The best single metric to alert on: it rises whenever jobs do not run, whatever the cause.",
)
QUEUE_PAUSED = VitalSign(
    name="queue_paused",
    kind=SignKind.GAUGE,
    labels=("queue",),
    means="1 while operators have paused the queue, and 0 otherwise.",
    to_do="Take paused queues out of alerts: their jobs wait on purpose. The page of a queue says why and until when.",
)
JOBS_ENQUEUED = VitalSign(
    name="jobs_enqueued_total",
    kind=SignKind.COUNTER,
    labels=("queue",),
    means="Number of enqueued jobs.",
    to_do="Compare it with jobs_ended_total.",
)
JOBS_ENDED = VitalSign(
    name="jobs_ended_total",
    kind=SignKind.COUNTER,
    labels=("queue", "status"),
    means="Number of ended jobs by final status.",
    to_do="If DEAD_LETTERED rises, look at the dead letters.",
)
JOBS_EXPIRED = VitalSign(
    name="jobs_expired_total",
    kind=SignKind.COUNTER,
    labels=("queue",),
    means="Number of jobs that were cancelled because they had not started in time.",
    to_do="Workers are too few or stopped, or the task's `expires` is too short. See the queue's oldest due job.",
)
RUNS = VitalSign(
    name="runs_total",
    kind=SignKind.COUNTER,
    labels=("task", "outcome"),
    means="Number of ended runs by outcome.",
    to_do="FAILED and TIMED_OUT are caused by the task; WORKER_LOST by its worker.",
)
RUN_DURATION = VitalSign(
    name="run_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    labels=("task",),
    means="Duration of runs, regardless of outcome.",
    to_do="If it rises, check the task and the services that it uses.",
)
LATE_REPORTS = VitalSign(
    name="late_reports_total",
    kind=SignKind.COUNTER,
    labels=("outcome",),
    means="Number of reports on runs whose lease was already lost. They are recorded in the ledger.",
    to_do="SUCCEEDED means that the work was done twice.",
)
WORKERS = VitalSign(
    name="workers",
    kind=SignKind.GAUGE,
    labels=("state",),
    means="Number of live workers, of silent workers, and of lost workers that are not acknowledged.",
    to_do="Check the hosts of silent and lost workers. Acknowledge a lost worker once you know why it was lost.",
)
SLOTS = VitalSign(
    name="slots",
    kind=SignKind.GAUGE,
    means="Number of runs that live workers can handle at the same time.",
    to_do="To raise it, add workers or slots.",
)
IN_FLIGHT = VitalSign(
    name="in_flight",
    kind=SignKind.GAUGE,
    means="Number of runs on live workers.",
    to_do="If it is near the number of slots, the fleet is busy.",
)
STUCK_SLOTS = VitalSign(
    name="stuck_slots",
    kind=SignKind.GAUGE,
    means="Number of slots held by abandoned handlers.",
    to_do="Set isolation='process' for the task, so that a run can be killed.",
)
PREFETCHED = VitalSign(
    name="prefetched",
    kind=SignKind.GAUGE,
    means="Number of claimed jobs that live workers have not started.",
    to_do="They start soon or are returned to the queue. If there are many for long, short jobs have become long.",
)
DATABASE_ERRORS = VitalSign(
    name="database_errors_total",
    kind=SignKind.COUNTER,
    means="Number of times a worker thread failed because of the database.",
    to_do="The worker's log names the thread and the duration.",
)
CONDITIONS = VitalSign(
    name="conditions",
    kind=SignKind.GAUGE,
    labels=("condition", "severity"),
    means="Number of objects to which a condition of the catalogue applies. Counting stops at a limit.",
    to_do="The reference of conditions says what each means and what to do. Risks do not make the fleet unhealthy. "
    "The severity is unknown if a condition could not be checked or is of another app.",
)
MINUTE_AGE = VitalSign(
    name="minute_age_seconds",
    kind=SignKind.GAUGE,
    unit="seconds",
    means="Age of the latest recorded minute. Counters do not move if no minutes are recorded.",
    to_do="If more than a few minutes, no worker or pulse_watchdog is running.",
)
SCHEDULE_LATENESS = VitalSign(
    name="schedule_lateness_seconds",
    kind=SignKind.GAUGE,
    unit="seconds",
    means="How long the schedule that waits longest has been due. Not present if there are no schedules.",
    to_do="More than a few seconds: no watchdog that knows its task is running, or a transaction has locked its row.",
)
LIMIT_RUNNING = VitalSign(
    name="limit_running",
    kind=SignKind.GAUGE,
    labels=("limit",),
    means="Number of running jobs of a limit. Not present if there are no limits.",
    to_do="If it is what the limit allows, and jobs wait, the limit decides how many jobs run. Raise it, if it may be.",
)
LIMIT_DUE = VitalSign(
    name="limit_due",
    kind=SignKind.GAUGE,
    labels=("limit",),
    means="Number of due jobs of a limit. Counting stops at a limit of its own.",
    to_do="If it grows for long, jobs arrive faster than the limit lets them start.",
)
LIMIT_CLOSED = VitalSign(
    name="limit_closed",
    kind=SignKind.GAUGE,
    labels=("limit",),
    means="1 while a limit is closed by people, by an answer of another system or by its breaker: then none of its "
    "jobs starts.",
    to_do="The page of the limit in the admin says why and until when.",
)
LIMIT_REFUSALS = VitalSign(
    name="limit_refusals_total",
    kind=SignKind.COUNTER,
    labels=("limit", "reason"),
    means="Number of claims for which a limit let no job start: it was full, its rate was used up, it was closed, or "
    "another worker was claiming from it at the same time (contended).",
    to_do="Normal while jobs wait for the limit. If many are contended, too many workers claim from one limit at once.",
)
RELEASE_TIMESTAMP = VitalSign(
    name="release_timestamp_seconds",
    kind=SignKind.GAUGE,
    unit="seconds",
    labels=("version",),
    means="Unix time at which the first worker of the newest release started.",
    to_do="Compare it with when a number began to move. PULSE['VERSION'] names your releases.",
)
SHARD_UP = VitalSign(
    name="shard_up",
    kind=SignKind.GAUGE,
    labels=("database",),
    means="1 if the database of this shard answered, and 0 if it did not.",
    to_do="If it is 0, the numbers of this shard are missing. Find out why its server does not respond.",
)

BESIDE_THEM = (
    ENQUEUE_TO_START, QUEUE_DUE, QUEUE_LATER, QUEUE_OLDEST_DUE, QUEUE_PAUSED, JOBS_ENQUEUED, JOBS_ENDED, JOBS_EXPIRED,
    RUNS, RUN_DURATION, LATE_REPORTS, WORKERS, SLOTS, IN_FLIGHT, STUCK_SLOTS, PREFETCHED, DATABASE_ERRORS, CONDITIONS,
    MINUTE_AGE, SCHEDULE_LATENESS, LIMIT_RUNNING, LIMIT_DUE, LIMIT_CLOSED, LIMIT_REFUSALS, WAITING_JOBS,
    BATCHES_OPEN, BATCHES_HELD, BATCH_DURATION, SHARD_UP, RELEASE_TIMESTAMP,
)  # fmt: skip

ALL = THE_EIGHT + BESIDE_THEM
COUNTED = tuple(sign for sign in ALL if sign.kind is not SignKind.GAUGE)


# Histograms of durations that can be added up: of one worker over time, and of many workers.


SMALLEST = 0.001  # seconds; shorter ones are as good as none
PER_DOUBLING = 2  # buckets: a quantile is known to within 42 %. More would say little and take more room


@dataclass(slots=True)
class Histogram:
    """Counts by bucket. Bucket ``n`` holds what took up to ``SMALLEST * 2 ** (n / PER_DOUBLING)`` seconds."""

    counts: Counter[int] = field(default_factory=Counter)

    @classmethod
    def merged(cls, parts: Iterable[Mapping[str, int]]) -> Histogram:
        """Add up what ``to_json`` gave."""
        counts: Counter[int] = Counter()
        for part in parts:
            for bucket, count in part.items():
                counts[int(bucket)] += count
        return cls(counts)

    def add(self, seconds: float) -> None:
        doublings = math.log2(max(seconds, SMALLEST) / SMALLEST)
        self.counts[math.ceil(doublings * PER_DOUBLING)] += 1

    def __len__(self) -> int:
        return self.counts.total()

    def quantile(self, share: float) -> float | None:
        """Return seconds that at least this share of all took at most, or None of nothing."""
        left = share * len(self)
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return float(SMALLEST * 2 ** (bucket / PER_DOUBLING))
        return None

    def to_json(self) -> dict[str, int]:
        return {str(bucket): count for bucket, count in sorted(self.counts.items())}
