from __future__ import annotations

import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from pulse_django import Limit, checks, conf
from pulse_django.conf import PulseSettings, parse
from pulse_django.database_checks import check_database
from tests.faults import all_faults, each_of


def ids(raw: object) -> list[str]:
    return [problem.id for problem in parse(raw)[1]]


def test_the_defaults_are_the_documented_ones_and_have_no_problems() -> None:
    parsed, problems = parse({})
    assert not problems
    assert parsed == PulseSettings()
    assert (
        parsed.lease_ttl,
        parsed.heartbeat_interval,
        parsed.watchdog_interval,
        parsed.poll_interval,
    ) == tuple(timedelta(seconds=n) for n in (30, 10, 10, 1))
    assert parsed.max_attempts == 10


PROBLEMS: list[tuple[object, list[str]]] = [
    ("no dict", ["pulse_django.E001"]),
    ({"LEASE_TLL": 30}, ["pulse_django.E002"]),
    ({5: 30}, ["pulse_django.E002"]),
    ({"LEASE_TTL": "30"}, ["pulse_django.E003"]),
    ({"MAX_ATTEMPTS": 2.5}, ["pulse_django.E003"]),
    ({"MAX_ATTEMPTS": True}, ["pulse_django.E003"]),
    ({"TASK_MODULES": "a.module"}, ["pulse_django.E003"]),
    ({"TASK_MODULES": ["a.module", 5]}, ["pulse_django.E003"]),
    ({"TASK_MODULES": ["a.module"]}, []),
    ({"RETRY_JITTER": "much"}, ["pulse_django.E003"]),
    ({"QUEUE_LIMITS": {"mail": {"max_running": 5, "rate": {"n": 10, "per": 60}}}}, []),
    ({"QUEUE_LIMITS": {"mail": Limit(max_running=5)}}, []),
    ({"QUEUE_LIMITS": ["mail"]}, ["pulse_django.E003"]),
    ({"QUEUE_LIMITS": {"mail": 5}}, ["pulse_django.E004"]),
    ({"QUEUE_LIMITS": {"mail": {"max_running_per_key": 5}}}, ["pulse_django.E004"]),
    ({"QUEUE_LIMITS": {"mail": {"walking": 5}}}, ["pulse_django.E004"]),
    ({"QUEUE_LIMITS": {"mail": {"rate": {"n": 10}}}}, ["pulse_django.E004"]),
    ({"QUEUE_LIMITS": {"mail": Limit("mail", max_running=5)}}, ["pulse_django.E004"]),
    ({"QUEUE_LIMITS": {"a:b": {"max_running": 5}}}, ["pulse_django.E004"]),
    ({"MAX_ATTEMPTS": 0}, ["pulse_django.E004"]),
    ({"POLL_INTERVAL": 0}, ["pulse_django.E004"]),
    ({"POLL_INTERVAL": float("nan")}, ["pulse_django.E003"]),
    ({"POLL_INTERVAL": float("inf")}, ["pulse_django.E004"]),
    ({"POLL_INTERVAL": -1}, ["pulse_django.E004"]),
    ({"RETRY_JITTER": 1.5}, ["pulse_django.E004"]),
    ({"MAX_PAYLOAD_BYTES": 10**9}, ["pulse_django.E004"]),
    ({"LEASE_TTL": 19}, ["pulse_django.E005"]),  # under two beats of 10 s
    ({"LEASE_TTL": 20}, ["pulse_django.W001"]),  # two beats
    ({"LEASE_TTL": 29.9}, ["pulse_django.W001"]),  # just under three
    ({"LEASE_TTL": 30}, []),
    ({"LEASE_TTL": 30, "WATCHDOG_INTERVAL": 31}, ["pulse_django.E006"]),
    ({"LEASE_TTL": 30, "WATCHDOG_INTERVAL": 30}, []),
    # all at once, and one mistake does not hide the next
    (
        {
            "LEASE_TTL": 15,
            "MAX_ATTEMPTS": 0,
            "POL_INTERVAL": 1,
            "RETRY_JITTER": None,
            "WATCHDOG_INTERVAL": 60,
        },
        [f"pulse_django.E00{n}" for n in (4, 2, 3, 5, 6)],
    ),
]


@each_of(*PROBLEMS)
def test_every_problem_is_found(*, raw: Any, expected: Any) -> None:
    assert ids(raw) == expected


def test_every_problem_has_a_hint_that_can_be_followed() -> None:
    for raw, _ in PROBLEMS:
        assert all(problem.hint for problem in parse(raw)[1])
    [problem] = parse({"lease_tll": 30})[1]
    assert problem.hint == "Did you mean LEASE_TTL?"
    assert parse({"POLL_INTERVAL": 0.5})[0] == parse({"POLL_INTERVAL": timedelta(milliseconds=500)})[0]


@each_of(*conf.RANGES)
def test_every_setting_has_a_range_and_a_default_within_it(*, field: Any) -> None:
    assert conf.RANGES[field].least <= getattr(PulseSettings(), field) <= conf.RANGES[field].most


def test_every_setting_has_a_range() -> None:
    free = {
        "task_modules",
        "queues",
        "middleware",
        "notify",
        "log_arguments",
        "listen_dsn",
        "admin_queue",
        "project_version",
        "deployment",
        "alerts",
        "alert_mail",
        "metrics_token",
        "opentelemetry",
        "encryption_keys",
        "encrypt_all",
        "queue_limits",
        "routes",
        "fair_by_queue",
        "fair_weights",
        "shards",
        "placement",
        "queue_shards",
    }
    assert set(conf.RANGES) | free == set(conf._FIELDS.values())


def test_the_system_checks_report_all_problems_together() -> None:
    with override_settings(PULSE={"LEASE_TTL": 20, "MAX_ATTEMPTS": 0, "WATCHDOG": 1}):
        found = {message.id: message for message in run_checks() if str(message.id).startswith("pulse_django")}
    assert set(found) == {"pulse_django.E002", "pulse_django.E004", "pulse_django.W001"}
    assert found["pulse_django.E004"].is_serious()
    assert found["pulse_django.W001"].hint


@pytest.mark.django_db
def test_the_server_is_asked_whatever_is_wrong_with_the_settings() -> None:
    with override_settings(PULSE={"MAX_ATTEMPTS": 0}):
        assert check_database(databases=["default"]) == []
        assert check_database(databases=None) == []


def test_using_broken_settings_raises_everything_that_is_wrong() -> None:
    broken: dict[str, Any] = {"MAX_ATTEMPTS": 0, "WATCHDOG": 1}
    with override_settings(PULSE=broken), pytest.raises(ImproperlyConfigured, match=r"(?s)E004.*E002"):
        conf.current()


def test_settings_are_read_once_and_again_after_they_changed() -> None:
    assert conf.current() is conf.current()
    with override_settings(PULSE={"MAX_ATTEMPTS": 3}):
        assert conf.current().max_attempts == 3
    assert conf.current().max_attempts == 10


NO_ALERTS: list[object] = [
    5,
    {5: 1},
    {"dead-letters": "1"},
    {"dead-letters": -1},
    {"dead-letters": float("nan")},
    {"dead-letters": None},
    {"dead-letters": 10**400},
]


def test_alerts_are_numbers_or_flags_by_name() -> None:
    with all_faults() as about:
        for alerts in NO_ALERTS:
            with about(repr(alerts)[:40]):
                parsed, problems = parse({"ALERTS": alerts})
                assert [problem.id for problem in problems] in (["pulse_django.E003"], ["pulse_django.E004"])
                assert dict(parsed.alerts) == {}
    given = {"queue-overdue": 600, "table-bloat": True, "leases-expired": False}
    assert dict(parse({"ALERTS": given})[0].alerts) == given


@each_of("", "x" * 101, "a\nb")
def test_a_queue_that_no_job_can_be_in_is_refused(*, name: Any) -> None:
    _, problems = conf.parse({"ADMIN_QUEUE": name})
    assert [problem.id for problem in problems] == ["pulse_django.E004"]


def test_settings_of_celery_that_stay_behind_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[dict[str, Any], bool, str]] = [
        ({}, False, ""),
        ({"CELERY_BROKER_URL": "redis://", "CELERY_TASK_ACKS_LATE": True}, False, "CELERY_BROKER_URL, CELERY_TASK_ACK"),
        ({"CELERY_BROKER_URL": "redis://"}, True, ""),  # the project uses Celery, too
        ({"CELERY_BROKER_URL": "redis://", "INSTALLED_APPS": ["pulse_django.celery"]}, False, ""),
    ]
    for of_celery, is_imported, said in cases:
        monkeypatch.delitem(sys.modules, "celery", raising=False)
        if is_imported:
            monkeypatch.setitem(sys.modules, "celery", ModuleType("celery"))
        monkeypatch.setattr(checks, "settings", SimpleNamespace(**{"INSTALLED_APPS": [], **of_celery}))
        found = [one for one in run_checks() if one.id == "pulse_django.W014"]
        assert [said in one.msg for one in found] == [True] * bool(said), of_celery
