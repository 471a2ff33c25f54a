"""A provider of OpenTelemetry as a project might have: spans are made, batched, and given to nobody."""

from __future__ import annotations

import os
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

SHARE = "BENCH_SAMPLED"  # the environment's name for the share of traces that are recorded


class Nobody(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


provider = TracerProvider(sampler=TraceIdRatioBased(float(os.environ.get(SHARE, "1"))))
provider.add_span_processor(BatchSpanProcessor(Nobody()))
trace.set_tracer_provider(provider)
