"""The alarms of the board: a line for each condition that was found, with links to its subjects."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils import translation
from django.utils.http import urlencode
from django.utils.translation import gettext

from pulse_django import conf
from pulse_django.console.pages import url_for
from pulse_django.health.conditions import About, Finding, Verdict
from pulse_django.health.conditions.asking import MOST_CHARACTERS, MOST_IN_A_LINE
from pulse_django.metrics import history
from pulse_django.metrics.vital_signs import JOBS_ENDED, JOBS_ENQUEUED
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.states import Status
from pulse_django.shards.placement import shards

from .looking import Seen
from .sparkline import rate_in_words

# The page of a subject: the name of its URL, the parameter for its key, and the model whose permission is needed.
_PAGES = {
    About.QUEUE: ("queue_one", "name", "queue"),
    About.TASK: ("taskoverview_one", "name", "job"),
    About.WORKER: ("worker_changelist", "name", "worker"),
    About.SCHEDULE: ("schedule_changelist", "q", "schedule"),
    About.LIMIT: ("limiter_changelist", "q", "limiter"),
}
# The page that shows the cause of a condition, if the pages of its subjects do not.
_CAUSES = {
    "dead-letters": ("deadletter_changelist", "job"),
    "failure-rate": ("deadletter_changelist", "job"),
    "failures-rise": ("taskoverview_changelist", "job"),
    "leases-expired": ("worker_changelist", "worker"),
}


def alarms_of(request: HttpRequest, site: str, verdict: Verdict) -> list[dict[str, Any]]:
    """Return the alarms of a shard, the worst first."""
    links = _Links(request, site)
    return [_alarm(links, finding) for finding in verdict.found]


def _alarm(links: _Links, finding: Finding) -> dict[str, Any]:
    condition = finding.condition
    subjects = [
        {
            "key": inert(str(subject.key), MOST_CHARACTERS),
            "words": subject.words,
            "url": links.to(condition.about, subject.key),
        }
        for subject in finding.subjects
    ]
    beyond = len(subjects) - MOST_IN_A_LINE
    return {
        "finding": finding,
        "severity": translation.gettext(condition.severity),
        "first": subjects[:MOST_IN_A_LINE],
        "others": subjects[MOST_IN_A_LINE:],
        "more": f"{beyond}{'+' if finding.is_more else ''}" if beyond > 0 else "",  # than the first
        "cause_url": links.to_the_cause(condition.name),
        "error": inert(finding.error),
        "means": translation.gettext(condition.means),
        "to_do": translation.gettext(condition.to_do),
    }


class _Links:
    """URLs of pages that this user may see."""

    def __init__(self, request: HttpRequest, site: str) -> None:
        self._request, self._site = request, site

    def to(self, about: About, key: Any) -> str:
        """Return the URL of a subject. Its kind is the first word of its key, or else that of the condition."""
        if isinstance(key, int):
            return self._url("job_change", "job", key) if about in (About.JOB, About.OTHER) else ""
        kind, _, name = str(key).partition(" ")
        if name and kind in set(About):
            about, key = About(kind), name
        if about is About.JOB:
            return self._url("job_change", "job", key) if str(key).isdecimal() else ""
        if about not in _PAGES:
            return ""
        page, parameter, model = _PAGES[about]
        if about is About.WORKER:
            key = str(key).rpartition(":")[0]  # without its boot id
        url = self._url(page, model)
        return f"{url}?{urlencode({parameter: key})}" if url else ""

    def to_the_cause(self, name: str) -> str:
        return self._url(*_CAUSES[name]) if name in _CAUSES else ""

    def _url(self, page: str, model: str, *args: Any) -> str:
        return url_for(self._request, self._site, model, page, *args)


# The board's table of shards, including shards that do not respond.


def row_of(alias: str, said: Verdict | None, one: Seen) -> dict[str, Any]:
    """Return the row of a shard. ``said`` is None if the shard does not respond."""
    row: dict[str, Any] = {"alias": alias, "number": str(shards()[alias]), "is_well": said is not None and said.is_well}
    if said is None or one.error:
        return row | {"verdict": gettext("does not respond") if said is None else one.error, "is_well": False}
    queues, silence = one.health.queues, conf.current().worker_silence
    more = "+" if any(queue.is_more for queue in queues) else ""
    return row | {
        "verdict": ", ".join(finding.condition.name for finding in said.found) or gettext("No problems"),
        "waiting": f"{sum(queue.due + queue.later for queue in queues)}{more}",
        "running": str(sum(queue.running for queue in queues)),
        "dead": one.dead,
        "rate_in": rate_in_words(one.past.rate(history.counted(JOBS_ENQUEUED))),
        "rate_completed": rate_in_words(one.past.rate(history.counted(JOBS_ENDED, status=Status.COMPLETED))),
        "workers": str(sum(worker.is_alive(silence) for worker in one.health.workers)),
    }
