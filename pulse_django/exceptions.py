"""What Pulse raises. A lost lease is not here: it is an answer, never an exception in user code."""


class PulseError(Exception):
    """Catch this to catch everything that Pulse raises on purpose."""


class InvalidJob(PulseError, ValueError):
    """A job that cannot be enqueued: the message names the field and what is wrong with it."""


class PayloadError(InvalidJob):
    """Arguments or a result that PostgreSQL's jsonb cannot hold, or that are larger than allowed."""


class UnstorableResult(PayloadError):
    """A handler returned what cannot be stored. Never retried: it would be no different next time."""


class NotInsideTransaction(PulseError, RuntimeError):
    """A verb that must commit by itself was called inside a transaction of the caller's."""
