"""The options of a task whose handler is called with several jobs at once."""

from datetime import timedelta
from typing import Annotated

from .limits import LARGEST_CHUNK, LONGEST_GATHERING, SMALLEST_CHUNK
from .option_kinds import Duration, Option, Whole
from .options import TaskOptions


class ChunkTaskOptions(TaskOptions, total=False):
    """What ``@task`` takes in all. Without ``chunk``, a handler is called for each job."""

    chunk: Annotated[
        int | None,
        Option(
            kind=Whole(SMALLEST_CHUNK, LARGEST_CHUNK),
            help="The handler is called with up to so many jobs at once. Each keeps its own result and retries.",
        ),
    ]
    within: Annotated[
        timedelta | None,
        Option(
            kind=Duration(most=LONGEST_GATHERING, or_zero=True),
            help="How long a worker waits for more jobs of a chunk. Without it, a chunk is what one claim brought.",
        ),
    ]
