"""Each page of the console with rows behind it that show all that it can show, as tests look through them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from html.parser import HTMLParser

from django.test import Client
from django.urls import reverse

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.browser.scene import build
from tests.console.test_every_page import Address, with_rows
from tests.factories import make_job, now

VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"})
SAID = ("title", "alt", "aria-label", "placeholder")


class Texts(HTMLParser):
    """The texts of a page and of its attributes, each with the elements around it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.around: list[tuple[str, dict[str, str]]] = []
        self.found: list[tuple[str, list[tuple[str, dict[str, str]]]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attributes}
        self.found += [(known[name], [*self.around]) for name in SAID if known.get(name)]
        if tag == "input" and known.get("type") == "submit":
            self.found.append((known.get("value", ""), [*self.around]))
        if tag not in VOID:
            self.around.append((tag, known))

    def handle_endtag(self, tag: str) -> None:
        while tag in [name for name, _ in self.around] and self.around.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        if data.strip() and not {"script", "style"} & {name for name, _ in self.around}:
            self.found.append((" ".join(data.split()), [*self.around]))


def rows() -> list[Address]:
    """Return each address, with a fleet on a bad day behind them."""
    addresses, scene = with_rows(), build()
    jobs = [
        scene.zombie, scene.running, scene.dead,
        make_job(next_run_at=now(timedelta(minutes=5)), expires_at=now(timedelta(hours=2))),
        make_job(Status.RUNNING, cancel_requested_at=now(), cancel_reason="x"),
    ]  # fmt: skip
    jobs += list(Job.objects.filter(batch=scene.order))
    places = [("job_change", job.pk) for job in jobs]
    places += [("storedbatch_change", scene.order.pk), ("schedule_change", scene.nightly.pk)]
    places += [("worker_change", scene.lost_worker.pk)]
    more = [(f"pulse_django_{name}", reverse(f"admin:pulse_django_{name}", args=[pk])) for name, pk in places]
    tasks, queue = reverse("admin:pulse_django_taskoverview_one"), reverse("admin:pulse_django_queue_one")
    more += [("", f"{tasks}?name=shop.send_mail"), ("", f"{tasks}?name=shop.paused"), ("", f"{queue}?name=mail")]
    return addresses + [Address(name=name, url=url, data={}) for name, url in more]


def pages(client: Client, addresses: list[Address]) -> Iterator[tuple[Address, str]]:
    """Open each address that answers with a page."""
    for address in addresses:
        response = client.get(address.url, {} if "?" in address.url else None)
        if response.status_code == 200 and response.get("Content-Type", "").startswith("text/html"):
            yield address, response.content.decode()
