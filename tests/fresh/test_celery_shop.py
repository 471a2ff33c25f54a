"""The shop ported from Celery: its tests pass in a new project, real workers run it, nothing is left out."""

from __future__ import annotations

import ast
from collections.abc import Callable

import django

from testproject.new_project import ROOT, NewProject

SHOP = ROOT / "examples/celery_shop"


def ported(new_project: Callable[[], NewProject]) -> NewProject:
    project = new_project()
    project.follow_the_readme()
    for path in (SHOP / "after/shop").glob("*.py"):
        project.write(f"shop/{path.name}", path.read_text())
    project.manage("makemigrations", "shop", "-v", "0")
    project.manage("migrate", "-v", "0")
    return project


def test_its_tests_pass_and_workers_run_it(new_project: Callable[[], NewProject]) -> None:
    project = ported(new_project)
    assert "Ran 6 tests" in project.manage("test", "shop").stderr
    backend = '"django.core.mail.backends.locmem.EmailBackend"'
    mailers = f'MAILERS = {{"default": {{"BACKEND": {backend}}}}}'
    project.settings(mailers if django.VERSION >= (6, 1) else f"EMAIL_BACKEND = {backend}")
    project.shell(
        "from shop.models import Order; from shop.tasks import place_order, refresh_prices;"
        "place_order(Order.objects.create(email='ada@example.com').pk); refresh_prices.enqueue()"
    )
    project.manage("pulse_worker", "--burst")
    assert project.ask("SELECT status FROM shop_order") == [("shipped",)]
    assert project.ask("SELECT count(*) FROM shop_charge") == [(1,)]
    [[cheapest]] = project.ask("SELECT result FROM pulse_django_job WHERE node = 'choose_cheapest'")
    assert cheapest == "west"
    assert project.ask("SELECT count(*) FROM pulse_django_job WHERE status <> 'COMPLETED'") == [(0,)]


def functions(path: str) -> set[str]:
    tree = ast.parse((SHOP / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def decorated(path: str, name: str) -> set[str]:
    """The functions that this decorator, with or without arguments, makes tasks."""
    tree = ast.parse((SHOP / path).read_text())
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            for one in node.decorator_list:
                called = one.func if isinstance(one, ast.Call) else one
                if isinstance(called, ast.Name) and called.id == name:
                    found.add(node.name)
    return found


def test_each_task_and_each_view_has_its_counterpart() -> None:
    tasks = decorated("before/shop/tasks.py", "shared_task")
    assert len(tasks) == 7
    assert decorated("after/shop/tasks.py", "task") == tasks
    for path in ("shop/views.py", "shop/suppliers.py"):
        assert functions(f"before/{path}") == functions(f"after/{path}")
    assert functions("after/shop/tasks.py") - tasks == {"place_order", "remind", "take_money"}
    assert functions("before/shop/tasks.py") - tasks == {"place_order", "remind"}


def test_the_how_to_names_every_task_and_file() -> None:
    page = (ROOT / "docs/how-to/from-celery.md").read_text()
    for name in decorated("before/shop/tasks.py", "shared_task"):
        assert f"`{name}`" in page, name
    for path in SHOP.glob("before/**/*.py"):
        assert path.relative_to(SHOP / "before").as_posix() in page, path
