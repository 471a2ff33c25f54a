"""A permission of Pulse is never taken for one of a project's own models."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission

pytestmark = pytest.mark.usefixtures("pulse_db")


def test_each_permission_has_a_name_that_no_model_of_a_project_gives() -> None:
    """``Permission.objects.get(codename="change_event")`` of a project with a model Event finds its own alone."""
    names = Permission.objects.filter(content_type__app_label="pulse_django").values_list("codename", flat=True)
    assert {name for name in names if not name.startswith("pulse_")} == set()
    assert {"pulse_view_jobs", "pulse_change_schedules", "pulse_operate_queues"} <= set(names)
