"""The test project's settings with more databases, each of them a shard: the environment names their aliases."""

import json
import os

from testproject.settings import *  # noqa: F403
from testproject.settings import DATABASES, PULSE, database
from tests.two_databases import MORE

DATABASES |= {alias: database(url) for alias, url in json.loads(os.environ.get(MORE, "{}")).items()}
PULSE["SHARDS"] = {alias: number for number, alias in enumerate(DATABASES)}
