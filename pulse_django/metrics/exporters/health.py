"""The health of the fleet for an HTTP probe: 200 if no condition is a problem, or else 503, with the facts as JSON.

from pulse_django.metrics.exporters.health import health

urlpatterns = [path("health/pulse", health), ...]

It shows the health of the fleet and not of the process that answers. Do not use it for a load balancer: a backlog would
take every web process out of service.
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
@login_not_required  # the view checks access itself
@transaction.non_atomic_requests  # the view reports an unavailable database
def health(request: HttpRequest) -> HttpResponse:
    """Return the health of the fleet, if the request has access."""
    try:
        denial = refused(request)
    except Error:  # reading the session failed; clients without access get no details
        logger.exception("Authenticating the health request failed")
        return JsonResponse({"is_well": None, "says": "the database does not respond"}, status=503)
    try:
        if denial is not None:
            return denial
        verdict = ask_shards(shards_to_read())
    except Error as error:
        return JsonResponse({"is_well": None, "says": error_in_one_line(error)}, status=503)
    return JsonResponse({"says": verdict.says, **verdict.to_json()}, status=200 if verdict.is_well else 503)
