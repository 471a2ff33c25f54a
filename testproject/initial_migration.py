"""``make initial``: write the one migration anew, from the models and ``pulse_django/migrations/_schema.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import django
from django.apps import apps
from django.db.migrations import Migration, RunPython
from django.db.migrations.operations import CreateModel
from django.db.migrations.state import ModelState
from django.db.migrations.writer import MigrationWriter
from django.db.models import Model
from django.utils import translation

APP = "pulse_django"
DOCSTRING = '"""All tables. ``make initial`` writes this file: change the models, or ``_schema.py``."""\n\n'
IMPORT = "from pulse_django.migrations._postgresql import PostgresMigration\n"


def text() -> str:
    """Return the migration as Python, not yet formatted."""
    from pulse_django.migrations import _days, _schema

    class Initial(Migration):
        initial = True
        operations = [
            RunPython(_days.refuse_distributed_schema, RunPython.noop),
            *(creation_of(model) for model in apps.get_app_config(APP).get_models()),  # in the order of the classes
            RunPython(_schema.complete, _schema.undo),
        ]

    written = MigrationWriter(Initial("0001_initial", APP), include_header=False).as_string()
    return DOCSTRING + IMPORT + written.replace("(migrations.Migration)", "(PostgresMigration)")


def creation_of(model: type[Model]) -> CreateModel:
    """Return what makes a table with its columns in the order of the model, and with its indexes and constraints."""
    state = ModelState.from_model(model)
    options = {name: value for name, value in state.options.items() if value not in ([], {})}
    return CreateModel(state.name, list(state.fields.items()), options, state.bases, state.managers)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    django.setup()
    path = Path(apps.get_app_config(APP).path) / "migrations" / "0001_initial.py"
    with translation.override(None):
        path.write_text(text())
    for command in (["format", "--quiet"], ["check", "--fix", "--quiet", "--select", "I,UP"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, str(path)], check=True)  # noqa: S603 - our own file


if __name__ == "__main__":
    main()
