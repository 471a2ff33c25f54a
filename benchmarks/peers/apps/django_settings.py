"""Settings of the peers that need Django: one database, connections that are kept, and what the peer adds."""

import importlib
import os

import psycopg.conninfo

_parts = psycopg.conninfo.conninfo_to_dict(os.environ["BENCH_DSN"])
SECRET_KEY = "only-for-a-measurement"
USE_TZ = True
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _parts["dbname"],
        "USER": _parts.get("user", ""),
        "PASSWORD": _parts.get("password", ""),
        "HOST": _parts.get("host", ""),
        "PORT": _parts.get("port", ""),
        "CONN_MAX_AGE": None,
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
INSTALLED_APPS = ["django.contrib.contenttypes"]
globals().update(importlib.import_module(os.environ["BENCH_SETTINGS"]).added(INSTALLED_APPS))
