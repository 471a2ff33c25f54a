"""Operations on all jobs that match a filter: a batch of chunks, which workers process.

criteria   the filter, from the address of the list of jobs
work       the tasks: find the jobs, and act on them
canary     retry a few first, and watch them
totals     the counts of finished chunks
page       the confirmation page, and the start: open the batch and enqueue its first job
"""
