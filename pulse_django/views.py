"""Views for your own pages: how far a batch is, as JSON."""

from __future__ import annotations

from collections.abc import Callable

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .execution.databases import alias_of_jobs
from .store.batches import progress_of_each
from .words.job_ids import MAX_ID


@never_cache
@require_safe
def batch_progress(
    request: HttpRequest, batch_id: int, *, may_see: Callable[[HttpRequest, int], bool], using: str | None = None
) -> HttpResponse:
    """Return how many jobs of a batch are ``done``, ``failed`` and ``open``, and the ``percent`` that is done.

    ``may_see`` is called with the request and the id, and says whether this user may see it. If not, the answer is that
    of a batch that there is not: 404.
    """
    if not 0 < batch_id <= MAX_ID or not may_see(request, batch_id):
        raise Http404
    progress = progress_of_each(alias_of_jobs(using), [batch_id]).get(batch_id)
    if progress is None:
        raise Http404
    numbers = {"done": progress.done, "failed": progress.dead, "open": progress.open, "percent": progress.percent}
    return JsonResponse(numbers)
