"""The fleet's state for a probe over HTTP: 200 if it is well by thresholds, 503 if not, with the facts as JSON.

from pulse_django.exporters.health import health

urlpatterns = [path("health/pulse", health), ...]

It is about the fleet and not about the process that answers: a load balancer that asks it would take every web process
out of service because of a backlog.
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.db import Error, router, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from pulse_django.fleet.facts_as_json import to_json
from pulse_django.fleet.probes import probe
from pulse_django.models import Job
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.payloads import error_in_one_line

from .access import refused

logger = SafeLogger("pulse_django.metrics")


@cache_control(no_store=True)
@require_safe
@login_not_required  # it asks for itself
@transaction.non_atomic_requests  # a database that is away is told by us
def health(request: HttpRequest) -> HttpResponse:
    """Say whether the fleet is well, to those who may see it."""
    try:
        denial = refused(request)
    except Error:  # a session was to be read; what went wrong is not for strangers
        logger.exception("Authenticating the health request failed")
        return JsonResponse({"is_well": None, "says": "the database does not respond"}, status=503)
    try:
        return denial or _said()
    except Error as error:
        return JsonResponse({"is_well": None, "says": error_in_one_line(error)}, status=503)


def _said() -> HttpResponse:
    found = probe(router.db_for_read(Job))
    says = "; ".join(f"{one.name}: {one.says}" for one in found.crossings)
    return JsonResponse({**to_json(found), "says": says}, status=200 if found.is_well else 503)
