"""What runs in a Keras fit beside its steps: the other callbacks, and the validation. An error of theirs ends the fit.

They are listened to through the fit's own list of callbacks and the model's `evaluate`, whose attributes are
replaced on these two objects, for this fit. What they raise passes as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

CALLBACKS: Final = ("on_epoch_begin", "on_train_batch_begin", "on_train_batch_end", "on_epoch_end", "on_train_end")
OWN: Final = "_use_cached_eval_dataset"  # given by a fit that validates; a callback may evaluate, and survive an error


class Beside:
    """Tells of the first error that ends a fit outside of its steps. `callbacks`: what the fit calls, or None."""

    def __init__(self, model: Any, callbacks: Any, tell: Callable[[BaseException], None]) -> None:
        self._tell = tell
        self._told = False
        self._replaced: list[tuple[Any, str, Any, Any]] = []  # object, attribute, what was there, what is there
        for name in CALLBACKS:
            self._listen(callbacks, name, lambda _: True)
        self._listen(model, "evaluate", lambda settings: bool(settings.get(OWN)))

    def end(self) -> None:
        """Leave both as they were."""
        for holder, name, before, after in self._replaced:
            if holder.__dict__.get(name) is after:
                holder.__dict__.pop(name)
                if before is not None:
                    object.__setattr__(holder, name, before)

    def _listen(self, holder: Any, name: str, ends: Callable[[dict[str, Any]], bool]) -> None:
        original = getattr(holder, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                if ends(kwargs) and not self._told:
                    self._told = True
                    self._tell(error)
                raise

        self._replaced.append((holder, name, holder.__dict__.get(name), call))
        object.__setattr__(holder, name, call)
