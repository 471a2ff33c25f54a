"""A project whose own models are called as those of Pulse: permissions, the shell and reverse names are its own."""

from __future__ import annotations

from collections.abc import Callable

from testproject.new_project import NewProject

NAMES = ("Job", "Queue", "Event", "Schedule", "Worker")
MODELS = "from django.db import models\n" + "".join(
    f"\n\nclass {name}(models.Model):\n    parent = models.ForeignKey('self', models.CASCADE, null=True)\n"
    for name in NAMES
)
LOOK = f"""
from django.contrib.auth.models import Permission
for name in {NAMES}:
    for act in ("add", "change", "delete", "view"):
        found = Permission.objects.get(codename=act + "_" + name.lower())
        print(found.content_type.app_label, end=" ")
print(Job._meta.label, Queue._meta.label, Event._meta.label, Schedule._meta.label, Worker._meta.label)
"""


def test_models_of_the_project_keep_their_permissions_and_their_names(new_project: Callable[[], NewProject]) -> None:
    project = new_project()
    project.follow_the_readme()
    project.write("shop/models.py", MODELS)
    project.manage("makemigrations", "shop", "-v", "0")
    project.manage("migrate", "-v", "0")
    said = project.shell(LOOK).stdout.split()
    assert said == ["shop"] * 4 * len(NAMES) + [f"shop.{name}" for name in NAMES]
    assert "no issues" in project.manage("check", "--database", "default", "--fail-level", "WARNING").stdout
    project.shell("from shop.tasks import send_invoice; send_invoice.enqueue(7)")
    assert "COMPLETED" in project.manage("pulse_worker", "--burst").stderr
