"""From a claim to a report: find the task, call its handler, say what happened, and tell those who listen."""
