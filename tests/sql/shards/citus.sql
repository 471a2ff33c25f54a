-- is_for_citus()
SELECT
    pg_catalog.to_regclass('pulse_django_job_over') IS NULL,
    EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus'::name)
WHERE pg_catalog.to_regclass('pulse_django_job_other') IS NOT NULL;
