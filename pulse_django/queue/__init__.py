"""The verbs: every write to the state of a job, one module for each verb. Only they write to the jobs table.

    verb            from                    to
    enqueue         -                       PENDING, WAITING
    resolve         WAITING                 PENDING, CANCELLED
    hold            PENDING, RETRYING       WAITING
    claim           PENDING, RETRYING       RUNNING
    heartbeat       RUNNING                 RUNNING
    settle          RUNNING                 COMPLETED, RETRYING, PENDING, WAITING, DEAD_LETTERED, CANCELLED
    reap            RUNNING                 RETRYING, DEAD_LETTERED, CANCELLED
    touch_expired   RUNNING                 RUNNING, unchanged
    mend            RUNNING                 RUNNING, with a valid lease
    shorten_leases  RUNNING                 RUNNING, with a valid lease
    release         RUNNING                 PENDING, CANCELLED
    expire          PENDING                 CANCELLED
    request_cancel  PENDING, RETRYING,      CANCELLED
                    WAITING
                    RUNNING                 RUNNING, asked to stop
    reschedule      PENDING                 PENDING, at another time
                    RETRYING                RETRYING, at another time
    move            PENDING                 PENDING, in another queue or with another priority
                    RETRYING                RETRYING, likewise
    amend           PENDING                 PENDING, with other arguments
                    RETRYING                RETRYING, with other arguments
                    WAITING                 WAITING, with other arguments
    set_aside       PENDING                 PENDING, hidden from claims
                    RETRYING                RETRYING, hidden from claims
    bring_back      PENDING                 PENDING, visible to claims
                    RETRYING                RETRYING, visible to claims
    retry           DEAD_LETTERED           PENDING
    prune           COMPLETED,              (gone)
                    DEAD_LETTERED,
                    CANCELLED

The claim is the lease. One UPDATE sets RUNNING, ``locked_by``, ``lease_until``, ``token`` and the next ``attempts``;
every later write of that run finds its row by ``id``, ``locked_by`` and ``attempts``. This is the fence: once the job
has moved on, the statement finds no row, and the verb reports that to its caller. A worker ends a run with ``settle``,
a watchdog with ``reap``.

An enqueue with a unique key that another job holds adds no job. It may change the arguments and the time of the other
job, if that is PENDING and has never been claimed (``unique``).

A job that needs other jobs is WAITING, and claims do not read it. If a job is needed by another one or is in a batch,
the statement that ends it also writes a note. ``resolve`` reads the notes after the commit, and frees the jobs that
waited. ``hold`` makes the jobs of a paused batch wait.

``set_aside`` and ``bring_back`` change no status. Between them ``ready`` is NULL, and claims do not read the job.

Jobs that wait or run, and dead letters, are in the hot partition, which the statements name. ``settle``, ``reap``,
``expire`` and ``request_cancel`` move the jobs that they complete or cancel to the partition of the day (``ending``).
``prune`` makes and drops these partitions.

Every statement below follows seven rules:

- A statement that writes several rows locks them first, jobs by id and attempts by (job, number), or skips locked rows.
  Sorting the parameters alone does not prevent deadlocks.
- Locks are FOR NO KEY UPDATE, except on rows that are deleted. An open transaction of an app that refers to a job by
  foreign key must not make a heartbeat skip the job.
- A bad row or value does not fail its batch: values are cleaned and bounded first, and if PostgreSQL still refuses a
  batch, its halves are tried, down to single rows.
- Instants are written with clock_timestamp() and compared with statement_timestamp(). Python's clock is not used.
- ``request_cancel``, ``reschedule``, ``move``, ``amend`` and ``retry`` take an ``attempt``, because an operator decides
  by what a page showed. They leave a job alone that has had another attempt since, even if its status is the same
  again. They compare while they hold the row's lock.
- A fence does not compare ``status``: a CHECK ties ``locked_by`` to RUNNING, and with stale statistics a condition on
  the status can make the planner use the wrong index.
- Functions with arguments are called with the schema pg_catalog, and operators get types for which pg_catalog has an
  exact match: short text is compared as ``text``. Otherwise PostgreSQL could call a function or operator that another
  role created elsewhere on the search path (docs/adr/0039).

Lists are sent as one JSON document instead of one array per column: psycopg quotes it once, and a batch of a hundred
settles took 2.4 ms instead of 2.9.

A test reads the table above, and drives every (status, verb) pair against the database.
"""
