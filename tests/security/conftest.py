"""The fixture that makes the roles of the database."""

from __future__ import annotations

from .roles import roles

__all__ = ["roles"]
