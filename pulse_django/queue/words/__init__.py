"""The types of a job queue: statuses, outcomes, decisions, leases, options. Pure: no ORM, no I/O, no settings."""
