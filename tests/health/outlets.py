"""What each outlet says of the fleet now: the commands, the admin, the probe, the metrics and the alerts."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from pulse_django.health import alerts
from pulse_django.health.conditions import known
from pulse_django.metrics.exporters import readings
from pulse_django.metrics.minute_recorder import MinuteRecorder
from pulse_django.metrics.vital_signs import CONDITIONS
from pulse_django.signals import alert_raised
from pulse_django.worker.guarded_connection import GuardedConnection

OURS = {one.name: one for one in known()}
SECRET = "a-long-secret"  # PULSE["METRICS_TOKEN"]: the probe wants it
COMMANDS = (("pulse_check", "--all"), ("pulse_status",), ("pulse_check",))  # whose exit code is a verdict
TOKEN = {"Authorization": f"Bearer {SECRET}"}


def run(command: str, *flags: str) -> tuple[str, bool]:
    """Return what a command printed, and whether it failed."""
    out = StringIO()
    try:
        call_command(command, *flags, stdout=out, no_color=True)
    except CommandError:
        return out.getvalue(), True
    except SystemExit as ended:
        return out.getvalue(), ended.code != 0
    return out.getvalue(), False


def in_json(command: str, *flags: str) -> tuple[set[str], bool]:
    out, _ = run(command, *flags, "--json")
    said = json.loads(out)
    return {one["name"] for one in said["conditions"] if not one["is_clear"]}, said["is_well"]


def in_text(command: str, *flags: str) -> set[str]:
    """Return the conditions that the text of a command names. A line of one that is clear begins with ok."""
    lines = [line for line in run(command, *flags)[0].splitlines() if not line.startswith("ok ")]
    return {name for name in OURS if any(f"{name} (" in line or f"{name}: " in line for line in lines)}


def by_http() -> tuple[set[str], bool]:
    answer = Client().get("/health", headers=TOKEN)
    said = answer.json()
    assert (answer.status_code == 200) is said["is_well"]
    return {one["name"] for one in said["conditions"]}, said["is_well"]


def on_the_board() -> set[str]:
    client = Client()
    onlooker = User.objects.create_superuser("onlooker")
    client.force_login(onlooker)
    page = client.get(reverse("admin:pulse_django_board_changelist")).content.decode()
    onlooker.delete()
    return {name for name in OURS if f"<strong>{name}</strong>" in page}


def alerted() -> set[str]:
    """Record a minute as a watchdog does."""
    heard: set[str] = set()

    def raised(name: str, **facts: Any) -> None:
        heard.add(name)

    alert_raised.connect(raised)
    recorder = MinuteRecorder(GuardedConnection("default", "minutes"))
    try:
        recorder.write()
        alerts.finish()
    finally:
        alert_raised.disconnect(raised)
        recorder.database.hang_up()
    return heard


def by_metrics() -> set[str]:
    return {reading.labels[0] for reading in readings.read("default") if reading.sign is CONDITIONS}


def expect_all_to_say(names: set[str]) -> None:
    """Expect every outlet to name just these conditions, and each that gives a verdict to give the same one."""
    checked, status, health = in_json("pulse_check", "--all"), in_json("pulse_status"), in_json("pulse_check")
    probed = by_http()
    said = {
        "check": checked[0],
        "check, in words": in_text("pulse_check", "--all"),
        "status": status[0],
        "status, in words": in_text("pulse_status"),
        "health": health[0],
        "health, in words": in_text("pulse_check"),
        "health by HTTP": probed[0],
        "board": on_the_board(),
        "advice": in_json("pulse_check", "--advice")[0] & set(OURS),
    }
    assert {outlet: named for outlet, named in said.items() if named != names} == {}
    is_well = not any(OURS[name].severity.is_problem for name in names)
    verdicts = {"check": checked[1], "status": status[1], "health": health[1], "health by HTTP": probed[1]}
    exits = {" ".join((command, *flags)): not run(command, *flags)[1] for command, *flags in COMMANDS}
    assert {outlet: verdict for outlet, verdict in (verdicts | exits).items() if verdict is not is_well} == {}
