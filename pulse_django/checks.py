"""System checks with stable ids. They report problems of the setup before they do harm.

| id | meaning |
|---|---|
| ``pulse_django.E001`` | ``PULSE`` is not a dict |
| ``pulse_django.E002`` | unknown setting |
| ``pulse_django.E003`` | a setting has the wrong type |
| ``pulse_django.E004`` | a setting is out of its range |
| ``pulse_django.E005`` | a lease is shorter than two heartbeats |
| ``pulse_django.E006`` | the watchdog interval is longer than a lease |
| ``pulse_django.E008`` | PostgreSQL is older than 15 |
| ``pulse_django.W001`` | a lease is shorter than three heartbeats |
| ``pulse_django.E010`` | ``TASKS`` gives ``PulseBackend`` an option that it does not have |
| ``pulse_django.E011`` | ``ALERTS`` names an unknown condition, or gives a number to one without a threshold |
| ``pulse_django.E012`` | a database-level foreign key refers to jobs or attempts |
| ``pulse_django.E013`` | tasks are encrypted, and ``ENCRYPTION_KEYS`` is empty |
| ``pulse_django.E014`` | tasks are encrypted, and ``cryptography`` is not installed |
| ``pulse_django.E015`` | two tasks declare limits of the same name with different numbers |
| ``pulse_django.E016`` | ``SHARDS``, ``QUEUE_SHARDS`` or ``PLACEMENT`` names an invalid database or function |
| ``pulse_django.E017`` | the ids of a shard do not begin with its number |
| ``pulse_django.E018`` | a module with tasks cannot be imported |
| ``pulse_django.E020`` | ``MIDDLEWARE`` names an object that cannot be imported or called |
| ``pulse_django.E021`` | ``ROUTES`` names an invalid function, or a queue that ``TASKS`` does not allow |
| ``pulse_django.W003`` | ``synchronous_commit`` is off, or the default isolation is not READ COMMITTED |
| ``pulse_django.W005`` | a module declares tasks, and no worker imports it |
| ``pulse_django.W006`` | the tables are missing, or older than this code: run ``migrate`` |
| ``pulse_django.W007`` | ``TASKS`` has no ``PulseBackend``: tasks run elsewhere, by default at once in the caller |
| ``pulse_django.W008`` | the jobs are stored in another database than the project's data: no transaction spans both |
| ``pulse_django.W009`` | a declared schedule does not fit its task |
| ``pulse_django.W010`` | two declared schedules have the same name |
| ``pulse_django.W011`` | the jobs are stored in a database that is not PostgreSQL, as in tests with SQLite |
| ``pulse_django.W012`` | a module with tasks cannot be imported now, because it queries the database |
| ``pulse_django.W013`` | ``ROUTES`` shows arguments that the declaration of a task hides |
| ``pulse_django.W014`` | settings of Celery are left, and nothing imports Celery |
| ``pulse_django.W002`` | ``fsync`` or ``full_page_writes`` is off: a crash of the server loses acknowledged jobs |
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from traceback import walk_tb
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router
from django.db.models import ForeignKey

from . import conf
from .backend import PulseBackend
from .encryption.values import INSTALL, encrypts, is_available
from .limits.keys import declared_limits
from .models import Attempt, Job, StoredAttempt
from .queue.words.documentation import page
from .queue.words.payloads import error_in_one_line
from .run.middleware import configured
from .run.registry import InvalidTask, modules_that_declare_tasks, registry, task_backends
from .run.routes import routing
from .shards.placement import placement, routers_alias, where_the_data_is, why_not_one_transaction

HINT_POSTGRESQL = (
    "Point DATABASES (or a router's db_for_write for pulse_django) at PostgreSQL 15 or newer, "
    "with the engine django.db.backends.postgresql."
)


def check_settings(**_: Any) -> list[CheckMessage]:
    _parsed, problems = conf.parse(getattr(settings, conf.SETTING, {}))
    return [
        (Error if problem.is_error else Warning)(problem.message, hint=problem.hint, id=problem.id)
        for problem in problems
    ]


def _readable() -> conf.PulseSettings | None:
    """Return the settings. None: they cannot be read, which check_settings reports."""
    parsed, problems = conf.parse(getattr(settings, conf.SETTING, {}))
    return None if any(problem.is_error for problem in problems) else parsed


def check_middleware(**_: Any) -> list[CheckMessage]:
    """Load the middleware as a worker does."""
    if _readable() is None:
        return []
    try:
        configured()
    except ImproperlyConfigured as error:
        hint = "Each entry must be a context manager: a class, or a function decorated with contextlib.contextmanager."
        return [Error(f"{error}.", hint=hint, id="pulse_django.E020")]
    return []


def check_routes(**_: Any) -> list[CheckMessage]:
    """Load the function that routes tasks, or find routes to queues that no backend allows."""
    if (parsed := _readable()) is None:
        return []
    if not isinstance(parsed.routes, Mapping):
        try:
            routing(parsed.routes)
        except ImproperlyConfigured as error:
            hint = "Name a function that takes the name of a task and returns a dict of options, or None."
            return [Error(f"{error}.", hint=hint, id="pulse_django.E021")]
        return []
    allowed = [one.queues for alias in task_backends if isinstance(one := task_backends[alias], PulseBackend)]
    if not all(allowed):  # one of them allows any queue
        return []
    return [
        Error(
            f"PULSE['ROUTES'] sends {pattern!r} to the queue {queue!r}, which TASKS does not allow.",
            hint=f'Add {queue!r} to QUEUES in TASKS, or set "QUEUES": [] to allow all.',
            id="pulse_django.E021",
        )
        for pattern, route in parsed.routes.items()
        if (queue := route.get("queue_name")) is not None and not any(queue in queues for queues in allowed)
    ]


def check_hidden(**_: Any) -> list[CheckMessage]:
    """Warn about routes that show arguments which the declaration of the task hides."""
    if _readable() is None:
        return []
    with registry.discovered():
        shown = [(key, option) for key in registry for option in getattr(registry.get(key), "_shown_by_route", ())]
    return [
        Warning(
            f"PULSE['ROUTES'] takes {option!r} away from the task {key!r}, which hides arguments by it.",
            hint=f"Remove {option!r} from the route, unless everybody who sees jobs may see these arguments.",
            id="pulse_django.W013",
        )
        for key, option in shown
    ]


def check_foreign_keys(**_: Any) -> list[CheckMessage]:
    """Refuse foreign keys that the database cannot have, because the rows of jobs move between partitions."""
    return [
        Error(
            f"{model._meta.label}.{field.name} refers to {field.remote_field.model._meta.label}, whose rows move "
            "between partitions: the database cannot have this foreign key.",
            hint="Set db_constraint=False, and handle jobs that were deleted after their retention time.",
            obj=field,
            id="pulse_django.E012",
        )
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.local_fields
        if isinstance(field, ForeignKey)
        and not isinstance(field.remote_field.model, str)  # the model does not exist: fields.E300
        and field.db_constraint  # type: ignore[attr-defined]  # the stubs have no such attribute
        and field.remote_field.model._meta.concrete_model in (Job, Attempt, StoredAttempt)
    ]


def check_vendor(**_: Any) -> list[CheckMessage]:
    """Warn about other databases without connecting to them. It is no error: tests may use one."""
    return [
        Warning(
            f"Pulse stores its jobs in database {alias!r}, which is {vendor}, not PostgreSQL: migrations do nothing "
            "there, enqueue() raises an error, and workers do not start.",
            hint=f"{HINT_POSTGRESQL} For tests in another database, set another backend in TASKS.",
            id="pulse_django.W011",
        )
        for alias in known_shards()
        if (vendor := connections[alias].vendor) != "postgresql"
    ]


def check_shards(**_: Any) -> list[CheckMessage]:
    """Check the settings of shards without connecting to their databases."""
    if (parsed := _readable()) is None or not parsed.shards:
        return []
    found: list[CheckMessage] = []
    for alias in parsed.shards:
        if alias not in connections:
            hint = "Add it to DATABASES, or remove it from SHARDS if it stores no jobs."
            message = f"SHARDS names {alias!r}, which is not in DATABASES."
            found.append(Error(message, hint=hint, id="pulse_django.E016"))
        elif not router.allow_migrate_model(alias, Job):
            hint = "Let allow_migrate() of the router return True or None for pulse_django there."
            found.append(Error(f"The router forbids jobs in shard {alias!r}.", hint=hint, id="pulse_django.E016"))
    if routers_alias() not in parsed.shards:
        message = f"SHARDS does not name {routers_alias()!r}, to which the router sends calls without a shard."
        found.append(Error(message, hint=f"Add {routers_alias()!r}: 0 to SHARDS.", id="pulse_django.E016"))
    try:
        placement()
    except ImproperlyConfigured as error:
        found.append(Error(f"{error}.", hint=None, id="pulse_django.E016"))
    return found


def known_shards() -> dict[str, int | None]:
    """Return the databases with jobs and their numbers, or the router's database if the settings are unreadable."""
    if (parsed := _readable()) is None:
        return {routers_alias(): None}
    return {alias: number for alias, number in (parsed.shards or {routers_alias(): 0}).items() if alias in connections}


def check_data(**_: Any) -> list[CheckMessage]:
    """Warn if jobs cannot join the transactions of the project's data.

    With the placement ``where_the_data_is``, it is enough that the shards store data.
    """
    parsed, _problems = conf.parse(getattr(settings, conf.SETTING, {}))
    if parsed.placement == where_the_data_is.__name__:
        return []
    return [
        Warning(
            f"{problem}: enqueue() does not join their transactions, and atomic=True and context.atomic() raise an "
            f"error.",
            hint="Store the jobs in the same database. If the separation is intended, add this check to "
            f"SILENCED_SYSTEM_CHECKS and see {page('how-to/several-databases.md')}.",
            id="pulse_django.W008",
        )
        for alias in known_shards()
        if (problem := why_not_one_transaction(alias))
    ]


def check_backend(**_: Any) -> list[CheckMessage]:
    """Warn if Pulse is installed but no backend uses it."""
    backends = {alias: task_backends[alias] for alias in task_backends}
    if any(isinstance(backend, PulseBackend) for backend in backends.values()):
        return []
    used = ", ".join(f"{alias!r} is {type(backend).__name__}" for alias, backend in backends.items())
    return [
        Warning(
            f"TASKS has no PulseBackend ({used}): enqueue() creates no jobs, and workers have nothing to run.",
            hint='Set TASKS = {"default": {"BACKEND": "pulse_django.backend.PulseBackend"}}.',
            id="pulse_django.W007",
        )
    ]


def check_celery(**_: Any) -> list[CheckMessage]:
    """Name settings of Celery that nothing reads any more."""
    if "celery" in sys.modules or "pulse_django.celery" in settings.INSTALLED_APPS:
        return []
    left = [name for name in dir(settings) if name.startswith("CELERY_")]
    hint = f"Remove them. For what to set instead, see {page('how-to/from-celery.md')}."
    message = f"Nothing reads these settings of Celery: {', '.join(left)}."
    return [Warning(message, hint=hint, id="pulse_django.W014")] if left else []


def check_tasks(**_: Any) -> list[CheckMessage]:
    """Name modules with tasks that cannot be imported. If there are none, name those that a worker does not import."""
    if _readable() is None:
        return []
    with registry.discovered() as errors:
        lost = [] if errors else [one for one in modules_that_declare_tasks() if one not in sys.modules]
    hint = "Declare them in the tasks.py of an installed app, or name the module in PULSE['TASK_MODULES']."
    return [_why_not_imported(module, error) for module, error in errors.items()] + [
        Warning(
            f"{module} declares tasks, but workers do not import it: its jobs would not run.",
            hint=hint,
            id="pulse_django.W005",
        )
        for module in lost
    ]


def _why_not_imported(module: str, error: Exception) -> CheckMessage:
    code = [(frame, line) for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_name == "<module>"]
    line = f" ({code[-1][0].f_code.co_filename}, line {code[-1][1]})" if code else ""
    app = apps.get_containing_app_config(module)
    of_app = f" of app {app.label}" if app is not None else ""
    message = f"{module}{of_app} cannot be imported: {type(error).__name__}: {error_in_one_line(error)}{line}."
    if isinstance(error, DatabaseError):  # a warning: an error would stop migrate
        hint = "Query the database when a task runs, not when its module is imported. Workers do not start until then."
        return Warning(message, hint=hint, id="pulse_django.W012")
    return Error(message, hint="Workers do not start until it can be imported.", id="pulse_django.E018")


def check_limits(**_: Any) -> list[CheckMessage]:
    """Refuse limits that two tasks declare differently."""
    if _readable() is None:
        return []
    try:
        with registry.discovered():
            declared_limits()
    except InvalidTask as error:
        hint = "Declare it once, and give the same Limit to both tasks."
        return [Error(str(error), hint=hint, id="pulse_django.E015")]
    return []


def check_encryption(**_: Any) -> list[CheckMessage]:
    """Refuse encrypted tasks without keys or without ``cryptography``."""
    if (parsed := _readable()) is None:
        return []
    with registry.discovered():
        keys = [key for key in registry if (task := registry.get(key)) is not None and encrypts(task)]
    if not keys and not parsed.encrypt_all:
        return []
    tasks = f"{keys[0]!r} is" if len(keys) == 1 else f"{len(keys)} tasks are" if keys else "All tasks are"
    found: list[CheckMessage] = []
    if not parsed.encryption_keys:
        hint = 'Make a key with "openssl rand -base64 32", and set PULSE["ENCRYPTION_KEYS"] = {"<id>": "<key>"}.'
        message = f"{tasks} encrypted, but PULSE['ENCRYPTION_KEYS'] is empty: enqueue() raises an error."
        found.append(Error(message, hint=hint, id="pulse_django.E013"))
    if not is_available():
        message = f"{tasks} encrypted, but cryptography is not installed: enqueue() raises an error."
        found.append(Error(message, hint=f"Run: {INSTALL}", id="pulse_django.E014"))
    return found
