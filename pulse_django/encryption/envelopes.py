"""The JSON that a column stores for an encrypted value, and the data that the encryption authenticates."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

MARK, KEY, CIPHERTEXT = "$pulse", "k", "c"
ALGORITHM = "aes-gcm"
NONCE_BYTES, KEY_BYTES = 12, 32


class Envelope(NamedTuple):
    """An encrypted value: the format, the id of the key, and the nonce followed by the ciphertext."""

    algorithm: str
    key_id: str
    sealed: bytes

    @property
    def text(self) -> str:
        sealed = base64.b64encode(self.sealed).decode()
        return json.dumps({MARK: self.algorithm, KEY: self.key_id, CIPHERTEXT: sealed}, separators=(",", ":"))

    @classmethod
    def read(cls, value: Any) -> Envelope | None:
        """Read an envelope from a JSON value of an encrypted job. None: it is no envelope."""
        if not isinstance(value, Mapping) or value.keys() != {MARK, KEY, CIPHERTEXT}:
            return None
        if not all(isinstance(part, str) for part in value.values()):
            return None
        try:
            return cls(value[MARK], value[KEY], base64.b64decode(value[CIPHERTEXT], validate=True))
        except (binascii.Error, ValueError):
            return None


def associated_data(task: str, field: str, job_id: int | None) -> bytes:
    """Return the data that is authenticated with a ciphertext, and not stored with it.

    Arguments are encrypted before their job has an id.
    """
    return json.dumps(["pulse_django", ALGORITHM, task, field, job_id], separators=(",", ":")).encode()
