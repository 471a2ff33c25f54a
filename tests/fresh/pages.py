"""Run in a project: execute every example of the how-to pages, and print as JSON what went wrong on which page."""

from __future__ import annotations

import json
import re
import sys
import traceback
import types
from pathlib import Path

from django.db import connection
from django.urls import set_urlconf

from pulse_django.health.conditions import catalogue
from pulse_django.run.registry import registry

URLCONF = "# urls.py"  # the first line of a block that is the URLconf of what follows it
SETTINGS = "settings.py"  # in the first line of a block that is no code to run


class _Urls:
    """A URLconf. It can be a key of Django's cache, as a namespace cannot."""

    def __init__(self, urlpatterns: list[object]) -> None:
        self.urlpatterns = urlpatterns


def run(page: Path) -> str:
    module = types.ModuleType("a_page_of_the_docs")
    sys.modules[module.__name__] = module
    with connection.cursor() as cursor:  # pages speak of an empty queue
        cursor.execute("DELETE FROM pulse_django_attempt; DELETE FROM pulse_django_job")
    registry.discover()  # a module that a page imports first would be forgotten with the page's own tasks
    known, asked = dict(registry._tasks), dict(catalogue._known)
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
    try:
        for block in blocks:
            if SETTINGS not in block.partition("\n")[0]:
                exec(compile(block, str(page), "exec"), vars(module))
            if block.startswith(URLCONF):
                set_urlconf(_Urls(module.urlpatterns))
    except BaseException:
        return traceback.format_exc()
    finally:
        registry._tasks, catalogue._known = known, asked
        set_urlconf(None)
    return ""


def main(folder: str) -> None:
    pages = [page for page in sorted(Path(folder).glob("*.md")) if "```python" in page.read_text()]
    print(json.dumps({page.stem: run(page) for page in pages}))  # noqa: T201 - its answer
