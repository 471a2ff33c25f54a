"""The vital signs of a fleet: the name and meaning of each number, and advice for when it changes.

All outputs (Prometheus, the board, alerts) use these texts. A test compares them with the dashboard and
the rules of the documentation.
"""

from __future__ import annotations

from functools import partial

from pulse_django.queue.words.counters import SignKind, VitalSign

ALL: list[VitalSign] = []  # in the order in which they are declared


def _declare(kind: SignKind, name: str, means: str, to_do: str) -> VitalSign:
    """Declare a sign. Labels follow its name, as in Prometheus: ``jobs_ended_total{queue,status}``."""
    name, _, labels = name.removesuffix("}").partition("{")
    ALL.append(VitalSign(name=name, kind=kind, means=means, to_do=to_do, labels=tuple(filter(None, labels.split(",")))))
    return ALL[-1]


gauge, counter, histogram = (partial(_declare, kind) for kind in SignKind)


# The eight main signs. Heartbeats have two numbers.
ACTIVE_LEASES = gauge(
    "active_leases{queue}",
    "Number of running jobs. Each has exactly one lease.",
    "If it always equals the number of slots, add workers. If it is zero while jobs are due, see the symptom 'jobs "
    "wait'.",
)
LEASE_ACQUISITION = histogram(
    "lease_acquisition_seconds{queue}",
    "Time from when a job was due to its claim.",
    "Rises when there are too few slots or claims are slow. Compare it with the queue depth.",
)
HEARTBEATS = counter(
    "heartbeats_total{result}",
    "Number of successful and failed heartbeats.",
    "Failures mean that the host could not reach the database. Leases survive outages shorter than a lease.",
)
HEARTBEAT_DELAY = histogram(
    "heartbeat_delay_seconds",
    "Time from when a heartbeat was due to its response.",
    "If p99 is near a third of the lease, lengthen the lease, or find what slows down the worker.",
)
LEASE_EXPIRATIONS = counter(
    "lease_expirations_total",
    "Number of leases that expired and were reaped.",
    "Workers were killed, frozen or disconnected. See the symptom 'leases expire'.",
)
RECOVERY_REQUEUES = counter(
    "recovery_requeues_total",
    "Number of jobs that were requeued after losing their worker.",
    "Their handlers may have run twice. Use the attempt and the token to detect this.",
)
FENCING_REJECTIONS = counter(
    "fencing_rejections_total{verb}",
    "Number of rejected writes from workers that had lost their lease.",
    "A few after expirations are normal. If there are many, lengthen the lease.",
)
ORPHANED_JOBS = gauge(
    "orphaned_jobs{condition}",
    "Number of jobs, queues and other objects that are broken or stuck, by condition. Counting stops at a limit.",
    "Run manage.py pulse_check --all for an explanation; --repair repairs most.",
)
DEATH_TO_REQUEUE = histogram(
    "death_to_requeue_seconds",
    "Time from a worker's last heartbeat to the end of its lost run.",
    "Normally at most a lease plus a watchdog tick. If longer, the database or all watchdogs were unavailable.",
)

THE_EIGHT = tuple(ALL)

ENQUEUE_TO_START = histogram(
    "enqueue_to_start_seconds{queue}",
    "Time from enqueueing a job to the start of its first run, including a requested delay.",
    "The latency that users see. Compare it with lease_acquisition_seconds, which excludes requested delays.",
)
QUEUE_DUE = gauge(
    "queue_due{queue}",
    "Number of due jobs that wait for a worker. Deep queues are counted up to a limit.",
    "Grows when jobs arrive faster than they complete.",
)
QUEUE_LATER = gauge(
    "queue_later{queue}",
    "Number of jobs scheduled for later, or set aside because their task is paused.",
    "Many, together with errors, indicate a retry storm.",
)
QUEUE_OLDEST_DUE = gauge(
    "queue_oldest_due_seconds{queue}",
    "How long the oldest due job of a queue has been due.",
    "The best single metric to alert on: it rises whenever jobs do not run, whatever the cause.",
)
QUEUE_PAUSED = gauge(
    "queue_paused{queue}",
    "1 while operators have paused the queue, and 0 otherwise.",
    "Exclude paused queues from alerts: their jobs wait on purpose. The page of a queue shows why and until when.",
)
JOBS_ENQUEUED = counter(
    "jobs_enqueued_total{queue}",
    "Number of enqueued jobs.",
    "Compare it with jobs_ended_total.",
)
JOBS_ENDED = counter(
    "jobs_ended_total{queue,status}",
    "Number of ended jobs by final status.",
    "If DEAD_LETTERED rises, look at the dead letters.",
)
JOBS_EXPIRED = counter(
    "jobs_expired_total{queue}",
    "Number of jobs that were cancelled because they had not started in time.",
    "Workers are too few or stopped, or the task's `expires` is too short. See the queue's oldest due job.",
)
RUNS = counter(
    "runs_total{task,outcome}",
    "Number of ended runs by outcome.",
    "FAILED and TIMED_OUT are caused by the task; WORKER_LOST by its worker.",
)
RUN_DURATION = histogram(
    "run_seconds{task}",
    "Duration of runs, regardless of outcome.",
    "If it rises, check the task and the services that it uses.",
)
LATE_REPORTS = counter(
    "late_reports_total{outcome}",
    "Number of reports on runs whose lease was already lost. They are recorded in the ledger.",
    "SUCCEEDED means that the work was done twice.",
)
WORKERS = gauge(
    "workers{state}",
    "Number of live workers, of silent workers, and of lost workers that are not acknowledged.",
    "Check the hosts of silent and lost workers. Acknowledge a lost worker when you know the cause.",
)
SLOTS = gauge(
    "slots",
    "Number of runs that live workers can handle at the same time.",
    "To raise it, add workers or slots.",
)
IN_FLIGHT = gauge(
    "in_flight",
    "Number of runs on live workers.",
    "If it is near the number of slots, the fleet is busy.",
)
STUCK_SLOTS = gauge(
    "stuck_slots",
    "Number of slots held by abandoned handlers.",
    "Set isolation='process' for the task, so that a run can be killed.",
)
PREFETCHED = gauge(
    "prefetched",
    "Number of claimed jobs that live workers have not started.",
    "They start soon or are returned to the queue. If there are many for long, short jobs have become long.",
)
DATABASE_ERRORS = counter(
    "database_errors_total",
    "Number of times a worker thread failed because of the database.",
    "The worker's log names the thread and the duration.",
)
CONDITIONS = gauge(
    "conditions{condition,severity}",
    "Number of objects to which a condition of the catalogue applies. Counting stops at a limit.",
    "The reference of conditions has their meanings and advice. Risks do not make the fleet unhealthy. The "
    "severity is unknown if a condition could not be checked or is of another app.",
)
MINUTE_AGE = gauge(
    "minute_age_seconds",
    "Age of the latest recorded minute. Counters do not move if no minutes are recorded.",
    "If it is more than a few minutes, no worker or pulse_watchdog is running.",
)
SCHEDULE_LATENESS = gauge(
    "schedule_lateness_seconds",
    "How long the schedule that waits longest has been due. Not present if there are no schedules.",
    "If more than a few seconds, no watchdog that has its task is running, or a transaction has locked its row.",
)
LIMIT_RUNNING = gauge(
    "limit_running{limit}",
    "Number of running jobs of a limit. Not present if there are no limits.",
    "If it is the maximum of the limit while jobs wait, the limit determines the throughput. Raise it if possible.",
)
LIMIT_DUE = gauge(
    "limit_due{limit}",
    "Number of due jobs of a limit. Counting stops at a limit of its own.",
    "If it grows for long, jobs arrive faster than the limit lets them start.",
)
LIMIT_PAUSED = gauge(
    "limit_paused{limit}",
    "1 while a limit is paused by people, by an answer of another system or by its breaker: then none of its jobs "
    "starts.",
    "The page of the limit in the admin shows why and until when.",
)
LIMIT_REFUSALS = counter(
    "limit_refusals_total{limit,reason}",
    "Number of claims for which a limit let no job start: it was full, its rate was used up, it was paused, or "
    "another worker was claiming from it at the same time (contended).",
    "Normal while jobs wait for the limit. If many are contended, too many workers claim from one limit at once.",
)
WAITING_JOBS = gauge(
    "waiting_jobs",
    "Number of jobs that wait for other jobs, batches or events. Counting stops at a limit.",
    "Normal while workflows run. If it does not fall, look for held workflows and for events that were never sent.",
)
BATCHES_OPEN = gauge(
    "batches_open",
    "Number of open batches and workflows. Counting stops at a limit.",
    "If it only rises, workflows are held, wait for events, or are never sealed. Run manage.py pulse_workflows.",
)
BATCHES_HELD = gauge(
    "batches_held",
    "Number of open batches and workflows with dead letters. They end when these are retried or they are cancelled.",
    "Fix the cause of the dead letters, and retry them: manage.py pulse_workflows retry.",
)
BATCH_DURATION = histogram(
    "batch_seconds{kind}",
    "Time from the opening of a batch or workflow to its end. Nested ones are not counted.",
    "If it rises, the critical path on the page of a workflow shows which of its jobs take the most time.",
)
SHARD_UP = gauge(
    "shard_up{database}",
    "1 if the database of this shard answered, and 0 if it did not.",
    "If it is 0, the numbers of this shard are missing. Find out why its server does not respond.",
)
RELEASE_TIMESTAMP = gauge(
    "release_timestamp_seconds{version}",
    "Unix time at which the first worker of the newest release started.",
    "Compare it with the time at which another metric changed. PULSE['PROJECT_VERSION'] names your releases.",
)

BESIDE_THEM = tuple(ALL[len(THE_EIGHT) :])
COUNTED = tuple(sign for sign in ALL if sign.kind is not SignKind.GAUGE)
