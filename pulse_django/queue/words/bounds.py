"""The bounds of options and columns. The tables, the forms and the options of a task use them."""

from __future__ import annotations

from datetime import timedelta

DEFAULT_QUEUE = "default"
MAX_TASK_NAME = 200
MAX_QUEUE_NAME = 100
MAX_IDEMPOTENCY_KEY = 200
MAX_LIMITER_NAME = 100
MAX_LANE_KEY = 200
LOWEST_PRIORITY = -100
HIGHEST_PRIORITY = 100
MOST_ATTEMPTS = 32_767
UNLIMITED = 2**31 - 1  # attempts: with a run each second, a job needs 68 years for these
MOST_WEIGHT = 1_000
MOST_TAGS = 20  # of one job: each is an index entry
MAX_TAG = 200
MAX_USER = 150  # of the name of a user, as in Django's own
MAX_STORED_REASON = 2_000  # of a pause, or of a change of a schedule
MAX_META_BYTES = 16_384  # as JSON: a claim returns it with every job
SMALLEST_CHUNK, LARGEST_CHUNK = 2, 1_000
LONGEST_GATHERING = timedelta(minutes=1)  # of a chunk: its jobs wait while their time limits run
# Limits of columns, in bytes of their text. The tables refuse longer values. Our code cuts or refuses them before that.
MAX_NOTE_TEXT = 16_384  # of a reason or an error in one line: twice 2,000 characters of four bytes
MAX_HOOK_TEXT = 128 * 1024
MAX_OPTIONS_TEXT = 256 * 1024
MAX_REGISTRY_TEXT = 1024 * 1024  # of what a worker says about itself
MAX_DOCUMENT_TEXT = 16 * 1024 * 1024  # four times the most that PULSE["MAX_PAYLOAD_BYTES"] can allow
SHORTEST_LEASE = timedelta(milliseconds=100)
# Also for the setting LEASE_TTL. The job of a dead worker is recovered only after its lease has expired.
LONGEST_LEASE = timedelta(days=1)
# Far from the ends of both Python's calendar and PostgreSQL's, whatever the time zone.
FIRST_YEAR, LAST_YEAR = 1900, 9000
# A thousand years: longer than any schedule, and PostgreSQL can still add it to now.
MAX_DELAY = timedelta(days=365_000)
