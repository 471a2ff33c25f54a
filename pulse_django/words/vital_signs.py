"""The vital signs of a fleet: what each number is called, what it means, and what to do when it moves.

Every outlet (Prometheus, OpenTelemetry, the board, alerts) reads its words here, and a test compares them with the
dashboard and the rules of the documentation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


ACTIVE_LEASES = VitalSign(
    name="active_leases",
    kind=SignKind.GAUGE,
    labels=("queue",),
    means="Jobs that run: each has exactly one lease.",
    to_do="At the number of slots all the time: add workers. Zero while jobs are due: see the symptom 'jobs wait'.",
)
LEASE_ACQUISITION = VitalSign(
    name="lease_acquisition_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    labels=("queue",),
    means="From the instant at which a job was due to its claim.",
    to_do="Rising: too few slots, or claims are slow. Compare with the depth of the queue.",
)
HEARTBEATS = VitalSign(
    name="heartbeats_total",
    kind=SignKind.COUNTER,
    labels=("result",),
    means="Heartbeats that were answered, and that failed.",
    to_do="Failures: the database was out of reach of that host. Leases survive for as long as one lasts.",
)
HEARTBEAT_DELAY = VitalSign(
    name="heartbeat_delay_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    means="From the instant at which a heartbeat was due to its answer.",
    to_do="Its p99 near a third of the lease: lengthen the lease, or find what starves the worker.",
)
LEASE_EXPIRATIONS = VitalSign(
    name="lease_expirations_total",
    kind=SignKind.COUNTER,
    means="Leases that ran out and were reaped.",
    to_do="See the symptom 'leases expire': workers are killed, frozen or cut off.",
)
RECOVERY_REQUEUES = VitalSign(
    name="recovery_requeues_total",
    kind=SignKind.COUNTER,
    means="Jobs that lost their worker and were given to another.",
    to_do="Their handlers may have run twice: that is what the attempt and the token are for.",
)
FENCING_REJECTIONS = VitalSign(
    name="fencing_rejections_total",
    kind=SignKind.COUNTER,
    labels=("verb",),
    means="Writes of workers that had lost their lease. Each was refused.",
    to_do="Some after expirations are normal. Many: workers live longer than their leases; lengthen those.",
)
ORPHANED_JOBS = VitalSign(
    name="orphaned_jobs",
    kind=SignKind.GAUGE,
    labels=("invariant",),
    means="What breaks an invariant, as far as it was counted.",
    to_do="manage.py pulse_watchdog --check says what it means, and --repair mends most.",
)
DEATH_TO_REQUEUE = VitalSign(
    name="death_to_requeue_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    means="From the last sign of life of a worker to the end of the run that it lost.",
    to_do="At most a lease and a tick of the watchdog. Longer: the database was away, or no watchdog ran.",
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
    means="From the enqueue of a job to the beginning of its first run, with the delay that it asked for.",
    to_do="What users wait for. Compare with lease_acquisition_seconds, which leaves out wanted delays.",
)
QUEUE_DUE = VitalSign(
    name="queue_due",
    kind=SignKind.GAUGE,
    labels=("queue",),
    means="Jobs whose time has come and which wait for a worker. Deep queues are counted up to a bound.",
    to_do="Growing: more comes in than goes out.",
)
QUEUE_LATER = VitalSign(
    name="queue_later",
    kind=SignKind.GAUGE,
    labels=("queue",),
    means="Jobs that wait for their time.",
    to_do="Many with errors: a storm of retries.",
)
QUEUE_OLDEST_DUE = VitalSign(
    name="queue_oldest_due_seconds",
    kind=SignKind.GAUGE,
    unit="seconds",
    labels=("queue",),
    means="For how long the first due job of a queue has been due.",
    to_do="The best single number to alert on: it rises whatever keeps jobs from running.",
)
JOBS_ENQUEUED = VitalSign(
    name="jobs_enqueued_total",
    kind=SignKind.COUNTER,
    labels=("queue",),
    means="Jobs that came in.",
    to_do="Compare with jobs_ended_total.",
)
JOBS_ENDED = VitalSign(
    name="jobs_ended_total",
    kind=SignKind.COUNTER,
    labels=("queue", "status"),
    means="Jobs that ended, by how.",
    to_do="DEAD_LETTERED: read the dead letters.",
)
RUNS = VitalSign(
    name="runs_total",
    kind=SignKind.COUNTER,
    labels=("task", "outcome"),
    means="Runs that ended, by how.",
    to_do="FAILED and TIMED_OUT are the task's own; WORKER_LOST is its worker's.",
)
RUN_DURATION = VitalSign(
    name="run_seconds",
    kind=SignKind.HISTOGRAM,
    unit="seconds",
    labels=("task",),
    means="How long runs took, whatever their outcome.",
    to_do="Longer than before: the task, or what it talks to.",
)
LATE_REPORTS = VitalSign(
    name="late_reports_total",
    kind=SignKind.COUNTER,
    labels=("outcome",),
    means="What workers reported of runs that they had lost; kept in the ledger as evidence.",
    to_do="SUCCEEDED means that the work was done twice.",
)
WORKERS = VitalSign(
    name="workers",
    kind=SignKind.GAUGE,
    labels=("state",),
    means="Workers that are alive, and that fell silent.",
    to_do="Silent: look at their hosts.",
)
SLOTS = VitalSign(
    name="slots",
    kind=SignKind.GAUGE,
    means="Runs that live workers can have at a time.",
    to_do="Add workers, or slots.",
)
IN_FLIGHT = VitalSign(
    name="in_flight", kind=SignKind.GAUGE, means="Runs that live workers have.", to_do="Near slots: the fleet is busy."
)
STUCK_SLOTS = VitalSign(
    name="stuck_slots",
    kind=SignKind.GAUGE,
    means="Slots whose handlers were given up and go on.",
    to_do="Give that task isolation='process', where a run can be killed.",
)
PREFETCHED = VitalSign(
    name="prefetched",
    kind=SignKind.GAUGE,
    means="Jobs that live workers have claimed and not begun.",
    to_do="They begin soon, or are put back. Many for long: short jobs became long ones.",
)
DATABASE_ERRORS = VitalSign(
    name="database_errors_total",
    kind=SignKind.COUNTER,
    means="Times that a thread of a worker could not do its work because of the database.",
    to_do="Read a worker's log: it says which, and for how long.",
)
MINUTE_AGE = VitalSign(
    name="minute_age_seconds",
    kind=SignKind.GAUGE,
    unit="seconds",
    means="How long ago the latest minute that anybody wrote began. Counters do not move without.",
    to_do="More than a few minutes: no worker runs, and no pulse_watchdog.",
)

BESIDE_THEM = (
    ENQUEUE_TO_START, QUEUE_DUE, QUEUE_LATER, QUEUE_OLDEST_DUE, JOBS_ENQUEUED, JOBS_ENDED, RUNS, RUN_DURATION,
    LATE_REPORTS, WORKERS, SLOTS, IN_FLIGHT, STUCK_SLOTS, PREFETCHED, DATABASE_ERRORS, MINUTE_AGE,
)  # fmt: skip

ALL = THE_EIGHT + BESIDE_THEM
COUNTED = tuple(sign for sign in ALL if sign.kind is not SignKind.GAUGE)
