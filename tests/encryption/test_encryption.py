"""Encrypted tasks: nothing of their arguments, progress, results and errors stands in the database, or in a log."""

from __future__ import annotations

import base64
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.dispatch import Signal
from django.test import override_settings
from django.test.utils import CaptureQueriesContext

from pulse_django import api, checks, conf
from pulse_django.encryption import values as encryption
from pulse_django.encryption.envelopes import Envelope
from pulse_django.exceptions import (
    CannotDecrypt,
    CannotEncrypt,
    DecryptionFailed,
    InvalidSchedule,
    UnsupportedValue,
    WrongArguments,
)
from pulse_django.health.conditions import ask, named
from pulse_django.models import Amendment, Attempt, Dependency, Job, Schedule
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.masks import ENCRYPTED, EVERYTHING, HIDDEN, NOTHING, RESULT, Masks
from pulse_django.queue.words.setting_values import MAX_PAYLOAD_CEILING
from pulse_django.queue.words.states import Status
from pulse_django.run.codec import codec
from pulse_django.run.registry import registry, task_backends, task_finished, task_started
from pulse_django.signals import job_failed, job_started
from pulse_django.testing import assert_enqueued, assert_idempotent, drain, run_job
from pulse_django.testing.zombie import Zombie
from pulse_django.workflows.rules import Met
from pulse_django.workflows.waits import NeededResults
from tests.crash.processes import ROOT
from tests.crash.workers import Workers, outcomes, wait_for, wait_until
from tests.factories import make_job, now
from tests.faults import all_faults, each_of

pytestmark = pytest.mark.usefixtures("pulse_db")

OLD, NEW = (base64.b64encode(bytes([letter]) * 32).decode() for letter in b"on")
MODULE = "tests.encryption.encrypted"
KEYS = {"ENCRYPTION_KEYS": {"2026-11": OLD}}
ROTATED = {"ENCRYPTION_KEYS": {"2026-12": NEW, "2026-11": OLD}}
OTHERS = {"ENCRYPTION_KEYS": {"2026-12": NEW}}
FORGED = "authentication failed"
QUICKLY = {"RETRY_BACKOFF_CAP": 0.05, "UNKNOWN_TASK_DELAY": 0.05}


@pytest.fixture
def tasks() -> Iterator[ModuleType]:
    """The tasks, which are unknown again afterwards."""
    registry.discover()  # or tasks that these tests import first are unknown afterwards, too
    known = set(registry)
    sys.modules.pop(MODULE, None)
    module = import_module(MODULE)
    with override_settings(PULSE=KEYS | QUICKLY):
        yield module
    for key in set(registry) - known:
        del registry._tasks[key]


def everything_stored() -> str:
    """Return all text of all tables of Pulse, as it stands there."""
    with connection.cursor() as cursor:
        tables = [name for name in connection.introspection.table_names(cursor) if name.startswith("pulse_django")]
        assert "pulse_django_job" in tables
        rows = []
        for table in tables:
            cursor.execute(f"SELECT r::text FROM {table} AS r")
            rows += [row for (row,) in cursor.fetchall()]
    return "\n".join(rows)


def stored(job_id: Any) -> Job:
    return Job.objects.get(pk=int(job_id))


def test_a_secret_that_is_not_encrypted_would_be_found(tasks: ModuleType) -> None:
    result = tasks.plain.enqueue(tasks.SECRET)
    assert tasks.SECRET in everything_stored()
    run_job(result)
    Job.objects.filter(pk=result.id).update(args=[])
    assert tasks.SECRET in everything_stored(), "in history"


class TestARun:
    def test_gets_the_arguments_and_stores_an_envelope(self, tasks: ModuleType) -> None:
        given = {"card": tasks.SECRET, "list": [1, 2.5, -0.0, 1e16, None], "größe": "ß"}
        result = tasks.echo.enqueue(given, note=tasks.SECRET)
        assert (result.args, result.kwargs) == ([given], {"note": tasks.SECRET}), "the caller sees what it gave"
        job = stored(result.id)
        assert job.args == []
        assert job.kwargs.keys() == {"$pulse", "k", "c"}
        assert job.kwargs["k"] == "2026-11"
        assert Masks.read(job.sensitive).encrypted
        assert run_job(result).status is Status.COMPLETED
        assert stored(result.id).result["$pulse"] == "aes-gcm"
        assert tasks.SECRET not in everything_stored()
        again = task_backends["default"].get_result(result.id)
        assert again.return_value == {"value": given, "note": tasks.SECRET}
        assert (again.args, again.kwargs) == ([given], {"note": tasks.SECRET})
        assert repr(again.return_value["value"]["list"]) == "[1, 2.5, -0.0, 1e+16, None]"

    @pytest.mark.parametrize("name", ["echo_async", "by_hand"])
    def test_of_every_kind(self, tasks: ModuleType, name: str) -> None:
        result = getattr(tasks, name).enqueue(tasks.SECRET)
        assert run_job(result).status is Status.COMPLETED
        assert tasks.SECRET not in everything_stored()
        assert task_backends["default"].get_result(result.id).return_value == tasks.SECRET

    def test_resumes_from_encrypted_progress(self, tasks: ModuleType) -> None:
        result = tasks.resumes.enqueue(tasks.SECRET)
        assert run_job(result, failures="keep").status is Status.RETRYING
        assert stored(result.id).progress["$pulse"] == "aes-gcm"
        assert api.progress(result.id) == {"done": 1, "total": 2, "note": tasks.SECRET}
        assert tasks.SECRET not in everything_stored()
        Job.objects.reschedule([int(result.id)])
        assert run_job(result).status is Status.COMPLETED
        assert task_backends["default"].get_result(result.id).return_value == tasks.SECRET

    def test_that_raises_leaves_the_secret_nowhere(
        self, tasks: ModuleType, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
    ) -> None:
        caplog.set_level(logging.DEBUG)
        with override_settings(PULSE=KEYS | {"LOG_ARGUMENTS": True}):
            failed = tasks.fails.enqueue(tasks.SECRET, more=tasks.SECRET)
            assert run_job(failed, failures="keep").status is Status.DEAD_LETTERED
            wrong = tasks.wrong_result.enqueue(tasks.SECRET)
            assert run_job(wrong, failures="keep").status is Status.DEAD_LETTERED
        job = stored(failed.id)
        assert job.last_error == f"ValueError: {HIDDEN} [encrypted.py:fails]"
        traceback = Attempt.objects.get(job_id=job.pk).traceback
        assert "in fails" in traceback, "the places are shown"
        assert traceback.count(HIDDEN) == 2, "the error, and what led to it"
        assert stored(wrong.id).last_error.startswith("UnstorableResult: result: "), "this message names no value"
        call_command("pulse_status")
        call_command("pulse_retry", "--all")
        assert tasks.SECRET not in everything_stored()
        assert tasks.SECRET not in caplog.text
        assert not [one for one in caplog.records if tasks.SECRET in str(one.__dict__)], "nor beside the text"
        assert not [one for one in caplog.records if one.exc_info and one.exc_info[0]], "its frames have the arguments"
        assert tasks.SECRET not in "".join(capsys.readouterr())

    @pytest.mark.parametrize("exits", [False, True])
    def test_whose_receivers_raise_leaves_the_secret_nowhere(
        self, tasks: ModuleType, caplog: pytest.LogCaptureFixture, exits: bool
    ) -> None:
        called: list[Signal] = []

        def receiver(signal: Signal, **facts: Any) -> None:
            called.append(signal)
            about = facts["claim"].args if "claim" in facts else facts["task_result"].args
            raise (SystemExit if exits else ValueError)(f"cannot handle {about}")

        signals = [job_started, job_failed, task_started, task_finished]
        for signal in signals:
            signal.connect(receiver)
        try:
            assert run_job(tasks.fails.enqueue(tasks.SECRET), failures="keep").status is Status.DEAD_LETTERED
        finally:
            for signal in signals:
                signal.disconnect(receiver)
        assert len(called) == len(signals)
        assert caplog.text.count("in receiver\n") == len(signals), "the places are shown"
        assert tasks.SECRET not in caplog.text
        assert not [one for one in caplog.records if tasks.SECRET in str(one.__dict__)], "nor beside the text"
        assert not [one for one in caplog.records if one.exc_info and one.exc_info[0]], "its frames have the arguments"

    def test_that_cannot_be_called_does_not_tell_the_names(self, tasks: ModuleType) -> None:
        new = NewJob(
            task="encrypted.unique",
            kwargs={tasks.SECRET: 1},
            sensitive=ENCRYPTED.text,
            encrypt=encryption.PayloadEncryption("encrypted.unique"),
        )
        assert run_job(Job.objects.enqueue(new), failures="keep").status is Status.DEAD_LETTERED
        assert tasks.SECRET not in everything_stored()

    def test_of_data_that_looks_like_an_envelope(self, tasks: ModuleType) -> None:
        looks_so = {"$pulse": "aes-gcm", "k": "2026-11", "c": "AAAA"}
        for one in (tasks.plain, tasks.echo):
            result = one.enqueue(looks_so)
            assert run_job(result).status is Status.COMPLETED
            value = task_backends["default"].get_result(result.id).return_value
            assert value in (looks_so, {"value": looks_so})
        plain = make_job(task="encrypted.not", args=[], kwargs={"value": looks_so})
        assert run_job(plain).status is Status.COMPLETED
        assert stored(plain.pk).result == looks_so

    def test_in_the_harness(self, tasks: ModuleType) -> None:
        assert_idempotent(tasks.echo, tasks.SECRET)
        result = tasks.echo.enqueue(tasks.SECRET)
        assert assert_enqueued(tasks.echo, tasks.SECRET).pk == int(result.id)
        with pytest.raises(AssertionError) as failure:
            assert_enqueued(tasks.echo, "another")
        assert tasks.SECRET not in str(failure.value)
        zombie = Zombie(result)
        assert zombie.claim.args == [tasks.SECRET]
        zombie.freeze()
        assert run_job(result).status is Status.COMPLETED
        assert not zombie.report(tasks.SECRET).accepted
        first = Zombie(tasks.echo.enqueue(1))
        assert first.report(tasks.SECRET).accepted
        assert tasks.SECRET not in everything_stored()
        assert task_backends["default"].get_result(str(first.claim.job_id)).return_value == tasks.SECRET


class TestEnqueueing:
    def test_many_encrypts_each(self, tasks: ModuleType) -> None:
        ids = api.enqueue_many(tasks.echo, [[tasks.SECRET], {"value": tasks.SECRET}, [tasks.SECRET]])
        ciphertexts = {job.kwargs["c"] for job in Job.objects.filter(pk__in=ids)}
        assert len(ciphertexts) == 3, "equal arguments are not seen to be equal"
        ids = api.enqueue_many(tasks.unique, [[tasks.SECRET], ["b"], [tasks.SECRET]])
        assert ids[0] == ids[2] != ids[1]
        assert tasks.SECRET not in everything_stored()
        assert [ran.status for ran in drain()] == [Status.COMPLETED] * 5

    def test_a_call_that_replaces_another_replaces_the_envelope(self, tasks: ModuleType) -> None:
        later = tasks.waits.using(run_after=timedelta(seconds=1))
        first, second = later.enqueue("a", "first"), later.enqueue("a", tasks.SECRET)
        assert first.id == second.id
        assert second.args == ["a", tasks.SECRET]
        Job.objects.reschedule([int(first.id)])
        assert run_job(first).status is Status.COMPLETED
        assert task_backends["default"].get_result(first.id).return_value == tasks.SECRET

    @pytest.mark.parametrize("name", ["unique", "windowed"])
    def test_a_call_returns_the_job_that_has_its_key_though_it_cannot_decrypt_it(
        self, tasks: ModuleType, name: str
    ) -> None:
        with override_settings(PULSE=OTHERS):
            first = getattr(tasks, name).enqueue(tasks.SECRET)
            if name == "windowed":
                assert run_job(first).status is Status.COMPLETED
        second = getattr(tasks, name).enqueue(tasks.SECRET)
        assert (second.id, second.args, second.kwargs) == (first.id, [], {})
        assert Job.objects.count() == 1
        with pytest.raises(CannotDecrypt, match="2026-12"):
            task_backends["default"].get_result(first.id)

    def test_keys_are_hashes_that_cannot_be_guessed(self, tasks: ModuleType) -> None:
        with override_settings(SECRET_KEY="one"):
            keyed = tasks.echo.using(idempotency_key=tasks.SECRET)
            one, same = keyed.enqueue(1), keyed.enqueue(2)
            assert one.id == same.id
            with_key = stored(tasks.unique.enqueue("a").id).unique_key
            tasks.windowed.enqueue(tasks.SECRET)
        Job.objects.all().delete()
        with override_settings(SECRET_KEY="two"):
            assert stored(tasks.unique.enqueue("a").id).unique_key != with_key
        assert tasks.SECRET not in everything_stored()

    def test_refuses_what_it_refuses_elsewhere(self, tasks: ModuleType) -> None:
        with pytest.raises(UnsupportedValue):
            tasks.echo.enqueue({1, 2})
        with pytest.raises(WrongArguments):
            tasks.unique.enqueue()
        small = override_settings(PULSE=KEYS | {"MAX_PAYLOAD_BYTES": 100})
        with small, pytest.raises(ValueError, match="over the limit"):
            tasks.echo.enqueue("x" * 100)

    def test_takes_the_largest_payload_that_is_allowed(self, tasks: ModuleType) -> None:
        most = MAX_PAYLOAD_CEILING
        with override_settings(PULSE=KEYS | {"MAX_PAYLOAD_BYTES": most}):
            result = tasks.echo.enqueue("x" * (most - 10), more="y" * (most - 20))
            assert run_job(result, failures="keep").outcome == "FAILED", "a result of both is too large"
            assert "over the limit" in stored(result.id).last_error

    def test_without_a_key_or_the_package_raises(self, tasks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        with override_settings(PULSE={}), pytest.raises(CannotEncrypt, match="ENCRYPTION_KEYS"):
            tasks.echo.enqueue(1)
        encryption._cipher.cache_clear()
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
        with pytest.raises(CannotEncrypt, match="pip install cryptography"):
            tasks.echo.enqueue(1)
        assert not Job.objects.exists()

    def test_of_all_tasks_if_the_setting_says_so(self, tasks: ModuleType) -> None:
        before = tasks.plain.enqueue("before")
        with override_settings(PULSE=KEYS | {"ENCRYPT_ALL": True}):
            result = tasks.plain.enqueue(tasks.SECRET)
            assert [run_job(one).status for one in (result, before)] == [Status.COMPLETED] * 2
        assert tasks.SECRET not in everything_stored()
        assert stored(before.id).result == "before", "a job stays as it was enqueued"
        assert task_backends["default"].get_result(result.id).return_value == tasks.SECRET

    def test_a_plain_task_does_not_import_cryptography(self) -> None:
        code = (
            "import django, sys; django.setup(); from testproject.shop.tasks import add; from pulse_django import api;"
            "from pulse_django.backend import new_job; new_job(add, (1, 2), {}).encoded(1000);"
            "assert 'cryptography' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)

    def test_costs_no_statement(self, tasks: ModuleType) -> None:
        numbers = []
        for one in (tasks.plain, tasks.echo):
            with CaptureQueriesContext(connection) as captured:
                one.enqueue(1)
                drain()
            numbers.append(len(captured))
        assert numbers[0] == numbers[1]


class TestTampering:
    @each_of(
        (lambda one: json.loads(one._replace(sealed=one.sealed[:-1] + bytes([one.sealed[-1] ^ 1])).text), FORGED),
        (lambda one: json.loads(one._replace(sealed=one.sealed[:3]).text), FORGED),
        (lambda one: json.loads(one._replace(sealed=b"").text), FORGED),
        *((lambda _, value=value: value, "this value is not") for value in ({}, {"value": 1})),
        (lambda _: {"$pulse": "aes-gcm", "k": 1, "c": ""}, "this value is not"),
    )
    def test_with_a_ciphertext_ends_as_a_dead_letter(self, tasks: ModuleType, *, change: Any, why: Any) -> None:
        """Also as one of another task."""
        result, other = tasks.echo.enqueue(tasks.SECRET), tasks.echo_async.enqueue(1)
        envelope = Envelope.read(stored(result.id).kwargs)
        assert envelope is not None
        Job.objects.filter(pk=other.id).update(kwargs=stored(result.id).kwargs)
        Job.objects.filter(pk=result.id).update(kwargs=change(envelope))
        for one in (result, other):
            ran = run_job(one, failures="keep")
            assert (ran.status, ran.outcome) == (Status.DEAD_LETTERED, "FAILED")
            assert (why if one is result else FORGED) in stored(one.id).last_error
            assert stored(one.id).attempts == 1, "it is not tried again"

    def test_by_giving_a_result_to_another_job_or_field(self, tasks: ModuleType) -> None:
        one, other = tasks.echo.enqueue(1), tasks.echo.enqueue(2)
        drain()
        Job.objects.filter(pk=other.id).update(result=stored(one.id).result)
        with pytest.raises(DecryptionFailed):
            task_backends["default"].get_result(other.id)
        Job.objects.filter(pk=one.id).update(progress=stored(one.id).result)
        with pytest.raises(DecryptionFailed):
            api.progress(one.id)

    def test_by_a_result_in_the_clear(self, tasks: ModuleType) -> None:
        """Who writes the mask decides whether a job is encrypted, so the declaration is asked, too."""
        one, plain = tasks.echo.enqueue(1), tasks.plain.enqueue(1)
        drain()
        backend = task_backends["default"]
        needed = NeededResults(make_job().pk, "default")
        Dependency.objects.create(
            job_id=needed.job_id,
            needs=int(one.id),
            name="one",
            met=Met.DONE,
            met_at=now(),
            on_need_failed="wait",
            moment="finished",
        )
        readers: dict[str, Callable[[], object]] = {
            "get_result": lambda: backend.get_result(one.id),
            "refresh": one.refresh,
            "the harness": lambda: codec().value_of(stored(one.id), RESULT),
            "results of what was needed": lambda: needed["one"],
        }
        with all_faults() as about:
            for mask in (None, "{}", NOTHING.text, Masks(returned=True).text):
                Job.objects.filter(pk=one.id).update(sensitive=mask, result={"value": "forged"})
                for name, read in readers.items():
                    with about((mask, name)), pytest.raises(DecryptionFailed, match="the task is encrypted"):
                        read()
                with about((mask, "wait_for")):
                    assert run_job(tasks.waits_for.enqueue(one.id), failures="keep").status is Status.DEAD_LETTERED
        assert backend.get_result(plain.id).return_value == 1
        everywhere = override_settings(PULSE=KEYS | {"ENCRYPT_ALL": True})
        with everywhere, pytest.raises(DecryptionFailed, match="the task is encrypted"):
            backend.get_result(plain.id)

    def test_a_job_without_a_result_is_read(self, tasks: ModuleType) -> None:
        result = tasks.found.enqueue("a@b.example")
        drain()
        assert task_backends["default"].get_result(result.id).return_value is None

    def test_by_taking_the_mask_away_does_not_run_the_handler(self, tasks: ModuleType) -> None:
        """A worker of a release that knows no encryption does the same."""
        result = tasks.unique.enqueue(tasks.SECRET)
        Job.objects.filter(pk=result.id).update(sensitive=None)
        assert run_job(result, failures="keep").status is Status.DEAD_LETTERED
        assert "CannotBeCalled" in Attempt.objects.get(job_id=result.id).error_class

    def test_an_older_release_hides_everything(self) -> None:
        assert json.loads(ENCRYPTED.text) == {"rest": 0, "only": [], "returned": True, "encrypted": True}
        assert Masks.read('{"of a later release":true}') == EVERYTHING


class TestRotation:
    def test_the_first_key_encrypts_and_any_decrypts(self, tasks: ModuleType) -> None:
        before = tasks.echo.enqueue(tasks.SECRET)
        with override_settings(PULSE=ROTATED):
            after = tasks.echo.enqueue(tasks.SECRET)
            assert stored(after.id).kwargs["k"] == "2026-12"
            assert [ran.status for ran in drain()] == [Status.COMPLETED] * 2
            assert stored(before.id).result["k"] == "2026-12"
            assert task_backends["default"].get_result(before.id).return_value == {"value": tasks.SECRET}

    def test_a_missing_key_puts_the_job_back(self, tasks: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
        result = tasks.echo.enqueue(tasks.SECRET)
        with override_settings(PULSE=OTHERS | {"UNKNOWN_TASK_AGE": 0}):
            for attempts in (1, 2):
                ran = run_job(result)
                assert (ran.status, ran.outcome) == (Status.PENDING, "RELEASED")
                job = stored(result.id)
                assert (job.attempts, job.refunds) == (attempts, attempts), "no attempt is counted"
                assert "key '2026-11' is missing" in job.last_error
                assert job.next_run_at > job.created_at + timedelta(seconds=29), "as for an unknown task"
                Job.objects.reschedule([job.pk])
            [subject] = ask(named("key-missing"), "default").subjects
            assert subject.key == "encrypted.echo"
            assert "2026-11" in subject.words
        assert run_job(result).status is Status.COMPLETED
        assert not ask(named("key-missing"), "default").subjects

    def test_a_missing_package_and_a_newer_way_put_it_back(
        self, tasks: ModuleType, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        result, newer = tasks.echo.enqueue(1), tasks.echo_async.enqueue(1)
        Job.objects.filter(pk=newer.id).update(kwargs=stored(newer.id).kwargs | {"$pulse": "aes-512"})
        assert run_job(newer).status is Status.PENDING
        assert "aes-512" in stored(newer.id).last_error
        encryption._cipher.cache_clear()
        with monkeypatch.context() as without:
            without.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
            assert run_job(result).status is Status.PENDING
        assert "cryptography is not installed" in stored(result.id).last_error


class TestRealWorkers:
    def test_run_encrypted_jobs_and_log_nothing_of_them(self, tasks: ModuleType, workers: Workers) -> None:
        good = [getattr(tasks, name).enqueue(tasks.SECRET) for name in ("echo", "alone", "echo_async", "by_hand")]
        good.append(tasks.resumes.enqueue(tasks.SECRET))
        failed = tasks.fails.enqueue(tasks.SECRET)
        settings = ROTATED | {"TASK_MODULES": [MODULE], "LOG_ARGUMENTS": True}
        worker = workers.ready(settings=settings)
        wait_for(Status.COMPLETED, *(one.id for one in good))
        wait_for(Status.DEAD_LETTERED, failed.id)
        wait_until(lambda: worker.log.count("DEAD_LETTERED in") == 1)
        assert tasks.SECRET not in everything_stored()
        assert tasks.SECRET not in worker.log
        with override_settings(PULSE=ROTATED):
            values = [task_backends["default"].get_result(one.id).return_value for one in good]
        assert values == [{"value": tasks.SECRET}, *[tasks.SECRET] * 4]
        assert stored(good[1].id).progress["$pulse"] == "aes-gcm"

    def test_without_the_key_postpone_and_burn_nothing(self, tasks: ModuleType, workers: Workers) -> None:
        jobs = [getattr(tasks, name).enqueue(tasks.SECRET).id for name in ("echo", "alone", "echo_async")]
        settings = {"TASK_MODULES": [MODULE], "UNKNOWN_TASK_DELAY": 0.05}
        worker = workers.ready(settings=settings | OTHERS)
        wait_until(lambda: all(outcomes(one).count("RELEASED") > 2 for one in jobs))
        worker.kill()
        wait_until(lambda: "WARNING pulse_django.jobs" in worker.log and "key '2026-11' is missing" in worker.log)
        workers.ready(settings=settings | KEYS)
        wait_for(Status.COMPLETED, *jobs)
        for job in Job.objects.filter(pk__in=jobs):
            assert set(outcomes(job.pk)) <= {"RELEASED", "SUCCEEDED", "WORKER_LOST"}
            assert job.attempts - job.refunds - job.losses == 1


class TestShowing:
    def test_the_admin_shows_that_it_is_encrypted(self, tasks: ModuleType, root: Any) -> None:
        result = tasks.resumes.enqueue(tasks.SECRET)
        run_job(result, failures="keep")
        with override_settings(PULSE={}):  # without a key, too
            page = root.get(f"/admin/pulse_django/job/{result.id}/change/").content.decode()
        assert page.count(HIDDEN) >= 3, "arguments, checkpoint, error"
        assert stored(result.id).kwargs["c"] not in page
        assert tasks.SECRET not in page

    def test_of_a_task_that_is_gone(self, tasks: ModuleType, root: Any) -> None:
        result = tasks.echo.enqueue(tasks.SECRET)
        run_job(result)
        Job.objects.filter(pk=result.id).update(task="gone")
        page = root.get(f"/admin/pulse_django/job/{result.id}/change/").content.decode()
        assert page.count(HIDDEN) == 2, "arguments and result"


class TestSchedules:
    def test_with_arguments_are_refused(self, tasks: ModuleType) -> None:
        with pytest.raises(InvalidSchedule, match="is encrypted"):
            Schedule.objects.create(name="s", task=tasks.echo, args=[1], every=timedelta(hours=1))
        Schedule.objects.create(name="s", task=tasks.echo, every=timedelta(hours=1))
        with override_settings(PULSE=KEYS | {"ENCRYPT_ALL": True}), pytest.raises(InvalidSchedule):
            Schedule.objects.create(name="t", task=tasks.plain, args=[1], every=timedelta(hours=1))


class TestAmending:
    def test_encrypts_again_and_keeps_the_old_envelope(self, tasks: ModuleType) -> None:
        result = tasks.echo.enqueue(1, note=tasks.SECRET)
        before = stored(result.id).kwargs
        with override_settings(PULSE=ROTATED):
            assert api.amend(result.id, args=[tasks.SECRET])
            assert stored(result.id).kwargs["k"] == "2026-12"
            assert tasks.SECRET not in everything_stored()
            assert Amendment.objects.get().kwargs == before
            assert run_job(result).status is Status.COMPLETED
            value = task_backends["default"].get_result(result.id).return_value
        assert value == {"value": tasks.SECRET, "note": tasks.SECRET}

    def test_leaves_a_job_in_the_clear_that_was_enqueued_so(self, tasks: ModuleType) -> None:
        result = tasks.plain.enqueue(1)
        with override_settings(PULSE=KEYS | {"ENCRYPT_ALL": True}):
            assert api.amend(result.id, args=[2])
            assert run_job(result).status is Status.COMPLETED
        assert stored(result.id).result == 2

    def test_is_left_to_the_api(self, tasks: ModuleType, root: Any) -> None:
        result = tasks.echo.enqueue(1)
        page = f"/admin/pulse_django/job/{result.id}/"
        assert "/amend/" not in root.get(f"{page}change/").content.decode()
        assert root.get(f"{page}amend/").status_code == 403
        assert api.amend(result.id, args=[2])
        assert stored(result.id).kwargs["c"] not in root.get(f"{page}change/").content.decode()


WRONG_KEYS: list[tuple[Any, str]] = [
    ({"a": "not base64"}, "Key 1 is not base64"),
    ({"a": base64.b64encode(b"short").decode()}, "has 5 bytes, and needs 32"),
    ({"": OLD}, "printable"),
    ({"a": 1}, "a dict of ids and keys"),
    ([OLD], "a dict of ids and keys"),
]


class TestSettings:
    @each_of(*WRONG_KEYS)
    def test_that_are_wrong_are_reported_without_the_key(self, *, keys: Any, says: Any) -> None:
        _, [problem] = conf.parse({"ENCRYPTION_KEYS": keys})
        text = f"{problem.message} {problem.hint}"
        assert says in text
        assert OLD not in text
        assert "not base64" not in problem.message

    def test_keys_are_in_no_repr(self) -> None:
        parsed, problems = conf.parse(KEYS)
        assert not problems
        assert "ENCRYPT" not in repr(parsed).upper().replace("ENCRYPT_ALL", "")

    def test_the_checks_name_what_is_missing(self, tasks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        assert checks.check_encryption() == []
        encryption._cipher.cache_clear()
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
        with override_settings(PULSE={}):
            assert [one.id for one in checks.check_encryption()] == ["pulse_django.E013", "pulse_django.E014"]

    def test_the_checks_ask_nothing_of_others(self) -> None:
        assert checks.check_encryption() == []
        with override_settings(PULSE={"ENCRYPT_ALL": True}):
            assert [one.id for one in checks.check_encryption()] == ["pulse_django.E013"]
