"""The kind of all migrations of Pulse: on other databases than PostgreSQL they do nothing.

A project that tests on SQLite migrates all its apps. It has no tables of Pulse there, and its own tests run.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations


class PostgresMigration(migrations.Migration):
    def apply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if schema_editor.connection.vendor == "postgresql":
            return super().apply(project_state, schema_editor, collect_sql)
        return self.mutate_state(project_state, preserve=False)

    def unapply(self, project_state: Any, schema_editor: Any, collect_sql: bool = False) -> Any:
        if schema_editor.connection.vendor == "postgresql":
            return super().unapply(project_state, schema_editor, collect_sql)
        return project_state
