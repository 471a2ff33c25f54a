"""The test project's settings with a second database, for workers."""

from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES, PULSE, database
from tests.two_databases import SECOND, SHARDS, url_of_the_second

DATABASES[SECOND] = database(url_of_the_second())
PULSE["SHARDS"] = SHARDS
