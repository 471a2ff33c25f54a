"""Signed links: who opens one and confirms it sends an event. An approval by mail needs no login.

A link is a capability: whoever has it may send this event, once, until it expires. It says what it sends, and cannot be
changed. It is signed and not encrypted, so its payload can be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse

from pulse_django.exceptions import InvalidJob, InvalidWorkflow
from pulse_django.execution.placement import alias_of_jobs, checked_shard
from pulse_django.execution.waits import EVENT_NAME
from pulse_django.words.option_kinds import Text
from pulse_django.words.payloads import encode_arguments

VIEW = "pulse_django:send_signed_event"
MAX_LINK = 1_900  # characters: some mail programs and proxies cut longer ones
_SALT = "pulse_django.event"
_TITLE = Text(200)
_BY = Text(150)


@dataclass(frozen=True, slots=True)
class SignedEvent:
    """What a link sends."""

    name: str
    payload: Any = field(repr=False)
    title: str  # what its page asks
    by: str  # who is written down as the sender
    using: str
    is_expired: bool  # or the database that waited for it is gone


def event_link(
    name: str,
    payload: Any = None,
    *,
    title: str,
    by: str,
    expires_in: timedelta = timedelta(days=7),
    using: str | None = None,
) -> str:
    """Return the path of a page that asks ``title`` and sends the event when it is confirmed.

    Add the scheme and the host with ``request.build_absolute_uri()``. ``by`` is written down as the sender: whom the
    link is for. Include ``pulse_django.urls`` in the URLconf.
    """
    EVENT_NAME.check("name", name)
    _TITLE.check("title", title)
    _BY.check("by", by)
    if expires_in <= timedelta():
        raise InvalidWorkflow(f"expires_in={expires_in!r} is not in the future")
    encode_arguments(payload, limit=MAX_LINK, what="payload")  # says what is wrong with it
    said = [name, payload, title, by, alias_of_jobs(using), expires_in.total_seconds()]
    try:
        path = reverse(VIEW, args=[signing.dumps(said, salt=_SALT)])
    except NoReverseMatch:
        raise ImproperlyConfigured(
            'event_link() needs the page of Pulse: add path("pulse/", include("pulse_django.urls")) to the URLconf'
        ) from None
    if len(path) > MAX_LINK:
        raise InvalidWorkflow(f"the link would have {len(path):,} characters, at most are {MAX_LINK:,}: send less")
    return path


def read_link(token: str) -> SignedEvent | None:
    """Return what a link sends, or None if it was not signed by this project."""
    try:
        name, payload, title, by, using, seconds = signing.loads(token, salt=_SALT)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    try:
        signing.loads(token, salt=_SALT, max_age=seconds)
        checked_shard(using)
    except (signing.SignatureExpired, InvalidJob):
        return SignedEvent(name, payload, title, by, using, is_expired=True)
    return SignedEvent(name, payload, title, by, using, is_expired=False)
