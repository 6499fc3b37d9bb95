"""Readings of single steps become columns for the writer, and a state to judge."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import Counts, CountsRow, FullBlock, TensorInfo
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.device import ALL_GROUPS, CLOSE_LOOK, NOTHING, Plan
from tb_nanwatch.record.judge import Bad, StepState
from tb_nanwatch.record.lookout import Limits, Lookout
from tb_nanwatch.record.probe import Reading
from tb_nanwatch.record.weights import Weights
from tb_nanwatch.record.writer import RunWriter
from tb_nanwatch.stats import measures

BATCH: Final = 32  # steps handed to the writer at once
REMEMBERED: Final = 256  # newest steps of which is known what was written
TINY: Final = 1e-15  # norms below it
FIRST_UPDATE_ID: Final = 1 << 20  # update tensors: this plus the weight's id
LEARNING_RATE, LOSS_SCALE, METRICS = (1 << 21) + 1, (1 << 21) + 2, (1 << 21) + 3
FIRST_OTHER: Final = (1 << 21) + 16  # further single numbers


class Statistics(Protocol):
    """Where the statistics of a step come from."""

    @property
    def weights(self) -> Weights:
        """The weights as they are now."""

    def statistics(self, plan: Plan, clock: int) -> Any:
        """float64[m, COLUMNS] of the plan's tensors at a step, in an array that may be changed."""


class StepRows:
    """Gathers readings; flushes them to the writer in batches."""

    def __init__(
        self,
        writer: RunWriter,
        probe: Statistics,
        weight_infos: Callable[[], list[TensorInfo]],
        loss_scale: float = float("nan"),
        first_step: int = 0,
    ) -> None:
        self.next_step = first_step
        self._scale = loss_scale
        self._writer = writer
        self._probe = probe
        self._weight_infos = weight_infos
        self._kept: list[_Kept] = []
        self._by_plan: dict[
            tuple[int, int, tuple[int, ...]], Columns
        ] = {}  # by plan, number of weights, which may grow
        self._others: dict[str, int] = {}  # ids by name
        self._current: tuple[int, ...] = ()  # those that readings have now
        self._columns: Columns | None = None
        self._weights_bad: frozenset[int] = frozenset()  # their numbers
        self._metric = TensorInfo(METRICS, "metric", "metrics")
        self._lookout = Lookout()
        self._newest: _Kept | None = None
        self._gone: deque[tuple[_Kept, Columns]] = deque(maxlen=REMEMBERED)

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

    def expect_scale(self, scale: float) -> None:
        """The loss scale that the next step begins with, where it was not known yet."""
        self._scale = scale if np.isnan(self._scale) else self._scale

    def follow(self, names: Sequence[str]) -> list[TensorInfo]:
        """Expect further single numbers in readings from now on; infos of those that are new."""
        new = [name for name in names if name not in self._others]
        self._others |= {name: FIRST_OTHER + len(self._others) + n for n, name in enumerate(new)}
        self._current = tuple(self._others[name] for name in names)
        return [TensorInfo(self._others[name], "scalar", name) for name in new]

    @property
    def usual_seconds(self) -> float:
        """What a step takes from one to the next, in the middle of the newest ones; 0 where nobody knows."""
        walls = np.array([kept.wall_time for kept, _ in self._gone])
        return float(np.median(np.diff(walls))) if len(walls) > 1 else 0.0

    def gone(self, step: int) -> Gone | None:
        """One of the newest steps, as it is written."""
        for kept, columns in reversed(self._gone):
            if kept.step == step:
                codes = np.concatenate([columns.codes([kept])[0], columns.update_codes([kept])[0]])
                losses = kept.scalars[: len(columns.losses)]
                return Gone(kept.wall_time, kept.iterations, columns.norm_ids[codes != magnitude.NOT_MEASURED], losses)
        return None

    # ------------------------------------------------------------ one step

    def add(self, reading: Reading, first_step: int, infos: Mapping[int, TensorInfo], scaled: bool) -> StepState:
        """Take in one step; returns what there is to judge."""
        step = first_step + reading.clock
        self.next_step = step + 1
        columns = self._columns_of(reading, infos)
        row = reading.row if reading.row is not None else np.zeros(0)
        measured = len(columns.ids)
        weights = reading.weights if reading.weights is not None else np.zeros(0)
        norms = np.sqrt(np.abs(np.concatenate([row[:measured], weights])))  # of flags, any sign occurs
        scale, self._scale = self._scale, reading.loss_scale
        if scale > 0 and scale != 1:  # gradients carry the loss scale that the step began with
            norms[columns.gradients] /= scale
        values = row[measured:]
        if reading.plain:  # nearly every step: encoded with others, when the batch is full
            self._keep(step, reading, columns, norms, None, values)
            return StepState(step, (), scaled)
        codes = columns.encode(norms)
        if columns.compiled:  # cheap numbers are flags there, not norms
            codes[:measured] = np.where(
                np.isfinite(row[:measured]), magnitude.NOT_MEASURED, magnitude.NONFINITE_UNKNOWN
            )
        codes[np.isinf(norms)] = magnitude.NONFINITE_UNKNOWN  # infinite elements, or squares that overflow
        counts = self._look(reading, step, columns, codes, scale)
        self._keep(step, reading, columns, norms, codes, values)
        return StepState(step, self._bad(reading, columns, codes, counts, values), scaled, columns.finite(codes))

    def look_ahead(self) -> str | None:
        """A warning, once, when the steps up to the newest one show that numbers will outgrow their dtype."""
        kept, columns = self._newest, self._columns
        if kept is None or columns is None:
            return None
        norms, losses = kept.norms, kept.scalars[: len(columns.losses)]
        if columns.compiled and kept.codes is None:  # flags, not norms
            norms = np.concatenate([np.full(len(columns.ids), np.nan), norms[len(columns.ids) :]])
        return self._lookout.follow(kept.step, columns.limits, norms, kept.codes, losses)

    def look_anew(self) -> None:
        """Leave what came until now out of `look_ahead`."""
        self._lookout.forget()

    def flush(self) -> None:
        """Hand what is gathered to the writer."""
        if not self._kept or self._columns is None:
            return
        kept, self._kept = self._kept, []
        codes, updates = self._columns.codes(kept), self._columns.update_codes(kept)
        self._writer.rows(
            Rows(
                np.array([k.step for k in kept], np.int64),
                np.array([k.wall_time for k in kept], np.float64),
                np.array([k.iterations for k in kept], np.int64),
                self._columns.norm_ids,
                np.concatenate([codes, updates], axis=1),
                self._columns.scalar_ids,
                _as_float32(np.stack([k.scalars for k in kept])),
            )
        )

    # ------------------------------------------------------------

    def _columns_of(self, reading: Reading, infos: Mapping[int, TensorInfo]) -> Columns:
        key = (
            -1 if reading.plan is None else reading.plan.index,
            0 if reading.weights is None else len(reading.weights),
            self._current[: len(reading.others)],
        )
        if key not in self._by_plan:
            weights = self._weight_infos() if reading.weights is not None else []
            self._by_plan[key] = Columns.of(reading.plan, weights, infos, key[2])
        return self._by_plan[key]

    def _keep(self, step: int, reading: Reading, columns: Columns, norms: Any, codes: Any, values: Any) -> None:
        if self._columns is not columns:
            self.flush()
        self._columns = columns
        scalars = np.array([*values, reading.learning_rate, reading.loss_scale, *reading.others])
        self._newest = _Kept(step, time.time(), reading.iterations, norms, codes, scalars, reading.update_norms)
        self._kept.append(self._newest)
        self._gone.append((self._newest, columns))
        if len(self._kept) >= BATCH:
            self.flush()

    def _bad(
        self, reading: Reading, columns: Columns, codes: Any, counts: Mapping[int, Counts], values: Any
    ) -> tuple[Bad, ...]:
        bad = [
            Bad(
                columns.infos[i],
                counts.get(columns.infos[i].id, Counts()),
                reading.culprits.get(columns.infos[i].id, -1),
            )
            for i in np.flatnonzero(magnitude.to_bits(codes))
        ]
        bad += [
            Bad(i, _counts_of(v), reading.culprits.get(i.id, -1))
            for i, v in zip(columns.losses, values, strict=True)
            if not np.isfinite(v)
        ]
        if not reading.metrics_finite:
            bad.append(Bad(self._metric))
        return tuple(bad)

    def _look(self, reading: Reading, step: int, columns: Columns, codes: Any, scale: float) -> dict[int, Counts]:
        """Take the step's statistics where there are any; corrects `codes` in place, returns exact counts."""
        plan, counts = reading.plan, {}
        measured = len(columns.ids)
        if plan is not None and reading.kind != NOTHING:
            stats = self._probe.statistics(plan, reading.clock)
            if scale > 0 and scale != 1:
                stats[np.ix_(columns.gradients, [measures.NORM, measures.MAX_ABS, measures.MEAN])] /= scale
            members = _members(plan, reading.kind)
            columns.limits.measured(members, stats[members, measures.MAX_ABS], stats[members, measures.NORM])
            if reading.kind == CLOSE_LOOK:
                counts = _correct(codes[:measured], stats, columns.ids)
            else:  # of tensors known to be finite: of others XLA makes anything
                members = [m for m in members if not magnitude.to_bits(codes[m])]
                columns.tiny[members] = (stats[members, measures.MAX_ABS] > 0) & (stats[members, measures.NORM] < TINY)
                if plan.compiled or columns.tiny.any():
                    codes[members] = magnitude.encode(stats[members, measures.NORM])
            self._full(step, columns.ids[members], stats[members])
        weights = columns.weight_ids
        flagged = _flagged(codes[measured:])
        # Weights that stay NaN are counted when they turn, and then with the full statistics only. Those whose squares
        # overflow are flagged too: counting finds them finite, so that they are counted at every step.
        if len(weights) and flagged and (reading.weight_statistics is not None or flagged != self._weights_bad):
            stats = self._probe.weights.exact_statistics()
            chosen = np.array(sorted(flagged))  # the others may have turned since, where the host reads a call later
            corrected = codes[measured + chosen]
            counts |= _correct(corrected, stats[chosen], weights[chosen])
            codes[measured + chosen] = corrected
            self._full(step, weights, stats)
        elif len(weights) and reading.weight_statistics is not None:
            now = reading.weight_statistics
            places = np.arange(measured, measured + len(weights))
            columns.limits.measured(places, now[:, measures.MAX_ABS], now[:, measures.NORM])
            self._full(step, weights, reading.weight_statistics)
        self._weights_bad = _flagged(codes[measured:])
        if counts:
            self._writer.event(CountsRow(step, counts))
        return counts

    def _full(self, step: int, ids: Any, stats: Any) -> None:
        if len(ids):
            self._writer.full(full_block(np.array([step], np.int64), ids, stats[None]))


def full_block(steps: Any, ids: Any, stats: Any) -> FullBlock:
    """Statistics float64[n, m, COLUMNS] of tensors `ids`, as they are written."""
    return FullBlock(
        steps,
        ids,
        np.maximum(stats[:, :, measures.MAX_ABS], 0),
        stats[:, :, measures.MEAN].astype(np.float32),
        stats[:, :, measures.ZERO].astype(np.float32),
        stats[:, :, measures.SUBNORMAL].astype(np.float32),
    )


@dataclass(frozen=True)
class Columns:
    """What the rows of one plan consist of.

    Ids int64[m] of its tensors; weight_ids int64[w] of the weights read by the host.
    """

    ids: Any
    weight_ids: Any
    infos: tuple[TensorInfo, ...]  # of both
    losses: tuple[TensorInfo, ...]
    gradients: Any  # positions
    norm_ids: Any
    scalar_ids: Any
    no_updates: Any
    limits: Limits
    tiny: Any  # bool[m + w], kept up to date: norms so small that their squares may underflow
    compiled: bool

    @classmethod
    def of(
        cls,
        plan: Plan | None,
        weights: Sequence[TensorInfo],
        infos: Mapping[int, TensorInfo],
        others: Sequence[int] = (),
    ) -> Columns:
        ids = list(plan.ids) if plan is not None else []
        losses = list(plan.scalar_ids) if plan is not None else []
        updates = [FIRST_UPDATE_ID + w.id for w in weights if w.trainable]
        return cls(
            np.array(ids, np.int64),
            np.array([w.id for w in weights], np.int64),
            (*(infos[i] for i in ids), *weights),
            tuple(infos[i] for i in losses),
            np.array([n for n, i in enumerate(ids) if infos[i].kind in ("gradient", "applied")], np.int64),
            np.array([*ids, *(w.id for w in weights), *updates], np.int64),
            np.array([*losses, LEARNING_RATE, LOSS_SCALE, *others], np.int64),
            np.zeros(len(updates), np.uint16),
            Limits([*(infos[i] for i in ids), *weights], [infos[i] for i in losses]),
            np.zeros(len(ids) + len(weights), bool),
            plan is not None and plan.compiled,
        )

    def encode(self, norms: Any) -> Any:
        """Codes of cheap norms, of one step or of many."""
        codes = magnitude.encode(norms)
        codes[self.tiny & (codes == magnitude.ZERO)] = magnitude.NOT_MEASURED  # their squares underflow
        return codes

    def codes(self, kept: Sequence[_Kept]) -> Any:
        """uint16[n, m + w] of steps: those that they were given, else of their cheap norms."""
        codes = self.encode(np.stack([k.norms for k in kept]))
        if self.compiled:  # flags, not norms
            codes[:, : len(self.ids)] = magnitude.NOT_MEASURED
        for number, k in enumerate(kept):
            if k.codes is not None:
                codes[number] = k.codes
        return codes

    def update_codes(self, kept: Sequence[_Kept]) -> Any:
        """uint16[n, updates] of steps."""
        return np.stack([self.no_updates if k.updates is None else magnitude.encode(k.updates) for k in kept])

    def finite(self, codes: Any) -> frozenset[str]:
        """Names of the variables whose gradient was read and found finite."""
        return frozenset(self.infos[n].name for n in self.gradients if not magnitude.to_bits(codes[n]))


@dataclass(frozen=True)
class Gone:
    """A step as it was written. measured int64[n]: ids of the norms that it has; losses float64[k]."""

    wall_time: float
    iterations: int
    measured: Any
    losses: Any


@dataclass(frozen=True)
class _Kept:
    """A step that waits to be written. codes are given where they are not simply those of the norms."""

    step: int
    wall_time: float
    iterations: int
    norms: Any
    codes: Any
    scalars: Any
    updates: Any


def _members(plan: Plan, kind: int) -> list[int]:
    return list(range(len(plan.ids))) if kind == CLOSE_LOOK else list(plan.groups[kind - ALL_GROUPS])


def _flagged(codes: Any) -> frozenset[int]:
    return frozenset(np.flatnonzero(magnitude.to_bits(codes)).tolist())


def corrected(stats: Any, ids: Any) -> tuple[Any, dict[int, Counts]]:
    """(codes uint16[m], counts of the tensors that are not finite) from exact statistics float64[m, COLUMNS] of ids."""
    codes = np.zeros(len(stats), np.uint16)
    return codes, _correct(codes, stats, ids)


def _correct(codes: Any, stats: Any, ids: Any) -> dict[int, Counts]:
    """Put exact states and norms into `codes`; counts of the tensors that are not finite."""
    bad = stats[:, [measures.NAN, measures.POS_INF, measures.NEG_INF]] > 0
    bits = bad @ np.array([magnitude.NAN, magnitude.POS_INF, magnitude.NEG_INF])
    codes[:] = np.where(bits > 0, magnitude.from_bits(bits), magnitude.encode(stats[:, measures.NORM]))
    columns = [measures.NAN, measures.POS_INF, measures.NEG_INF, measures.SIZE]
    return {int(ids[i]): Counts(*(int(n) for n in stats[i, columns])) for i in np.flatnonzero(bits)}


def _as_float32(values: Any) -> Any:
    """Finite values stay finite: those beyond the range are held at its ends."""
    limit = np.finfo(np.float32).max
    return np.where(np.isfinite(values), np.clip(values, -limit, limit), values).astype(np.float32)


def _counts_of(value: float) -> Counts:
    return Counts(nan=int(np.isnan(value)), pos_inf=int(value == np.inf), neg_inf=int(value == -np.inf), size=1)
