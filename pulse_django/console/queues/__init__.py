"""The list of queues, and the page of one with pause and resume."""
