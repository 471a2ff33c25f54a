"""Encryption: arguments, progress and results of a task are stored as ciphertext, and masks hide values.

It provides the masks of a call, and the codec of stored values.
"""
