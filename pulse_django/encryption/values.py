"""Encrypt the arguments, progress and results of tasks that ask for it, with ``encrypted=True``.

A job is encrypted if its mask says so, regardless of the present declaration of its task and of the value itself.
``cryptography`` is imported by the first value that is encrypted or decrypted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.crypto import salted_hmac

from pulse_django import conf
from pulse_django.exceptions import CannotDecrypt, CannotEncrypt, DecryptionFailed
from pulse_django.queue.capability import CallFields, Capability, Internals
from pulse_django.queue.words.job_options import Payload
from pulse_django.queue.words.leases import Claim
from pulse_django.queue.words.masks import ARGUMENTS, ENCRYPTED, HIDDEN, NOTHING, RESULT, Masks, is_encrypted, term_of
from pulse_django.queue.words.payloads import clean_text, one_line
from pulse_django.run.codec import Codec
from pulse_django.run.registry import Task, chunk_of, key_of, registry
from pulse_django.run.signatures import BY_NAME, POSITIONAL, read_signature

from .envelopes import ALGORITHM, KEY_BYTES, NONCE_BYTES, Envelope, associated_data

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from pulse_django.queue.job import JobRow


INSTALL = "python -m pip install cryptography"
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
    """Say whether new jobs of a task are encrypted. For None, an unknown task, only ENCRYPT_ALL decides."""
    return bool(getattr(task, "encrypted", False)) or conf.current().encrypt_all


@dataclass(frozen=True, slots=True)
class PayloadEncryption:
    """Encrypts the arguments of new jobs. ``task`` is the name of the task in the row of the job."""

    task: str

    def __call__(self, payload: Payload) -> Payload:
        """Return the payload to store: one envelope with both kinds of arguments, in place of ``kwargs``.

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
    """Return the JSON text of an envelope."""
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
    """Return a name from a row in a printable form."""
    return repr(one_line(clean_text(name[:MOST_SHOWN], MOST_SHOWN)))


def _split(arguments: str) -> tuple[str, str]:
    """Split the text that ``PayloadEncryption`` made of two."""
    _, end = _DECODER.raw_decode(arguments, 1)
    return arguments[1:end], arguments[end + 1 : -1]


# Hide arguments and results that a task declares as secret, with ``sensitive=(...)`` or ``encrypted=True``.
#
# An argument is hidden if the task declared it when the job was enqueued (the row keeps that), or declares it today.


MASK = "••••"
RETURNED = "return"  # this name stands for the return value


def declared(task: Task) -> Masks:
    """Return the present masks of a task."""
    return ENCRYPTED if encrypts(task) else _masked_by(task)


def masks_argument(task: Task, name: str) -> bool:
    """Say whether a task masks the argument of this name now, whether or not it is encrypted as well."""
    return _masked_by(task).hides_name(name)


def hides_arguments(task: Task | None) -> bool:
    """Say whether a task hides any of its arguments now. None: this process does not know the task."""
    return task is None or declared(task) not in (NOTHING, Masks(returned=True))


def _masked_by(task: Task) -> Masks:
    sensitive = getattr(task, "sensitive", ())
    func = None if chunk_of(task) else task.func
    return _masks_of(func, bool(task.takes_context), sensitive) if sensitive else NOTHING


def hides_result(task: Task, sensitive: str | None) -> bool:
    """Say whether the result of a job is hidden, by its task or by the masks of the job."""
    if RETURNED in getattr(task, "sensitive", ()) or encrypts(task):
        return True
    return sensitive is not None and Masks.read(sensitive).returned


def shown(
    key: str, args: Sequence[Any], kwargs: Mapping[str, Any], sensitive: str | None = None
) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the arguments, with masked values replaced. ``sensitive`` are the masks in the row of the job.

    None: this process does not know the task, nor its present masks.
    """
    then = Masks.read(sensitive)
    if then.encrypted:
        return [HIDDEN], {}
    if (task := registry.get(key)) is None:
        return None
    now = declared(task)
    return (
        [MASK if then.hides_position(at) or now.hides_position(at) else value for at, value in enumerate(args)],
        {name: MASK if then.hides_name(name) or now.hides_name(name) else value for name, value in kwargs.items()},
    )


def shows_result(key: str, sensitive: str | None = None) -> bool | None:
    """Say whether the result may be seen. None: this process does not know the task."""
    task = registry.get(key)
    return None if task is None else not hides_result(task, sensitive)


@lru_cache(maxsize=4_096)
def _masks_of(func: Callable[..., Any] | None, takes_context: bool, sensitive: tuple[str, ...]) -> Masks:
    """Return the masks of a function. Without one, as for chunks, arguments have any name and no position."""
    returned, hidden = RETURNED in sensitive, tuple(name for name in sensitive if name != RETURNED)
    if not hidden:
        return Masks(returned=returned)
    known = None if func is None else read_signature(func)
    if known is None:
        return Masks(rest=0, names=hidden, returned=returned)
    parameters = list(known.inner.parameters.values())[takes_context:]
    placed = [one.name for one in parameters if one.kind in POSITIONAL]
    positions = tuple(at for at, name in enumerate(placed) if name in hidden)
    # Arguments beyond the parameters were enqueued for another version of the function, and may have had a masked name.
    # A masked name that is no parameter may be meant for one of *args.
    unplaced = set(hidden) - {one.name for one in parameters}
    shown = {one.kind for one in parameters if one.name not in hidden}
    rest = None if Parameter.VAR_POSITIONAL in shown and not unplaced else len(placed)
    if known.has_decorator:  # it may add arguments in front, so positions mean nothing
        positions, rest = (), 0
    if Parameter.VAR_KEYWORD in shown:
        return Masks(positions, rest, hidden, None, returned)
    only = tuple(one.name for one in parameters if one.kind in BY_NAME and one.name not in hidden)
    return Masks(positions, rest, (), only, returned)


# Searchable arguments, and their search terms.
#
# The terms of an encrypted job are HMACs with SECRET_KEY: they show which values are equal, and nothing else.


_SALT = "pulse_django.search"


def searched(task: Task | None) -> tuple[str, ...]:
    """Return the names of the searchable arguments of a task."""
    return tuple(getattr(task, "searchable", ()))


def known_tasks() -> dict[str, Task]:
    """Return the tasks of this process."""
    with suppress(Exception):  # a module of the project that cannot be imported must not break a page
        registry.discover()
    return {key: task for key in registry if (task := registry.get(key)) is not None}


def declared_names() -> list[str]:
    """Return the names of searchable arguments of all tasks of this process."""
    return sorted({name for task in known_tasks().values() for name in searched(task)})


def hashed(term: str, secret: str | None = None) -> str:
    """Return the stored form of a search term of an encrypted job."""
    return salted_hmac(_SALT, term, secret=secret, algorithm="sha256").hexdigest()


def terms_for(names: Iterable[str], text: str) -> list[str]:
    """Return the search terms that match a job in which one of these arguments has this value."""
    plain = [term_of(name, text) for name in names]
    secrets = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return [*plain, *(hashed(term, secret) for term in plain for secret in secrets)]


class MaskFields(CallFields):
    """The masks of a new job, its searchable arguments, and the function that encrypts its arguments."""

    hides = True

    def is_used(self, task: Task) -> bool:
        return bool(getattr(task, "sensitive", ()) or searched(task)) or encrypts(task)

    def fields(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "sensitive": declared(task).text if getattr(task, "sensitive", ()) or encrypts(task) else None,
            "searchable": searched(task),
            "encrypt": PayloadEncryption(key_of(task)) if encrypts(task) else None,
        }


class EncryptionCodec(Codec):
    def opened(self, claim: Claim) -> Claim:
        """Return an encrypted claim with decrypted arguments. Its progress is decrypted when it is read."""
        try:
            kwargs = json.loads(claim.kwargs_json)
        except (ValueError, RecursionError):
            kwargs = None
        args_json, kwargs_json = _split(decrypted(kwargs, task=claim.task, field=ARGUMENTS))
        return claim._replace(args_json=args_json, kwargs_json=kwargs_json)

    def stored(self, claim: Claim, text: str, field: str) -> str:
        """Return the stored form of the progress or the result of a run."""
        return encrypted(text, task=claim.task, field=field, job_id=claim.job_id) if claim.is_encrypted else text

    def read(self, claim: Claim, value: Any, field: str) -> Any:
        """Return the value that ``stored()`` stored."""
        if not claim.is_encrypted:
            return value
        return json.loads(decrypted(value, task=claim.task, field=field, job_id=claim.job_id))

    def arguments_of(self, job: JobRow) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a job, decrypted."""
        if not is_encrypted(job.sensitive):
            return job.args, job.kwargs
        args, kwargs = _split(decrypted(job.kwargs, task=job.task, field=ARGUMENTS))
        return json.loads(args), json.loads(kwargs)

    def value_of(self, job: JobRow, field: str) -> Any:
        """Return the progress or the result of a job.

        A role that can write to the table can also remove the mask. So an unencrypted result of a task that is
        encrypted now is refused, even if the job is older than the declaration.
        """
        value = getattr(job, field)
        if value is None:
            return None
        if not is_encrypted(job.sensitive):
            if field == RESULT and encrypts(registry.get(job.task)):
                raise DecryptionFailed(f"{field}: the task is encrypted, and this value is not")
            return value
        return json.loads(decrypted(value, task=job.task, field=field, job_id=job.pk))

    def hides_result(self, task: Task, sensitive: str | None) -> bool:
        return hides_result(task, sensitive)

    def shown(
        self, task: str, args: Sequence[Any], kwargs: Mapping[str, Any], sensitive: str | None
    ) -> tuple[list[Any], dict[str, Any]] | None:
        return shown(task, args, kwargs, sensitive)


CALL_FIELDS = MaskFields()
CAPABILITY = Capability(name="encryption", call_fields=CALL_FIELDS, internals=Internals(parts=(EncryptionCodec(),)))
