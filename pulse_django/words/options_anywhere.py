"""The options that ``@task`` takes for all jobs, and ``.using()`` for some. None is the same as leaving it out.

They are declared as the others are, in ``options.py``.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, TypedDict

from .limits import (
    DEFAULT_QUEUE,
    HIGHEST_PRIORITY,
    LONGEST_LEASE,
    LOWEST_PRIORITY,
    MAX_QUEUE_NAME,
    MAX_TAG,
    MOST_ATTEMPTS,
    MOST_TAGS,
    MOST_WEIGHT,
    SHORTEST_LEASE,
)
from .option_kinds import CheckedElsewhere, Duration, Made, Option, Text, Whole
from .option_kinds import gettext_noop as _
from .uniqueness import Unique

DEFAULT_BACKEND = "default"  # of TASKS


class OptionsAnywhere(TypedDict, total=False):
    """What both take."""

    priority: Annotated[
        int | None,
        Option(
            kind=Whole(LOWEST_PRIORITY, HIGHEST_PRIORITY),
            default=0,
            column="priority",
            label=_("Priority"),
            help=_("Jobs with a higher priority run first."),
        ),
    ]
    queue_name: Annotated[
        str | None,
        Option(
            kind=Text(MAX_QUEUE_NAME),
            default=DEFAULT_QUEUE,
            column="queue",
            label=_("Queue"),
            help=_("Only workers that serve this queue run its jobs. Any name is valid."),
        ),
    ]
    backend: Annotated[
        str | None,
        Option(kind=CheckedElsewhere("an alias"), default=DEFAULT_BACKEND, help="The alias in `TASKS`."),
    ]
    max_attempts: Annotated[
        int | None,
        Option(
            kind=Whole(1, MOST_ATTEMPTS),
            column="max_attempts",
            setting_at_enqueue="max_attempts",
            label=_("Maximum attempts"),
            help=_("How many runs a job may have before it becomes a dead letter."),
        ),
    ]
    timeout: Annotated[
        timedelta | None,
        Option(
            kind=Duration(),
            column="timeout",
            label=_("Time limit of a run"),
            help=_("The longest that a single run may take."),
        ),
    ]
    lease: Annotated[
        timedelta | None,
        Option(
            kind=Duration(
                SHORTEST_LEASE,
                LONGEST_LEASE,
                "The job of a dead worker would not be recovered for that long. "
                "Heartbeats extend the lease of a long run",
            ),
            column="lease_ttl",
            label=_("Lease"),
            help=_("How long the worker may be silent. None uses the setting."),
        ),
    ]
    stall_after: Annotated[
        timedelta | None,
        Option(
            kind=Duration(),
            column="stall_after",
            label=_("Time limit without progress"),
            help=_("The longest that a run may go without reporting progress."),
        ),
    ]
    give_up_after: Annotated[
        timedelta | None,
        Option(
            kind=Duration(),
            column="give_up_after",
            label=_("Retry for"),
            help=_("No retry is scheduled later than this after the job was enqueued."),
        ),
    ]
    weight: Annotated[
        int,
        Option(
            kind=Whole(1, MOST_WEIGHT),
            default=1,
            column="weight",
            label=_("Weight"),
            help=_("How many slots of a worker a run takes, and how much of its limit."),
        ),
    ]
    tags: Annotated[
        Sequence[object] | None,
        Option(
            kind=CheckedElsewhere(
                f"at most {MOST_TAGS}: texts of at most {MAX_TAG} characters without spaces, or saved model instances"
            ),
            default=(),
            column="tags",
            label=_("Tags"),
            help=_("Jobs can be searched by tag. The tags of a call are added to those of the task."),
        ),
    ]
    unique: Annotated[
        Unique | None,
        Option(
            kind=Made(Unique, "Unique(...)"),
            help="At most one job with the same key: alive at a time, or in each period.",
        ),
    ]
