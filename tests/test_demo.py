from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from pulse_django.management.commands.pulse_demo import Command
from pulse_django.models import Job
from pulse_django.states import Status

pytestmark = pytest.mark.usefixtures("pulse_db")


def test_the_demo_tells_its_story_and_leaves_one_completed_job() -> None:
    out = StringIO()
    call_command("pulse_demo", "--no-migrate", stdout=out, no_color=True)
    story = out.getvalue()
    for line in ("status=PENDING", "status=RUNNING", "worker lease expired", "attempts=2 of 10", "Nothing was lost."):
        assert line in story
    assert Job.objects.get().status == Status.COMPLETED


def test_the_demo_fails_when_the_story_goes_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "claim_if_due", lambda *args: None)
    with pytest.raises(CommandError, match="The story went otherwise: there was nothing to claim"):
        call_command("pulse_demo", "--no-migrate", stdout=StringIO())
