"""An option that a later release adds: what is written for it, and what is then asked of the copy."""

from __future__ import annotations

import filecmp
from pathlib import Path

from tests.crash.processes import ROOT

DECLARATION, MODEL = "pulse_django/queue/words/options.py", "pulse_django/queue/job.py"
MIGRATION = "pulse_django/migrations/0001_initial.py"
VALUES = "pulse_django/queue/words/options.py"

_TOP = 'class OptionsAnywhere(TypedDict, total=False):\n    """Options for both ``@task`` and ``.using()``."""\n\n'
_TABLE = "_ABOUT: Mapping[str, Option] = {\n"
_ENTRY = """    "imaginary_limit": Option(
        kind=Whole(100, 1_000_000),
        column="imaginary_limit",
        label=_("Maximum result bytes"),
        help=_("How large a result may be."),
    ),
"""
_EDITS = [
    (DECLARATION, _TOP, f"{_TOP}    imaginary_limit: int | None\n"),
    (DECLARATION, _TABLE, _TABLE + _ENTRY),
    (
        VALUES,
        "    idempotency_key: str | None = None\n",
        "    idempotency_key: str | None = None\n    imaginary_limit: int | None = None\n",
    ),
    (
        VALUES,
        "    timeout: timedelta | None = None\n    progress_timeout",
        "    imaginary_limit: int | None = None\n    timeout: timedelta | None = None\n    progress_timeout",
    ),
    (
        MODEL,
        "    progress_timeout = models.DurationField(null=True, blank=True)\n",
        "    progress_timeout = models.DurationField(null=True, blank=True)\n"
        "    imaginary_limit = models.IntegerField(null=True, blank=True)\n",
    ),
]

# Run in the copy; prints what it saw as JSON.
ASKED = """
import json, sys
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
from django.test.utils import setup_test_environment
from pulse_django import enqueue_many, task
from pulse_django.models import Job
from pulse_django.queue.words.leases import Identity
sys.path.insert(0, "docs/reference")
import generate

def refusal(call):
    try:
        call()
    except Exception as error:
        return str(error)

@task(name="later.plain", imaginary_limit=5_000)
def plain(): ...

ids = [plain.enqueue().id, plain.using(imaginary_limit=700).enqueue().id, *enqueue_many(plain, [()])]
setup_test_environment()
client = Client()
client.force_login(User.objects.create_superuser("operator"))
print(json.dumps({
    "rows": [Job.objects.get(pk=one).imaginary_limit for one in ids],
    "in the task": refusal(lambda: task(name="later.wrong", imaginary_limit=99)(plain.func)),
    "in a call": refusal(lambda: plain.using(imaginary_limit=1_000_001)),
    "of the result": plain.get_result(ids[1]).task.imaginary_limit,
    "page": client.get(f"/admin/pulse_django/job/{ids[1]}/change/").content.decode(),
    "reference": generate.options_page(),
    "claimed": [one.options.imaginary_limit for one in Job.objects.claim(Identity("later"), limit=3)],
}))
"""


def add_to(tree: Path) -> None:
    """Declare the option and its column. `make initial` writes the migration."""
    for file, before, after in _EDITS:
        text = (tree / file).read_text()
        assert text.count(before) == 1, f"{file} has changed: where would the option stand now?\n{before}"
        (tree / file).write_text(text.replace(before, after))


def changed_sources(tree: Path) -> set[str]:
    """Return the source files of the package that are not as they are here."""
    sources = {str(path.relative_to(tree)) for path in (tree / "pulse_django").rglob("*.py")}
    _, different, missing = filecmp.cmpfiles(ROOT, tree, sources, shallow=False)
    return {*different, *missing}
