"""The view for Prometheus, with all vital signs of the fleet.

from pulse_django.metrics.exporters.prometheus import metrics

urlpatterns = [path("metrics", metrics), ...]
"""

from __future__ import annotations

import logging

from django.contrib.auth.decorators import login_not_required
from django.db import Error, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from pulse_django.metrics.vital_signs import ALL
from pulse_django.queue.words.payloads import error_in_one_line

from . import exposition
from .access import PLAIN, refused
from .readings import read_all

logger = logging.getLogger("pulse_django.metrics")

exposition.require()  # fails when the project starts, and not at the first scrape


@cache_control(no_store=True)
@require_safe
@login_not_required  # the view checks access itself: a client with a token has no session
@transaction.non_atomic_requests  # the view reports an unavailable database
def metrics(request: HttpRequest) -> HttpResponse:
    """Serve the vital signs to users with ``pulse_view_board``, and to clients with ``PULSE["METRICS_TOKEN"]``."""
    try:
        if (denial := refused(request)) is not None:
            return denial
        return HttpResponse(exposition.text(ALL, read_all()), content_type=exposition.CONTENT_TYPE)
    except Error as error:
        logger.warning("Reading the metrics failed: %s", error_in_one_line(error))
        return HttpResponse("The database did not respond.\n", status=503, content_type=PLAIN)
