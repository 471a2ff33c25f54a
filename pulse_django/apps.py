"""The app configuration: name, checks and signals. It does not use the database."""

from django.apps import AppConfig, apps
from django.conf import settings
from django.core import checks
from django.core.signals import setting_changed
from django.db import connections
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

from . import conf


class PulseConfig(AppConfig):
    name = "pulse_django"
    verbose_name = _("Pulse")
    default_auto_field = "django.db.models.BigAutoField"

    def import_models(self) -> None:
        """Install the capabilities with the models, because the ``ready()`` of another app may enqueue."""
        super().import_models()
        from . import capabilities

        capabilities.install()

    def ready(self) -> None:
        from .checks import (
            check_backend,
            check_celery,
            check_data,
            check_encryption,
            check_foreign_keys,
            check_hidden,
            check_limits,
            check_middleware,
            check_routes,
            check_settings,
            check_shards,
            check_tasks,
            check_vendor,
        )
        from .database_checks import check_database
        from .health.conditions.checks import check_alerts
        from .models import Schedule
        from .run.registry import registry
        from .schedules.declarations import check_call, check_schedules

        for model in self.get_models():
            # In other databases, the migrations do nothing, and test runners do not serialise these models.
            model._meta.required_db_vendor = "postgresql"
        Schedule.check_call = check_call
        if apps.is_installed("django.contrib.admin"):
            registry.own_modules.append("pulse_django.console.mass.work")
        checks.register(check_settings)
        checks.register(check_middleware)
        checks.register(check_routes)
        checks.register(check_foreign_keys, checks.Tags.models)
        checks.register(check_alerts)
        checks.register(check_vendor)
        checks.register(check_shards)
        checks.register(check_tasks)
        checks.register(check_encryption)
        checks.register(check_hidden)
        checks.register(check_limits)
        checks.register(check_schedules)
        checks.register(check_backend)
        checks.register(check_celery)
        checks.register(check_data)
        checks.register(check_database, checks.Tags.database)
        setting_changed.connect(conf.forget)
        post_migrate.connect(_number_ids, sender=self)
        if conf.parse(getattr(settings, conf.SETTING, {}))[0].opentelemetry:  # even with other problems in it
            from .metrics.exporters.opentelemetry import follow_jobs

            follow_jobs()


def _number_ids(*, using: str, **_: object) -> None:
    """After ``migrate``, raise the ids of a database to the number of its shard."""
    from .shards.ids import number_ids

    shard_number = conf.current().shards.get(using, 0)
    if shard_number and connections[using].vendor == "postgresql":
        number_ids(using, shard_number)
