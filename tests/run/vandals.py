"""Handlers that leave their worker's connection, or their worker, in a state."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress

from django.db import DatabaseError, connection, transaction

from pulse_django import task


@task
def leaves_a_transaction_open() -> None:
    transaction.atomic().__enter__()
    _run("SELECT 1")


@task
def leaves_a_broken_transaction() -> None:
    transaction.set_autocommit(False)
    with suppress(DatabaseError):
        _run("SELECT 1 / 0")


@task
def changes_the_search_path() -> None:
    _run("SET search_path = nowhere")


@task
def turns_autocommit_off() -> None:
    transaction.set_autocommit(False)


@task
def closes_the_connection() -> None:
    connection.close()


@task
def closes_the_socket() -> None:
    connection.ensure_connection()
    connection.connection.close()


@task
def forks_and_returns() -> None:
    """The child comes back from this function as if it were the worker."""
    if child := os.fork():
        os.waitpid(child, 0)


@task
def forks_a_child_that_uses_the_database() -> None:
    child = multiprocessing.get_context("fork").Process(target=_child)
    child.start()
    child.join()
    assert child.exitcode == 0


def _child() -> None:
    connection.connection = None  # what a careful child does: the socket is its parent's
    _run("SELECT 1")
    connection.close()


def _run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
