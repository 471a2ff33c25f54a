"""Run a claimed job: find the task, call its handler, make the report, and send the signals.

It may import ``queue`` and ``shards``, and no other package. Only ``context`` imports the parts of a handler's context.
"""
