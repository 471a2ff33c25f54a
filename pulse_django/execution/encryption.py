"""Encrypt the arguments, progress and results of tasks that ask for it, with ``encrypted=True``.

A job is encrypted if its mask says so, whatever its task declares today. Nothing is guessed from a value.
``cryptography`` is imported by the first value that is encrypted or decrypted.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pulse_django import conf
from pulse_django.exceptions import CannotDecrypt, CannotEncrypt, DecryptionFailed
from pulse_django.words.job_options import Payload
from pulse_django.words.leases import Claim
from pulse_django.words.masks import (
    ALGORITHM,
    ARGUMENTS,
    KEY_BYTES,
    NONCE_BYTES,
    RESULT,
    Envelope,
    associated_data,
    is_encrypted,
)
from pulse_django.words.payloads import clean_text, one_line

from .argument_search import hashed
from .registry import Task, registry

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from pulse_django.models import Job

INSTALL = 'python -m pip install "pulse-django[encryption]"'
MOST_SHOWN = 100  # characters of the id of a key that a row names

_DECODER = json.JSONDecoder()


def is_available() -> bool:
    """Say whether ``cryptography`` can be imported."""
    try:
        _cipher(bytes(KEY_BYTES))
    except ImportError:
        return False
    return True


def encrypts(task: Task | None) -> bool:
    """Say whether new jobs of a task are encrypted. None: of one that this process does not know."""
    return bool(getattr(task, "encrypted", False)) or conf.current().encrypt_all


@dataclass(frozen=True, slots=True)
class PayloadEncryption:
    """Encrypts the arguments of new jobs of a task, by the name that stands on the jobs."""

    task: str

    def __call__(self, payload: Payload) -> Payload:
        """Return the payload that is stored. Both kinds of arguments are one envelope, in the place of ``kwargs``.

        A worker of a release without encryption makes such a job a dead letter, unless the handler takes ``**kwargs``.
        """
        sealed = encrypted(f"[{payload.args},{payload.kwargs}]", task=self.task, field=ARGUMENTS)
        return Payload("[]", sealed, tuple(hashed(term) for term in payload.terms))


def encrypted(text: str, *, task: str, field: str, job_id: int | None = None) -> str:
    """Return the envelope of a JSON text, made with the first key of the settings."""
    keys = conf.current().encryption_keys
    if not keys:
        raise CannotEncrypt(f"{task} is encrypted, but PULSE['ENCRYPTION_KEYS'] is empty. Add a key.")
    try:
        key_id, key = next(iter(keys.items()))
        cipher = _cipher(key)
    except ImportError as error:
        raise CannotEncrypt(f"{task} is encrypted, but cryptography is not installed. Run: {INSTALL}") from error
    nonce = os.urandom(NONCE_BYTES)
    sealed = nonce + cipher.encrypt(nonce, text.encode(), associated_data(task, field, job_id))
    return Envelope(ALGORITHM, key_id, sealed).text


def decrypted(value: Any, *, task: str, field: str, job_id: int | None = None) -> str:
    """Return the JSON text that an envelope holds."""
    envelope = Envelope.read(value)
    if envelope is None:
        raise DecryptionFailed(f"{field}: the job is encrypted, and this value is not")
    if envelope.algorithm != ALGORITHM:
        raise CannotDecrypt(f"this release does not support {_shown(envelope.algorithm)}. Deploy a newer one")
    key = conf.current().encryption_keys.get(envelope.key_id)
    if key is None:
        name = _shown(envelope.key_id)
        raise CannotDecrypt(f"key {name} is missing. Add it to PULSE['ENCRYPTION_KEYS'] and restart the workers")
    try:
        cipher = _cipher(key)
    except ImportError as error:
        raise CannotDecrypt(f"cryptography is not installed. Run: {INSTALL}") from error
    nonce, ciphertext = envelope.sealed[:NONCE_BYTES], envelope.sealed[NONCE_BYTES:]
    try:
        return cipher.decrypt(nonce, ciphertext, associated_data(task, field, job_id)).decode()
    except Exception:  # InvalidTag, or a nonce or a ciphertext that is too short
        raise DecryptionFailed(
            f"{field}: authentication failed. The value was changed, belongs to another task or job, or key "
            f"{_shown(envelope.key_id)} has changed"
        ) from None


@lru_cache(maxsize=16)
def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _shown(name: str) -> str:
    """Show a name from a row."""
    return repr(one_line(clean_text(name[:MOST_SHOWN], MOST_SHOWN)))


def for_column(claim: Claim, text: str, field: str) -> str:
    """Return what is stored of the progress or the result of a run."""
    return encrypted(text, task=claim.task, field=field, job_id=claim.job_id) if claim.is_encrypted else text


def result_for_column(claim: Claim, result: str | None) -> str | None:
    return None if result is None else for_column(claim, result, RESULT)


def decrypted_claim(claim: Claim) -> Claim:
    """Return an encrypted claim with its arguments in the clear. Its progress is decrypted when it is read."""
    try:
        kwargs = json.loads(claim.kwargs_json)
    except (ValueError, RecursionError):
        kwargs = None
    args_json, kwargs_json = _split(decrypted(kwargs, task=claim.task, field=ARGUMENTS))
    return claim._replace(args_json=args_json, kwargs_json=kwargs_json)


def arguments_of(job: Job) -> tuple[list[Any], dict[str, Any]]:
    """Return what the handler of a job is called with."""
    if not is_encrypted(job.masked):
        return job.args, job.kwargs
    args, kwargs = _split(decrypted(job.kwargs, task=job.task, field=ARGUMENTS))
    return json.loads(args), json.loads(kwargs)


def value_of(job: Job, field: str) -> Any:
    """Return the progress or the result of a job.

    Who can write to the table can also take the mask away. So the result of a task that is encrypted now is refused
    if it is not, which holds for jobs from before the declaration, too.
    """
    value = getattr(job, field)
    if value is None:
        return None
    if not is_encrypted(job.masked):
        if field == RESULT and encrypts(registry.get(job.task)):
            raise DecryptionFailed(f"{field}: the task is encrypted, and this value is not")
        return value
    return json.loads(decrypted(value, task=job.task, field=field, job_id=job.pk))


def _split(arguments: str) -> tuple[str, str]:
    """Take the two texts apart that ``PayloadEncryption`` put together."""
    _, end = _DECODER.raw_decode(arguments, 1)
    return arguments[1:end], arguments[end + 1 : -1]
