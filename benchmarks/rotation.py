"""Two or more trainings in one process, driven a few steps each in turn, so that what disturbs one disturbs all.

Before and after every group of steps of a variant comes a group of the plain training; the ratio of a group is that
to the mean of its two neighbours. This module knows nothing of TensorFlow.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

LEAST_GROUPS: Final = 3  # even when the time is up: fewer have no quartiles


class Training(Protocol):
    """A training that is warm: traced, compiled, its optimizer built."""

    def steps(self, count: int) -> None:
        """Train on so many batches, and wait for all that was left to other threads."""

    def epoch_end(self) -> None:
        """What happens once an epoch."""


@dataclass(frozen=True)
class Spent:
    """Seconds that a piece of work took: of the process on all its cores, and on the clock."""

    cpu: float = 0.0
    wall: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.cpu + other.cpu, self.wall + other.wall)

    def __mul__(self, factor: float) -> Spent:
        return Spent(self.cpu * factor, self.wall * factor)


@dataclass
class Groups:
    """What the groups of one variant took: each of them, and the mean of the plain groups around it."""

    own: list[Spent] = field(default_factory=list)
    plain: list[Spent] = field(default_factory=list)

    def summary(self, steps: int) -> dict[str, Any]:
        """Median ratios, the quartiles of that of CPU time, CPU milliseconds per step, and all ratios in order.

        "overall" is the ratio of the sums: it holds what happens too rarely for the median, and every disturbance.
        """
        pairs = list(zip(self.own, self.plain, strict=True))
        ratios = [own.cpu / plain.cpu for own, plain in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        return {
            "cpu": middle,
            "low": low,
            "high": high,
            "overall": sum(own.cpu for own in self.own) / sum(plain.cpu for plain in self.plain),
            "wall": statistics.median(own.wall / plain.wall for own, plain in pairs),
            "milliseconds": statistics.median(own.cpu for own in self.own) / steps * 1000,
            "plain_milliseconds": statistics.median(plain.cpu for plain in self.plain) / steps * 1000,
            "groups": len(ratios),
            "ratios": [round(ratio, 4) for ratio in ratios],
        }


def rotate(
    plain: Training,
    variants: Mapping[str, Training],
    groups: int,
    steps: int,
    epoch_steps: int,
    seconds: float | None,
    progress: Callable[[int], Any],
) -> dict[str, Groups]:
    """Drive all in turn, `groups` times `steps` steps each, or until so many seconds are over.

    A group of each goes uncounted before. The end of an epoch is measured in every group and counts as much as it does
    where an epoch has `epoch_steps` steps.
    """
    for training in (plain, *variants.values()):  # seeding one has emptied TensorFlow's caches for those before it
        training.steps(steps)
        training.epoch_end()
    gc.collect()  # what tracing left behind would fall to whoever allocates the most in the first round
    taken = {name: Groups() for name in variants}
    began = time.monotonic()
    before = _spend(lambda: plain.steps(steps))
    for number in range(groups):
        if seconds is not None and number >= LEAST_GROUPS and time.monotonic() - began > seconds:
            break
        for name, variant in variants.items():
            own = _spend(lambda variant=variant: variant.steps(steps))  # type: ignore[misc]  # a lambda's default
            own += _spend(variant.epoch_end) * (steps / epoch_steps)
            after = _spend(lambda: plain.steps(steps))
            taken[name].own.append(own)
            taken[name].plain.append((before + after) * 0.5)
            before = after
        progress(number + 1)
    return taken


def _spend(work: Callable[[], object]) -> Spent:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return Spent(time.process_time() - cpu, time.perf_counter() - wall)
