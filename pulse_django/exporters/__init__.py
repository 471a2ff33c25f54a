"""Where the vital signs leave the project: Prometheus, OpenTelemetry, probes over HTTP."""
