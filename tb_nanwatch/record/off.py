"""Recorders that are asked for and left off: while a step is replayed, the user's program must not record.

The environment says so, that processes which the program starts are told too. Whoever sets TB_NANWATCH_OFF=1 trains
without any recorder.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

VARIABLE: Final = "TB_NANWATCH_OFF"

_asked: list[str] = []


def left_off(logdir: str | os.PathLike[str]) -> bool:
    """Whether a recorder for `logdir` is to do nothing; who asks is remembered."""
    if os.environ.get(VARIABLE) != "1":
        return False
    _asked.append(os.fspath(logdir))
    return True


@contextmanager
def everywhere() -> Iterator[None]:
    """All recorders of this process, and of those that it starts, are off within."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    _asked.clear()
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def asked() -> tuple[str, ...]:
    """The logdirs of recorders that were left off, each once, since `everywhere` began."""
    return tuple(dict.fromkeys(_asked))


class Inert:
    """What a WatchedStep has to end a recording, where there is none."""

    def close(self) -> None:
        """There is nothing to end."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: Any) -> None:
        pass


class Plain(Inert):
    """A step as it was."""

    def __init__(self, step: Callable[..., Any]) -> None:
        functools.update_wrapper(self, step, updated=())
        self._step = step

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._step(*args, **kwargs)
