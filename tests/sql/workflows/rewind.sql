-- retry_from()
SELECT pulse_django_job.id, pulse_django_job.era, pulse_django_job.task, pulse_django_job.queue,
    pulse_django_job.priority, pulse_django_job.lane_key, pulse_django_job.ready, pulse_django_job.args,
    pulse_django_job.kwargs, pulse_django_job.payload_bytes, pulse_django_job.parent_id, pulse_django_job.trace,
    pulse_django_job.sensitive, pulse_django_job.give_up_after, pulse_django_job.tags, pulse_django_job.search_terms,
    pulse_django_job.meta, pulse_django_job.weight, pulse_django_job.status, pulse_django_job.next_run_at,
    pulse_django_job.attempts, pulse_django_job.refunds, pulse_django_job.max_attempts, pulse_django_job.losses,
    pulse_django_job.max_lost_workers, pulse_django_job.count_lost_workers, pulse_django_job.locked_by,
    pulse_django_job.lease_until, pulse_django_job.token, pulse_django_job.lease_ttl, pulse_django_job.timeout,
    pulse_django_job.deadline, pulse_django_job.progress_timeout, pulse_django_job.progress,
    pulse_django_job.progress_at, pulse_django_job.cancel_requested_at, pulse_django_job.cancel_reason,
    pulse_django_job.last_error, pulse_django_job.result, pulse_django_job.completed_by,
    pulse_django_job.completed_token, pulse_django_job.created_at, pulse_django_job.started_at,
    pulse_django_job.finished_at, pulse_django_job.expires_at, pulse_django_job.on_dead,
    pulse_django_job.idempotency_key, pulse_django_job.unique_key, pulse_django_job.unique_until_start,
    pulse_django_job.batch_id, pulse_django_job.node, pulse_django_job.awaited
FROM pulse_django_job
WHERE pulse_django_job.id = :id
LIMIT 21
FOR UPDATE OF pulse_django_job;
