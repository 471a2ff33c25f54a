"""What the peers that need Django have in common. Import this before any model."""

from __future__ import annotations

import os
import sys

from side import Side

MANAGE = (
    "import sys; from django.core.management import execute_from_command_line as run; run(['manage.py', *sys.argv[1:]])"
)


def begin(settings: str) -> None:
    """Set Django up with what this module of settings adds, unless a worker has done it."""
    os.environ["BENCH_SETTINGS"] = settings
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "django_settings")
    import django
    from django.apps import apps

    if not apps.ready and not apps.loading:
        django.setup()


class DjangoSide(Side):
    def install(self) -> None:
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        import rows

        rows.make_table()

    def manage(self, *arguments: str) -> None:
        """Become this command of manage.py."""
        os.execv(sys.executable, [sys.executable, "-c", MANAGE, *arguments])
