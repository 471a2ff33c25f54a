"""How many statements a large fleet sends while it has nothing to do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pulse_django.conf import PulseSettings
from pulse_django.execution.notify import SOON
from pulse_django.models import Worker
from pulse_django.words.identity import Identity
from pulse_django.worker.claimer import Claimer
from pulse_django.worker.fleet_pace import NOT_SLOWED, slowed
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.heartbeat import Charge, Heartbeat
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.shared_leases import SharedLeases
from pulse_django.worker.watchdog import Watchdog
from pulse_django.worker.worker_options import WorkerOptions
from tests.protocol.steps import sql
from tests.worker.test_housekeeping import presence

pytestmark = pytest.mark.usefixtures("pulse_db")

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
TTL = PulseSettings().lease_ttl.total_seconds()


def claimer_beside(workers: int, *, hears: bool = True) -> Claimer:
    leases = SharedLeases("w:b:")
    leases.note_fleet_size(workers)
    claimer = Claimer(
        WorkerOptions.of(PulseSettings(), "w", {}), GuardedConnection("default", "claims"), Identity("w"),
        InFlight(leases, "default", 2), lambda runs: None, lambda queue, more: None, lambda: None,
    )  # fmt: skip
    claimer.hears = hears
    return claimer


def test_a_small_fleet_is_not_slowed() -> None:
    assert {slowed(10.0, size, 5.0) for size in (0, 1, NOT_SLOWED)} == {10.0}


def test_a_fleet_of_a_thousand_sends_no_more_polls_and_sweeps_than_200_a_second() -> None:
    poll = min(claimer_beside(1_000)._until_poll() for _ in range(50))
    watchdog = Watchdog(GuardedConnection("default", "watchdog"))
    sweep = min(watchdog.pause_after(None, 1_000) for _ in range(50))
    presence_interval = 2 * PulseSettings().heartbeat_interval.total_seconds()
    assert 1_000 / poll + 1_000 / sweep + 1_000 / presence_interval < 200
    assert poll * 1.25 < SOON.total_seconds(), "else a job that is due after that would be found late"


def test_what_does_not_hear_wake_ups_polls_as_often_as_alone() -> None:
    interval = PulseSettings().poll_interval.total_seconds()
    assert claimer_beside(1_000, hears=False)._until_poll() <= interval


def test_no_watchdog_pauses_for_so_long_that_it_seems_to_have_slept() -> None:
    watchdog = Watchdog(GuardedConnection("default", "watchdog"), interval=TTL)
    assert watchdog.pause_after(None, 1_000) <= TTL
    watchdog = Watchdog(GuardedConnection("default", "watchdog"), interval=TTL / 2)
    assert watchdog.pause_after(None, 1_000) <= TTL * 2 / 3


def test_an_idle_worker_of_a_large_fleet_notes_its_presence_half_as_often_and_tells_its_children_the_size() -> None:
    for number in range(2 * NOT_SLOWED):
        Worker.objects.note(presence(f"other-{number}"))
    charge = Charge(SharedLeases("w:b:"))
    heartbeat = Heartbeat(GuardedConnection("default", "heartbeat"), lambda: [charge], lambda: presence("w"))
    heartbeat.run_once()
    assert heartbeat.fleet_size == charge.shared_leases.fleet_size == 2 * NOT_SLOWED + 1
    interval = PulseSettings().heartbeat_interval.total_seconds()
    for waited, notes in ((1.5, False), (2.1, True)):
        sql("UPDATE pulse_django_worker SET last_beat_at = %s WHERE name = 'w'", EPOCH)
        heartbeat._present_at -= waited * interval
        heartbeat.run_once()
        assert (Worker.objects.get(name="w").last_beat_at != EPOCH) == notes
    heartbeat.database.hang_up()
