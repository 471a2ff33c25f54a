"""For each alert rule: its incident, in which it fires, and what is like it and is no incident.

A series is written as promtool expands it: ``0x3 5+1x10`` is four zeros and then 5, 6, 7 … A step is a minute.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What Prometheus has scraped, and whether a rule fires at some minute."""

    alert: str
    when: str
    series: dict[str, str]
    at: int  # minutes
    # The labels and the words of the alert that fires. None: it does not.
    fires: dict[str, str] | None = None
    summary: str = ""
    description: str = ""


WELL = {
    "pulse_slots": "16x60",
    'pulse_shard_up{database="default"}': "1x60",
    'pulse_queue_oldest_due_seconds{queue="mail"}': "2x60",
    'pulse_queue_paused{queue="mail"}': "0x60",
    'pulse_workers{state="alive"}': "2x60",
    'pulse_workers{state="silent"}': "0x60",
    'pulse_workers{state="lost"}': "0x60",
    'pulse_jobs_ended_total{queue="mail",status="COMPLETED"}': "0+600x60",
    'pulse_jobs_ended_total{queue="mail",status="DEAD_LETTERED"}': "7x60",
    "pulse_lease_expirations_total": "3x60",
    'pulse_fencing_rejections_total{verb="settle"}': "2x60",
    'pulse_heartbeats_total{result="answered"}': "0+12x60",
    'pulse_heartbeats_total{result="failed"}': "1x60",
    'pulse_heartbeat_delay_seconds_bucket{le="0.512"}': "0+12x60",
    'pulse_heartbeat_delay_seconds_bucket{le="+Inf"}': "0+12x60",
    "pulse_minute_age_seconds": "70x60",
    "pulse_schedule_lateness_seconds": "0x60",
    "pulse_stuck_slots": "0x60",
    "pulse_database_errors_total": "4x60",
    'pulse_conditions{condition="slots-stuck",severity="risk"}': "1x60",
}
SLOTS = "pulse_slots"
OVERDUE = 'pulse_queue_oldest_due_seconds{queue="mail"}'
PAUSED = 'pulse_queue_paused{queue="mail"}'
DEAD = 'pulse_jobs_ended_total{queue="mail",status="DEAD_LETTERED"}'
ALIVE, SILENT, LOST = (f'pulse_workers{{state="{state}"}}' for state in ("alive", "silent", "lost"))
ANSWERED, FAILED = (f'pulse_heartbeats_total{{result="{result}"}}' for result in ("answered", "failed"))
DELAYS = [f'pulse_heartbeat_delay_seconds_bucket{{le="{le}"}}' for le in ("4.096", "8.192", "+Inf")]
DOWN = 'pulse_shard_up{database="s2"}'
CRITICAL, WARNING = {"severity": "critical"}, {"severity": "warning"}

CASES = [
    Case(
        alert="PulseNotScraped",
        when="nothing answers any more",
        series={"pulse_slots": "16x3 _x20"},
        at=15,
        fires=CRITICAL,
        summary="Pulse metrics are unavailable",
        description="The metrics endpoint has returned no Pulse metrics for five minutes.",
    ),
    Case(alert="PulseNotScraped", when="two scrapes failed", series={"pulse_slots": "16x3 _x2 16x20"}, at=6),
    Case(
        alert="PulseShardDown",
        when="one of two shards does not answer",
        series={'pulse_shard_up{database="s1"}': "1x10", DOWN: "1x3 0x10"},
        at=6,
        fires={"database": "s2"} | CRITICAL,
        summary="Shard s2 does not respond",
        description="The database s2 did not respond. Jobs of other shards continue.",
    ),
    Case(alert="PulseShardDown", when="it answered one process of two", at=6, series={
        'pulse_shard_up{database="s2",instance="a"}': "0x10", 'pulse_shard_up{database="s2",instance="b"}': "1x10",
    }),
    Case(
        alert="PulseOldestDue",
        when="jobs wait",
        series={OVERDUE: "60+60x20", PAUSED: "0x20", 'pulse_queue_oldest_due_seconds{queue="other"}': "1x20"},
        at=11,
        fires={"queue": "mail"} | CRITICAL,
        summary="Jobs wait in queue mail",
        description="The oldest due job of queue mail has been due for 12m 0s.",
    ),
    Case(
        alert="PulseOldestDue",
        when="the same queue is paused in another shard",
        series={
            'pulse_queue_oldest_due_seconds{queue="mail",shard="s1"}': "3600x20",
            'pulse_queue_paused{queue="mail",shard="s1"}': "0x20",
            'pulse_queue_oldest_due_seconds{queue="mail",shard="s2"}': "3600x20",
            'pulse_queue_paused{queue="mail",shard="s2"}': "1x20",
        },
        at=11,
        fires={"queue": "mail", "shard": "s1"} | CRITICAL,
        summary="Jobs wait in queue mail",
        description="The oldest due job of queue mail has been due for 1h 0m 0s.",
    ),
    Case(alert="PulseOldestDue", when="the queue is paused", series={OVERDUE: "60+60x20", PAUSED: "1x20"}, at=15),
    Case(alert="PulseOldestDue", when="a burst is worked off", series={OVERDUE: "0x3 400x3 10x20"}, at=8),
    Case(
        alert="PulseNoWorker",
        when="all workers are gone",
        series={ALIVE: "2x3 0x10", SILENT: "0x13"},
        at=7,
        fires={"state": "alive"} | CRITICAL,
        summary="No worker is alive",
        description="No worker has sent a heartbeat for a lease and three heartbeats.",
    ),
    Case(alert="PulseNoWorker", when="the only worker is replaced", series={ALIVE: "1x3 0 1x10"}, at=5),
    Case(
        alert="PulseWorkersSilent",
        when="a worker is lost while a watchdog lives, which notes it within a minute",
        series={ALIVE: "3x3 2x20", SILENT: "0x3 1 0x20", LOST: "0x4 1x20"},
        at=8,
        fires=WARNING,
        summary="1 workers are silent or lost",
        description="They did not shut down, but stopped sending heartbeats.",
    ),
    Case(
        alert="PulseWorkersSilent",
        when="no watchdog lives, so it is not noted as lost",
        series={ALIVE: "2x3 0x20", SILENT: "0x3 2x20", LOST: "0x20"},
        at=8,
        fires=WARNING,
        summary="2 workers are silent or lost",
        description="They did not shut down, but stopped sending heartbeats.",
    ),
    Case(alert="PulseWorkersSilent", when="the lost worker was acknowledged", at=8, series={
        ALIVE: "3x3 2x20", SILENT: "0x3 1 0x20", LOST: "0x4 1 0x20",
    }),
    Case(
        alert="PulseDeadLetters",
        when="more jobs die in a queue in which some had died",
        series={SLOTS: "16x60", DEAD: "7x10 8x10"},
        at=12,
        fires={"queue": "mail"} | WARNING,
        summary="New dead letters in queue mail",
        description="The number of jobs that became dead letters in the last ten minutes is about 1.",
    ),
    Case(
        alert="PulseDeadLetters",
        when="the first job dies in a queue",
        series={SLOTS: "16x60", DEAD: "_x15 1x10"},
        at=17,
        fires={"queue": "mail"} | WARNING,
        summary="New dead letters in queue mail",
        description="The number of jobs that became dead letters in the last ten minutes is about 1.",
    ),
    Case(alert="PulseDeadLetters", when="Prometheus has only begun to scrape", at=8, series={
        SLOTS: "16x60", DEAD: "7x40",
    }),
    Case(alert="PulseDeadLetters", when="all of them are old", series={SLOTS: "16x60", DEAD: "7x40"}, at=30),
    Case(
        alert="PulseLeasesExpire",
        when="a worker with many runs is killed",
        series={"pulse_lease_expirations_total": "3x10 13x10"},
        at=14,
        fires=WARNING,
        summary="Leases expire",
        description="The number of runs that lost their worker in the last ten minutes is about 10.",
    ),
    Case(alert="PulseLeasesExpire", when="one run was lost", series={
        "pulse_lease_expirations_total": "3x10 4x10",
    }, at=14),
    Case(
        alert="PulseOrphanedJobs",
        when="jobs are stuck",
        series={'pulse_orphaned_jobs{condition="queue-overdue"}': "0x3 4x10"},
        at=10,
        fires={"condition": "queue-overdue"} | WARNING,
        summary="Jobs or queues are broken or stuck (queue-overdue)",
        description="The condition queue-overdue applies to 4 jobs or other objects.",
    ),
    Case(alert="PulseOrphanedJobs", when="a deploy left a queue alone for a moment", series={
        'pulse_orphaned_jobs{condition="queue-without-worker"}': "0x3 1x2 0x10",
    }, at=6),
    Case(
        alert="PulseJobsFail",
        when="a task fails too often",
        series={'pulse_conditions{condition="failure-rate",severity="failing"}': "0x3 2x10"},
        at=5,
        fires={"condition": "failure-rate"} | WARNING,
        summary="Too many jobs fail (failure-rate)",
        description="The condition failure-rate applies to 2 queues or tasks.",
    ),
    Case(alert="PulseJobsFail", when="only risks are found, and a lost worker, which has its own rule", series={
        'pulse_conditions{condition="paused-backlog",severity="risk"}': "1x10",
        'pulse_conditions{condition="worker-lost",severity="failing"}': "1x10",
    }, at=5),
    Case(
        alert="PulseFencingStorm",
        when="workers outlive their leases",
        series={'pulse_fencing_rejections_total{verb="settle"}': "0x5 0+10x20"},
        at=20,
        fires=WARNING,
        summary="Workers write with lost leases",
        description="About 100 such writes were rejected in the last ten minutes.",
    ),
    Case(alert="PulseFencingStorm", when="a few follow a frozen host", series={
        'pulse_fencing_rejections_total{verb="settle"}': "0x5 8x20",
    }, at=10),
    Case(
        alert="PulseHeartbeatsFail",
        when="a host cannot reach the database half of the time",
        series={ANSWERED: "0+6x20", FAILED: "0+6x20"},
        at=12,
        fires=WARNING,
        summary="Heartbeats fail",
        description="50% of the heartbeats of the last ten minutes failed.",
    ),
    Case(alert="PulseHeartbeatsFail", when="one of them failed", at=12, series={
        ANSWERED: "0+12x20", FAILED: "0x9 1x20",
    }),
    Case(
        alert="PulseHeartbeatsLate",
        when="heartbeats wait for seconds",
        series=dict(zip(DELAYS, ("0x30", "0+12x30", "0+12x30"), strict=True)),
        at=20,
        fires=WARNING,
        summary="Heartbeats are late",
        description="The p99 delay of heartbeats is 8.151s.",
    ),
    Case(alert="PulseHeartbeatsLate", when="one of many was late", at=20, series=dict(
        zip(DELAYS, ("0+120x9 1079+120x20", "0+120x30", "0+120x30"), strict=True)
    )),
    Case(
        alert="PulseMinutesStop",
        when="no watchdog runs",
        series={"pulse_minute_age_seconds": "60+60x10"},
        at=6,
        fires=CRITICAL,
        summary="No minutes are recorded",
        description="The latest recorded minute began 7m 0s ago.",
    ),
    Case(alert="PulseMinutesStop", when="a minute is late", series={"pulse_minute_age_seconds": "70x3 190 70x5"}, at=4),
    Case(
        alert="PulseScheduleLate",
        when="no watchdog knows the task",
        series={"pulse_schedule_lateness_seconds": "0x3 30+60x10"},
        at=7,
        fires=CRITICAL,
        summary="A schedule does not run",
        description="A schedule has been due for 3m 30s.",
    ),
    Case(alert="PulseScheduleLate", when="it fires some seconds late", at=7, series={
        "pulse_schedule_lateness_seconds": "0x3 8 0 9 0x10",
    }),
    Case(
        alert="PulseStuckSlots",
        when="handlers do not come back",
        series={"pulse_stuck_slots": "0x3 2x20"},
        at=15,
        fires=WARNING,
        summary="2 slots are stuck",
        description="Abandoned handlers still run in threads, which cannot be killed.",
    ),
    Case(alert="PulseStuckSlots", when="a handler came back late", series={"pulse_stuck_slots": "0x3 1x5 0x20"}, at=15),
    Case(
        alert="PulseDatabaseErrors",
        when="the database answers with errors",
        series={"pulse_database_errors_total": "0x5 0+10x20"},
        at=20,
        fires=WARNING,
        summary="Workers have database errors",
        description="About 100 database operations failed in the last ten minutes.",
    ),
    Case(alert="PulseDatabaseErrors", when="a failover took a moment", at=10, series={
        "pulse_database_errors_total": "0x5 12x20",
    }),
]  # fmt: skip
