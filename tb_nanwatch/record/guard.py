"""The watcher's own failures stop here: the first one disables it, with one warning, and training goes on.

Only `Exception` is held back. KeyboardInterrupt, SystemExit and what is raised on purpose (UsageError) pass. With the
environment variable TB_NANWATCH_STRICT=1 (the test suite sets it) failures are raised instead.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator

from tb_nanwatch.errors import NanWatchError


class Guard:
    """Switches a recorder off at its first failure. `on_disable` is called once, with the reason."""

    def __init__(self, on_disable: Callable[[str], None] | None = None) -> None:
        self.alive = True
        self._on_disable = on_disable

    @contextlib.contextmanager
    def contained(self, doing: str) -> Iterator[None]:
        """Hold back exceptions of the enclosed code. `doing` completes "failed while ..."."""
        try:
            yield
        except NanWatchError:
            raise
        except Exception as error:
            if os.environ.get("TB_NANWATCH_STRICT") == "1":
                raise
            self.disable(f"failed while {doing}: {type(error).__name__}: {error}")

    def disable(self, reason: str) -> None:
        """Switch off, once; says so with a RuntimeWarning."""
        if not self.alive:
            return
        self.alive = False
        message = f"tb_nanwatch {reason}. Training goes on unwatched; what was recorded until now can be read."
        try:
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        except RuntimeWarning:  # warnings are errors here, which is for the user's code, not for a failure of ours
            sys.stderr.write(f"{message}\n")
        if self._on_disable is not None:
            with contextlib.suppress(Exception):
                self._on_disable(reason)
