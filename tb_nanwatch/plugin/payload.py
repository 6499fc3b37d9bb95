"""Answers of the routes, as http_api.md lays them out: JSON values, and little-endian planes behind a short header."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from tb_nanwatch.diagnose import PostMortem, slot, words
from tb_nanwatch.diagnose.operation import replay_of
from tb_nanwatch.format.records import SCALAR_KINDS, TensorInfo
from tb_nanwatch.plugin.query import KINDS
from tb_nanwatch.store.columns import BinnedSeries, Cell, Tile
from tb_nanwatch.store.run import Run

TILE_MAGIC: Final = b"NWT1"
SERIES_MAGIC: Final = b"NWS1"


def summary(found: PostMortem) -> dict[str, Any]:
    """A run's entry of /runs."""
    run = found.run
    return {
        "run": run.name,
        "status": found.status,
        "headline": found.verdict.headline,
        "first_step": run.first_step,
        "last_step": run.last_step,
        "steps": run.steps,
        "last_finite_step": run.last_finite_step,
        "incidents": len(run.incidents),
        "findings": len(found.entry["findings"]),
        "tensors": len(run.tensors),
        "attempts": [
            {
                "attempt": attempt.attempt,
                "first_step": attempt.first_step,
                "last_step": attempt.last_step,
                "wall_time": attempt.header.wall_time,
            }
            for attempt in run.attempts
        ],
        "started": run.started,
        "updated": run.updated,
        "ended": run.ended,
        "version": run.version,
    }


def report(found: PostMortem) -> dict[str, Any]:
    """Of /report."""
    header = found.run.header
    entry = found.entry
    return {
        **entry,
        "incidents": [
            {**told, "remedies": _titled(told["remedies"]), "lost": slot.sentence(incident, replay_of(incident))}
            for told, incident in zip(entry["incidents"], found.run.incidents, strict=True)
        ],
        "findings": [
            {**finding, "remedies": _titled(offered)}
            for finding, offered in zip(entry["findings"], found.advice, strict=True)
        ],
        "headline": found.verdict.headline,
        "paragraphs": list(found.verdict.paragraphs),
        "notes": [{"step": note.step, "kind": note.kind, "text": note.text} for note in found.run.notes],
        "about": {
            "entry_point": header.entry_point,
            "every": header.every,
            "host": header.host,
            "versions": dict(header.versions),
            "options": dict(header.options),
        },
    }


def _titled(offered: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Remedies with what they are called where people read."""
    return [{**remedy, "title": words.remedy(remedy["name"])} for remedy in offered]


def tensors(run: Run) -> dict[str, Any]:
    """Of /tensors."""
    return {
        "version": run.version,
        "steps": {"first": run.first_step, "last": run.last_step, "count": run.steps},
        "kinds": {kind: [_row(number, info) for number, info in enumerate(run.kind(kind))] for kind in KINDS},
        "scalars": [
            {"tag": info.tag, "kind": info.kind, "name": info.name} for info in run.tensors if info.kind in SCALAR_KINDS
        ],
    }


def _row(number: int, info: TensorInfo) -> dict[str, Any]:
    return {
        "row": number,
        "tag": info.tag,
        "name": info.name,
        "layer": info.layer,
        "layer_class": info.layer_class,
        "dtype": info.dtype,
        "shape": None if info.shape is None else list(info.shape),
        "order": info.order,
        "trainable": info.trainable,
    }


def tile(block: Tile, level: int) -> bytes:
    """Of /tile."""
    rows, bins = block.state.shape
    return b"".join(
        (
            TILE_MAGIC,
            struct.pack("<IIIq", level, rows, bins, block.first_step),
            block.low.astype("<u2").tobytes(),
            block.high.astype("<u2").tobytes(),
            block.state.astype(np.uint8).tobytes(),
        )
    )


def series(binned: BinnedSeries) -> bytes:
    """Of /series."""
    return b"".join(
        (
            SERIES_MAGIC,
            struct.pack("<III", len(binned.step), binned.steps_per_bin, 0),
            binned.step.astype("<f8").tobytes(),
            binned.low.astype("<f8").tobytes(),
            binned.high.astype("<f8").tobytes(),
            binned.state.astype(np.uint8).tobytes(),
        )
    )


def cell(known: Cell, kind: str) -> dict[str, Any]:
    """Of /cell, for a tensor of `kind`."""
    scalar = kind in SCALAR_KINDS
    return {
        "tag": known.tag,
        "step": known.step,
        "measured_step": known.measured_step,
        "wall_time": known.wall_time,
        "iteration": known.iteration,
        **({"value": known.value} if scalar else {"norm": known.norm}),
        "state": list(known.states),
        "full": None if known.full is None else asdict(known.full),
        "counts": None if known.counts is None else {"step": known.counts_step, **asdict(known.counts)},
    }
