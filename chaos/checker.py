"""The judge: reads the whole history of a run and says what it breaks. Pure; it imports nothing of Pulse.

What may happen is written down here once more, by hand, from the promise and not from the code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise

from chaos import amendments, deaths, expiry, shards, unique_jobs
from chaos.witness import Change, Entry, Row, Wish

WAITING = ("PENDING", "RETRYING")
OVER = ("COMPLETED", "DEAD_LETTERED", "CANCELLED")
MOVES = {
    "PENDING": {"PENDING", "RUNNING", "CANCELLED"},
    "RETRYING": {"RETRYING", "RUNNING", "CANCELLED"},
    "RUNNING": {"RUNNING", "PENDING", "RETRYING", *OVER},
    "COMPLETED": set(),
    "CANCELLED": set(),
    "DEAD_LETTERED": {"PENDING"},  # an operator's retry
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What a handler wrote down of one of its runs."""

    id: str
    job: int
    attempt: int
    token: int
    holder: str
    listens: bool  # it asks, several times a second, whether it should stop
    began_at: float  # by the clock that all processes of a machine share
    ended_at: float | None
    ended: str  # how; empty: nobody knows
    wish: int | None = None  # of a caller: the one it was given, or the last one that it saw


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A time in which something was the matter, by the server's clock; with the worker that it was the matter with."""

    begin: datetime
    end: datetime
    worker: str = ""  # empty: with the database, so with all
    shard: str = ""  # empty: with all of them
    stops: bool = False  # the worker did not get to run meanwhile

    def concerns(self, worker: str, shard: str) -> bool:
        """Whether it was the matter with this worker, or database if it is empty, as far as this shard goes."""
        return self.worker == worker and self.shard in ("", shard)


@dataclass(frozen=True, kw_only=True)
class History:
    acknowledged: frozenset[int]  # jobs whose enqueue was answered
    changes: Sequence[Change]
    ledger: Sequence[Entry]
    executions: Sequence[Execution]
    faults: Sequence[Window]
    slack: timedelta  # a tick of the watchdog, and what a busy machine may add
    grace: timedelta  # after a fault its consequences may still come
    epoch: datetime  # when the executions' clock began, by the server's
    deadlocks: Sequence[str] = ()  # what the server wrote about each
    wishes: Sequence[Wish] = ()  # of callers of unique jobs, in the order of each key
    # When each worker said that a claim of its was not answered.
    unanswered: Mapping[str, Sequence[datetime]] = field(default_factory=dict)

    @cached_property
    def changes_of(self) -> dict[int, list[Change]]:
        """The changes of each job, in order."""
        found: dict[int, list[Change]] = defaultdict(list)
        for change in self.changes:
            found[change.job].append(change)
        return found

    @cached_property
    def entry_of(self) -> dict[tuple[int, int], Entry]:
        """The ledger's entry of each job and attempt."""
        return {(entry.job, entry.number): entry for entry in self.ledger}

    @cached_property
    def shard_of(self) -> dict[tuple[int, int], str]:
        """The shard of each run, by job and attempt."""
        return {
            (change.job, change.after.attempts): change.shard
            for change in self.changes
            if change.after is not None and change.after.status == "RUNNING"
        }

    @cached_property
    def execution_of(self) -> dict[str, Execution]:
        """Each execution by its id."""
        return {one.id: one for one in self.executions}

    @cached_property
    def begun(self) -> set[tuple[int, int, str | None]]:
        """The runs of which an execution began: job, attempt, holder."""
        return {(one.job, one.attempt, one.holder) for one in self.executions}


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    job: int
    says: str


@dataclass(slots=True)
class Verdict:
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)  # seconds from a lease's end to its reap, outside of outages

    @property
    def proves_something(self) -> bool:
        """A run in which nothing went wrong, or in which nobody had to be recovered, is no proof."""
        return self.counts["faults"] > 0 and self.counts["reaps"] > 0

    def break_(self, rule: str, job: int, says: str) -> None:
        self.violations.append(Violation(rule, job, says))


def judge(history: History) -> Verdict:
    verdict = Verdict()
    for job, changes in history.changes_of.items():
        _judge_life(job, changes, history, verdict)
    _nothing_lost(history, verdict)
    _executions_were_granted(history, verdict)
    _listeners_stop(history, verdict)
    _nobody_runs_twice_for_nothing(history, verdict)
    _holders_are_unique(history.changes, verdict)
    unique_jobs.judge(history, verdict)
    expiry.judge(history, verdict)
    amendments.judge(history, verdict)
    deaths.judge(history, verdict)
    for text in history.deadlocks:
        verdict.break_("no deadlock", 0, text)
    _count(history, verdict)
    return verdict


# One job's life


def _judge_life(job: int, changes: Sequence[Change], history: History, verdict: Verdict) -> None:
    tokens: list[int] = []
    shards.judge(job, changes, verdict)
    for change in changes:
        before, after = change.before, change.after
        if change.op == "DELETE" or after is None:
            verdict.break_("nothing is lost", job, f"deleted as {before.status if before else '?'}")
            continue
        if before is None:
            continue
        _judge_row(job, after, verdict)
        if before == after and before.status in OVER:
            continue  # only where its last run is kept has changed
        if after.status not in MOVES[before.status]:
            rule = "terminal once" if before.status in OVER else "no illegal transition"
            verdict.break_(rule, job, f"{before.status} became {after.status}")
        elif before.status in OVER and before.status != "DEAD_LETTERED":
            verdict.break_("terminal once", job, f"{before.status} was changed")
        if after.attempts < before.attempts:
            verdict.break_("attempts only rise", job, f"{before.attempts} became {after.attempts}")
        if before.status in WAITING and after.status == "RUNNING":
            _judge_claim(change, before, after, tokens, verdict)
        elif before.status == "RUNNING" and after.status == "RUNNING":
            _judge_beat(change, before, after, verdict)
        elif before.status == "RUNNING":
            _judge_end(change, before, after, history, verdict)


def _judge_row(job: int, row: Row, verdict: Verdict) -> None:
    if row.status == "RUNNING" and (row.locked_by is None or row.lease_until is None or row.token is None):
        verdict.break_("a running job has a lease", job, f"held by {row.locked_by} until {row.lease_until}")
    if row.status == "DEAD_LETTERED" and not row.last_error:
        verdict.break_("every dead letter has its reason", job, "no last_error")
    if row.attempts - row.refunds > row.max_attempts:
        verdict.break_("attempts stay within the budget", job, f"{row.attempts} - {row.refunds} > {row.max_attempts}")


def _judge_claim(change: Change, before: Row, after: Row, tokens: list[int], verdict: Verdict) -> None:
    if after.attempts != before.attempts + 1:
        verdict.break_("attempts rise by one for each claim", change.job, f"{before.attempts} became {after.attempts}")
    if after.token is not None:
        if tokens and after.token <= tokens[-1]:
            verdict.break_("tokens rise", change.job, f"{tokens[-1]} was followed by {after.token}")
        tokens.append(after.token)


def _judge_beat(change: Change, before: Row, after: Row, verdict: Verdict) -> None:
    if (before.locked_by, before.attempts, before.token) != (after.locked_by, after.attempts, after.token):
        verdict.break_("no live lease is stolen", change.job, f"from {before.locked_by} to {after.locked_by}")
    if before.lease_until != after.lease_until and change.by != _worker_of(before.locked_by):
        says = f"{change.by or 'somebody'} extended the lease of {before.locked_by}"
        verdict.break_("only its holder extends a lease", change.job, says)
    if before.lease_until and after.lease_until and after.lease_until < before.lease_until:
        verdict.break_("a heartbeat never shortens", change.job, f"{before.lease_until} became {after.lease_until}")


def _judge_end(change: Change, before: Row, after: Row, history: History, verdict: Verdict) -> None:
    entry = history.entry_of.get((change.job, before.attempts))
    if after.status == "COMPLETED":
        _judge_result(change.job, before, after, history, verdict)
    if entry is None:
        verdict.break_("every run has its entry", change.job, f"attempt {before.attempts} has none")
        return
    if entry.worker != before.locked_by:
        verdict.break_("no stale write is accepted", change.job, f"{entry.worker} ended the run of {before.locked_by}")
    if change.by and change.by != _worker_of(before.locked_by) and not entry.is_reaped:
        verdict.break_("only its holder reports", change.job, f"{change.by} ended the run of {before.locked_by}")
    if entry.is_reaped:
        _judge_reap(change, before, history, verdict)
        if after.refunds != before.refunds:
            verdict.break_("a lost worker costs an attempt", change.job, f"{after.refunds} refunds after a reap")


def _judge_result(job: int, before: Row, after: Row, history: History, verdict: Verdict) -> None:
    """The stored result says which execution was believed: it must be the one of the run that ended."""
    believed = history.execution_of.get(str(after.result))
    if believed is None:
        verdict.break_("no stale write is accepted", job, f"the result {after.result!r} is of no execution")
    elif (believed.job, believed.attempt, believed.holder) != (job, before.attempts, before.locked_by):
        says = f"attempt {believed.attempt} of job {believed.job} was believed for attempt {before.attempts}"
        verdict.break_("no stale write is accepted", job, says)


def _judge_reap(change: Change, before: Row, history: History, verdict: Verdict) -> None:
    lease_until, deadline = before.lease_until, before.deadline
    if lease_until is None:
        return
    if change.at < lease_until and not (deadline and change.at >= deadline):
        verdict.break_("no reap before its time", change.job, f"at {change.at}, leased until {lease_until}")
    worker = _worker_of(before.locked_by)
    # That the database was away is no excuse, nor that another shard was.
    own = [fault for fault in history.faults if fault.concerns(worker, change.shard)]
    # After an outage leases are believed for longer: who was killed before it is reaped long after that, and did not
    # extend the lease all the same.
    when = {change.at, min(change.at, lease_until)}
    if not any(_is_near(fault, at, history.grace) for fault in own for at in when):
        if _answer_was_lost(change, before, history):
            verdict.counts["claims that nobody learned of"] += 1
        else:
            verdict.break_("no healthy job is reaped", change.job, f"{before.locked_by} was well at {change.at}")
    stopped = [fault for fault in history.faults if fault.concerns("", change.shard)]
    away = any(_is_near(fault, change.at, history.grace) for fault in stopped)
    late = change.at - lease_until
    if not away:
        verdict.recoveries.append(late.total_seconds())
    # A hook that times out delays its own job alone: that is tried last, and anew if its watchdog is killed meanwhile.
    if late > history.slack and not away and before.task != deaths.WITH_SLOW_HOOK:
        verdict.break_("recovery is in time", change.job, f"reaped {late.total_seconds():.1f} s after the lease ended")


def _answer_was_lost(reap: Change, claimed: Row, history: History) -> bool:
    """Whether its holder never learned of this claim, nor began.

    The server was stopped as it granted it, or too slow with its answer: then its worker said so, before the reap.
    """
    at = claimed.started_at
    if at is None or (reap.job, claimed.attempts, claimed.locked_by) in history.begun:
        return False
    stopped = [fault for fault in history.faults if fault.concerns("", reap.shard)]
    said = history.unanswered.get(_worker_of(claimed.locked_by), ())
    return any(fault.begin - history.slack <= at <= fault.end for fault in stopped) or any(
        at <= when <= min(reap.at, at + history.slack) for when in said
    )


def _worker_of(holder: str | None) -> str:
    return (holder or "").partition(":")[0]


def _is_near(fault: Window, at: datetime, grace: timedelta) -> bool:
    return fault.begin <= at <= fault.end + grace


# All jobs together


def _nothing_lost(history: History, verdict: Verdict) -> None:
    for job in sorted(history.acknowledged - history.changes_of.keys()):
        verdict.break_("nothing is lost", job, "its enqueue was acknowledged, and it is not there")
    for job, changes in history.changes_of.items():
        last = changes[-1].after
        if last is not None and last.status not in OVER:
            verdict.break_("quiescent at the end", job, f"still {last.status}")


def _executions_were_granted(history: History, verdict: Verdict) -> None:
    granted = {
        (change.job, change.after.attempts, change.after.token, change.after.locked_by)
        for change in history.changes
        if change.after is not None and change.after.status == "RUNNING"
    }
    for one in history.executions:
        if (one.job, one.attempt, one.token, one.holder) not in granted:
            verdict.break_("no execution without a claim", one.job, f"attempt {one.attempt}, token {one.token}")


def _listeners_stop(history: History, verdict: Verdict) -> None:
    """Whoever asks whether it should stop is told so soon after its lease has ended, whoever is out of reach."""
    leased_until: dict[tuple[int, int, str | None], datetime] = {}
    for change in history.changes:
        if (row := change.after) is not None and row.lease_until is not None:
            run = change.job, row.attempts, row.locked_by
            leased_until[run] = max(row.lease_until, leased_until.get(run, row.lease_until))
    for one in history.executions:
        until = leased_until.get((one.job, one.attempt, one.holder))
        if not one.listens or one.ended_at is None or until is None:
            continue
        ended = history.epoch + timedelta(seconds=one.ended_at)
        slept = [fault for fault in history.faults if fault.stops and fault.worker == _worker_of(one.holder)]
        awake = max([until, *(fault.end for fault in slept if fault.begin <= ended)])
        if ended > awake + history.slack:
            says = f"attempt {one.attempt} went on for {(ended - until).total_seconds():.1f} s after its lease"
            verdict.break_("who loses its lease stops", one.job, says)


def _nobody_runs_twice_for_nothing(history: History, verdict: Verdict) -> None:
    """Two executions of one job at a time need a worker with whom something was the matter."""
    for first, second in _overlapping(history.executions):
        worker, at = _worker_of(first.holder), history.epoch + timedelta(seconds=second.began_at)
        shard = history.shard_of.get((first.job, first.attempt), "")
        own = [fault for fault in history.faults if fault.concerns(worker, shard)]
        if not any(_is_near(fault, at, history.grace) for fault in own):
            says = f"attempt {second.attempt} began while attempt {first.attempt} was at work at {worker}, who was well"
            verdict.break_("nobody runs twice for nothing", first.job, says)


def _holders_are_unique(changes: Iterable[Change], verdict: Verdict) -> None:
    """A holder and an attempt name one run of one job; a token one claim of any job of a shard."""
    runs: Counter[tuple[int, str | None, int]] = Counter()
    tokens: Counter[tuple[str, int | None]] = Counter()
    for change in changes:
        before, after = change.before, change.after
        if before is not None and after is not None and before.status in WAITING and after.status == "RUNNING":
            runs[change.job, after.locked_by, after.attempts] += 1
            tokens[change.shard, after.token] += 1
    for (job, holder, attempt), count in runs.items():
        if count > 1:
            verdict.break_("no fence is minted twice", job, f"{holder}, attempt {attempt}: {count} times")
    for (_, token), count in tokens.items():
        if count > 1:
            verdict.break_("tokens rise", 0, f"token {token} was granted {count} times")


def _count(history: History, verdict: Verdict) -> None:
    counts = verdict.counts
    counts["jobs"] = len(history.changes_of)
    counts["changes"] = len(history.changes)
    counts["executions"] = len(history.executions)
    counts["faults"] = len(history.faults)
    counts["reaps"] = sum(entry.is_reaped for entry in history.ledger)
    counts["late reports refused"] = sum(bool(entry.late_outcome) for entry in history.ledger)
    begun = Counter(one.job for one in history.executions)
    counts["jobs that ran more than once"] = sum(runs > 1 for runs in begun.values())
    counts["overlapping executions"] = len(_overlapping(history.executions))
    for changes in history.changes_of.values():
        if (last := changes[-1].after) is not None:
            counts[last.status] += 1


def _overlapping(executions: Sequence[Execution]) -> list[tuple[Execution, Execution]]:
    """Pairs of executions of one job that were at work at a time: the first is a zombie, if the fence holds."""
    by_job: dict[int, list[Execution]] = defaultdict(list)
    for one in executions:
        by_job[one.job].append(one)
    return [
        (first, second)
        for them in by_job.values()
        for first, second in pairwise(sorted(them, key=lambda one: one.began_at))
        if first.ended_at is not None and first.ended_at > second.began_at
    ]
