"""The fleet's health for a probe over HTTP: 200 if no condition is a problem, 503 if one is, with the facts as JSON.

from pulse_django.metrics.exporters.health import health

urlpatterns = [path("health/pulse", health), ...]

It is about the fleet and not about the process that answers: a load balancer that used it would take every web process
out of service because of a backlog.
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.db import Error, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.safe_logging import SafeLogger
from pulse_django.shards.fleet import ask_shards, shards_to_read

from .access import refused

logger = SafeLogger("pulse_django.metrics")


@cache_control(no_store=True)
@require_safe
@login_not_required  # it asks for itself
@transaction.non_atomic_requests  # we report a database that is away
def health(request: HttpRequest) -> HttpResponse:
    """Say whether the fleet is well, to those who may see it."""
    try:
        denial = refused(request)
    except Error:  # a session was to be read; what went wrong is not for strangers
        logger.exception("Authenticating the health request failed")
        return JsonResponse({"is_well": None, "says": "the database does not respond"}, status=503)
    try:
        if denial is not None:
            return denial
        verdict = ask_shards(shards_to_read())
    except Error as error:
        return JsonResponse({"is_well": None, "says": error_in_one_line(error)}, status=503)
    return JsonResponse({"says": verdict.says, **verdict.to_json()}, status=200 if verdict.is_well else 503)
