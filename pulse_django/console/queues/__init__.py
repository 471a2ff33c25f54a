"""The list of queues and the page of one: pause and resume."""
