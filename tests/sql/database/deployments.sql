-- require_deployment()
INSERT INTO pulse_django_declaration AS declaration (scope, worker, booted_at, fingerprint)
VALUES ('deployment:', '', clock_timestamp(), :fingerprint) ON CONFLICT (scope) DO NOTHING RETURNING scope;

-- require_deployment()
SELECT fingerprint FROM pulse_django_declaration WHERE scope::text = 'deployment:';

-- adopt()
INSERT INTO pulse_django_declaration AS declaration (scope, worker, booted_at, fingerprint)
VALUES ('deployment:', '', clock_timestamp(), :fingerprint)
ON CONFLICT (scope) DO UPDATE
SET fingerprint = excluded.fingerprint, booted_at = excluded.booted_at
RETURNING scope;
