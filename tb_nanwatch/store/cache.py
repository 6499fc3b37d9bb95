"""Unpacked blocks, read from disk when asked for; the least recently used leave when a bound in bytes is reached."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

import numpy as np

T = TypeVar("T")
#: Unpacked planes of 1,000 tensors take half a megabyte for 256 steps.
DEFAULT_BYTES: Final = 256 << 20


class Cache:
    """Values of any kind by key, bounded by the bytes of the arrays in them. Safe to use from several threads.

    Two threads that miss at once compute twice and keep one: cheaper than a lock held while reading a disk.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()
        self.bytes = 0

    @property
    def full(self) -> bool:
        """True if more would push something out soon."""
        return self.bytes > 0.9 * self._max_bytes

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """The value kept for `key`, or what `compute` returns, which is then kept."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                found: T = entry[0]
                return found
        value = compute()
        size = _bytes(value)
        with self._lock:
            if key not in self._entries and size <= self._max_bytes:
                self._entries[key] = (value, size)
                self.bytes += size
                while self.bytes > self._max_bytes:
                    self.bytes -= self._entries.popitem(last=False)[1][1]
        return value


def _bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.nbytes) + 128
    if isinstance(value, tuple):
        return sum(_bytes(part) for part in value)
    return sum(_bytes(part) for part in vars(value).values()) if hasattr(value, "__dict__") else 64
