"""What the host reads after every call: the step's row, the state of the weights, and a few single numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tb_nanwatch.record.device import NOTHING, DeviceSide, Plan
from tb_nanwatch.record.naming import NamedVariable
from tb_nanwatch.record.weights import DeviceWeights, HostWeights, Weights, in_place


@dataclass(frozen=True)
class Scalars:
    """Variables (or callables that read some) with single numbers worth a series; None where there is none."""

    learning_rate: Any = None
    loss_scale: Any = None
    iterations: Any = None
    others: tuple[tuple[str, Any], ...] = ()  # further ones by name

    def current_loss_scale(self) -> float:
        """The loss scale now, NaN where there is none. Called before the first step."""
        scale = self.loss_scale() if callable(self.loss_scale) else self.loss_scale
        return float("nan") if scale is None else float(np.asarray(scale))


@dataclass(frozen=True)
class Reading:
    """One step as the host sees it.

    row float64[m + k], None if no plan ran, summed over replicas; culprits: tensor to the replica that made it
    non-finite, where that is one of several; weights float64[w] sums of squares, None where the plan has them.
    """

    clock: int
    iterations: int
    plan: Plan | None
    row: NDArray[np.float64] | None
    kind: int
    weights: NDArray[np.float64] | None
    metrics_finite: bool
    learning_rate: float
    loss_scale: float
    others: tuple[float, ...] = ()
    weight_statistics: NDArray[np.float64] | None = None
    update_norms: NDArray[np.float64] | None = None
    culprits: Mapping[int, int] = field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Whether there is nothing in it but finite norms."""
        return (
            self.kind == NOTHING
            and self.metrics_finite
            and self.row is not None
            and bool(np.isfinite(self.row).all())
            and self.weight_statistics is None
            and (self.weights is None or bool(np.isfinite(self.weights).all()))
        )


@dataclass(frozen=True)
class Launched:
    """A reading on its way from the device."""

    plan: Plan | None
    clock: Any
    rows: Any
    kinds: Any
    stats: Any  # only where it is read later: the next call writes over them
    squares: Any
    statistics: Any
    updates: Any
    metrics: list[Any]
    iterations: Any
    loss_scale: Any
    learning_rate: Any  # of a schedule only with full statistics
    others: list[Any]


class Probe:
    """Reads slots and variables after every call."""

    def __init__(
        self,
        device: DeviceSide,
        weights: Sequence[NamedVariable],
        metrics: Sequence[NamedVariable],
        scalars: Scalars,
        on_cpu: bool,
    ) -> None:
        self._on_cpu = on_cpu
        self.watch(weights, metrics)
        self._device = device
        self._scalars = scalars
        self._clock = 0
        self._calls = 0
        self._every = device.options.every
        self._metrics_finite = True
        self._stats: Any = None  # of the newest arrival

    def anew(self, weights: Sequence[NamedVariable]) -> Weights:
        """What measures these weights where they are."""
        return HostWeights(weights) if self._on_cpu else DeviceWeights(weights)

    def watch(self, weights: Sequence[NamedVariable], metrics: Sequence[NamedVariable]) -> None:
        """What to read from now on."""
        self.weights = self.anew(weights)
        self._count = len(weights)
        self._metrics = [named.variable for named in metrics]

    def follow(self, scalars: Scalars) -> None:
        """Which single numbers to read from now on."""
        self._scalars = scalars

    def remember(self) -> None:
        """Keep the weights, from which the update of the next step is measured, where calls are steps."""
        if self._device.slots == 1 and self._count:
            self.weights.remember()

    def launch(self, plan: Plan | None) -> Launched:
        """Start reading; `arrive` turns the result into Readings. On an accelerator this does not wait."""
        squares = statistics = updates = None
        full = self._device.slots > 1 or self._calls % self._every == 0
        if self._device.slots == 1 and self._count:  # then a call is a step, and the host knows which
            squares = self.weights.squares()
            if full:
                statistics, updates = self.weights.statistics(squares), self.weights.updates()
            if (self._calls + 1) % self._every == 0:
                self.remember()
        self._calls += 1
        return Launched(
            plan,
            self._read(self._device.clock),
            None if plan is None else self._read(plan.rows),
            None if plan is None else self._read(plan.kinds),
            None if plan is None or self._on_cpu else self._read(plan.stats),
            squares,
            statistics,
            updates,
            [self._read(m) for m in self._metrics],
            self._read(self._scalars.iterations),
            self._read(self._scalars.loss_scale),
            self._read(self._scalars.learning_rate) if full or hasattr(self._scalars.learning_rate, "handle") else None,
            [self._read(v) if full or hasattr(v, "handle") else None for _, v in self._scalars.others],
        )

    def arrive(self, launched: Launched) -> list[Reading]:
        """One Reading for each step of the call, oldest first."""
        plan, slots, clock = launched.plan, self._device.slots, int(launched.clock)
        self._stats = launched.stats
        iterations = -1 if launched.iterations is None else int(np.asarray(launched.iterations))
        new = min(clock - self._clock, slots)
        self._clock = clock
        rate = float("nan") if launched.learning_rate is None else float(np.asarray(launched.learning_rate))
        others = tuple(float("nan") if v is None else float(np.asarray(v)) for v in launched.others)
        rows = None if launched.rows is None else np.asarray(launched.rows)
        metrics_before = self._metrics_finite
        self._metrics_finite = all(bool(np.isfinite(np.asarray(m)).all()) for m in launched.metrics)
        turned = clock - 1  # metrics are seen after the call: the first bad step of it turned them, or else the last
        if rows is not None and new > 1:
            turned = next((at for at in range(clock - new, clock) if not np.isfinite(rows[at % slots]).all()), turned)
        readings = [
            Reading(
                clock=at,
                iterations=iterations - (clock - 1 - at) if iterations >= 0 else -1,
                plan=plan,
                row=None if rows is None else rows[at % slots],
                kind=NOTHING if launched.kinds is None else int(np.asarray(launched.kinds)[at % slots]),
                weights=None if slots > 1 else _arrived(launched.squares, np.zeros(0)),
                metrics_finite=self._metrics_finite if at >= turned else metrics_before,
                learning_rate=rate,
                loss_scale=float("nan") if launched.loss_scale is None else float(np.asarray(launched.loss_scale)),
                others=others,
                weight_statistics=_arrived(launched.statistics),
                update_norms=_arrived(launched.updates),
            )
            for at in range(clock - new, clock)
        ]
        return [_folded(r) for r in readings] if plan is not None and plan.folded else readings

    def statistics(self, plan: Plan, clock: int) -> NDArray[np.float64]:
        """float64[m, COLUMNS] of the tensors of a step that arrived last."""
        stats = in_place(plan.stats) if self._stats is None else np.asarray(self._stats)
        written = np.array(stats[clock % self._device.slots])
        return plan.tensors.statistics(written) if plan.folded else written

    def _read(self, value: Any) -> Any:
        """The value of a variable, or what a callable gives; an array on a CPU, else a tensor on its way."""
        if value is None:
            return None
        if callable(value) and not hasattr(value, "handle"):  # a schedule
            return value()
        return in_place(value) if self._on_cpu else tf.raw_ops.ReadVariableOp(resource=value.handle, dtype=value.dtype)


def _folded(reading: Reading) -> Reading:
    """The numbers of replicas put together."""
    plan, row = reading.plan, reading.row
    if plan is None or row is None:
        return reading
    tensors, losses = row[: len(plan.tensors.owner)], row[len(plan.tensors.owner) :]
    return replace(
        reading,
        row=np.concatenate([plan.tensors.total(tensors), plan.losses.total(losses)]),
        culprits=plan.tensors.culprits(tensors) | plan.losses.culprits(losses),
    )


def _arrived(started: Any, otherwise: Any = None) -> Any:
    return otherwise if started is None else np.asarray(started)
