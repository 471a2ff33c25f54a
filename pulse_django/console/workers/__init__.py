"""The list of workers, and the page of one."""
