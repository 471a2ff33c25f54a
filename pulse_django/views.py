"""Views for your pages: the progress of a job or a batch, and the page of a signed link, which sends an event."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from .models import Job
from .queue.words.job_ids import MAX_ID
from .run.job_progress import JobProgress, job_of_token, progress_of
from .shards.placement import alias_of_id
from .workflows.batch_progress import progress_of_each
from .workflows.batches import read_link, send_event

STOP_POLLING = 286  # the status at which htmx stops polling


@never_cache
@require_safe
def batch_progress(
    request: HttpRequest, batch_id: int, *, may_see: Callable[[HttpRequest, int], bool], using: str | None = None
) -> HttpResponse:
    """Return how many jobs of a batch are ``done``, ``failed`` and ``open``, and the ``percent`` that is done.

    ``may_see`` is called with the request and the id, and returns whether this user may see it. If not, the response is
    404, as for a batch that does not exist.
    """
    if not 0 < batch_id <= MAX_ID or not may_see(request, batch_id):
        raise Http404
    progress = progress_of_each(alias_of_id(batch_id, using), [batch_id]).get(batch_id)
    if progress is None:
        raise Http404
    numbers = {"done": progress.done, "failed": progress.dead, "open": progress.open, "percent": progress.percent}
    return JsonResponse(numbers)


@never_cache
@require_safe
@sensitive_variables("token")
@login_not_required  # the token is the right to see it
def job_progress(request: HttpRequest, token: str) -> HttpResponse:
    """Return the ``stage`` of the job of a signed token, its ``percent``, and whether it ``is_over``."""
    progress = _progress_of_token(token)
    return JsonResponse({"stage": progress.stage, "percent": progress.percent, "is_over": progress.is_over})


@never_cache
@require_safe
@sensitive_variables("token")
@login_not_required  # the token is the right to see it
def job_progress_bar(request: HttpRequest, token: str) -> HttpResponse:
    """Return the progress bar of ``{% pulse_job_progress %}``, for scripts that replace a part of a page.

    When the job has ended, the status is 286, at which htmx stops polling.
    """
    progress = _progress_of_token(token)
    status = STOP_POLLING if progress.is_over else 200
    return TemplateResponse(request, "pulse_django/job_progress.html", {"progress": progress}, status=status)


def _progress_of_token(token: str) -> JobProgress:
    job_id = job_of_token(token)
    if job_id is None:
        raise Http404
    try:
        return progress_of(job_id)
    except Job.DoesNotExist:
        raise Http404 from None


@never_cache
@csrf_protect
@xframe_options_deny
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_variables("token")
@login_not_required  # the link is the right to send it
def send_signed_event(request: HttpRequest, token: str) -> HttpResponse:
    """Ask for confirmation to send the event of a signed link, and send it when the form is posted.

    A GET sends nothing, because programs that check mail open the links in it.
    """
    event = read_link(token)
    if event is None:
        raise Http404
    state = "expired" if event.is_expired else "asked"
    if state == "asked" and request.method == "POST":
        is_new = send_event(event.name, event.payload, by=event.by, using=event.using)
        state = "sent" if is_new else "late"
    page = TemplateResponse(
        request,
        "pulse_django/signed_event.html",
        {"title": event.title, "by": event.by, "state": state},
        status=410 if state == "expired" else 200,
    )
    page["Referrer-Policy"] = "same-origin"  # the URL is the right to send the event
    return page
