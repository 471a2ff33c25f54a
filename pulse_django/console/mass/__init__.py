"""Operations on all jobs that match a filter: a batch of chunks, which workers work through.

criteria   the filter, as the address of the list of jobs has it
starting   the request: open the batch and enqueue its first job
work       the tasks: find the jobs, and act on them
canary     retry a few first, and watch them
totals     what was done so far
page       the page that asks
"""
