"""How the history of ``chaos.graphs`` is written, by triggers, and read."""

from __future__ import annotations

import json
from collections.abc import Sequence

from chaos.graph_history import BatchRow, History, JobRow, Line, NeedRow
from chaos.own_server import ask

# Each worker names itself in its connections, and changes keep who made them: for a mutant.
SCHEMA = """
CREATE TABLE chaos_effect (job_id bigint NOT NULL, name text NOT NULL);
CREATE TABLE chaos_pardon (job_id bigint PRIMARY KEY);
CREATE TABLE chaos_history (
    n bigint GENERATED ALWAYS AS IDENTITY, at timestamptz NOT NULL DEFAULT clock_timestamp(), what text NOT NULL,
    id bigint NOT NULL, attempt int NOT NULL DEFAULT 0, name text NOT NULL DEFAULT ''
);
ALTER TABLE pulse_django_unresolved
    ADD COLUMN made_by text NOT NULL DEFAULT COALESCE(current_setting('chaos.worker', true), '');

CREATE FUNCTION chaos_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR OLD.status <> NEW.status THEN
        INSERT INTO chaos_history (what, id, attempt) VALUES (NEW.status, NEW.id, NEW.attempts);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_job AFTER INSERT OR UPDATE ON pulse_django_job FOR EACH ROW EXECUTE FUNCTION chaos_job();

CREATE FUNCTION chaos_batch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.sealed_at IS NULL AND NEW.sealed_at IS NOT NULL THEN
        INSERT INTO chaos_history (what, id) VALUES ('SEALED', NEW.id);
    END IF;
    IF OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL THEN
        INSERT INTO chaos_history (what, id) VALUES ('ENDED', NEW.id);
    END IF;
    IF OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL THEN
        INSERT INTO chaos_history (what, id) VALUES ('FINISHED', NEW.id);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_batch AFTER UPDATE ON pulse_django_batch FOR EACH ROW EXECUTE FUNCTION chaos_batch();

CREATE FUNCTION chaos_other() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'pulse_django_step' THEN
        INSERT INTO chaos_history (what, id, attempt) VALUES ('STEP', NEW.job_id, NEW.attempt);
    ELSIF TG_TABLE_NAME = 'pulse_django_dependency' THEN
        INSERT INTO chaos_history (what, id) VALUES ('NEED', NEW.id);
    ELSE
        INSERT INTO chaos_history (what, id, name) VALUES ('EVENT', 0, NEW.name);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_step AFTER INSERT OR UPDATE ON pulse_django_step FOR EACH ROW EXECUTE FUNCTION chaos_other();
CREATE TRIGGER chaos_need AFTER INSERT ON pulse_django_dependency FOR EACH ROW EXECUTE FUNCTION chaos_other();
CREATE TRIGGER chaos_event AFTER INSERT ON pulse_django_event FOR EACH ROW EXECUTE FUNCTION chaos_other();
"""
# So that the judge finds what the database would refuse.
WITHOUT_CHECKS = "ALTER TABLE pulse_django_batch DROP CONSTRAINT pulse_batch_finished_after_sealed"

DEADLOCKS = "SELECT sum(deadlocks)::int FROM pg_stat_database"
IS_OVER = """
SELECT NOT EXISTS (SELECT FROM pulse_django_job_hot) AND NOT EXISTS (SELECT FROM pulse_django_unresolved)
    AND NOT EXISTS (SELECT FROM pulse_django_batch WHERE finished_at IS NULL)
"""
LAST = "SELECT COALESCE(max(n), 0), (SELECT count(*) FROM pulse_django_unresolved) FROM chaos_history"
_DIFFERING = """
SELECT job.id
FROM pulse_django_job AS job
LEFT JOIN pulse_django_step AS step ON step.job_id = job.id AND step.name = 'drawn'
WHERE job.task = 'chaos.steps' AND job.status = 'COMPLETED' AND job.result IS DISTINCT FROM step.result
"""


def read(refused: Sequence[str], deadlocks: int) -> History:
    return History(
        lines=[Line(*row) for row in ask("SELECT n, what, id, attempt, name FROM chaos_history ORDER BY n")],
        needs=[
            NeedRow(*row)
            for row in ask(
                "SELECT id, job_id, needs, needs_batch, needs_event, on_need_failed, moment, met"
                " FROM pulse_django_dependency"
            )
        ],
        jobs=[
            JobRow(*row, args=json.loads(args))
            for *row, args in ask(
                "SELECT id, task, status, batch_id, parent_id, args::text FROM pulse_django_job ORDER BY id"
            )
        ],
        batches=[
            BatchRow(batch_id, parent_id, planned, json.loads(callbacks or "[]"))
            for batch_id, parent_id, planned, callbacks in ask(
                "SELECT id, parent_id, (context ->> 'planned')::int, context ->> 'callbacks' FROM pulse_django_batch"
            )
        ],
        effects=ask("SELECT job_id, name FROM chaos_effect"),
        refused=refused,
        differing=[job_id for (job_id,) in ask(_DIFFERING)],
        deadlocks=ask(DEADLOCKS)[0][0] - deadlocks,
        unresolved=ask("SELECT count(*) FROM pulse_django_unresolved")[0][0],
    )
