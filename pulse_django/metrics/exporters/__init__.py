"""Exporters of the vital signs: Prometheus, OpenTelemetry, probes over HTTP."""
