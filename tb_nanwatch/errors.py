"""The errors that users may meet.

NanWatchError
├── UsageError         a call or an option that cannot work; says what, where and what to do
├── NonFiniteError     raised by on_nonfinite="raise" (also a FloatingPointError)
└── UnreadableError    a path that holds nothing readable
    └── CorruptData    bytes that no recorder writes; readers skip them and report the damage
        └── NewerFormat    written by a later version of this package
"""

from __future__ import annotations

from typing import Any


class NanWatchError(Exception):
    """Base of everything raised on purpose by this package."""


class UsageError(NanWatchError, ValueError):
    """A call or an option that cannot work."""


class NonFiniteError(NanWatchError, FloatingPointError):
    """Training became non-finite and the user asked to be told by an exception.

    `incident` holds the incident as in the JSON report, so that a handler can decide by phase or layer.
    """

    def __init__(self, message: str, incident: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.incident = incident or {}


class UnreadableError(NanWatchError):
    """A path that holds nothing readable."""


class CorruptData(UnreadableError):
    """Bytes that no recorder writes."""


class NewerFormat(CorruptData):
    """Written by a later version of this package: nothing behind it may be guessed at."""
