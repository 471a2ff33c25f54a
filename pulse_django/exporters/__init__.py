"""Where the vital signs come out, other than in the admin: Prometheus, OpenTelemetry, probes."""
