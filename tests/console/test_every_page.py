"""Every address of the console: who gets in, that looking changes nothing, and that hostile rows come out as text.

The addresses come from the admin's own table of them, so that none can be forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from html.parser import HTMLParser
from types import ModuleType
from typing import Any
from urllib.parse import urlencode

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import URLPattern, path, reverse

from pulse_django.console.jobs.exporting import FORMATS
from pulse_django.limits.console.actions import ACTS as LIMIT_ACTS
from pulse_django.models import Dependency, Job, Limiter, Pause, Schedule, StoredBatch, Worker
from pulse_django.operations.acts import ACTS
from pulse_django.queue.database.workers import Presence
from pulse_django.queue.words.display import UNSEEN
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.states import Status
from pulse_django.schedules.console.actions import ACTS as SCHEDULE_ACTS
from pulse_django.workflows.console.admin import ACTS as WORKFLOW_ACTS
from tests.factories import AttemptFactory, PauseFactory, make_job, now
from tests.faults import all_faults, each_of
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db

ERROR = "KeyError: x"
VIEWING = (
    "pulse_view_jobs", "pulse_view_queues", "pulse_view_workers", "pulse_view_board", "pulse_view_schedules",
    "pulse_view_limits", "pulse_view_arguments", "pulse_view_workflows",
)  # fmt: skip
OURS = [model for model in admin.site._registry if model._meta.app_label == "pulse_django"]
ACTING = (
    "pulse_retry_jobs",
    "pulse_cancel_jobs",
    "pulse_schedule_jobs",
    "pulse_amend_jobs",
    "pulse_operate_queues",
    "pulse_delete_jobs",
    "pulse_change_schedules",
    "pulse_delete_schedules",
    "pulse_change_limits",
    "pulse_change_workers",
)
OF_A_JOB = [act for act in ACTS.values() if act.label]
OF_MANY = [act for act in ACTS.values() if act.label_of_all]


def names() -> list[str]:
    """Return the names of all addresses of ours, but for those of others' models."""
    found = (pattern for app in admin.site.urls[0] for pattern in getattr(app, "url_patterns", ()))
    return sorted({str(one.name) for one in found if isinstance(one, URLPattern) and "pulse_django" in str(one.name)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    name: str
    url: str
    data: dict[str, Any]  # that would do something, if posted by somebody who may

    @property
    def acts(self) -> bool:
        return any(word in self.name for word in ("_act", "_mass", "pause", "resume", "retry", "destroy", "delete"))


@pytest.fixture
def addresses() -> list[Address]:
    return with_rows()


def with_rows() -> list[Address]:
    """Return each address with rows behind it that it could change."""
    job, dead = make_job(queue="mail"), make_job(Status.DEAD_LETTERED, last_error=ERROR)
    AttemptFactory(job=dead, number=10, outcome="FAILED", traceback="Traceback")
    Pause.objects.pause(queue="mail", reason="first", duration=timedelta(minutes=5))
    Worker.objects.note(presence("host-1"))
    Worker.objects.mark_lost(-timedelta(minutes=1))
    schedule = Schedule.objects.create(name="nightly", task="shop.echo", args=[1], every=timedelta(hours=1))
    Schedule.objects.pause(schedule.pk, reason="first")
    Limiter.objects.override("mail", {"max_running": 3}, reason="first")
    Limiter.objects.pause("mail", duration=timedelta(minutes=1), reason="first")
    Pause.objects.pause(lane_key=lane_key("mail", "first"), reason="first")
    Pause.objects.pause("shop.paused", reason="first")
    batch = StoredBatch.objects.create(name="order 42")
    make_job(Status.DEAD_LETTERED, batch=batch)
    Dependency.objects.create(job_id=make_job(Status.WAITING, batch=batch).pk, needs_event="approved:42")
    row: dict[str, Any] = {
        "storedbatch": batch.pk,
        "limiter": "mail",
        "schedule": schedule.pk,
        "job": job.pk,
        "deadletter": dead.pk,
        "queue": "mail",
        "worker": Worker.objects.get().pk,
    }
    return [address for name in names() for address in _addresses(name, row)]


def _addresses(name: str, row: dict[str, Any]) -> Iterator[Address]:
    model = name.split("_")[2]
    mine = row.get(model, 1)
    data = {
        "name": "mail", "reason": "x", "duration": 0, "post": "yes", "confirmed": "yes", "task": "evil",
        "runs": 1, "scope": "all", "seen": "none",
        "job": row["job"], "id": [row["deadletter"]], "_selected_action": [row["deadletter"]],
        "action": "retry_dead_letters",
    }  # fmt: skip
    if name == "pulse_django_job_act":
        for act in OF_A_JOB:
            fields = data | {"delay": 300, "attempts": 0, "queue": "elsewhere", "priority": 1}
            form = {f"{act.name}-{field}": value for field, value in fields.items()}
            yield Address(name=name, url=reverse(f"admin:{name}", args=[mine, act.name]), data=form)
        return
    if name == "pulse_django_deadletter_mass":
        for one in ("retry", "delete"):
            url = f"{reverse(f'admin:{name}', args=[one])}?{urlencode({'error': ERROR})}"
            yield Address(name=name, url=url, data=data | {"scope": "selected"})
        return
    if name == "pulse_django_job_mass":
        for one in OF_MANY:
            query = "status__exact=DEAD_LETTERED" if one.name == "retry" else "queue=mail"
            form = data | {"queue": "elsewhere", "first": 1}
            yield Address(name=name, url=f"{reverse(f'admin:{name}', args=[one.name])}?{query}", data=form)
        return
    if name == "pulse_django_job_export":
        for kind in FORMATS:
            yield Address(name=name, url=f"{reverse(f'admin:{name}', args=[kind])}?queue=mail", data=data)
        return
    if name == "pulse_django_storedbatch_act":
        for one in WORKFLOW_ACTS:
            form = {f"{one.name}-{field}": value for field, value in (data | {"event": "approved:42"}).items()}
            yield Address(name=name, url=reverse(f"admin:{name}", args=[mine, one.name]), data=form)
        return
    if name == "pulse_django_schedule_act":
        for act in SCHEDULE_ACTS:
            form = {f"{act.name}-{field}": value for field, value in data.items()}
            yield Address(name=name, url=reverse(f"admin:{name}", args=[mine, act.name]), data=form)
        return
    if name == "pulse_django_limiter_act":
        fields = {
            "max_running": 5, "per": 60, "key_per": 60, "duration": 600, "reason": "x", "key": "7",
            "lane_key": lane_key("mail", "first"),
        }  # fmt: skip
        for act in LIMIT_ACTS:
            lasting = 86_400 if act.name == "pause_limit" else 600
            form = {f"{act.name}-{field}": value for field, value in (fields | {"duration": lasting}).items()}
            yield Address(name=name, url=reverse(f"admin:{name}", args=[mine, act.name]), data=form)
        return
    if name.endswith("_task"):
        task = "shop.paused" if "resume" in name else "shop.send"
        data |= {"task-task": task, "task-reason": "x", "task-duration": 600, "task-force": "on"}
    if name == "pulse_django_queue_pause":
        data |= {"name": "another"}
    if name == "pulse_django_queue_resume":
        data |= {"seen": Pause.objects.get(queue="mail").paused_at.isoformat()}
    wants = [parameter for pattern in _patterns(name) for parameter in pattern]
    error = f"?{urlencode({'error': ERROR})}" if name.startswith("pulse_django_deadletter_") else ""
    yield Address(name=name, url=reverse(f"admin:{name}", args=[mine] * len(wants)) + error, data=data)


def _patterns(name: str) -> list[list[str]]:
    found = (pattern for app in admin.site.urls[0] for pattern in getattr(app, "url_patterns", ()))
    return [list(one.pattern.converters) for one in found if isinstance(one, URLPattern) and one.name == name]


def presence(name: str) -> Presence:
    return Presence(
        name=name, boot_id="b", host=name, pid=1, versions={name: name}, queues=[name], slots=8, in_flight=1,
        stuck_slots=1, tasks=[name],
    )  # fmt: skip


def somebody(*permissions: str, **options: Any) -> Client:
    user = User.objects.create_user("somebody", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(**options)
    client.force_login(user)
    return client


def everything() -> list[Any]:
    """All rows that a page could change, in one statement."""
    models = [*apps.get_app_config("pulse_django").get_models(), LogEntry]
    tables = sorted({model._meta.db_table for model in models if not model._meta.proxy})
    one = "SELECT '{0}' AS name, {0}::text AS row FROM {0}"
    return sql(f"{' UNION ALL '.join(map(one.format, tables))} ORDER BY 1, 2")


def test_there_are_addresses_for_every_entry() -> None:
    assert {name.split("_")[2] for name in names()} == {
        "board", "deadletter", "job", "limiter", "queue", "schedule", "storedbatch", "taskoverview",
        "worker",
    }  # fmt: skip
    assert {"pulse_django_queue_pause", "pulse_django_job_act", "pulse_django_board_changelist"} <= set(names())


def test_strangers_are_sent_to_the_login_whatever_they_ask_for(addresses: list[Address]) -> None:
    before = everything()
    for address in addresses:
        for response in (Client().get(address.url), Client().post(address.url, address.data)):
            assert response.status_code == 302, address
            assert "/login/" in response.url, address  # type: ignore[attr-defined]
    assert everything() == before


def test_staff_without_permission_get_nothing(addresses: list[Address]) -> None:
    client, before = somebody(), everything()
    for address in addresses:
        assert client.get(address.url, {"error": ERROR, "name": "mail"}).status_code in (403, 405), address
        assert client.post(address.url, address.data).status_code in (403, 405), address
    assert everything() == before


def test_those_who_may_look_can_look_and_no_more(addresses: list[Address]) -> None:
    client, before = somebody(*VIEWING), everything()
    for address in addresses:
        got = client.get(address.url, {"error": ERROR, "name": "mail"}).status_code
        assert got in (200, 302, 403, 405), address
        client.post(address.url, address.data)
        assert everything() == before, address


def test_those_who_may_act_do_so_by_the_very_same_forms(addresses: list[Address]) -> None:
    """Or the test above could not fail."""
    client, before = somebody(*VIEWING, *ACTING), everything()
    did: set[str] = set()
    for address in addresses:
        sql("SAVEPOINT untouched")
        client.post(address.url, address.data)
        did |= {address.url.partition("?")[0].rstrip("/").rpartition("/")[2]} if everything() != before else set()
        sql("ROLLBACK TO SAVEPOINT untouched")
    waiting = {act.name for act in OF_A_JOB if Status.PENDING in act.statuses}
    assert {
        "pause",
        "resume",
        "retry",
        "delete",
        "change",
        "reset",
        "pause_limit",
        "resume_limit",
        "approve",
        "cancel",
        *waiting,
    } <= did


def test_looking_changes_nothing_whoever_looks(addresses: list[Address], admin_client: Client) -> None:
    """Also when the address holds what a form would post, or names what the page is about."""
    named = {"queue": [{"name": "mail"}], "deadletter": [{"error": ERROR}], "job": [{"action": "retry_dead_letters"}]}
    with all_faults() as about:
        for user in ["operator", "superuser"]:
            with about(user), undone():
                client, before = somebody(*VIEWING, *ACTING) if user == "operator" else admin_client, everything()
                for address in addresses:
                    for query in ({}, address.data, *named.get(address.name.split("_")[2], [])):
                        assert client.get(address.url, query).status_code < 500, address
                assert everything() == before


@each_of("operator", "superuser", around=undone)
def test_a_post_that_was_forged_elsewhere_changes_nothing(addresses: list[Address], *, user: Any) -> None:
    if user == "operator":
        client = somebody(*VIEWING, *ACTING, enforce_csrf_checks=True)
    else:
        client = Client(enforce_csrf_checks=True)
        client.force_login(User.objects.create_superuser("root"))
    before = everything()
    for address in addresses:
        assert client.post(address.url, address.data).status_code == 403, address
    assert everything() == before


def test_nothing_can_be_typed_into_a_row(addresses: list[Address], admin_client: Client) -> None:
    """By Django's own forms: what acts is ours, and tested where it is made."""
    before = everything()
    for address in addresses:
        if not address.acts:
            admin_client.post(address.url, {key: address.data[key] for key in ("task", "name", "post")})
    assert everything() == before


@each_of(*OURS, around=undone)
def test_a_site_that_shows_one_of_them_links_only_to_what_it_shows(
    addresses: list[Address], admin_client: Client, settings: Any, *, alone: Any
) -> None:
    make_job(Status.RUNNING, queue="mail", locked_by="host-1:b:1")
    site = admin.AdminSite(name="ops")
    site.register(alone, type(admin.site._registry[alone]))
    module = ModuleType("one_model_urls")
    module.urlpatterns = [path("ops/", site.urls)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = module
    for address in addresses:
        if address.name.split("_")[2] == alone._meta.model_name and not address.acts:
            url = address.url.replace("/admin/", "/ops/")
            for query in ({}, {"error": ERROR, "name": "mail"}):
                assert admin_client.get(url, query, follow=True).status_code in (200, 403, 404, 405), url
    for job in Job.objects.all() if alone is Job else ():
        assert admin_client.get(reverse("ops:pulse_django_job_change", args=[job.pk])).status_code == 200


MARK = "pwned"
# Each is as long as a short field has room for, so that each of its parts is in each field. 10 kB follow the first
# where there is room for more.
HOSTILE = [
    f'<img src=x onerror={MARK}()></script><script>{MARK}()</script>"><svg onload={MARK}()>' + MARK * 1_250,
    "\u202eabc\u2066\u2069\u200b\u200e\u200f\u061c\ufeff\x07\x1b"
    f"'><a href=javascript:{MARK}()>{{{{991*991}}}}{{%debug%}}--><style>*{{}}</style>",
]


def asked(model: str, evil: str) -> list[dict[str, str]]:
    """What an address may hold, by the page that reads it."""
    queries = {
        "queue": {"name": evil[:100]},
        "deadletter": {"error": evil[:200]},
        "job": {"q": evil[:50], "queue": evil[:100], "task": evil[:200]},
    }
    return [{}, queries[model]] if model in queries else [{}]


class Elements(HTMLParser):
    """What a browser would make of a page, as far as it could do harm."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.harmful: list[str] = []
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attributes}
        values = [value or "" for name, value in attributes if name in ("href", "src", "action", "formaction")]
        self._in_script = tag in ("script", "style")
        if any(name.startswith("on") for name in names) or "style" in names:
            self.harmful.append(f"<{tag} {attributes}>")
        if any(value.strip().lower().startswith(("javascript:", "data:")) for value in values):
            self.harmful.append(f"<{tag} {attributes}>")
        if tag in ("img", "svg", "style", "script") and MARK in str(attributes):
            self.harmful.append(f"<{tag} {attributes}>")

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script and MARK in data:
            self.harmful.append(f"script: {data}")


def fill(evil: str) -> dict[str, int]:
    """Put a string wherever a row has room for it."""
    short = evil[:80]
    parent = make_job(Status.COMPLETED, task=evil[:200], queue=evil[:100], result=evil)
    job = make_job(
        Status.DEAD_LETTERED, task=evil[:200], queue=evil[:100], args=[evil], kwargs={evil: evil}, parent=parent,
        last_error=evil[:2_000], cancel_reason=evil, progress={evil: evil, "done": evil, "total": evil},
        idempotency_key=evil[:100],
    )  # fmt: skip
    AttemptFactory(
        job=job, number=10, outcome="WORKER_LOST", worker=f"{short}:b:1", message=evil, error_class=evil[:200],
        traceback=evil, late_outcome="FAILED", late_at=now(),
    )  # fmt: skip
    running = make_job(
        Status.RUNNING, task=evil[:200], queue=evil[:100], locked_by=f"{short}:b:1",
        progress={"done": 1, "total": 2, "x": evil},
        args=[evil],
    )  # fmt: skip
    batch = StoredBatch.objects.create(name=evil[:200], kind=evil[:16], context={evil: evil}, cancel_reason=evil)
    members = [
        make_job(status, batch=batch, node=evil[:100], task=evil[:200])
        for status in (Status.WAITING, Status.DEAD_LETTERED, Status.COMPLETED)
    ]
    Dependency.objects.create(job_id=members[0].pk, needs_event=evil[:200], name=evil[:100])
    Dependency.objects.create(job_id=members[0].pk, needs=members[1].pk, name=evil[:100])
    Worker.objects.note(presence(short))
    PauseFactory(queue=evil[:100], reason=evil[:2_000])
    limiter = evil[:100]
    Limiter.objects.override("limiter", {"max_running": 3}, by=evil[:150], reason=evil[:2_000])
    Limiter.objects.pause("limiter", duration=timedelta(minutes=1), reason=evil[:2_000])
    Limiter.objects.filter(name="limiter").update(name=limiter)  # no verb takes such a name
    for whose in (limiter.replace(":", ""), ""):
        Pause.objects.pause(lane_key=lane_key(whose, evil[:90]), reason=evil[:2_000], by=evil[:150])
    Pause.objects.create(task=evil[:200], reason=evil, paused_by=evil[:150])
    make_job(Status.RUNNING, lane_key=lane_key(limiter.replace(":", ""), evil[:90]))
    sql(
        "INSERT INTO pulse_django_minute (minute, signs)"
        " SELECT date_trunc('minute', clock_timestamp()) - interval '1 min', jsonb_build_object("
        "  'jobs_enqueued_total', jsonb_build_object(%s::text, 1), 'broken', jsonb_build_object(%s::text, 1))",
        evil,
        evil,
    )
    schedule = Schedule.objects.create(name="hostile", task="shop.echo", args=[evil], every=timedelta(hours=1))
    Schedule.objects.pause(schedule.pk, reason=evil)
    return {
        "schedule": schedule.pk,
        "job": job.pk,
        "running": running.pk,
        "done": parent.pk,
        "queue": quote(evil[:100]),
        "worker": Worker.objects.get().pk,
        "limiter": quote(limiter),
        "storedbatch": batch.pk,
        "member": members[0].pk,
    }


def test_hostile_rows_come_out_as_text_on_every_page(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_django.encryption.values.shown", lambda key, args, kwargs, sensitive: (args, kwargs))
    monkeypatch.setattr("pulse_django.encryption.values.shows_result", lambda key, sensitive: True)
    with all_faults() as about:
        for evil in HOSTILE:
            with undone():
                seen = sum(MARK in page for page in hostile_pages(admin_client, evil, about))
            with about(evil):
                assert seen > 8, "the string should have been there to be seen"


def hostile_pages(client: Client, evil: str, about: Callable[[object], AbstractContextManager[None]]) -> Iterator[str]:
    """Open every page with this string in all rows, and look at what a browser would make of it."""
    row = fill(evil)
    for name in names():
        model = name.split("_")[2]
        jobs = [row["job"], row["running"], row["done"], row["member"]]
        for pk in jobs if model in ("job", "deadletter") else [row.get(model, 1)]:
            address = reverse(f"admin:{name}", args=[pk, "retry"][: sum(map(len, _patterns(name)))])
            for query in asked(model, evil):
                with about((name, query)):
                    response = client.get(address, query)
                    assert response.status_code < 500
                    page = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", response.content.decode())
                    assert Elements(page).harmful == []
                    assert UNSEEN.findall(page) == []
                    assert "982081" not in page, "a template was run"
                    yield page
