"""On Windows, where no worker runs, web processes enqueue, the admin is shown and tests run handlers."""

from __future__ import annotations

import subprocess
import sys
from unittest import mock

import pytest
from django.core.management import CommandError, call_command

from tests.crash.processes import ROOT, environment

pytestmark = pytest.mark.usefixtures("pulse_db")

# Other people's modules choose by sys.platform when they are imported, so they are imported first.
WITHOUT_UNIX = """
import asyncio.unix_events, concurrent.futures.process, http.server, logging.handlers, multiprocessing.popen_fork
import os, signal, socket, subprocess, sys, tempfile, uuid
import django.contrib.admin, django.core.management.commands.runserver, django.db.backends.postgresql.base
import django.test.client, psycopg
import testproject.settings

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: "fork geteuid getuid killpg register_at_fork sysconf waitpid WNOHANG",
    signal: "SIGALRM SIGCHLD SIGHUP SIGKILL SIGRTMAX SIGUSR1 SIGUSR2",
    socket: "AF_UNIX",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

django.setup()
import importlib, pkgutil, pulse_django

modules = [one.name for one in pkgutil.walk_packages(pulse_django.__path__, "pulse_django.")]
for name in modules:
    importlib.import_module(name)
assert len(modules) > 300

from django.contrib.auth.models import User
from django.test import Client
from pulse_django import enqueue_many
from pulse_django.testing import drain
from testproject.shop.tasks import echo

echo.enqueue(1)
enqueue_many(echo, [[2], [3]])
assert [ran.status for ran in drain()] == ["COMPLETED"] * 3
browser, user = Client(headers={"host": "localhost"}), User.objects.create_superuser("on_windows")
browser.force_login(user)
shown = browser.get("/admin/pulse_django/job/").status_code
browser.logout()
user.delete()
assert shown == 200
print("done")
"""


def test_all_but_the_processes_of_a_worker_does_without_unix() -> None:
    command = [sys.executable, "-c", WITHOUT_UNIX]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr


def test_what_needs_unix_says_so_in_one_sentence() -> None:
    commands = (["pulse_worker"], ["pulse_watchdog"], ["pulse_dev"], ["pulse_postgres", "start"])
    with mock.patch("sys.platform", "win32"):
        for command in commands:
            with pytest.raises(CommandError, match=f"^{command[0]} needs a Unix system: run it in WSL"):
                call_command(*command)
