"""Encryption: arguments, progress and results of a task are ciphertext in the table, and masks hide what is shown.

It hands in what hides the arguments of a call, and the codec of stored values. It may import ``queue`` and ``run``.
"""
