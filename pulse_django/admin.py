"""What operators find in Django admin. Each page has a file of its own in ``console``."""

from __future__ import annotations

from django.contrib import admin

from .console.board import BoardAdmin
from .console.dead_letters import DeadLetterAdmin
from .console.jobs import JobAdmin
from .console.queues import QueueAdmin
from .console.workers import WorkerAdmin
from .models import Board, DeadLetter, Job, Queue, Worker

admin.site.register(Board, BoardAdmin)
admin.site.register(DeadLetter, DeadLetterAdmin)
admin.site.register(Job, JobAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Worker, WorkerAdmin)
