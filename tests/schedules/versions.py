"""The code of a project in two versions, by the environment: what workers of a rolling deploy declare."""

from __future__ import annotations

import os
from datetime import timedelta

from pulse_django import Cron, Every, Schedule, task

VERSION = os.environ.get("PULSE_TEST_VERSION", "")


@task(name="versions.noted")
def noted(version: str = "") -> str:
    return version


if VERSION:
    Schedule("versions.both", task=noted, every=timedelta(seconds=1), kwargs={"version": VERSION})
if VERSION == "1":
    Schedule("versions.old", Cron("0 3 * * *"), task=noted)
if VERSION == "2":
    Schedule("versions.new", Every(timedelta(hours=1)), task=noted)
