"""The test project with admins and a mail server, of which the environment says where it is."""

import os

import django

from testproject.settings import *  # noqa: F403

DEBUG = False
ADMINS = ["ops@example.com"] if django.VERSION >= (6,) else [("ops", "ops@example.com")]
_PORT = int(os.environ["PULSE_TEST_MAIL_PORT"])
if django.VERSION >= (6, 1):
    _SMTP = "django.core.mail.backends.smtp.EmailBackend"
    MAILERS = {"default": {"BACKEND": _SMTP, "OPTIONS": {"host": "127.0.0.1", "port": _PORT}}}
else:
    EMAIL_HOST, EMAIL_PORT = "127.0.0.1", _PORT

if os.environ.get("PULSE_TEST_MAILS_ERRORS"):
    LOGGING = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"ours": {"()": "pulse_django.worker.logs.Plain"}},
        "handlers": {
            "console": {"class": "logging.StreamHandler", "formatter": "ours"},
            "mail": {"class": "django.utils.log.AdminEmailHandler", "level": "ERROR"},
        },
        "loggers": {"pulse_django": {"handlers": ["mail", "console"], "level": "INFO"}},
    }
