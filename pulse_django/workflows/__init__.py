"""Batches and workflows: jobs that belong together, and jobs that need each other.

calls       a call of a task that is to be enqueued later
batches     open, add, seal: what happens when all members are over
builder     jobs with names, and what each of them needs
canvas      chain, group and chord, which build workflows
results     what a job needed, and what came of it
"""
