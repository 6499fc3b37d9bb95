"""A step that draws random numbers from a state inside TensorFlow's kernels, run with others until it fails.

That state cannot be put back. Where the fault needs no particular numbers, as with a generator whose every other sample
saturates the discriminator, another draw shows it as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from tb_nanwatch.format.records import Origin
from tb_nanwatch.record.replay.observe import Observation

DRAWS: Final = 12
SECONDS: Final = 10.0
ANEW: Final = "with other random numbers than in training, which cannot be drawn again"


class Told(Protocol):
    """What an observed step says."""

    @property
    def origin(self) -> Origin | None: ...
    @property
    def extra(self) -> dict[str, Any]: ...


Said = TypeVar("Said", bound=Told)


def looked(
    look: Callable[[], Observation], tell: Callable[[Observation], Said], coarse: Origin, anew: bool
) -> tuple[Observation, Said]:
    """The failing step op by op, and what it says. anew: it draws other numbers than in training, each time others;
    then the first that fails in the phase that the recorder saw speaks for it, if any does.
    """
    first = look()
    said = tell(first)
    if not anew or said.extra["replay"] != "not reproduced":
        return first, said
    deadline = time.monotonic() + SECONDS
    for _ in range(DRAWS):
        if time.monotonic() > deadline:
            break
        other = look()
        found = tell(other)
        if found.origin is not None and found.origin.phase == coarse.phase:
            found.extra["why"] = ANEW
            return other, found
    return first, said
