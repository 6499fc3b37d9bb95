"""A flight recorder for TensorFlow training that says where, when and why values became non-finite.

Importing this package loads neither TensorFlow nor Keras; the names below are fetched on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tb_nanwatch.errors import NanWatchError, NonFiniteError, UnreadableError, UsageError
from tb_nanwatch.version import __version__

if TYPE_CHECKING:
    from tb_nanwatch.record.graph.session import NanWatchHook, watch_session
    from tb_nanwatch.record.keras_fit import NanWatch
    from tb_nanwatch.record.watched_step import tap, watch

_LAZY = {
    "NanWatch": "tb_nanwatch.record.keras_fit",
    "NanWatchHook": "tb_nanwatch.record.graph.session",
    "tap": "tb_nanwatch.record.watched_step",
    "watch": "tb_nanwatch.record.watched_step",
    "watch_session": "tb_nanwatch.record.graph.session",
}

__all__ = [
    "NanWatch",
    "NanWatchError",
    "NanWatchHook",
    "NonFiniteError",
    "UnreadableError",
    "UsageError",
    "__version__",
    "tap",
    "watch",
    "watch_session",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
