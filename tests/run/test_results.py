"""What Pulse adds to Django's result: whether the job is new, and an id for users."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.signing import Signer
from django.test import override_settings

from pulse_django import Unique, progress_token, result_of_public_id
from pulse_django.exceptions import InvalidPublicId
from pulse_django.models import Job
from pulse_django.run.registry import TaskResultDoesNotExist, registry
from pulse_django.testing import drain
from testproject.shop import tasks
from tests.faults import all_faults

pytestmark = pytest.mark.usefixtures("pulse_db")

RULES: list[dict[str, Any]] = [{"on_conflict": how} for how in ("keep", "follow", "replace")]
RULES += [{"on_conflict": "debounce", "max_delay": timedelta(minutes=1)}, {"per": timedelta(hours=1)}]


class TestIsNew:
    def test_a_call_that_meets_a_job_says_so(self) -> None:
        later = {"run_after": timedelta(seconds=5)}
        calls = {"idempotency key": tasks.echo.using(idempotency_key="k")}
        calls |= {str(rule): tasks.echo.using(unique=Unique(**rule), **later) for rule in RULES}
        with all_faults() as about:
            for name, call in calls.items():
                with about(name):
                    first, again = call.enqueue(name), call.enqueue(name)
                    assert (first.is_new, again.is_new, first.id == again.id) == (True, False, True)

    def test_without_a_key_each_job_is_new(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keys = {"k1": "A" * 43 + "="}
        assert tasks.add.enqueue(1, 2).is_new is True
        monkeypatch.setitem(registry._tasks, tasks.echo.registered_name, replace(tasks.echo, encrypted=True))
        with override_settings(PULSE={**settings.PULSE, "ENCRYPTION_KEYS": keys}):
            assert registry._tasks[tasks.echo.registered_name].enqueue("x").is_new is True

    def test_it_is_of_the_call_and_not_of_the_job(self) -> None:
        result = tasks.add.enqueue(1, 2)
        found = tasks.add.get_result(result.id)
        assert found.is_new is None
        assert found == result
        drain()
        result.refresh()
        assert result.is_new is True
        again = pickle.loads(pickle.dumps(result))
        assert (again, again.is_new) == (result, True)


class TestPublicId:
    def test_it_leads_to_the_result_and_is_always_the_same_until_the_job_is_deleted(self) -> None:
        result = tasks.add.enqueue(1, 2)
        drain()
        found = result_of_public_id(result.public_id)
        assert (found.id, found.return_value, found.public_id) == (result.id, 3, result.public_id)
        assert type(result.id) is str
        Job.objects.all().delete()
        with pytest.raises(TaskResultDoesNotExist):
            result_of_public_id(result.public_id)

    def test_a_forged_one_is_refused(self) -> None:
        mine, other = tasks.add.enqueue(1, 2), tasks.add.enqueue(1, 2)
        signature = mine.public_id.partition(":")[2]
        forged = [f"{other.public_id.partition(':')[0]}:{signature}", mine.public_id[:-1], mine.id, "", "x:y"]
        forged += [Signer(salt="another").sign_object(int(mine.id)), progress_token(mine.id)]
        with all_faults() as about:
            for text in forged:
                with about(text), pytest.raises(InvalidPublicId, match="not signed by this project"):
                    result_of_public_id(text)

    def test_one_of_an_older_key_is_good_while_that_is_a_fallback(self) -> None:
        public_id = tasks.add.enqueue(1, 2).public_id
        with override_settings(SECRET_KEY="new", SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
            assert result_of_public_id(public_id).public_id != public_id
        with override_settings(SECRET_KEY="new"), pytest.raises(InvalidPublicId):
            result_of_public_id(public_id)
