"""Readings of single steps become columns for the writer, and a state to judge."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import Counts, CountsRow, FullBlock, TensorInfo
from tb_nanwatch.record import kernels
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.device import ALL_GROUPS, CLOSE_LOOK, NOTHING, DeviceSide, Plan
from tb_nanwatch.record.judge import Bad, StepState
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.probe import Probe, Reading
from tb_nanwatch.record.writer import RunWriter

BATCH: Final = 32  # steps handed to the writer at once
FIRST_UPDATE_ID: Final = 1 << 20  # update tensors: this plus the weight's id
LEARNING_RATE, LOSS_SCALE, METRICS = (1 << 21) + 1, (1 << 21) + 2, (1 << 21) + 3


class StepRows:
    """Gathers readings; flushes them to the writer in batches."""

    def __init__(
        self,
        writer: RunWriter,
        device: DeviceSide,
        probe: Probe,
        options: Options,
        weight_infos: Callable[[], list[TensorInfo]],
        loss_scale: float = float("nan"),
        first_step: int = 0,
    ) -> None:
        self.next_step = first_step
        self._scale = loss_scale
        self._writer = writer
        self._device = device
        self._probe = probe
        self._every = options.every
        self._weight_infos = weight_infos
        self._steps: list[tuple[int, float, int]] = []
        self._norms: list[Any] = []
        self._scalars: list[Any] = []
        self._columns: Any = None
        self._weights_bad: frozenset[int] = frozenset()  # their numbers
        self._metric = TensorInfo(METRICS, "metric", "metrics")

    # ------------------------------------------------------------ what there is

    def update_info(self, weight: TensorInfo) -> TensorInfo:
        return TensorInfo(
            FIRST_UPDATE_ID + weight.id,
            "update",
            weight.name,
            weight.layer,
            weight.layer_class,
            weight.dtype,
            weight.shape,
            weight.order,
        )

    def scalar_infos(self) -> list[TensorInfo]:
        return [
            TensorInfo(LEARNING_RATE, "scalar", "learning_rate"),
            TensorInfo(LOSS_SCALE, "scalar", "loss_scale"),
        ]

    # ------------------------------------------------------------ one step

    def add(self, reading: Reading, first_step: int, infos: Mapping[int, TensorInfo], scaled: bool) -> StepState:
        """Take in one step; returns what there is to judge."""
        step = first_step + reading.clock
        self.next_step = step + 1
        weights = self._weight_infos() if reading.weights is not None else []
        plan = reading.plan
        ids = list(plan.ids) if plan is not None else []
        losses = list(plan.scalar_ids) if plan is not None else []
        row = reading.row if reading.row is not None else np.zeros(0)
        squares = np.concatenate([row[: len(ids)], reading.weights if reading.weights is not None else []])
        factors = self._unscaling(ids, len(weights), infos, reading)
        codes = magnitude.encode(np.sqrt(np.abs(squares)) * factors)  # where they are flags, any sign occurs
        if plan is not None and plan.compiled:  # cheap numbers are flags there, not norms
            codes[: len(ids)] = np.where(np.isfinite(row[: len(ids)]), magnitude.NOT_MEASURED, magnitude.NONFINITE_UNKNOWN)
        codes[np.isinf(squares)] = magnitude.NONFINITE_UNKNOWN  # infinite elements, or squares that overflow
        counts = self._look(reading, step, ids, weights, codes, factors)
        values = row[len(ids) :]
        updates = self._update_codes(reading, weights)
        columns = (
            np.array([*ids, *(w.id for w in weights), *(FIRST_UPDATE_ID + w.id for w in weights if w.trainable)], np.int64),
            np.array([*losses, LEARNING_RATE, LOSS_SCALE], np.int64),
        )
        self._keep(step, reading, columns, np.concatenate([codes, updates]), values)
        order = [*(infos[i] for i in ids), *weights]
        bad = [Bad(order[i], counts.get(order[i].id, Counts())) for i in np.flatnonzero(magnitude.to_bits(codes))]
        bad += [Bad(infos[i], _counts_of(value)) for i, value in zip(losses, values, strict=True) if not np.isfinite(value)]
        if not reading.metrics_finite:
            bad.append(Bad(self._metric))
        finite = frozenset(
            infos[i].name for i, code in zip(ids, codes, strict=False) if infos[i].kind == "gradient" and not magnitude.to_bits(code)
        )
        return StepState(step, tuple(bad), scaled, finite)

    def flush(self) -> None:
        """Hand what is gathered to the writer."""
        if not self._steps:
            return
        steps, times, iterations = (np.array(column) for column in zip(*self._steps, strict=True))
        self._writer.rows(
            Rows(
                steps.astype(np.int64),
                times.astype(np.float64),
                iterations.astype(np.int64),
                self._columns[0],
                np.stack(self._norms),
                self._columns[1],
                _as_float32(np.stack(self._scalars)),
            )
        )
        self._steps, self._norms, self._scalars = [], [], []

    # ------------------------------------------------------------

    def _keep(self, step: int, reading: Reading, columns: Any, codes: Any, values: Any) -> None:
        if self._columns is not None and not all(map(np.array_equal, columns, self._columns)):
            self.flush()
        self._columns = columns
        self._steps.append((step, time.time(), reading.iterations))
        self._norms.append(codes)
        self._scalars.append(np.array([*values, reading.learning_rate, reading.loss_scale]))
        if len(self._steps) >= BATCH:
            self.flush()

    def _unscaling(self, ids: list[int], weights: int, infos: Mapping[int, TensorInfo], reading: Reading) -> Any:
        """What to multiply magnitudes with: gradients carry the loss scale that the step began with."""
        factors = np.ones(len(ids) + weights)
        if np.isfinite(self._scale) and self._scale > 0:
            factors[[n for n, i in enumerate(ids) if infos[i].kind == "gradient"]] = 1 / self._scale
        self._scale = reading.loss_scale
        return factors

    def _look(
        self, reading: Reading, step: int, ids: list[int], weights: list[TensorInfo], codes: Any, factors: Any
    ) -> dict[int, Counts]:
        """Take the step's statistics where there are any; corrects `codes` in place, returns exact counts."""
        plan, counts = reading.plan, {}
        if plan is not None and reading.kind != NOTHING:
            stats = self._probe.statistics(plan, reading.clock)
            stats[:, [kernels.NORM, kernels.MAX_ABS, kernels.MEAN]] *= factors[: len(ids), None]
            members = _members(plan, reading.kind)
            if reading.kind == CLOSE_LOOK:
                counts = _correct(codes[: len(ids)], stats, [plan.ids[i] for i in members])
            elif plan.compiled:
                codes[members] = magnitude.encode(stats[members, kernels.NORM])
            self._full(step, np.array([plan.ids[i] for i in members], np.int64), stats[members])
        flagged = _flagged(codes[len(ids) :])
        full = reading.clock % self._every == 0
        # Weights that stay NaN are counted when they turn, and then with the full statistics only. Those whose squares
        # overflow are flagged too: counting finds them finite, so that they are counted at every step.
        if len(weights) and (full or flagged != self._weights_bad):
            stats = self._probe.weight_statistics(exact=bool(flagged))
            if flagged:
                counts |= _correct(codes[len(ids) :], stats, [w.id for w in weights])
            self._full(step, np.array([w.id for w in weights], np.int64), stats)
            self._weights_bad = _flagged(codes[len(ids) :])
        if counts:
            self._writer.event(CountsRow(step, counts))
        return counts

    def _full(self, step: int, ids: Any, stats: Any) -> None:
        if len(ids):
            self._writer.full(
                FullBlock(
                    np.array([step], np.int64),
                    ids,
                    np.maximum(stats[None, :, kernels.MAX_ABS], 0),
                    stats[None, :, kernels.MEAN].astype(np.float32),
                    stats[None, :, kernels.ZERO].astype(np.float32),
                    stats[None, :, kernels.SUBNORMAL].astype(np.float32),
                )
            )

    def _update_codes(self, reading: Reading, weights: list[TensorInfo]) -> Any:
        """Norms of the updates at full steps; the step before one keeps a copy of the weights."""
        trainable = sum(w.trainable for w in weights)
        codes = np.zeros(trainable, np.uint16)
        if trainable and reading.clock % self._every == 0:
            norms = self._probe.update_norms()
            if norms is not None:
                codes = magnitude.encode(norms)
        if trainable and (reading.clock + 1) % self._every == 0:
            self._probe.remember_weights()
        return codes


def _members(plan: Plan, kind: int) -> list[int]:
    return list(range(len(plan.ids))) if kind == CLOSE_LOOK else list(plan.groups[kind - ALL_GROUPS])


def _flagged(codes: Any) -> frozenset[int]:
    return frozenset(np.flatnonzero(magnitude.to_bits(codes)).tolist())


def _correct(codes: Any, stats: Any, ids: list[int]) -> dict[int, Counts]:
    """Put exact states and norms into `codes`; counts of the tensors that are not finite."""
    bad = stats[:, [kernels.NAN, kernels.POS_INF, kernels.NEG_INF]] > 0
    bits = bad @ np.array([magnitude.NAN, magnitude.POS_INF, magnitude.NEG_INF])
    codes[:] = np.where(bits > 0, magnitude.from_bits(bits), magnitude.encode(stats[:, kernels.NORM]))
    columns = [kernels.NAN, kernels.POS_INF, kernels.NEG_INF, kernels.SIZE]
    return {ids[i]: Counts(*(int(n) for n in stats[i, columns])) for i in np.flatnonzero(bits)}


def _as_float32(values: Any) -> Any:
    """Finite values stay finite: those beyond the range are held at its ends."""
    limit = np.finfo(np.float32).max
    return np.where(np.isfinite(values), np.clip(values, -limit, limit), values).astype(np.float32)


def _counts_of(value: float) -> Counts:
    return Counts(nan=int(np.isnan(value)), pos_inf=int(value == np.inf), neg_inf=int(value == -np.inf), size=1)
