"""Small runs through the real writer, without TensorFlow: a healthy one, and one for every phase that can go bad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import (
    SCALAR_KINDS,
    Counts,
    CountsRow,
    FirstBatches,
    FullBlock,
    Incident,
    Note,
    Origin,
    RunHeader,
    Spread,
    TensorInfo,
)
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.writer import RunWriter

START = 1_700_000_000.0
STEPS = 40
BAD = 30

#: (kind, name, layer, class, shape) of a network of two layers, in the order of a step.
TABLE = (
    ("input", "x", "", "", (32, 16)),
    ("activation", "dense/output", "dense", "Dense", (32, 64)),
    ("activation", "out/output", "out", "Dense", (32, 1)),
    ("loss", "loss", "", "", ()),
    ("gradient", "dense/kernel", "dense", "Dense", (16, 64)),
    ("gradient", "out/kernel", "out", "Dense", (64, 1)),
    ("update", "dense/kernel", "dense", "Dense", (16, 64)),
    ("update", "out/kernel", "out", "Dense", (64, 1)),
    ("weight", "dense/kernel", "dense", "Dense", (16, 64)),
    ("weight", "out/kernel", "out", "Dense", (64, 1)),
    ("metric", "mae", "", "", ()),
)

#: Where each phase starts, with what, and the tensors that follow in the same step.
ORIGINS = {
    "input": ("input/x", Counts(nan=3, size=512)),
    "forward": ("activation/dense/output", Counts(pos_inf=5, size=2048)),
    "loss": ("loss/loss", Counts(nan=1, size=1)),
    "backward": ("gradient/dense/kernel", Counts(nan=128, size=1024)),
    "update": ("update/out/kernel", Counts(nan=64, size=64)),
    "weights": ("weight/dense/kernel", Counts(nan=2, neg_inf=1, size=1024)),
    "metric": ("metric/mae", Counts(nan=1, size=1)),
}

Values = Callable[[TensorInfo, int], float]


def network(rows: Sequence[tuple[str, str, str, str, tuple[int, ...]]] = TABLE) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(number, kind, name, layer, cls, "float32", shape, number, kind == "weight")
        for number, (kind, name, layer, cls, shape) in enumerate(rows)
    )


def calm(info: TensorInfo, step: int) -> float:
    """What healthy training looks like: a loss that falls, norms that hardly move."""
    sizes = {"loss": 2.0 * 0.97**step, "gradient": 0.5, "update": 0.005, "weight": 4.0, "metric": 0.5}
    return sizes.get(info.kind, 1.0) * (1 + 0.01 * (step % 3))


def exploding(info: TensorInfo, step: int) -> float:
    """Everything but the data grows eightfold at every step."""
    return 1.0 if info.kind in ("input", "activation") else calm(info, 0) * 8.0**step


def write(
    logdir: Path,
    values: Values = calm,
    steps: range = range(STEPS),
    infos: Sequence[TensorInfo] | None = None,
    events: Sequence[Incident | CountsRow | Note | FirstBatches] = (),
    close: bool = True,
    **header: Any,
) -> None:
    """A run whose tensor `info` has norm (scalars: value) `values(info, step)`."""
    infos = network() if infos is None else tuple(infos)
    norms = [info for info in infos if info.kind not in SCALAR_KINDS]
    scalars = [info for info in infos if info.kind in SCALAR_KINDS]
    header = {
        "writer_id": "w0",
        "wall_time": START,
        "host": "host",
        "entry_point": "keras_fit",
        "versions": {"keras": "3"},
        **header,
    }
    writer = RunWriter(logdir, RunHeader(**header))
    writer.declare(infos)
    numbers = np.array(steps, np.int64)
    if len(numbers):
        writer.rows(
            Rows(
                steps=numbers,
                wall_times=START + numbers.astype(np.float64),
                iterations=numbers,
                norm_ids=np.array([info.id for info in norms], np.int64),
                norms=magnitude.encode([[values(info, step) for info in norms] for step in steps]),
                scalar_ids=np.array([info.id for info in scalars], np.int64),
                scalars=np.array([[values(info, step) for info in scalars] for step in steps], np.float32),
            )
        )
        full = np.full((1, len(norms)), 0.25)
        ids = np.array([info.id for info in norms], np.int64)
        half = full.astype(np.float32)
        writer.full(FullBlock(numbers[:1], ids, full, half / 8, half, half * 0))
    for event in events:
        writer.event(event)
    writer.flush()
    if close:
        writer.close()
    else:
        writer._segments.close()  # as a SIGKILL would leave it


def incident(
    phase: str, at: int = BAD, last: int | None = None, number: int = 0, spread: bool = True, **more: Any
) -> Incident:
    """An incident of `phase` in the network above, recovered if it has a last step."""
    tag, counts = ORIGINS[phase]
    origin = next(info for info in network() if info.tag == tag)
    followers = (
        [i for i in network() if i.id > origin.id and i.kind in ("gradient", "weight", "loss")] if spread else []
    )
    if phase in ("metric", "weights"):
        followers = []
    chain = [
        Spread(n, at + (n > 2), PHASE_OF[i.kind], i.name, i.kind, Counts(nan=i.id + 1, size=4096), i.layer)
        for n, i in enumerate((origin, *followers))
    ]
    return Incident(
        id=number,
        first_step=at,
        detected_step=at,
        origin=Origin(
            phase, origin.layer, origin.name, origin.kind, origin.layer_class, output=counts, precision="layer"
        ),
        last_step=last,
        recovered=last is not None,
        spread=tuple(chain),
        last_finite_step=at - 1 if at else None,
        wall_time=START + at,
        bad_steps=1 if last is None else last - at + 1,
        **more,
    )


PHASE_OF = {
    "input": "input",
    "activation": "forward",
    "loss": "loss",
    "gradient": "backward",
    "update": "update",
    "weight": "weights",
    "metric": "metric",
}


def blow_up(
    logdir: Path, phase: str, values: Values = calm, at: int = BAD, last: int | None = None, **more: Any
) -> None:
    """A run that goes bad at `at` in `phase`; it stays so, or is finite again after `last`."""
    event = incident(phase, at, last)
    touched = {f"{s.kind}/{s.tensor}" for s in event.spread}

    def spoiled(info: TensorInfo, step: int) -> float:
        bad = info.tag in touched and step >= at and (last is None or step <= last)
        return float("nan") if bad else values(info, step)

    ids = {info.tag: info.id for info in network()}
    counts = CountsRow(at, {ids[f"{s.kind}/{s.tensor}"]: s.counts for s in event.spread if s.step == at})
    write(logdir, spoiled, events=[event, counts], **more)
