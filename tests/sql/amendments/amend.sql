-- read_for_amending()
SELECT task, status, attempts, args::text, kwargs::text, sensitive, unique_key, attempts = 0
    AND expires_at IS NOT NULL
    AND status::text = 'PENDING'
    AND expires_at <= statement_timestamp()
FROM pulse_django_job
WHERE id = :id
ORDER BY era
LIMIT 1;

-- amend(): every job
WITH waiting AS MATERIALIZED (
    SELECT
        id, attempts, args, kwargs, sensitive,
        CASE
            WHEN COALESCE(:lane_key::text, lane_key::text) = lane_key::text THEN ready
            ELSE :lane_key::text = ''
        END AS ready
    FROM pulse_django_job_hot
    WHERE id = :job AND status::text IN ('WAITING', 'PENDING', 'RETRYING')
            AND attempts = COALESCE(:attempt::int, attempts)
            AND NOT (attempts = 0
                AND expires_at IS NOT NULL
                AND status::text = 'PENDING'
                AND expires_at <= statement_timestamp())
        AND args::text = COALESCE(:old_args, args::text) AND kwargs::text = COALESCE(:old_kwargs, kwargs::text)
    FOR NO KEY UPDATE
),
amended AS (
    UPDATE pulse_django_job_hot AS job
    SET args = :args::jsonb,
        kwargs = :kwargs::jsonb,
        payload_bytes = :bytes,
        search_terms = :terms::text[],
        unique_key = COALESCE(:key, job.unique_key),
        lane_key = COALESCE(:lane_key, job.lane_key),
        ready = waiting.ready
    FROM waiting
    WHERE job.id = waiting.id AND job.status::text IN ('WAITING', 'PENDING', 'RETRYING')
    RETURNING job.id
),
kept AS (
    INSERT INTO pulse_django_amendment (job_id, at, attempts, args, kwargs, sensitive, by, reason)
    SELECT id, clock_timestamp(), attempts, args, kwargs, sensitive, :by, :reason
    FROM waiting
    WHERE EXISTS (SELECT 1 FROM amended)
)
SELECT id FROM amended;

-- amend(): every job
DELETE FROM pulse_django_amendment
WHERE id = ANY (ARRAY(
    SELECT id FROM pulse_django_amendment WHERE job_id = :job_id ORDER BY id DESC OFFSET 20
))
RETURNING id;

-- amend()
SELECT id, attempts = 0 AND expires_at IS NOT NULL AND status::text = 'PENDING' AND expires_at <= statement_timestamp()
FROM pulse_django_job_hot
WHERE task::text = (
    SELECT task::text
    FROM pulse_django_job_hot
    WHERE id = :id)
    AND unique_key::text = :unique_key
    AND finished_at IS NULL
    AND unique_key IS NOT NULL
    AND (NOT unique_until_start OR attempts = 0)
LIMIT 1;
