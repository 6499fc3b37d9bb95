"""What the host reads after every call: the step's row, and the state of the variables.

Weights are measured from outside, by a function of its own over the variables: that cannot change the
training, costs the same whether or not the step is compiled, and shows a NaN that an activation swallowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tb_nanwatch.record import functions, kernels
from tb_nanwatch.record.device import Plan
from tb_nanwatch.record.naming import NamedVariable


@dataclass(frozen=True)
class Scalars:
    """Variables (or callables that read some) with single numbers worth a series; None where there is none."""

    learning_rate: Any = None
    loss_scale: Any = None
    iterations: Any = None

    def current_loss_scale(self) -> float:
        """The loss scale now, NaN where there is none. Called before the first step."""
        scale = self.loss_scale() if callable(self.loss_scale) else self.loss_scale
        return float("nan") if scale is None else float(np.asarray(scale))


@dataclass(frozen=True)
class Reading:
    """One step as the host sees it.

    row float64[m + k], None if no plan ran; weights float64[w] sums of squares, None where the plan has them.
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


class Probe:
    """Reads slots and variables. One tf.function for each plan, traced once."""

    def __init__(self, device: Any, weights: Sequence[NamedVariable], metrics: Sequence[NamedVariable], scalars: Scalars):
        self._device = device
        self._weights = [named.variable for named in weights]
        self._trainable = [named.variable for named in weights if named.trainable]
        self._metrics = [named.variable for named in metrics]
        self._scalars = scalars
        self._readers: dict[int, Any] = {}
        self._statistics: Any = None
        self._snapshot: Any = None
        self._updates: Any = None
        self._before: list[Any] = []
        self._clock = 0

    def launch(self, plan: Plan | None) -> tuple[Any, Any]:
        """Start reading; `arrive` turns the result into Readings. On an accelerator this does not wait."""
        key = -1 if plan is None else plan.index
        if key not in self._readers:
            self._readers[key] = functions.own(lambda: self._read(plan))
        floats, integers = self._readers[key]()
        return floats, integers

    def arrive(self, plan: Plan | None, launched: tuple[Any, Any]) -> list[Reading]:
        """One Reading for each step of the call, oldest first."""
        floats, integers = (np.asarray(part) for part in launched)
        slots, clock, iterations = self._device.slots, int(integers[0]), int(integers[1])
        count = len(self._weights) if slots == 1 else 0
        new = min(clock - self._clock, slots)
        self._clock = clock
        rows = floats[count + 2 :].reshape(slots, -1)
        return [
            Reading(
                clock=at,
                iterations=iterations - (clock - 1 - at) if iterations >= 0 else -1,
                plan=plan,
                row=None if plan is None else rows[at % slots],
                kind=int(integers[3 + at % slots]),
                weights=floats[:count] if slots == 1 else None,
                metrics_finite=bool(integers[2]) or at != clock - 1,
                learning_rate=float(floats[count]),
                loss_scale=float(floats[count + 1]),
            )
            for at in range(clock - new, clock)
        ]

    def statistics(self, plan: Plan, clock: int) -> NDArray[np.float64]:
        """float64[m, 8] of the step's tensors, as the step wrote them."""
        return np.array(plan.stats[clock % self._device.slots])

    def weight_statistics(self, exact: bool) -> NDArray[np.float64]:
        """float64[w, 8] of all weights as they are now."""
        if not self._weights:
            return np.zeros((0, kernels.COLUMNS))
        if self._statistics is None:
            self._statistics = {
                flag: functions.own(lambda kernel=kernel: self._of_weights(kernel))
                for flag, kernel in ((False, kernels.statistics), (True, kernels.exact_statistics))
            }
        return np.asarray(self._statistics[exact]())

    def remember_weights(self) -> None:
        """Keep a copy of the trainable weights, from which `update_norms` measures."""
        if self._snapshot is None:
            self._before = [tf.Variable(v, trainable=False, name="nanwatch_before") for v in self._trainable]
            self._snapshot = functions.own(
                lambda: [b.assign(v) for b, v in zip(self._before, self._trainable, strict=True)] and None
            )
            return
        self._snapshot()

    def update_norms(self) -> NDArray[np.float64] | None:
        """float64[trainable] norms of the weights' change since `remember_weights`; None if there was no such call."""
        if not self._before:
            return None
        if self._updates is None:
            self._updates = functions.own(self._update_norms)
        return np.asarray(self._updates())

    # ------------------------------------------------------------ traced

    def _read(self, plan: Plan | None) -> tuple[Any, Any]:
        clock = self._device.clock.read_value()
        weights = self._weights if self._device.slots == 1 else []
        floats = [tf.cast(kernels.sum_of_squares(tf.convert_to_tensor(v)), tf.float64) for v in weights]
        floats += [_number(self._scalars.learning_rate), _number(self._scalars.loss_scale)]
        metrics = [tf.reduce_all(tf.math.is_finite(tf.convert_to_tensor(m))) for m in self._metrics]
        finite = tf.reduce_all(metrics) if metrics else tf.constant(True)
        iterations = self._scalars.iterations
        iterations = tf.constant(-1, tf.int64) if iterations is None else tf.cast(tf.convert_to_tensor(iterations), tf.int64)
        head = tf.stack([clock, iterations, tf.cast(finite, tf.int64)])
        if plan is None:
            return tf.stack(floats), tf.concat([head, tf.zeros([self._device.slots], tf.int64)], 0)
        rows = tf.reshape(plan.rows, [-1])
        return tf.concat([tf.stack(floats), rows], 0), tf.concat([head, plan.kinds], 0)

    def _of_weights(self, kernel: Any) -> Any:
        return tf.stack([tf.cast(kernel(tf.convert_to_tensor(v)), tf.float64) for v in self._weights])

    def _update_norms(self) -> Any:
        return tf.stack(
            [
                tf.sqrt(tf.cast(kernels.sum_of_squares(tf.convert_to_tensor(v) - tf.convert_to_tensor(b)), tf.float64))
                for b, v in zip(self._before, self._trainable, strict=True)
            ]
        )


def _number(value: Any) -> Any:
    if value is None:
        return tf.constant(float("nan"), tf.float64)
    if callable(value):  # a schedule
        value = value()
    return tf.reshape(tf.cast(tf.convert_to_tensor(value), tf.float64), [])
