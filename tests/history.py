"""Runs made record by record, beside the plain arrays that they hold: what a reader's answers are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import framing, magnitude, metadata
from tb_nanwatch.format.records import Counts, CountsRow, Record, RunHeader, StepBlock, TensorInfo

START = 1_700_000_000.0
INFOS = (
    TensorInfo(0, "weight", "a/kernel", "a", "Dense", "float32", (4, 4), 0, trainable=True),
    TensorInfo(1, "weight", "b/kernel", "b", "Dense", "float16", (4, 4), 1, trainable=True),
    TensorInfo(2, "gradient", "a/kernel", "a", "Dense", "float32", (4, 4), 0),
    TensorInfo(3, "loss", "loss", shape=(), order=9),
)
TAGS = tuple(info.tag for info in INFOS)


@dataclass(frozen=True)
class Recorder:
    """One recorder's columns. steps int64[n]; codes uint16[n, 3]; losses float32[n]; cuts: where its blocks end."""

    steps: NDArray[np.int64]
    codes: NDArray[np.uint16]
    losses: NDArray[np.float32]
    attempt: int = 0
    worker: int = 0
    cuts: Sequence[int] = ()
    file_cuts: Sequence[int] = ()  # numbers of blocks behind which a new segment begins
    counts: Mapping[int, Counts] = field(default_factory=dict)  # step to counts of tensor 0

    def write(self, logdir: Path) -> list[Path]:
        """Its segment files, each with header and table."""
        logdir.mkdir(parents=True, exist_ok=True)
        edges = [0, *self.cuts, len(self.steps)]
        blocks = [b for a, z in itertools.pairwise(edges) if a < z for b in [self._block(a, z)]]
        groups: list[list[Record]] = [[]]
        for number, block in enumerate(blocks):
            groups[-1].append(block)
            if number in self.file_cuts:
                groups.append([])
        groups[-1] += [CountsRow(step, {0: counts}) for step, counts in self.counts.items()]
        paths = []
        for segment, records in enumerate(groups):
            header = RunHeader(
                f"w{self.attempt}{self.worker}", segment=segment, attempt=self.attempt, worker=self.worker,
                wall_time=START + self.attempt,
            )  # fmt: skip
            name = f"events.out.tfevents.{1700000000 + self.attempt}.h.1.{header.writer_id}.{segment:05d}.nanwatch"
            paths.append(logdir / name)
            paths[-1].write_bytes(b"".join(frames([header, INFOS, *records])))
        return paths

    def _block(self, begin: int, end: int) -> StepBlock:
        steps = self.steps[begin:end]
        return StepBlock(
            steps=steps,
            wall_times=START + steps,
            iterations=steps * 2,
            norm_ids=np.arange(3),
            norms=self.codes[begin:end],
            scalar_ids=np.array([3]),
            scalars=self.losses[begin:end, None],
        )


def frames(records: Sequence[Record]) -> Iterator[bytes]:
    """Framed events: the version, then the records."""
    yield framing.frame(metadata.version_event(START))
    for record in records:
        yield framing.frame(metadata.wrap(record, 0, START))


def recorder(rng: np.random.Generator, first: int, count: int, gaps: float = 0.0, **more: object) -> Recorder:
    """A recorder with random columns: finite codes, zeros, every non-finite state, steps not measured."""
    steps = first + np.flatnonzero(rng.random(count) >= gaps)
    codes = rng.integers(magnitude.FIRST_FINITE, magnitude.LAST + 1, (len(steps), 3)).astype(np.uint16)
    odd = rng.random(codes.shape)
    codes = np.where(odd < 0.02, rng.integers(0, 10, codes.shape), codes).astype(np.uint16)
    codes[:, 1] = np.where(rng.random(len(steps)) < 0.9, 0, codes[:, 1])  # norms in rotation
    losses = rng.normal(1, 0.1, len(steps)).astype(np.float32)
    losses[rng.random(len(steps)) < 0.02] = rng.choice([np.nan, np.inf, -np.inf])
    return Recorder(steps, codes, losses, **more)  # type: ignore[arg-type]


def shown(recorders: Sequence[Recorder], attempt: int | None) -> list[tuple[Recorder, NDArray[np.bool_]]]:
    """Recorders that a question sees, and which of their steps: those outside of every newer attempt's extent."""
    extents: dict[int, tuple[int, int]] = {}
    for r in recorders:
        if len(r.steps):
            old = extents.get(r.attempt, (int(r.steps[0]), int(r.steps[-1])))
            extents[r.attempt] = min(old[0], int(r.steps[0])), max(old[1], int(r.steps[-1]))
    seen = []
    for r in sorted(recorders, key=lambda r: (r.attempt, r.worker)):
        visible = np.ones(len(r.steps), bool)
        if attempt is None:
            for newer, (first, last) in extents.items():
                if newer > r.attempt:
                    visible &= (r.steps < first) | (r.steps > last)
            seen.append((r, visible))
        elif attempt == r.attempt:
            seen.append((r, visible))
    return seen


def count_bits(counts: Counts) -> int:
    """State bits of counts."""
    return (counts.nan > 0) + 2 * (counts.pos_inf > 0) + 4 * (counts.neg_inf > 0)
