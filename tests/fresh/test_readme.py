"""What the README says works in a project that was made from the README and nothing else."""

from __future__ import annotations

from testproject.new_project import NewProject


def test_the_project_has_no_problem(readme_project: NewProject) -> None:
    done = readme_project.manage("check", "--database", "default", "--fail-level", "WARNING")
    assert "no issues" in done.stdout


def test_its_example_runs_in_a_worker(readme_project: NewProject) -> None:
    readme_project.shell("from shop.tasks import send_invoice\nsend_invoice.enqueue(7)")
    worker = readme_project.manage("pulse_worker", "--burst")
    assert "the invoice of order 7" in worker.stdout
    assert "COMPLETED" in worker.stderr
    assert readme_project.ask("SELECT status FROM pulse_django_job") == [("COMPLETED",)]


def test_any_queue_may_be_used(readme_project: NewProject) -> None:
    code = 'from pulse_django import task\n\n\n@task(queue_name="mail")\ndef send(number):\n    return number\n'
    readme_project.write("shop/mail.py", code)
    said = readme_project.shell(
        "from shop.mail import send\n"
        "print(send.enqueue(1).task.queue_name, send.using(queue_name='letters').enqueue(2).task.queue_name)"
    ).stdout
    (readme_project.folder / "shop/mail.py").unlink()
    assert said.split() == ["mail", "letters"]
    assert readme_project.ask("SELECT queue FROM pulse_django_job WHERE task = 'shop.mail.send' ORDER BY id") == [
        ("mail",),
        ("letters",),
    ]
