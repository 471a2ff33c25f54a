"""``pulse_worker``: a keeper that holds the leases, and children that run the handlers."""
