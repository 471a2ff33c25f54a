"""Chunks: a handler is called once with several jobs of its task, and each job gets its own result.

It provides the lane of such jobs, how many of them one slot takes, the gatherer, and the call of a handler with a
chunk.
"""
