"""Handlers that write a row by Django's ORM, and its table. Django must have been set up."""

from __future__ import annotations

import witness
from django.db import connection, models


class Row(models.Model):
    number = models.IntegerField()

    class Meta:
        app_label = "bench"  # of no installed app
        db_table = "bench_row"

    def __str__(self) -> str:
        return str(self.number)


def make_table() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Row)


def insert() -> None:
    Row.objects.create(number=1)
    witness.call()


async def insert_async() -> None:
    await Row.objects.acreate(number=1)
    witness.call()
