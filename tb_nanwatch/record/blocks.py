"""Rows of steps gathered into blocks that are worth compressing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format.records import FullBlock, StepBlock

BLOCK_STEPS: Final = 256  # blocks end at multiples of this, so that thousands of steps need few blocks


@dataclass(frozen=True)
class Rows:
    """Measured steps as they leave the device.

    steps, iterations int64[n]; wall_times float64[n]; norm_ids int64[m]; norms uint16[n, m] magnitude codes;
    scalar_ids int64[k]; scalars float32[n, k]. again: more of steps that were written before.
    """

    steps: NDArray[np.int64]
    wall_times: NDArray[np.float64]
    iterations: NDArray[np.int64]
    norm_ids: NDArray[np.int64]
    norms: NDArray[np.uint16]
    scalar_ids: NDArray[np.int64]
    scalars: NDArray[np.float32]
    again: bool = False


class StepGatherer:
    """Gathers Rows with the same columns; hands out StepBlocks that end at multiples of BLOCK_STEPS."""

    def __init__(self) -> None:
        self._parts: list[Rows] = []

    def add(self, rows: Rows) -> list[StepBlock]:
        """Blocks that are now complete."""
        done: list[StepBlock] = []
        if self._parts and not self._same_columns(rows):
            done += self.drain()
        while len(rows.steps):
            room = BLOCK_STEPS - int(rows.steps[0]) % BLOCK_STEPS
            cut = int(np.searchsorted(rows.steps, rows.steps[0] + room))
            self._parts.append(_slice(rows, 0, cut))
            if cut < len(rows.steps) or (int(rows.steps[-1]) + 1) % BLOCK_STEPS == 0:
                done += self.drain()
            rows = _slice(rows, cut, len(rows.steps))
        return done

    def drain(self) -> list[StepBlock]:
        """What is gathered, complete or not."""
        parts, self._parts = self._parts, []
        if not parts:
            return []
        first = parts[0]
        return [
            StepBlock(
                steps=np.concatenate([p.steps for p in parts]),
                wall_times=np.concatenate([p.wall_times for p in parts]),
                iterations=np.concatenate([p.iterations for p in parts]),
                norm_ids=first.norm_ids,
                norms=np.concatenate([p.norms for p in parts]),
                scalar_ids=first.scalar_ids,
                scalars=np.concatenate([p.scalars for p in parts]),
            )
        ]

    def _same_columns(self, rows: Rows) -> bool:
        last = self._parts[-1]
        return (
            np.array_equal(last.norm_ids, rows.norm_ids)
            and np.array_equal(last.scalar_ids, rows.scalar_ids)
            and int(last.steps[-1]) < int(rows.steps[0])
        )


class FullGatherer:
    """Gathers full steps; hands out a FullBlock for every `FULL_ROWS` steps of the same tensors.

    A step may bring several groups of tensors (weights, the rest, one group of a rotation): each gathers on its own.
    """

    FULL_ROWS: Final = 26  # the full steps of one block of 256 steps at the default of every tenth

    def __init__(self) -> None:
        self._groups: dict[bytes, list[FullBlock]] = {}

    def add(self, row: FullBlock) -> list[FullBlock]:
        """Blocks that are now complete."""
        key = np.asarray(row.ids, np.int64).tobytes()
        rows = self._groups.setdefault(key, [])
        done: list[FullBlock] = []
        if rows and int(rows[-1].steps[-1]) >= int(row.steps[0]):  # the count of steps went back
            done.append(_joined(rows))
            rows.clear()
        rows.append(row)
        if sum(len(r.steps) for r in rows) >= self.FULL_ROWS:
            done.append(_joined(self._groups.pop(key)))
        return done

    def drain(self) -> list[FullBlock]:
        """What is gathered, complete or not."""
        groups, self._groups = self._groups, {}
        return [_joined(rows) for rows in groups.values()]


def _joined(rows: list[FullBlock]) -> FullBlock:
    return FullBlock(
        steps=np.concatenate([r.steps for r in rows]),
        ids=rows[0].ids,
        **{
            name: np.concatenate([getattr(r, name) for r in rows])
            for name in ("max_abs", "mean", "zero_share", "subnormal_share")
        },
    )


def _slice(rows: Rows, first: int, last: int) -> Rows:
    return Rows(
        rows.steps[first:last],
        rows.wall_times[first:last],
        rows.iterations[first:last],
        rows.norm_ids,
        rows.norms[first:last],
        rows.scalar_ids,
        rows.scalars[first:last],
    )
