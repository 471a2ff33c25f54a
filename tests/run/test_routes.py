"""``PULSE["ROUTES"]`` gives options to tasks, also to those of apps that are not the project's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from pulse_django import retry_unless, task
from pulse_django.models import Job
from pulse_django.queue.words.own_tasks import OWN_TASKS
from pulse_django.run.registry import InvalidTask, registry
from pulse_django.run.routes import route_of
from tests.faults import each_of

try:
    from django.tasks import task as django_task
except ImportError:  # before Django 6.0
    from django_tasks import task as django_task

pytestmark = pytest.mark.usefixtures("pulse_db")

NAME = "tests.run.test_routes.reindex"

TAKES_AWAY: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"encrypted": True}, {"encrypted": False}, "encrypted"),
    ({"sensitive": ["card"]}, {"sensitive": []}, "sensitive"),
    ({"sensitive": ["card", "pin"]}, {"sensitive": ["pin"]}, "sensitive"),
    ({"sensitive": ["card"]}, {"sensitive": ["card", "pin"]}, ""),
    ({"encrypted": True}, {"queue_name": "x"}, ""),
    ({}, {"encrypted": False, "sensitive": []}, ""),
]


def pays(card: str, pin: str) -> None: ...


def test_a_check_names_a_route_that_shows_what_a_task_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    for options, route, lost in TAKES_AWAY:
        monkeypatch.setattr(registry, "_tasks", {})
        with override_settings(PULSE={"ROUTES": {"routed.pays": route}}):
            task(name="routed.pays", **options)(pays)
        found = [one.msg for one in run_checks() if one.id == "pulse_django.W013"]
        said = [f"PULSE['ROUTES'] takes {lost!r} away from the task 'routed.pays', which hides arguments by it."]
        assert found == (said if lost else []), (options, route)


def reindex() -> None: ...


def other() -> None: ...


def by_name(name: str) -> Mapping[str, Any] | None:
    return {"queue_name": "of_function"} if name.endswith(".reindex") else None


def gives_nonsense(name: str) -> Mapping[str, Any]:
    return {"queu": name}


NOT_CALLABLE = 5


def test_a_route_gives_options_to_a_task_of_djangos_decorator() -> None:
    routes = {
        "wagtail.*": {"queue_name": "unmatched"},
        "tests.run.test_routes.re*": {"queue_name": "search", "priority": -5, "timeout": 60, "tags": ["of_others"]},
        "*": {"queue_name": "second"},
    }
    with override_settings(PULSE={"ROUTES": routes}):
        routed, rest = django_task(queue_name="declared")(reindex), django_task(other)
    routed.enqueue()
    rest.enqueue()
    first, second = Job.objects.order_by("id")
    assert (first.queue, first.priority, first.timeout) == ("search", -5, timedelta(minutes=1))
    assert first.tags == ["of_others"]
    assert second.queue == "second"
    assert registry.get(NAME) is routed  # a worker runs it with these options


def test_a_call_counts_more_than_a_route_and_a_route_more_than_the_declaration() -> None:
    with override_settings(PULSE={"ROUTES": {NAME: {"queue_name": "routed", "max_attempts": 7}}}):
        declared = task(queue_name="declared", max_attempts=2, priority=3)(reindex)
        declared.using(queue_name="called").enqueue()
        declared.enqueue()
    called, plain = Job.objects.order_by("id")
    assert (called.queue, called.max_attempts, called.priority) == ("called", 7, 3)
    assert (plain.queue, plain.max_attempts, plain.priority) == ("routed", 7, 3)


def test_pulses_own_tasks_keep_their_options() -> None:
    with override_settings(PULSE={"ROUTES": {"*": {"timeout": 1}}}):
        assert {name: dict(route_of(name)) for name in OWN_TASKS} == {name: {} for name in OWN_TASKS}
        assert route_of("shop.tasks.ship") == {"timeout": 1}


def test_a_function_routes() -> None:
    for routes in (by_name, f"{__name__}.by_name"):
        with override_settings(PULSE={"ROUTES": routes}):
            assert (task(reindex).queue_name, task(other).queue_name) == ("of_function", "default")


def test_what_a_task_cannot_be_is_refused_with_the_route_that_says_so() -> None:
    with override_settings(PULSE={"ROUTES": {NAME: {"limit_key": "order"}}}):
        with pytest.raises(InvalidTask, match="no parameter 'order'") as raised:
            task(reindex)
        [note] = raised.value.__notes__
        assert note == f"PULSE[\"ROUTES\"] gives '{NAME}' these options: {{'limit_key': 'order'}}"
    with (
        override_settings(PULSE={"ROUTES": gives_nonsense}),
        pytest.raises(InvalidTask, match=re.escape(f"PULSE[\"ROUTES\"]('{NAME}'): A route has no option 'queu'")),
    ):
        task(reindex)


WRONG = [
    # The routes, the id of the check, and what it says.
    ({"a.*": {"queue": "x"}}, "E004", "'a.*': A route has no option 'queue'. Write queue_name='x'."),
    ({"a.*": {"queue_name": ""}}, "E004", "'a.*': queue_name: '' is not a non-empty string."),
    ({"a.*": {"priority": 500}}, "E004", "'a.*': priority: 500 is not within -100 to 100."),
    ({"a.*": {"name": "x"}}, "E004", "'a.*': A route has no option 'name'."),
    ({"a.*": "mail"}, "E004", "'a.*': 'mail' is not a dict of options."),
    (["a.*"], "E003", "which is not a dict of patterns of task names and options."),
    ("tests.run.missing", "E021", "cannot be imported"),
    (f"{__name__}.NOT_CALLABLE", "E021", "which is not callable."),
    ({"a.*": {"queue_name": "mial"}}, "E021", "sends 'a.*' to the queue 'mial', which TASKS does not allow."),
]
TASKS = {"default": {"BACKEND": "pulse_django.backend.PulseBackend", "QUEUES": ["default", "mail"]}}


@each_of(*WRONG)
def test_a_check_says_what_is_wrong_with_a_route(*, routes: Any, number: Any, says: Any) -> None:
    with override_settings(PULSE={"ROUTES": routes}, TASKS=TASKS):
        [found] = [one for one in run_checks() if str(one.id).startswith("pulse_django.E")]
        assert found.id == f"pulse_django.{number}"
        assert says in f"{found.msg} {found.hint}"


def test_good_routes_pass_the_check_whether_a_task_fits_or_not() -> None:
    routes = {"nobody.*": {"queue_name": "mail", "retry": retry_unless(ValueError), "expires": 60, "sensitive": "a"}}
    for good in (routes, by_name):
        with override_settings(PULSE={"ROUTES": good}, TASKS=TASKS):
            assert [one for one in run_checks() if str(one.id).startswith("pulse_django.E")] == []


def test_tasks_can_be_imported_when_the_settings_cannot_be_read() -> None:
    with override_settings(PULSE={"ROUTES": {"*": {"queu": "x"}}}):
        assert task(reindex).queue_name == "default"
