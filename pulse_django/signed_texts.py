"""Texts that this project has signed: public ids, tokens of pages, links, and the jobs of operations.

The keys are SECRET_KEY and SECRET_KEY_FALLBACKS. A text is for one purpose, and is refused for any other. Nobody else
can make or change one, but who has one can read it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core import signing

_NOT_OURS = (signing.BadSignature, ValueError, TypeError)


def sign(purpose: str, value: Any) -> str:
    """Return a text of this JSON value: the same each time, and for ever."""
    return signing.Signer(salt=purpose).sign_object(value)


def read(purpose: str, text: str) -> Any:
    """Return what ``sign`` was given, or None if the text is not ours."""
    try:
        return signing.Signer(salt=purpose).unsign_object(text)
    except _NOT_OURS:
        return None


def sign_for(expires_in: timedelta, purpose: str, *values: Any) -> str:
    """Return a text of these JSON values that expires."""
    return signing.dumps([*values, expires_in.total_seconds()], salt=purpose)


def read_expiring(purpose: str, text: str) -> tuple[list[Any], bool] | None:
    """Return what ``sign_for`` was given, and whether the text has expired, or None if it is not ours."""
    try:
        *values, seconds = signing.loads(text, salt=purpose)
        signing.loads(text, salt=purpose, max_age=seconds)
    except signing.SignatureExpired:
        return values, True
    except _NOT_OURS:
        return None
    return values, False


def signature_of(purpose: str, text: str) -> str:
    """Return a signature that is kept beside its text."""
    return signing.Signer(salt=purpose).signature(text)


def has_signature(purpose: str, text: str, signature: object) -> bool:
    """Whether this is what ``signature_of`` returned for the text."""
    try:
        signing.Signer(salt=purpose).unsign(f"{text}:{signature}")
    except _NOT_OURS:
        return False
    return True
