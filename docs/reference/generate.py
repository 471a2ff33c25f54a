"""Writes the reference pages from the code: ``python docs/reference/generate.py``. A test holds them together."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from argparse import SUPPRESS, Action
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()

from django.core.management import BaseCommand, load_command_class

import pulse_django
from pulse_django import api, checks, conf, exceptions, pytest_plugin, signals, tasks, testing
from pulse_django.amendments.amend import Amended
from pulse_django.chunks import chunk
from pulse_django.health import explanation
from pulse_django.health.conditions import Severity, known
from pulse_django.health.explanation import reasons
from pulse_django.limits import rules as limiting
from pulse_django.limits.limiters import LimiterManager
from pulse_django.managers import ScheduleManager
from pulse_django.metrics import vital_signs
from pulse_django.on_dead import hooks
from pulse_django.pauses import pausing as pauses
from pulse_django.queue.words import retry_policies, verb_results
from pulse_django.queue.words.options import OPTIONS
from pulse_django.run import context, fencing, job_progress, results
from pulse_django.testing.fake_context import Recorded
from pulse_django.unique import rule as uniqueness
from pulse_django.workflows import durable_steps, rewind, waits

OF_BATCHES = (
    *("open", "get", "add", "add_many", "seal", "progress", "cancel", "pause", "resume", "context", "jobs", "row"),
)
FIRST_OPTIONS = ("queue_name", "max_attempts", "retry", "schedule", "unique")  # that a beginner needs
GENERATED = "<!-- Made by docs/reference/generate.py from the code; change it there. -->\n\n"


def pages() -> dict[str, str]:
    """The text of every page, by file name."""
    return {
        "settings.md": settings_page(),
        "task-options.md": options_page(),
        "checks.md": checks_page(),
        "vital-signs.md": signs_page(),
        "conditions.md": conditions_page(),
        "python.md": python_page(),
        "commands.md": commands_page(),
        "testing.md": testing_page(),
    }


def settings_page() -> str:
    said = comments_above(conf.__file__, "PulseSettings")
    default = conf.PulseSettings()
    lines = [
        "# Settings\n",
        GENERATED,
        "One dict, `PULSE`, in your settings. Durations are seconds or a `timedelta`.\n",
    ]
    lines += [
        "[System checks](checks.md) report all problems at once.\n",
        "\n| setting | default | allowed | meaning |\n",
    ]
    lines += ["|---|---|---|---|\n"]
    for field, meaning in said.items():
        allowed = conf.RANGES.get(field)
        span = f"{show(allowed.least)} to {show(allowed.most)}" if allowed else "any"
        lines.append(f"| `{field.upper()}` | {show(getattr(default, field))} | {span} | {meaning} |\n")
    return "".join(lines)


def signs_page() -> str:
    lines = [
        "# Vital signs\n",
        GENERATED,
        "Prometheus puts `pulse_` before each name. Counters and histograms move once a\n",
        "minute, when a worker writes it; gauges show the current value.\n",
    ]
    for title, signs in (("The main ones", vital_signs.THE_EIGHT), ("Beside them", vital_signs.BESIDE_THEM)):
        lines += [f"\n## {title}\n", "\n| name | kind | labels | meaning | when it moves |\n"]
        lines += ["|---|---|---|---|---|\n"]
        for one in signs:
            labels = ", ".join(f"`{label}`" for label in one.labels)
            lines.append(f"| `{one.name}` | {one.kind} | {labels} | {one.means} | {one.to_do} |\n")
    return "".join(lines)


def conditions_page() -> str:
    lines = [
        "# Conditions\n",
        GENERATED,
        "What can be wrong with a fleet. `pulse_status`, `pulse_check`, `pulse_check --all`, the health view, the\n",
        "board, the alerts and the metrics all use this catalogue, so they give the same answer.\n",
        "`pulse_check --advice` also has the warnings and hints, which no other outlet checks.\n",
        "`ALERTS` sets the thresholds and which conditions raise [alerts](../how-to/alerts.md).\n",
        "[Check and repair conditions](../how-to/conditions.md) shows how to use it, and how to add your own.\n",
    ]
    for severity in Severity:
        lines += [f"\n## {severity.value.capitalize()}\n\n{severity.means}\n"]
        lines += [
            "\n| name | when all is well | if not | what to do | allowed | repair |\n",
            "|---|---|---|---|---|---|\n",
        ]
        for one in known(advice=True):
            if one.severity is severity:
                allowed = f"{one.threshold.default:g} {one.threshold.unit}" if one.threshold else ""
                repair = one.repair.says if one.repair else ""
                more = "" if one.page == "reference/conditions.md" else f" [More](../{one.page})"
                to_do = f"{one.to_do}{more}"
                lines.append(f"| `{one.name}` | {one.says} | {one.means} | {to_do} | {allowed} | {repair} |\n")
    return "".join(lines)


def options_page() -> str:
    lines = [
        "# Options of a task\n",
        GENERATED,
        "`@task(...)` takes them for all jobs of the task, `.using(...)` for the jobs that are enqueued with it.\n",
        "Durations are a number of seconds or a `timedelta`, and a single name may stand for a list of one.\n",
        "`@task` also takes `takes_context=True`: the first argument of the function is then its `context`.\n",
        *options_in_table(FIRST_OPTIONS),
        "\n## More options\n",
        *options_in_table([name for name in OPTIONS if name not in FIRST_OPTIONS]),
    ]
    return "".join(lines)


def options_in_table(names: Iterable[str]) -> Iterator[str]:
    yield "\n| option | `@task` | `.using` | default | allowed | meaning |\n|---|---|---|---|---|---|\n"
    for one in map(OPTIONS.__getitem__, names):
        where = " | ".join("yes" if there else "" for there in (one.for_task, one.for_call))
        default = (
            f"the setting `{one.setting_at_enqueue.upper()}`" if one.setting_at_enqueue else show_default(one.default)
        )
        yield f"| `{one.name}` | {where} | {default} | {one.kind.allowed} | {one.help} |\n"


def show_default(value: Any) -> str:
    return "" if value in (None, "", ()) else f"`{value}`"


def checks_page() -> str:
    table = [line.strip() for line in (checks.__doc__ or "").splitlines() if line.startswith("|")]
    rows = sorted(line.replace("``", "`") for line in table[2:])
    body = "\n".join([*table[:2], *rows])
    head = "`manage.py check` runs them; those that ask the server need `--database default`."
    return f"# System checks\n{GENERATED}{head}\n\n{body}\n"


# What Django's own API gives to tasks: Django's versions tell it in words of their own.
FROM_DJANGO = {
    "enqueue(*args, **kwargs)": "Add a job in the caller's transaction and return its result. "
    "Raises `WrongArguments` or `UnsupportedValue`, both a `TypeError`, for a call that could never be made.",
    "await aenqueue(*args, **kwargs)": "The same for async code, which has [no transactions](../how-to/async.md).",
    "get_result(id)": "Return the result of a job of this task. Raises `TaskResultDoesNotExist`, or "
    "`TaskResultMismatch` for a job of another task.",
    "await aget_result(id)": "The same for async code.",
    "call(*args, **kwargs)": "Call the function here and now. No job is made.",
}
OF_A_RUN = {
    "task_result": "The result of this run as Django has it: its arguments, and the errors of earlier runs.",
}
OF_LIMITS = ("override", "pause", "resume")
OF_SCHEDULES = ("create", "change", "follow_code", "pause", "resume")
FUNCTIONS = ("enqueue_many", "get", "result_of_public_id", "jobs", "progress", "cancel", "amend", "retry", "release")
ANSWERS = {
    "cancel": verb_results.CancelRequested,
    "amend": Amended,
    "retry": verb_results.Retried,
    "release": verb_results.Settled,
}


def python_page() -> str:
    return "".join(
        [
            f"# Python API\n{GENERATED}Everything is in `pulse_django`, if nothing else is said. ",
            "[Options of a task](task-options.md) have a page of their own.\n",
            *of_tasks(),
            *of_functions(),
            *of_explanations(),
            *of_contexts(),
            *of_chunks(),
            *of_hooks(),
            *of_workflows(),
            "\n## Unique jobs\n",
            *of_unique(),
            "\n## Limits\n\n[How to use them](../how-to/limits.md).\n",
            *(entry(name, getattr(limiting, name)) for name in ("Limit", "Rate", "Breaker")),
            entry("read_retry_after", retry_policies.read_retry_after),
            *(f"\n### `Limiter.objects.{name}`\n\n{text_of(getattr(LimiterManager, name))}\n" for name in OF_LIMITS),
            *(entry(name, getattr(pauses, name)) for name in ("pause_task", "resume_task")),
            *(entry(name, getattr(pauses, name)) for name in ("pause_queue", "resume_queue")),
            "\n## Pages of your own\n",
            entry("progress_token", job_progress.progress_token),
            "\n## Retry policies\n",
            *(
                entry(name, getattr(retry_policies, name))
                for name in ("retry_on", "retry_unless", "RetryPolicy", "Backoff")
            ),
            *(
                entry(f"Backoff.{name}", getattr(retry_policies.Backoff, name))
                for name in ("fixed", "linear", "exponential")
            ),
            "\n### `UNLIMITED`\n\nA value of `max_attempts`: the job is never given up for its attempts.\n",
            "\n### `NO_RETRIES`\n\nA retry policy: no exception of the handler is retried. A lost worker or a time "
            "limit still runs the job again, up to `max_attempts`. For one run and no more, use "
            "[`at_most_once=True`](../how-to/retries.md#run-at-most-once).\n\n## Fencing\n",
            *(entry(name, getattr(fencing, name)) for name in ("FencedModel", "fenced_update", "fence")),
            "\n## Schedules\n\n[How to use them](../how-to/schedules.md).\n",
            *(entry(name, getattr(pulse_django, name)) for name in ("Cron", "Every", "Schedule")),
            *(
                f"\n### `Schedule.objects.{name}`\n\n{text_of(getattr(ScheduleManager, name))}\n"
                for name in OF_SCHEDULES
            ),
            "\n## Signals\n\nIn `pulse_django.signals`. The sender is `Job`. ",
            "Django's `task_enqueued`, `task_started` and `task_finished` are sent as well.\n\n",
            table_of(signals.__doc__),
            "\n## Exceptions\n\nIn `pulse_django.exceptions`.\n\n| exception | is a | |\n|---|---|---|\n",
            *(f"| `{kind.__name__}` | {bases_of(kind)} | {text_of(kind)} |\n" for kind in raised()),
        ]
    )


def of_tasks() -> list[str]:
    rows = {**FROM_DJANGO, "using(...)": text_of(tasks.PulseTask.using)}
    head = f"\n## A task\n\n`@task` or `@task(...)`: {text_of(tasks.task)}\n\n| of a task | |\n|---|---|\n"
    lines = [head, *(f"| `{name}` | {said} |\n" for name, said in rows.items())]
    of_result = {
        "is_new": comments_beside(results.__file__, "PulseTaskResult")["is_new"],
        "public_id": text_of(results.PulseTaskResult.public_id),
        "wait(timeout)": text_of(results.PulseTaskResult.wait),
        "await await_(timeout)": text_of(results.PulseTaskResult.await_),
    }
    lines.append("\n| of its result, beside what [Django's](../how-to/results.md) has | |\n|---|---|\n")
    return [*lines, *(f"| `{name}` | {said} |\n" for name, said in of_result.items())]


def of_functions() -> list[str]:
    """The functions, and the fields of what they answer."""
    lines = ["\n## Functions\n"]
    for name in FUNCTIONS:
        lines.append(entry(name, getattr(api, name)))
        if name in ANSWERS:
            lines.append("\n| of the answer | |\n|---|---|\n")
            fields = comments_beside(inspect.getfile(ANSWERS[name]), ANSWERS[name].__name__)
            lines += [f"| `{field}` | {said} |\n" for field, said in fields.items()]
    return lines


def of_explanations() -> list[str]:
    """The function, what it answers, and a reason."""
    lines = [entry("explain", explanation.explain)]
    for head, file, kind in (
        ("of the answer, an `Explanation`", explanation, "Explanation"),
        ("of a reason", reasons, "Reason"),
    ):
        lines.append(f"\n| {head} | |\n|---|---|\n")
        lines += [f"| `{name}` | {said} |\n" for name, said in comments_beside(str(file.__file__), kind).items()]
        described = {name: one for name, one in vars(getattr(file, kind)).items() if isinstance(one, property)}
        lines += [f"| `{name}` | {text_of(one)} |\n" for name, one in described.items()]
    return lines


def of_unique() -> list[str]:
    """The rule and its fields."""
    fields = comments_beside(uniqueness.__file__, "Unique")
    rows = [f"| `{field}` | {said} |\n" for field, said in fields.items()]
    return [entry("Unique", uniqueness.Unique), "\n| argument | |\n|---|---|\n", *rows]


def of_contexts() -> list[str]:
    first = "The first argument of a task with `takes_context=True`: a `Context`, for type annotations."
    head = f"\n## Context\n\n{first}\n\n| `context.` | |\n|---|---|\n"
    return [head, *(f"| `{name}` | {said} |\n" for name, said in members_of_context())]


def of_chunks() -> list[str]:
    head = "\n## Chunks\n\n[How to use them](../how-to/chunks.md). Both classes are for type annotations.\n\n"
    rows = [("for job in chunk", "The jobs of a `Chunk`, each of them a `ChunkItem`.")]
    rows += [("job.kwargs", "The arguments of the job."), ("job.is_decided", "Whether the handler has decided it.")]
    rows += [(f"job.{name}", text_of(getattr(chunk.ChunkItem, name))) for name in ("context", "job_id", "attempt")]
    rows += [(f"job.{name}(...)", text_of(getattr(chunk.ChunkItem, name))) for name in ("succeed", "fail")]
    return [head, "| with `chunk=` | |\n|---|---|\n", *(f"| `{name}` | {said} |\n" for name, said in rows)]


def of_hooks() -> list[str]:
    page = "../how-to/retries.md#do-something-when-a-job-dies"
    head = f"\n## Hooks\n\nThe argument of a task that is [`on_dead=` of another]({page}).\n\n"
    rows = comments_beside(hooks.__file__, "DeadJob")
    return [head, "| `DeadJob` | |\n|---|---|\n", *(f"| `{name}` | {said} |\n" for name, said in rows.items())]


def of_workflows() -> list[str]:
    pages = "[How to use them](../how-to/workflows.md), and [steps and events](../how-to/durable-steps.md)."
    lines = [f"\n## Workflows\n\n{pages}\n", entry("Workflow", pulse_django.Workflow)]
    lines += [
        entry(name, getattr(pulse_django, name)) for name in ("chain", "group", "chord", "send_event", "event_link")
    ]
    for kind, names in ((pulse_django.Workflow, ("add", "add_workflow", "enqueue")), (pulse_django.Batch, OF_BATCHES)):
        lines.append(f"\n| `{kind.__name__}.` | |\n|---|---|\n")
        lines += [f"| `{name}` | {text_of(getattr(kind, name))} |\n" for name in names]
    functions = (rewind.preview, rewind.retry_from, rewind.fork)
    lines.append("\nIn `pulse_django.workflows.rewind`:\n")
    return lines + [entry(one.__name__, one) for one in functions]


def members_of_context() -> list[tuple[str, str]]:
    """The public properties and methods, in the order of the source, and what Django's context adds."""
    found = []
    members = {**vars(context.Context), **vars(durable_steps.DurableSteps), **vars(waits.Waits)}
    for name, member in members.items():
        if name.startswith("_") or name == "run":
            continue
        if isinstance(member, property):
            found.append((name, text_of(member)))
        elif inspect.isfunction(member):
            called = inspect.unwrap(member)
            found.append(
                (f"{'await ' if inspect.iscoroutinefunction(called) else ''}{name}{shown(called)}", text_of(called))
            )
    return found + list(OF_A_RUN.items())


def raised() -> list[type[BaseException]]:
    kinds = [one for one in vars(exceptions).values() if isinstance(one, type) and issubclass(one, BaseException)]
    return [one for one in kinds if one.__module__ == exceptions.__name__]


def bases_of(kind: type) -> str:
    return ", ".join(f"`{base.__name__}`" for base in kind.__bases__)


def entry(name: str, described: Any) -> str:
    return f"\n### `{name}{'' if inspect.isclass(described) else shown(described)}`\n\n{text_of(described)}\n"


def shown(function: Any) -> str:
    """A signature without types: the text says what is meant."""
    signature = inspect.signature(function)
    parameters = [one.replace(annotation=one.empty) for one in signature.parameters.values() if one.name != "self"]
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    text = re.sub(r"<\w+\.\w+: ('[^']*')>", r"\1", text)  # a member of an enumeration is given as its value
    return re.sub(r"datetime\.timedelta\((0?)\)", "timedelta()", text)


def text_of(described: Any) -> str:
    said = inspect.getdoc(described)
    if not said:
        raise SystemExit(f"{described!r} has no docstring, and would have no line in the reference")
    return " ".join(said.replace("``", "`").split())


def table_of(text: str | None) -> str:
    return "".join(f"{line.replace('``', '`')}\n" for line in (text or "").splitlines() if line.startswith("|"))


def testing_page() -> str:
    """What ``pulse_django.testing`` exports, in the order in which its docstring names it, and the fixtures."""
    tables = {
        "drain": ("of each run, a `Ran`", testing.Ran),
        "run_schedules": ("of each tick, a `Fired`", testing.Fired),
        "fake_context": ("of `context.recorded`", Recorded),
    }
    head = "Everything is in `pulse_django.testing`. [How to use it](../how-to/testing.md).\n"
    lines = ["# Test helpers\n", GENERATED, head, "\n`job` is a `Job`, a `TaskResult`, or the id of one.\n"]
    for name in re.findall(r"^(\w+)\(", testing.__doc__ or "", re.MULTILINE):
        lines.append(entry(name, getattr(testing, name)))
        if name in tables:
            what, kind = tables[name]
            fields = comments_beside(inspect.getfile(kind), kind.__name__)
            lines += [f"\n| {what} | |\n|---|---|\n", *(f"| `{field}` | {said} |\n" for field, said in fields.items())]
        if name == "Zombie":
            lines.append("\n| of a `Zombie` | |\n|---|---|\n")
            methods = (testing.Zombie.freeze, testing.Zombie.report)
            lines += [f"| `{one.__name__}{shown(one)}` | {text_of(one)} |\n" for one in methods]
    lines += [entry("DrainLimit", testing.DrainLimit), "\n## Fixtures of pytest\n\n"]
    lines += [f"{text_of(pytest_plugin)}\n\n| fixture | |\n|---|---|\n"]
    fixtures = [(name, text_of(getattr(pytest_plugin, name))) for name in sorted(pytest_plugin.FIXTURES)]
    return "".join([*lines, *(f"| `{name}` | {said} |\n" for name, said in fixtures)])


def commands_page() -> str:
    folder = Path(pulse_django.__file__).parent / "management" / "commands"
    lines = ["# Commands\n", GENERATED, "Django's own options, such as `--settings`, are left out.\n"]
    common = {option for one in BaseCommand().create_parser("", "")._actions for option in one.option_strings}
    for name in sorted(path.stem for path in folder.glob("pulse_*.py")):
        command = load_command_class("pulse_django", name)
        lines.append(f"\n## {name}\n\n{command.help}\n\n| option | |\n|---|---|\n")
        for action in command.create_parser("manage.py", name)._actions:
            if action.help != SUPPRESS and not common.intersection(action.option_strings):
                lines.append(f"| `{option_of(action)}` | {' '.join((action.help or '').split()).replace('|', '/')} |\n")
    return "".join(lines)


def option_of(action: Action) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return ", ".join(action.option_strings) + value


def comments_above(file: str, name: str) -> dict[str, str]:
    lines, fields = class_body(file, name)
    return {field: " ".join(above(lines, line)) for field, line in fields.items()}


def comments_beside(file: str, name: str) -> dict[str, str]:
    lines, fields = class_body(file, name)
    return {field: lines[line - 1].partition("  # ")[2].replace("``", "`") for field, line in fields.items()}


def class_body(file: str, name: str) -> tuple[list[str], dict[str, int]]:
    source = Path(file).read_text()
    [body] = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name]
    fields = {
        node.target.id: node.lineno
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return source.splitlines(), fields


def above(lines: list[str], line: int) -> list[str]:
    found: list[str] = []
    while lines[line - 2].strip().startswith("#"):
        found.insert(0, lines[line - 2].strip(" #"))
        line -= 1
    return found


def show(value: Any) -> str:
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
        for unit, length in (("d", 86_400), ("h", 3_600)):
            if seconds >= length and seconds % length == 0:
                return f"{seconds / length:g} {unit}"
        return f"{seconds:g} s"
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return "none" if value == () else f"{value:,}" if is_number else str(value)


if __name__ == "__main__":
    for page, text in pages().items():
        (ROOT / "docs" / "reference" / page).write_text(text)
