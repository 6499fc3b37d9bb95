"""The steps before an incident at full resolution: read anew while the replay runs them again, and written as rows.

A step that runs again as it ran gives the numbers that it gave. This time all of its tensors are reduced, whatever
`every` is and whatever a rotation left out; what was written of the step before stays, and readers put both together.
Steps whose losses come out otherwise, as with random numbers drawn anew, are not written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import CountsRow, TensorInfo
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.device import DeviceSide, Plan
from tb_nanwatch.record.rows import FIRST_UPDATE_ID, Gone, StepRows, corrected, full_block
from tb_nanwatch.record.weights import Weights
from tb_nanwatch.record.writer import RunWriter
from tb_nanwatch.stats import measures

SECONDS: Final = 4.0  # that all looks of an incident may add to the steps themselves


@dataclass
class Retrospect:
    """Looks at steps while they run again: `begin`, `with at(step): run it`, oldest first; `write` in the end.

    weights, weight_infos: of those that the host measures; plan: the newest that ran; scale: the loss scale now.
    Where time runs short the last steps are looked at.
    """

    device: DeviceSide
    weights: Weights
    weight_infos: list[TensorInfo]
    infos: Mapping[int, TensorInfo]
    plan: Callable[[], Plan | None]
    scale: Callable[[], float]
    rows: StepRows
    repeated: bool | None = None  # whether the steps gave the losses that they gave; None as long as nobody knows
    failed: str = ""  # why it looked at nothing more
    _left: int = 0  # steps to come
    _spent: float = 0.0
    _each: float = 0.0
    _first: bool = True
    _seen: list[_Seen] = field(default_factory=list)

    def begin(self, steps: int) -> None:
        """So many are to come."""
        self._left = steps

    @contextmanager
    def at(self, step: int) -> Iterator[None]:
        """Look at the step that runs inside, which makes one call of the watched step."""
        start = time.monotonic()
        self._left -= 1
        original = self.rows.gone(step)
        too_slow = self._each * (self._left + 1) > SECONDS - self._spent
        if original is None or too_slow or self.failed or self.repeated is False:
            yield
            return
        scale = self.scale()
        self.weights.remember()
        self.device.looking.assign(True)
        try:
            yield
        finally:
            self.device.looking.assign(False)
        try:
            self._look(step, original, scale)
        except Exception as error:  # the replay itself is worth more
            self.failed = f"{type(error).__name__}: {str(error)[:200]}"
        took = max(0.0, time.monotonic() - start - self.rows.usual_seconds)
        if self._first:  # it may have been traced anew
            self._first = False
            return
        self._spent += took
        self._each = took if self._each == 0 else min(self._each, took)  # others may use the machine, too

    def write(self, writer: RunWriter) -> None:
        """Queue what was seen, as long as the steps came out as they had."""
        groups: list[list[_Seen]] = []
        for seen in self._seen:
            if not groups or not np.array_equal(groups[-1][0].ids, seen.ids):
                groups.append([])
            groups[-1].append(seen)
        for group in groups:
            _write(writer, group)

    # ------------------------------------------------------------

    def _look(self, step: int, original: Gone, scale: float) -> None:
        plan = self.plan()
        if plan is None:
            return
        slot = (int(self.device.clock.numpy()) - 1) % self.device.slots
        row = np.asarray(plan.rows)[slot]
        measured = len(plan.tensors.owner)
        losses = plan.losses.total(row[measured:]) if plan.folded else row[measured:]
        same = len(losses) == len(original.losses) and np.array_equal(losses, original.losses, equal_nan=True)
        self.repeated = same and self.repeated is not False
        if not self.repeated:
            return
        stats = np.array(np.asarray(plan.stats)[slot])
        stats = plan.tensors.statistics(stats) if plan.folded else stats
        gradients = [n for n, i in enumerate(plan.ids) if self.infos[i].kind in ("gradient", "applied")]
        if scale > 0 and scale != 1:
            stats[np.ix_(gradients, [measures.NORM, measures.MAX_ABS, measures.MEAN])] /= scale
        weights = self._weights()
        updates = self.weights.updates()
        changed = [FIRST_UPDATE_ID + w.id for w in self.weight_infos if w.trainable] if updates is not None else []
        ids = np.array([*plan.ids, *(w.id for w in self.weight_infos)], np.int64)
        stats = np.concatenate([stats.reshape(-1, measures.COLUMNS), weights])
        codes, counts = corrected(stats, ids)
        more = np.zeros(0) if updates is None else np.asarray(updates)
        all_ids = np.array([*ids, *changed], np.int64)
        codes = np.concatenate([codes, magnitude.encode(more)])
        codes[np.isin(all_ids, original.measured)] = magnitude.NOT_MEASURED
        self._seen.append(_Seen(step, original, ids, stats, all_ids, codes, counts))

    def _weights(self) -> Any:
        if not self.weight_infos:
            return np.zeros((0, measures.COLUMNS))
        squares = np.asarray(self.weights.squares())
        if np.isfinite(squares).all():
            return np.asarray(self.weights.statistics(squares))
        return np.asarray(self.weights.exact_statistics())


@dataclass(frozen=True)
class _Seen:
    """What was seen of a step. stats float64[m, COLUMNS] of ids; codes uint16[n] of norm_ids, which are new."""

    step: int
    original: Gone
    ids: Any
    stats: Any
    norm_ids: Any
    codes: Any
    counts: dict[int, Any]


def _write(writer: RunWriter, group: list[_Seen]) -> None:
    steps = np.array([s.step for s in group], np.int64)
    codes = np.stack([s.codes for s in group])
    new = np.flatnonzero((codes != magnitude.NOT_MEASURED).any(axis=0))
    if len(new):
        writer.rows(
            Rows(
                steps,
                np.array([s.original.wall_time for s in group], np.float64),
                np.array([s.original.iterations for s in group], np.int64),
                group[0].norm_ids[new],
                np.ascontiguousarray(codes[:, new]),
                np.zeros(0, np.int64),
                np.zeros((len(group), 0), np.float32),
                again=True,
            )
        )
    planes = np.stack([s.stats for s in group])
    if planes.shape[1]:
        writer.full(full_block(steps, group[0].ids, planes))
    for seen in group:
        if seen.counts:
            writer.event(CountsRow(seen.step, seen.counts))
