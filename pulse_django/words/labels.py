"""What a job is labelled with: tags, by which jobs are found, and meta, which is only shown and passed on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pulse_django.exceptions import InvalidJob, PayloadError

from .limits import MAX_META_BYTES, MAX_TAG, MOST_TAGS
from .payloads import encode_arguments

_NO_LIMIT = 2**31  # the limit of meta is not the setting that the encoder names

Tags = tuple[str, ...]


def tags_of(given: Iterable[object]) -> Tags:
    """Return tags as they are stored: each once, in the order given. A saved model instance stands for its own tag."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidJob(f"tags: {given!r} is not a list of tags; write tags=[{given!r}]")
    tags = tuple(dict.fromkeys(tag_of(one) for one in given))
    if len(tags) > MOST_TAGS:
        raise InvalidJob(f"tags: {len(tags)} tags, over the limit of {MOST_TAGS}")
    return tags


def tag_of(one: object) -> str:
    """Return the tag that a text or a saved model instance stands for."""
    tag = one if isinstance(one, str) else _tag_of_object(one)
    if not tag:
        raise InvalidJob("tags: a tag must not be empty")
    if len(tag) > MAX_TAG:
        raise InvalidJob(f"tags: {tag[:40]!r}... has {len(tag)} characters, over the limit of {MAX_TAG}")
    if not tag.isprintable() or any(char.isspace() for char in tag):
        raise InvalidJob(f"tags: {tag!r} contains spaces or unprintable characters")
    return tag


def _tag_of_object(one: Any) -> str:
    """Return ``app_label.model:pk``. A proxy has the tag of its model."""
    meta = getattr(one, "_meta", None)
    if meta is None or isinstance(one, type):
        raise InvalidJob(f"tags: {one!r} is neither a str nor a model instance")
    label = meta.concrete_model._meta.label_lower
    if one.pk is None or one._state.adding:
        raise InvalidJob(f"tags: this {label} is not saved yet, so no tag can name it")
    return f"{label}:{one.pk}"


def encode_meta(meta: object) -> str | None:
    """Return meta as JSON, or refuse what cannot be stored. None: there is none."""
    if not isinstance(meta, Mapping):
        raise InvalidJob(f"meta: {meta!r} is not a dict")
    if not meta:
        return None
    text = encode_arguments(dict(meta), limit=_NO_LIMIT, what="meta")
    if len(text) > MAX_META_BYTES:
        raise PayloadError(f"meta: {len(text)} bytes of JSON, over the limit of {MAX_META_BYTES}")
    return text
