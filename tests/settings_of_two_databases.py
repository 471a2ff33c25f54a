"""The test project's settings with a second database, for workers."""

from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES, database
from tests.two_databases import SECOND, url_of_the_second

DATABASES[SECOND] = database(url_of_the_second())
