"""Conditions on jobs that several statements share, as SQL."""

from __future__ import annotations

# In this spelling a partial index can be used. A status that is a parameter could be any.
IS_CLAIMABLE = "status::text IN ('PENDING', 'RETRYING')"
