"""Who may say that a database belongs to another deployment."""

from __future__ import annotations

import pytest
from django.db import ProgrammingError
from django.test import override_settings

from pulse_django.queue.database.deployments import adopt, owner_of, require_deployment
from tests.faults import all_faults

from .roles import OPERATOR, PRODUCER, ROLES, WATCHDOG, WORKER, acting_as

pytestmark = [pytest.mark.usefixtures("pulse_db", "roles")]


@override_settings(PULSE={"DEPLOYMENT": "staging"})
def test_workers_write_it_and_watchdogs_and_operators_read_it() -> None:
    verbs = [
        (lambda: require_deployment("default"), {WORKER, WATCHDOG, OPERATOR}),
        (lambda: require_deployment("default", is_worker=True), {WORKER}),
        (lambda: adopt("default"), {WORKER}),
        (lambda: owner_of("default"), {WORKER, WATCHDOG, OPERATOR}),
    ]
    assert PRODUCER in ROLES
    with all_faults() as about:
        for place, (verb, granted_to) in enumerate(verbs):
            for role in ROLES:
                with about((place, role)), acting_as(role):
                    if role in granted_to:
                        verb()
                    else:
                        with pytest.raises(ProgrammingError, match="permission denied"):
                            verb()
