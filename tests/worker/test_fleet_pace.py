"""How many statements a large fleet sends while it has nothing to do."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest

from pulse_django.conf import PulseSettings
from pulse_django.models import Worker
from pulse_django.run.notify import SOON
from pulse_django.worker.claimer import Claimer
from pulse_django.worker.guarded_connection import (
    LONGEST_PRESENCE,
    NOT_SLOWED,
    PRESENCE_SLOWED_BY,
    GuardedConnection,
    slowed,
)
from pulse_django.worker.heartbeat import IDLE_TICK, Heartbeat
from pulse_django.worker.keeper import LONGEST_TICK, Keeper
from pulse_django.worker.shared_leases import SharedLeases
from pulse_django.worker.watchdog import Swept, Watchdog
from tests.factories import presence
from tests.faults import each_of
from tests.queue.steps import sql
from tests.worker.steps import claimer_for

pytestmark = pytest.mark.usefixtures("pulse_db")

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
TTL = PulseSettings().lease_ttl.total_seconds()


def claimer_beside(workers: int, *, hears: bool = True) -> Claimer:
    claimer = claimer_for()
    claimer._in_flight._shared_leases.note_standing(0, workers)
    claimer.hears = hears
    return claimer


def test_a_small_fleet_is_not_slowed() -> None:
    assert {slowed(10.0, size, 5.0, 60.0) for size in (0, 1, NOT_SLOWED)} == {10.0}
    assert slowed(10.0, 1_000, 5.0, 5.0) == 10.0, "never more often than alone"


def test_a_fleet_of_a_thousand_sends_no_more_polls_and_sweeps_than_200_a_second() -> None:
    poll = mean(claimer_beside(1_000)._until_poll() for _ in range(200))
    watchdog = Watchdog(GuardedConnection("default", "watchdog"))
    sweep = mean(watchdog.pause_after(None, 1_000) for _ in range(200))
    beats = PulseSettings().heartbeat_interval.total_seconds()
    presence_interval = slowed(beats, 1_000, PRESENCE_SLOWED_BY, LONGEST_PRESENCE * TTL)
    assert 1_000 / poll + 1_000 / sweep + 1_000 / presence_interval < 200


@each_of(1, 2, 5)
def test_each_worker_polls_before_a_job_is_due_that_was_enqueued_without_a_notification(
    settings: Any, *, interval: Any
) -> None:
    settings.PULSE = {"POLL_INTERVAL": interval}
    assert max(claimer_beside(1_000)._until_poll() for _ in range(50)) < SOON.total_seconds()


def test_what_does_not_hear_wake_ups_polls_as_often_as_alone() -> None:
    interval = PulseSettings().poll_interval.total_seconds()
    assert claimer_beside(1_000, hears=False)._until_poll() <= interval


def test_no_watchdog_pauses_for_so_long_that_one_failure_seems_a_long_outage() -> None:
    for interval in (TTL / 3, TTL / 4, TTL / 10):
        watchdog = Watchdog(GuardedConnection("default", "watchdog"), interval=interval)
        assert max(watchdog.pause_after(None, 1_000) for _ in range(50)) < TTL / 2


def test_a_watchdog_that_sweeps_itself_is_not_slowed() -> None:
    """The others of its fleet may have none."""
    watchdog = Watchdog(GuardedConnection("default", "watchdog"))
    assert max(watchdog.pause_after(Swept(reaped=[]), 1_000) for _ in range(50)) <= watchdog.interval


def test_presence_is_noted_before_the_worker_seems_not_to_be_ready(settings: Any) -> None:
    settings.PULSE = {"LEASE_TTL": 4, "HEARTBEAT_INTERVAL": 2, "WATCHDOG_INTERVAL": 1}
    for number in range(2 * NOT_SLOWED):
        Worker.objects.note(presence(f"other-{number}"))
    heartbeat = Heartbeat(GuardedConnection("default", "heartbeat"), list, lambda: presence("w"))
    heartbeat.run_once()
    sql("UPDATE pulse_django_worker SET last_beat_at = %s WHERE name = 'w'", EPOCH)
    heartbeat._present_at -= 4 - 2 * IDLE_TICK
    heartbeat.run_once()
    assert Worker.objects.get(name="w").last_beat_at != EPOCH
    heartbeat.database.hang_up()


def test_an_idle_worker_of_a_large_fleet_notes_its_presence_half_as_often_and_tells_its_children_the_size() -> None:
    for number in range(2 * NOT_SLOWED):
        Worker.objects.note(presence(f"other-{number}"))
    child = SharedLeases("w:b:")
    heartbeat = Heartbeat(GuardedConnection("default", "heartbeat"), lambda: [child], lambda: presence("w"))
    heartbeat.run_once()
    assert heartbeat.fleet_size == child.fleet_size == 2 * NOT_SLOWED + 1
    interval = PulseSettings().heartbeat_interval.total_seconds()
    for waited, notes in ((1.5, False), (2.1, True)):
        sql("UPDATE pulse_django_worker SET last_beat_at = %s WHERE name = 'w'", EPOCH)
        heartbeat._present_at -= waited * interval
        heartbeat.run_once()
        assert (Worker.objects.get(name="w").last_beat_at != EPOCH) == notes
    heartbeat.database.hang_up()


@each_of(0.05, 0.2, 0.5, 10.0, float("inf"))
def test_a_keeper_looks_often_enough_to_tell_systemd_in_time_that_it_lives(*, ping_every: Any) -> None:
    keeper = SimpleNamespace(
        _children=SimpleNamespace(stop_by=None),
        _child_slots=[],
        _systemd=SimpleNamespace(ping_every=ping_every),
    )
    pause = Keeper._until_next_look(keeper)  # type: ignore[arg-type]
    assert pause <= LONGEST_TICK
    assert pause + ping_every <= 2 * ping_every, "systemd waits for twice as long as a ping is due after"
