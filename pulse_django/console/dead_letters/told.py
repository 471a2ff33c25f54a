"""What pages of dead letters say of a letter or a group."""

from __future__ import annotations

from typing import Any

from django.utils.formats import number_format

from pulse_django.words.display import in_words

from . import groups


def letter_told(letter: groups.Letter, url: str) -> dict[str, Any]:
    age = in_words((letter.now - letter.finished_at).total_seconds())
    return {"is": letter, "id": str(letter.id), "url": url, "age": age}


def counted(group: groups.ErrorGroup) -> str:
    count = number_format(min(group.letters, group.counted), force_grouping=True)
    return f"{count}+" if group.has_more else count


def few_tasks(tasks: tuple[str, ...]) -> dict[str, Any]:
    return {"tasks": tasks[: groups.MOST_TASKS], "other_tasks": max(0, len(tasks) - groups.MOST_TASKS)}
