-- fence()
INSERT INTO pulse_django_fence AS fence (resource, token) VALUES (:resource, :token)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE fence.token <= excluded.token
RETURNING token;
