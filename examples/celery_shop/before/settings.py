from celery.schedules import crontab

CELERY_BROKER_URL = "redis://localhost:6379/0"
CELERY_RESULT_BACKEND = "redis://localhost:6379/1"
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_ROUTES = {"shop.tasks.send_mail": {"queue": "mail"}}
CELERY_BEAT_SCHEDULE = {
    "refresh-prices": {"task": "shop.tasks.refresh_prices", "schedule": crontab(hour="3", minute="0")},
}
CELERY_TIMEZONE = "Europe/Berlin"
