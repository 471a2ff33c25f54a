"""Every write to job state: a file for each verb. No other module writes to the jobs table.

    verb            from                    to
    enqueue         -                       PENDING, WAITING
    resolve         WAITING                 PENDING, CANCELLED
    hold            PENDING, RETRYING       WAITING
    claim           PENDING, RETRYING       RUNNING
    heartbeat       RUNNING                 RUNNING
    settle          RUNNING                 COMPLETED, RETRYING, PENDING, WAITING, DEAD_LETTERED, CANCELLED
    reap            RUNNING                 RETRYING, DEAD_LETTERED, CANCELLED
    touch_expired   RUNNING                 RUNNING, unchanged
    mend            RUNNING                 RUNNING, with a lease that can be
    shorten_leases  RUNNING                 RUNNING, with a lease that can be
    release         RUNNING                 PENDING, CANCELLED
    expire          PENDING                 CANCELLED
    request_cancel  PENDING, RETRYING,      CANCELLED
                    WAITING
                    RUNNING                 RUNNING, asked to stop
    reschedule      PENDING                 PENDING, at another time
                    RETRYING                RETRYING, at another time
    move            PENDING                 PENDING, elsewhere
                    RETRYING                RETRYING, elsewhere
    amend           PENDING                 PENDING, with other arguments
                    RETRYING                RETRYING, with other arguments
                    WAITING                 WAITING, with other arguments
    set_aside       PENDING                 PENDING, out of what claims read
                    RETRYING                RETRYING, out of what claims read
    bring_back      PENDING                 PENDING, in line again
                    RETRYING                RETRYING, in line again
    retry           DEAD_LETTERED           PENDING
    prune           COMPLETED,              (gone)
                    DEAD_LETTERED,
                    CANCELLED

The claim is the lease. One UPDATE sets RUNNING, ``locked_by``, ``lease_until``, ``token`` and the next ``attempts``;
every later write of that run looks its row up by ``id``, ``locked_by`` and ``attempts``. That is the fence: once the
job has moved on, the statement finds no row, and "no row" is the answer that the caller gets. ``settle`` is the one
door out of RUNNING for workers; ``reap`` is the same door for watchdogs.

An enqueue with a unique key that another job holds adds none. It may change the arguments and the time of that job, if
that one is PENDING and has never been claimed (``unique``).

A job that needs others is WAITING, which no claim reads. The statement that ends a job which another one needs, or
that is in a batch, notes it; ``resolve`` looks at the notes after the commit, and frees what waits. ``hold`` lets the
jobs of a paused batch wait.

``set_aside`` and ``bring_back`` change no status. Between them ``ready`` is NULL, and claims do not read the job.

What waits or runs, and dead letters, are in the hot partition, which statements name. ``settle``, ``reap``,
``expire`` and ``request_cancel`` move what they complete or cancel to the partition of the day (``ending``). ``prune``
makes and drops these partitions.

Seven habits hold in every statement below:

- What touches several rows locks them first, jobs in the order of their ids and attempts of their (job, number), or
  skips locked ones. Sorted parameters alone deadlock.
- Locks are FOR NO KEY UPDATE, but for what is to be deleted: an open transaction of an app that refers to a job by
  foreign key is no reason to skip its heartbeat.
- One bad row or value fails itself and not its batch: values are cleaned and bounded on their way in, and where a
  batch is refused all the same, its rows are tried one by one.
- Instants are written with clock_timestamp() and compared with statement_timestamp(); Python's clock decides nothing.
- ``request_cancel``, ``reschedule``, ``move``, ``amend`` and ``retry`` take an ``attempt``, because an operator decides
  by what a page showed. A job that has had another attempt since is left alone, even if its status is the same again.
  The comparison is made under the row's lock.
- A fence does not mention ``status``: a CHECK ties ``locked_by`` to RUNNING, and with stale statistics a condition on
  the status lets the planner start from the wrong index.
- Functions that take arguments are called as pg_catalog's, and operators stand between types for which it has one:
  short text is compared as ``text``. A planted function or operator that fits better would be called (docs/adr/0039).

Lists travel as one JSON document instead of one array per column: psycopg quotes it in one go, and a batch of a
hundred settles took 2.4 ms instead of 2.9.

A test reads the table above, and drives every (status, verb) pair against the database.
"""
