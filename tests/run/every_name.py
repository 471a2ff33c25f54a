"""A user's code with every public name, as a type checker sees it; run through mypy by test_typing.py."""

from pulse_django import (
    NO_RETRIES,
    UNLIMITED,
    AlreadyEnqueued,
    Backoff,
    Batch,
    BatchFinished,
    Breaker,
    Chunk,
    ChunkItem,
    Context,
    Cron,
    DeadJob,
    Discard,
    EventTimedOut,
    Every,
    Explanation,
    FencedModel,
    JobCancelled,
    JobIsMoving,
    LeaseLost,
    Limit,
    NeededResultMissing,
    Rate,
    RateLimited,
    RetryLater,
    RetryPolicy,
    Schedule,
    Snooze,
    StaleToken,
    Unique,
    Workflow,
    amend,
    cancel,
    chain,
    chord,
    enqueue_many,
    event_link,
    explain,
    fence,
    fenced_update,
    get,
    group,
    jobs,
    pause_queue,
    pause_task,
    progress,
    progress_token,
    read_retry_after,
    release,
    result_of_public_id,
    resume_queue,
    resume_task,
    retry,
    retry_on,
    retry_unless,
    send_event,
    shard_of,
    task,
)


class Report(FencedModel): ...


@task
def mark_failed(dead: DeadJob) -> None:
    number: str = (dead["args"] or [dead["job_id"], dead["reason"]])[0]
    dial.enqueue(number)


@task(at_most_once=True, on_dead=mark_failed, queue_name="calls")
def dial(number: str) -> None: ...


@task(retry=retry_on(OSError, backoff=Backoff.exponential(30)), max_attempts=UNLIMITED, tags="billing")
def charge(order: int) -> int:
    if order < 0:
        raise Discard("no such order")
    if order == 0:
        raise Snooze(60)
    if order == 1:
        raise RateLimited(60, "429")
    raise RetryLater(60, "not ready")


@task(retry=RetryPolicy(backoff=Backoff.fixed(15)), unique=Unique(by="order", per=60), schedule=Cron("@daily"))
def remind(order: int = 0) -> None: ...


@task(limit=Limit(max_running=5, rate=Rate.parse("60/m"), breaker=Breaker(window=60, pause_for=30)), fair_by="customer")
def sync(customer: int) -> None: ...


@task(retry=retry_unless(ValueError), schedule=Every(minutes=5))
def poll() -> None: ...


@task(retry=NO_RETRIES, chunk=10)
def index(chunk: Chunk) -> None:
    item: ChunkItem
    for item in chunk:
        try:
            item.succeed(item.kwargs["document"])
        except LeaseLost:
            continue


@task(takes_context=True, sensitive="text")
def write(context: Context, number: int, text: str) -> None:
    try:
        fence("printer", context)
        fenced_update(Report._default_manager.filter(pk=number), context, text=text)
        context.wait_for_event("approved", timeout=60)
    except (StaleToken, EventTimedOut, NeededResultMissing, JobCancelled) as error:
        context.discard(str(error))


HOURLY = Schedule("hourly", every=3600, task=charge, args=[7])


def caller() -> tuple[str, Explanation]:
    try:
        result = charge.using(on_dead=mark_failed, expires=60).enqueue(7)
    except (AlreadyEnqueued, JobIsMoving) as error:
        return str(error), explain(7)
    many: list[int] = enqueue_many(charge, [(1,), {"order": 2}])
    batch = Batch.open("import", context={"file": "a.csv"})
    try:
        batch.add(charge.prepare(7))
    except BatchFinished:
        batch.cancel(reason="over")
    flow = Workflow("order").add("charge", charge.prepare(7)).add("remind", remind.prepare(7), needs=["charge"])
    flow.enqueue()
    chain(charge.prepare(1), group(charge.prepare(2), charge.prepare(3)), chord([charge.prepare(4)], remind.prepare(4)))
    pause_queue("mail", duration=60), resume_queue("mail"), pause_task(charge, reason="why"), resume_task("shop.charge")
    cancel(*many), retry(result.id, runs=2), release(result.id), amend(result.id, args=[8])
    send_event("approved", {"by": "x"}), event_link("approved", title="Approve?", by="a@example.com", expires_in=60)
    get(result.id), jobs(queue="mail").count(), progress(result.id), progress_token(result.id), shard_of(charge, 7)
    result.is_new, result.wait(10).return_value, read_retry_after(OSError())
    return result_of_public_id(result.public_id).id, explain(result.id)
