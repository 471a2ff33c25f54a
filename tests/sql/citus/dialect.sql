-- has_one_level(): all
-- the whole: c0bf7f8e
SELECT pg_catalog.to_regclass('pulse_django_job_over') IS NULL
WHERE pg_catalog.to_regclass('pulse_django_job_other') IS NOT NULL;
