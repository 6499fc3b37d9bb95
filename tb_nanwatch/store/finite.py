"""The last step at which training was still sound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import Incident, TensorInfo
from tb_nanwatch.store.columns import NONFINITE
from tb_nanwatch.store.lines import scalar_state
from tb_nanwatch.store.loader import Loader
from tb_nanwatch.store.parts import MAX_STEP, SLOT_LEVEL
from tb_nanwatch.store.visible import Piece

VITAL_KINDS: Final = ("loss", "gradient", "weight")


def last_finite_step(
    pieces: Sequence[Piece], infos: Mapping[str, TensorInfo], incidents: Sequence[Incident], loader: Loader
) -> int | None:
    """Last step before the first incident, or of all steps if there is none, with no vital tensor non-finite.

    None if there is no such step. Raises Vanished.
    """
    stop = incidents[0].first_step if incidents else MAX_STEP
    tags = [tag for tag, info in infos.items() if info.kind in VITAL_KINDS]
    seen = [piece.restricted(0, stop) for piece in pieces]
    while True:
        last = max((piece.last() for piece in seen), default=-1)
        if last < 0:
            break
        # One slot after the other from the end: nearly always the first that is looked at has the answer.
        start = last >> SLOT_LEVEL << SLOT_LEVEL
        window = [piece.restricted(start, last + 1) for piece in seen]
        good, bad = _sound_steps(window, tags, loader)
        sound = np.setdiff1d(good, bad)
        if len(sound):
            return int(sound[-1])
        seen = [piece.restricted(0, start) for piece in seen]
    return incidents[0].last_finite_step if incidents else None


def _sound_steps(
    pieces: Sequence[Piece], tags: Sequence[str], loader: Loader
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All recorded steps, and those at which one of the tags was not finite."""
    every: list[NDArray[np.int64]] = []
    bad: list[NDArray[np.int64]] = []
    for piece in pieces:
        rows = piece.rows(tags)
        losses = {piece.ids[tag].id for tag in tags if tag in piece.ids and piece.ids[tag].kind == "loss"}
        for block, begin, end in piece.blocks():
            steps = block.steps[begin:end]
            every.append(steps)
            columns = block.norms.columns(rows)
            codes = loader.norms(block)[begin:end, columns[columns >= 0]]
            bad.append(steps[(magnitude.to_bits(codes) > 0).any(axis=1)])
            for column, tensor in enumerate(block.scalar_ids):
                if tensor in losses:
                    values = loader.scalars(block)[begin:end, column].astype(np.float64)
                    bad.append(steps[(scalar_state(values, "loss") & NONFINITE) > 0])
        vital = np.array([piece.ids[tag].id for tag in tags if tag in piece.ids], np.int64)
        bad += [
            np.array([row.step])
            for row in piece.part.counts
            if row.step in piece.ranges and np.isin(row.ids, vital).any()
        ]
    empty = np.zeros(0, np.int64)
    return np.concatenate([empty, *every]), np.concatenate([empty, *bad])
