"""The pages in Django admin. Each page has its own file in ``console``."""

from __future__ import annotations

from django.contrib import admin

from .console.board.admin import BoardAdmin
from .console.dead_letters.admin import DeadLetterAdmin
from .console.jobs.admin import JobAdmin
from .console.jobs.of_object import JobsOfObject as JobsOfObject
from .console.queues.admin import QueueAdmin
from .console.tasks.admin import TaskAdmin
from .console.workers.admin import WorkerAdmin
from .limits.console.admin import LimiterAdmin
from .models import Board, DeadLetter, Job, Limiter, Queue, Schedule, StoredBatch, TaskOverview, Worker
from .schedules.console.admin import ScheduleAdmin
from .workflows.console.admin import WorkflowAdmin

admin.site.register(Board, BoardAdmin)
admin.site.register(DeadLetter, DeadLetterAdmin)
admin.site.register(Job, JobAdmin)
admin.site.register(Limiter, LimiterAdmin)
admin.site.register(Queue, QueueAdmin)
admin.site.register(Schedule, ScheduleAdmin)
admin.site.register(StoredBatch, WorkflowAdmin)
admin.site.register(TaskOverview, TaskAdmin)
admin.site.register(Worker, WorkerAdmin)
