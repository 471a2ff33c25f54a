"""Operations on all jobs that match a filter: a batch of chunks, which workers process.

criteria   the filter, from the address of the list of jobs
page       the confirmation page, which changes few jobs at once
operation  the start: open the batch and enqueue its first job
work       the tasks: find the jobs, retry a few first if that is wanted, and act on them
totals     the counts of finished chunks
"""
