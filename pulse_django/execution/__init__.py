"""From a claim to a report: find the task, call its handler, make the report, and send the signals."""
