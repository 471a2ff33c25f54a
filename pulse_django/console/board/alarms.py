"""The alarms of the board: a line for each condition that was found, whose subjects are links to their pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import translation
from django.utils.http import urlencode
from django.utils.translation import gettext

from pulse_django import conf
from pulse_django.execution.placement import shards
from pulse_django.fleet import history
from pulse_django.fleet.conditions import About, Finding, Verdict
from pulse_django.fleet.conditions.asking import MOST_CHARACTERS, MOST_IN_A_LINE
from pulse_django.fleet.snapshot import Health
from pulse_django.words.display import inert
from pulse_django.words.states import Status
from pulse_django.words.vital_signs import JOBS_ENQUEUED

from .looking import Seen
from .sparkline import rate_in_words

# The page of a subject: the name of its address, and the parameter that takes the key. The permission is the model's.
_PAGES = {
    About.QUEUE: ("queue_one", "name", "queue"),
    About.TASK: ("taskoverview_one", "name", "job"),
    About.WORKER: ("worker_changelist", "name", "worker"),
    About.SCHEDULE: ("schedule_changelist", "q", "schedule"),
    About.LIMIT: ("limiter_changelist", "q", "limiter"),
}
# Where the cause of a condition is seen, if its subjects do not lead there.
_CAUSES = {
    "dead-letters": ("deadletter_changelist", "job"),
    "failure-rate": ("deadletter_changelist", "job"),
    "failures-rise": ("taskoverview_changelist", "job"),
    "leases-expired": ("worker_changelist", "worker"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmSubject:
    key: str
    words: str
    url: str  # empty: there is no page, or this user may not see it


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A condition that was found."""

    finding: Finding
    first: Sequence[AlarmSubject]
    others: Sequence[AlarmSubject]
    more: str  # how many there are beyond the first
    cause_url: str
    error: str  # why it could not be checked
    means: str
    to_do: str

    @property
    def severity(self) -> str:
        return translation.gettext(self.finding.condition.severity)


def alarms_of(request: HttpRequest, site: str, verdict: Verdict) -> list[Alarm]:
    """Return the alarms of a shard, the worst first."""
    links = _Links(request, site)
    return [_alarm(links, finding) for finding in verdict.found]


def _alarm(links: _Links, finding: Finding) -> Alarm:
    condition = finding.condition
    subjects = [
        AlarmSubject(
            key=inert(str(subject.key), MOST_CHARACTERS),
            words=inert(subject.words, MOST_CHARACTERS),
            url=links.to(condition.about, subject.key),
        )
        for subject in finding.subjects
    ]
    beyond = len(subjects) - MOST_IN_A_LINE
    return Alarm(
        finding=finding,
        first=subjects[:MOST_IN_A_LINE],
        others=subjects[MOST_IN_A_LINE:],
        more=f"{beyond}{'+' if finding.is_more else ''}" if beyond > 0 else "",
        cause_url=links.to_the_cause(condition.name),
        error=inert(finding.error),
        means=translation.gettext(condition.means),
        to_do=translation.gettext(condition.to_do),
    )


class _Links:
    """Addresses of pages that this user may see."""

    def __init__(self, request: HttpRequest, site: str) -> None:
        self._request, self._site = request, site

    def to(self, about: About, key: Any) -> str:
        """Return the page of a subject: that of a job, or of what its key begins with, or of what conditions name."""
        if isinstance(key, int):
            return self._url("job_change", "job", args=[key]) if about in (About.JOB, About.OTHER) else ""
        kind, _, name = str(key).partition(" ")
        if name and kind in set(About):
            about, key = About(kind), name
        if about is About.JOB:
            return self._url("job_change", "job", args=[key]) if str(key).isdecimal() else ""
        if about not in _PAGES:
            return ""
        page, parameter, model = _PAGES[about]
        if about is About.WORKER:
            key = str(key).rpartition(":")[0]  # without its boot id
        url = self._url(page, model)
        return f"{url}?{urlencode({parameter: key})}" if url else ""

    def to_the_cause(self, name: str) -> str:
        return self._url(*_CAUSES[name]) if name in _CAUSES else ""

    def _url(self, page: str, model: str, args: Sequence[Any] = ()) -> str:
        if not self._request.user.has_perm(f"pulse_django.view_{model}"):
            return ""
        try:
            return reverse(f"{self._site}:pulse_django_{page}", args=args)
        except NoReverseMatch:  # the project took the page out of its admin
            return ""


# The board's table of shards: a row for each, whether it answers or not.


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRow:
    """What is not known is an empty str."""

    alias: str
    number: str
    verdict: str
    is_well: bool
    waiting: str = ""
    running: str = ""
    dead: str = ""
    rate_in: str = ""
    rate_completed: str = ""
    workers: str = ""


def row_of(alias: str, said: Verdict | None, one: Seen) -> ShardRow:
    """Return the row of a shard. Without a verdict it does not respond."""
    number = str(shards()[alias])
    if said is None or one.error:
        verdict = gettext("does not respond") if said is None else one.error
        return ShardRow(alias=alias, number=number, verdict=verdict, is_well=False)
    names = ", ".join(finding.condition.name for finding in said.found)
    silence = conf.current().worker_silence
    return ShardRow(
        alias=alias,
        number=number,
        verdict=names or gettext("No problems"),
        is_well=said.is_well,
        waiting=_waiting(one.health),
        running=str(sum(queue.running for queue in one.health.queues)),
        dead=one.dead,
        rate_in=rate_in_words(one.past.rate(history.counted(JOBS_ENQUEUED))),
        rate_completed=rate_in_words(one.past.rate(history.ended_as(Status.COMPLETED))),
        workers=str(sum(worker.is_alive(silence) for worker in one.health.workers)),
    )


def _waiting(health: Health) -> str:
    more = "+" if any(queue.is_more for queue in health.queues) else ""
    return f"{sum(queue.due + queue.later for queue in health.queues)}{more}"
