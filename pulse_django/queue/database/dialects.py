"""Use other statements for a kind of server that cannot run the plain ones.

A plain statement is in the module of its verb, sent by a method of a subclass of ``Statements``. A dialect has
subclasses of these, with other methods. Each process finds out once which dialect a database needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar, cast

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


class Statements:
    """The statements of a verb, for one database."""

    def __init__(self, alias: str) -> None:
        self.alias = alias


_S = TypeVar("_S", bound=Statements)


class Dialect(NamedTuple):
    """The statements for a kind of server."""

    is_for: Callable[[BaseDatabaseWrapper], bool | None]  # None: nobody can know before the tables exist
    statements: tuple[type[Statements], ...]


_dialects: tuple[Dialect, ...] = ()
_others: dict[str, Mapping[type[Statements], type[Statements]]] = {}  # by alias, and by the plain class
_chosen: dict[tuple[type[Statements], str], Statements] = {}


def use(dialects: Iterable[Dialect]) -> None:
    global _dialects
    _dialects = tuple(dialects)
    forget()


def statements_for(plain: type[_S], alias: str) -> _S:
    """Return the statements for a database: the plain ones, or those of its dialect."""
    found = _chosen.get((plain, alias))
    if found is None:
        others = _find_others(alias)
        found = (others or {}).get(plain, plain)(alias)
        if others is not None:
            _chosen[plain, alias] = found
    return cast(_S, found)


def _find_others(alias: str) -> Mapping[type[Statements], type[Statements]] | None:
    if alias not in _others:
        answers = [one.is_for(connections[alias]) for one in _dialects]
        if None in answers:
            return None
        needed = [one.statements for one, is_for in zip(_dialects, answers, strict=True) if is_for]
        _others[alias] = {plain: other for others in needed for other in others for plain in other.__bases__}
    return _others[alias]


def forget() -> None:
    """Forget which dialects databases need, for tests that migrate."""
    _others.clear()
    _chosen.clear()
