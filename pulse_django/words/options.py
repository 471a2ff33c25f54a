"""The options of a task. An option is declared here, and the rest of the package follows.

An entry of ``TaskOptions``, ``CallOptions`` or ``OptionsAnywhere`` declares it: where it may be given, its type, and an
``Option`` with the rest. Type checkers need its attribute in writing as well: ``option_values.py`` has them. A test
holds them together.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from .limiting import KeySource, Limit
from .limits import (
    MAX_IDEMPOTENCY_KEY,
    MAX_META_BYTES,
    MAX_TASK_NAME,
    MOST_ATTEMPTS,
)
from .masks import MOST_SEARCHED
from .option_kinds import CheckedElsewhere, Duration, Flag, Made, OneOfTwo, Option, Text, Whole
from .option_kinds import gettext_noop as _
from .options_anywhere import OptionsAnywhere
from .retry_policies import RetryPolicy
from .timings import Timing

_OF_ARGUMENTS = CheckedElsewhere("a parameter's name, a tuple of them, or a function of the arguments")


class Isolation(StrEnum):
    """Where a sync handler runs. Async ones always run on the worker's event loop."""

    THREAD = "thread"
    PROCESS = "process"  # one for each run: slower to start, and really killed on timeout and cancel


# A call may give an instant as well.
_EXPIRES = Option(
    kind=Duration(),
    column="expires_at",
    label=_("Expires"),
    help=_("A job that has not started by then does not start. It is cancelled."),
)


class TaskOptions(OptionsAnywhere, total=False):
    """What ``@task`` takes."""

    limit: Annotated[
        Limit | None,
        Option(
            kind=Made(Limit, "Limit(...)"),
            help="How many of its jobs run at once, and how many start in a time: in all, and for each key.",
        ),
    ]
    key: Annotated[
        KeySource | None,
        Option(kind=_OF_ARGUMENTS, help="What the keys of its limit are made of. Slots are shared among the keys."),
    ]
    share: Annotated[
        KeySource | None,
        Option(kind=_OF_ARGUMENTS, help="Who shares the slots: a free one goes to who holds the fewest."),
    ]

    name: Annotated[
        str,
        Option(
            kind=CheckedElsewhere(f"at most {MAX_TASK_NAME} characters"),
            default="",
            help="A key of its own for its jobs, so that the function may move. Default: the path of the function.",
        ),
    ]
    aliases: Annotated[
        tuple[str, ...],
        Option(
            kind=CheckedElsewhere(f"names of at most {MAX_TASK_NAME} characters"),
            default=(),
            help="Earlier names of the task. Waiting jobs that carry them still find it.",
        ),
    ]
    retry: Annotated[
        RetryPolicy | None,
        Option(
            kind=Made(RetryPolicy, "never(...), only(...) or NO_RETRIES"),
            help="Which exceptions are retried, and after which delays.",
        ),
    ]
    expires: Annotated[timedelta | None, _EXPIRES]
    max_losses: Annotated[
        int | None,
        Option(
            kind=Whole(1, MOST_ATTEMPTS),
            column="max_losses",
            label=_("Maximum lost workers"),
            help=_(
                "After this many lost workers, the job becomes a dead letter even if attempts remain. None uses the "
                "setting."
            ),
        ),
    ]
    free_losses: Annotated[
        bool,
        Option(
            kind=Flag(),
            default=False,
            column="free_losses",
            label=_("Lost workers do not count"),
            help=_("A lost worker costs no attempt. The maximum of lost workers still holds."),
        ),
    ]
    isolation: Annotated[
        str,
        Option(
            kind=OneOfTwo(Isolation.THREAD.value, Isolation.PROCESS.value),
            default=Isolation.THREAD,
            help='With `"process"` each run has a process, which is really killed on timeout and cancel.',
        ),
    ]
    atomic: Annotated[
        bool,
        Option(kind=Flag(), default=False, help="The handler and its completion are one transaction."),
    ]
    masked: Annotated[
        tuple[str, ...],
        Option(
            kind=CheckedElsewhere("names of parameters"),
            default=(),
            help='Parameters that the admin and logs do not show. `"return"` is the result.',
        ),
    ]
    search: Annotated[
        tuple[str, ...],
        Option(
            kind=CheckedElsewhere(f"names of at most {MOST_SEARCHED} parameters that are not masked"),
            default=(),
            help="Arguments by which the admin finds jobs, as `order_id:4711`. They are stored twice.",
        ),
    ]
    encrypted: Annotated[
        bool,
        Option(
            kind=Flag(),
            default=False,
            help="Arguments, progress and results are encrypted in the table, and nothing shows them.",
        ),
    ]
    schedule: Annotated[
        Timing | None,
        Option(
            kind=Made(Timing, "Cron(...) or Every(...)"),
            help="When the task runs without being called. For several schedules of one task, use `Schedule(...)`.",
        ),
    ]


class CallOptions(OptionsAnywhere, total=False):
    """What ``.using()`` takes."""

    run_after: Annotated[
        datetime | timedelta | None,
        Option(
            kind=CheckedElsewhere("an aware `datetime`, or a `timedelta`"),
            help="Not before this instant, or this long from now.",
        ),
    ]
    idempotency_key: Annotated[
        str | None,
        Option(
            kind=Text(MAX_IDEMPOTENCY_KEY),
            column="idempotency_key",
            label=_("Idempotency key"),
            help=_("A second job of the task with the same key is not enqueued while this job exists."),
        ),
    ]
    expires: Annotated[
        datetime | timedelta | None,
        replace(_EXPIRES, kind=CheckedElsewhere("an aware `datetime`, or a `timedelta` above 0")),
    ]
    meta: Annotated[
        Mapping[str, Any] | None,
        Option(
            kind=CheckedElsewhere(f"a dict of at most {MAX_META_BYTES:,} bytes as JSON"),
            column="meta",
            label=_("Meta"),
            help=_("Facts about the job for people, logs and signal receivers. They are not searched."),
        ),
    ]
    database: Annotated[
        str | None,
        Option(
            kind=CheckedElsewhere("an alias"),
            help="The alias of the database that takes the job. Default: the handler's own, or the router's.",
        ),
    ]
