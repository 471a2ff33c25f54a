"""Settings of the test project. DATABASE_URL wins; without it a PostgreSQL is started for nothing."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import environ  # type: ignore[import-untyped]  # it ships no types

from pulse_django.embedded.programs import NoPostgresError
from testproject.postgres import ensure_running

env = environ.Env()


def database_url() -> str:
    """Choose the database: DATABASE_URL, else none for tools that only read the settings, else our own."""
    if url := os.environ.get("DATABASE_URL"):
        return url
    if env.bool("PULSE_NO_SERVER", default=False):
        return "postgres://postgres@/pulse?host=/nonexistent"
    try:
        return ensure_running()
    except NoPostgresError as error:  # it says what to do, and a traceback would hide it
        raise SystemExit(f"{error} Or set DATABASE_URL.") from None


def database(url: str) -> dict[str, Any]:
    """Turn a URL into Django's terms.

    The folder of a socket comes as the option `host`; under HOST `manage.py dbshell` finds it too. An option
    of a URL is never a boolean, which the connection pool wants, so DB_POOL asks for the pool.
    """
    config: dict[str, Any] = env.db_url_config(url)
    options = config.setdefault("OPTIONS", {})
    config["HOST"] = options.pop("host", config["HOST"])
    config["PORT"] = options.pop("port", config["PORT"])
    if env.bool("DB_POOL", default=False):
        options["pool"] = True
    return config


BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = env.str("SECRET_KEY", default="only-for-development")
DEBUG = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "pulse_django",
    "testproject.shop",
]

if importlib.util.find_spec("django.tasks") is None:  # before Django 6.0
    INSTALLED_APPS.append("django_tasks")

# A theme of the admin, whose templates and styles come before Django's: unfold, jazzmin or grappelli.
if THEME := env.str("PULSE_TEST_THEME", default=""):
    INSTALLED_APPS.insert(0, THEME)

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": database(database_url())}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "testproject.urls"
STATIC_URL = "static/"
LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

MAILERS = {"default": {"BACKEND": "django.core.mail.backends.console.EmailBackend"}}  # since Django 6.1

TASKS = {"default": {"BACKEND": "pulse_django.backend.PulseBackend"}}
PULSE: dict[str, Any] = env.json("PULSE", default={})
