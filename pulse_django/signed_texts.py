"""Signed texts: public ids, tokens of pages, links, and the jobs of operations.

The keys are SECRET_KEY and SECRET_KEY_FALLBACKS. A text is valid for one purpose only. It cannot be forged or changed,
but it can be read.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core import signing

_NOT_OURS = (signing.BadSignature, ValueError, TypeError)


def sign(purpose: str, value: Any) -> str:
    """Return a signed text of this JSON value. It is always the same, and does not expire."""
    return signing.Signer(salt=purpose).sign_object(value)


def read(purpose: str, text: str) -> Any:
    """Return the value of a text from ``sign``, or None if the signature is invalid."""
    try:
        return signing.Signer(salt=purpose).unsign_object(text)
    except _NOT_OURS:
        return None


def sign_for(expires_in: timedelta, purpose: str, *values: Any) -> str:
    """Return a signed text of these JSON values that expires."""
    return signing.dumps([*values, expires_in.total_seconds()], salt=purpose)


def read_expiring(purpose: str, text: str) -> tuple[list[Any], bool] | None:
    """Return the values of a text from ``sign_for``, and whether it has expired. None: the signature is invalid."""
    try:
        *values, seconds = signing.loads(text, salt=purpose)
        signing.loads(text, salt=purpose, max_age=seconds)
    except signing.SignatureExpired:
        return values, True
    except _NOT_OURS:
        return None
    return values, False


def signature_of(purpose: str, text: str) -> str:
    """Return a signature, to store next to its text."""
    return signing.Signer(salt=purpose).signature(text)


def has_signature(purpose: str, text: str, signature: object) -> bool:
    """Return whether this is the signature of the text."""
    try:
        signing.Signer(salt=purpose).unsign(f"{text}:{signature}")
    except _NOT_OURS:
        return False
    return True
