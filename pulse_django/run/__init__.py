"""From a claim to a report: find the task, call its handler, make the report, and send the signals.

It may import ``queue``, and no room but ``shards``. ``context`` puts together what rooms give a handler.
"""
