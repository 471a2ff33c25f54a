"""Write down the options of declared tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pulse_django.queue.database.transactions import Table, TableManager, run_joined
from pulse_django.queue.declarations import MAX_SCOPE, Declarer, declare_once

_DECLARE = """
INSERT INTO pulse_django_declared_task AS task (name, options, declared_in)
SELECT name, options, %s
FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::jsonb[])) AS declared (name, options)
ORDER BY name
ON CONFLICT (name) DO UPDATE SET options = excluded.options, declared_in = excluded.declared_in
RETURNING name
"""
_FORGET = """
DELETE FROM pulse_django_declared_task
WHERE declared_in::text = %s AND name::text <> ALL (%s::text[])
RETURNING name
"""


class DeclaredTaskManager(TableManager[Table]):
    def declare(self, declarer: Declarer, tasks: Mapping[str, Mapping[str, Any]], *, silence: timedelta) -> bool:
        """Store the tasks of this code, unless a worker that started later has declared. Return whether it did."""
        alias, scope, names = self.write_alias, declarer.scope, list(tasks)

        def store() -> None:
            texts = [json.dumps(options, sort_keys=True) for options in tasks.values()]
            run_joined(alias, _DECLARE, [scope, names, texts])
            run_joined(alias, _FORGET, [scope, names])

        return declare_once(
            alias,
            declarer._replace(scope=f"tasks:{scope}"[:MAX_SCOPE]),
            tasks,
            silence=silence,
            stored=self.using(alias).filter(name__in=names).count,
            store=store,
        )
