# ruff: noqa: INP001 (a script, not a package)
"""Writes the runs that the browser tests look at, through the real writer, without TensorFlow.

`make_runs.py LOGDIR` makes `blowup` (every tensor dead from step 91 of 100 on, one of them a step earlier), `flash`
(one NaN in one tensor at step 12,345 of 20,000), `healthy`, `twice`, whose second attempt did steps 120 to 199
again and went on to 259, and `op`, whose incident a replay traced to an op and a line. `make_runs.py LOGDIR --live`
keeps a run `live` open: for every line on standard input it appends 50 steps and answers with a line, and ends with
the input.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import (
    Counts,
    CountsRow,
    FullBlock,
    Incident,
    Note,
    OperandStats,
    Origin,
    RunHeader,
    Source,
    Spread,
    TensorInfo,
)
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.writer import RunWriter

LAYERS = ("conv", "encoder/<b>mid</b>", "head")  # names are text, whatever they look like
START = 1_700_000_000.0
BASE = {"weight": 3.0, "gradient": 0.1, "applied": 0.01, "update": 0.001, "activation": 12.0}


def tensors(clipped: bool = False) -> list[TensorInfo]:
    """Of three layers, all kinds, and the loss. What an optimizer applies is another tensor where it is `clipped`."""
    found: list[TensorInfo] = []
    for order, layer in enumerate(LAYERS):
        for kind, leaf in (
            *((("applied", "kernel"),) if clipped else ()),
            ("weight", "kernel"),
            ("weight", "bias"),
            ("gradient", "kernel"),
            ("gradient", "bias"),
            ("update", "kernel"),
            ("activation", "output"),
        ):
            found.append(
                TensorInfo(
                    id=len(found),
                    kind=kind,
                    name=f"{layer}/{leaf}",
                    layer=layer,
                    layer_class="Dense",
                    shape=(64, 32),
                    order=order,
                    trainable=kind == "weight",
                )
            )
    found.append(TensorInfo(id=len(found), kind="loss", name="loss"))
    return found


class Run:
    """A run that is being written: `bad` maps (step, tag) to state bits."""

    def __init__(self, logdir: Path, name: str, attempt: int = 0, first_step: int = 0, clipped: bool = False) -> None:
        self.tensors = tensors(clipped)
        self.norms = [t for t in self.tensors if t.kind != "loss"]
        header = RunHeader(
            writer_id=f"{name}-{attempt}",
            attempt=attempt,
            first_step=first_step,
            host="host",
            entry_point="keras_fit",
            wall_time=START + 500 * attempt,
            versions={"tensorflow": "2.21.0", "keras": "3.15.0"},
        )
        self.writer = RunWriter(logdir / name, header)
        self.writer.declare(self.tensors)

    def id_of(self, tag: str) -> int:
        """The number by which records name the tensor."""
        return next(t.id for t in self.tensors if t.tag == tag)

    def steps(self, first: int, last: int, bad: dict[tuple[int, str], int] | None = None, growth: float = 0.0) -> None:
        """Write steps first to last - 1; norms grow by `growth` octaves a step over the last twenty."""
        steps = np.arange(first, last)
        base = np.array([BASE[t.kind] * (1 + t.order / 2) for t in self.norms])
        values = base * np.exp2(np.maximum(0, growth * (steps[:, None] - last + 20)))
        codes = magnitude.encode(values)
        loss = (0.5 + np.exp(-steps / 50.0)).astype(np.float32)[:, None]
        columns = {t.tag: i for i, t in enumerate(self.norms)}
        for (step, tag), bits in (bad or {}).items():
            if tag == "loss/loss":
                loss[step - first] = np.nan
            else:
                codes[step - first, columns[tag]] = magnitude.from_bits(bits)
        self.writer.rows(
            Rows(
                steps,
                START + 0.1 * steps,
                steps,
                np.array([t.id for t in self.norms]),
                codes,
                np.array([self.tensors[-1].id]),
                loss,
            )
        )
        full = steps[::10]
        shape = (len(full), len(self.norms))
        zeros = np.zeros(shape, np.float32)
        self.writer.full(
            FullBlock(
                full,
                np.array([t.id for t in self.norms]),
                np.full(shape, 0.75),
                zeros + np.float32(0.25),
                zeros + np.float32(0.5),
                zeros,
            )
        )


def blowup(logdir: Path) -> None:
    """Gradients grow sixteenfold a step, overflow in one tensor, and take everything with them."""
    run = Run(logdir, "blowup")
    bad = {(step, t.tag): magnitude.NAN for step in range(91, 100) for t in run.norms}
    bad |= {(step, "loss/loss"): magnitude.NAN for step in range(91, 100)}
    origin = "gradient/head/kernel"
    bad[90, origin] = magnitude.POS_INF
    run.steps(0, 100, bad, growth=4)
    counts = Counts(pos_inf=7, size=2048)
    run.writer.event(CountsRow(90, {run.id_of(origin): counts}))
    reached = [
        ("backward", "head/kernel", "gradient"),
        ("backward", "conv/kernel", "gradient"),
        ("weights", "conv/kernel", "weight"),
    ]
    spread = tuple(
        Spread(order, 90 + min(order, 1), phase, name, kind, counts)
        for order, (phase, name, kind) in enumerate(reached)
    )
    run.writer.event(
        Incident(
            1,
            90,
            90,
            Origin("backward", "head", "head/kernel", "gradient", "Dense", output=counts),
            spread=spread,
            last_finite_step=89,
            bad_steps=10,
        )
    )
    run.writer.event(Note(0, "start", "Keras fit began"))
    run.writer.close()


def flash(logdir: Path) -> None:
    """One bad value in a long run."""
    run = Run(logdir, "flash")
    tag = "activation/conv/output"
    for first in range(0, 20_000, 4_000):
        run.steps(first, first + 4_000, {(12_345, tag): magnitude.NAN} if first == 12_000 else None)
    counts = Counts(nan=1, size=2048)
    run.writer.event(CountsRow(12_345, {run.id_of(tag): counts}))
    run.writer.event(
        Incident(
            1,
            12_345,
            12_345,
            Origin("forward", "conv", "conv/output", "activation", "Dense", output=counts),
            last_step=12_345,
            recovered=True,
            last_finite_step=12_344,
        )
    )
    run.writer.close()


def healthy(logdir: Path) -> None:
    """Nothing to report; gradients are clipped."""
    run = Run(logdir, "healthy", clipped=True)
    run.steps(0, 300)
    run.writer.close()


def twice(logdir: Path) -> None:
    """A run that went back to a checkpoint."""
    for attempt, (first, last) in enumerate([(0, 200), (120, 260)]):
        run = Run(logdir, "twice", attempt, first)
        run.steps(first, last)
        run.writer.close()


def op(logdir: Path) -> None:
    """The gradient of a square root at zero, traced by a replay. What looks like markup is text."""
    run = Run(logdir, "op")
    reached = "gradient/head/bias"
    run.steps(
        0,
        60,
        {(step, t.tag): magnitude.NAN for step in range(41, 60) for t in run.norms}
        | {(40, reached): magnitude.POS_INF},
    )
    counts = Counts(pos_inf=2, size=32)
    run.writer.event(CountsRow(40, {run.id_of(reached): counts}))
    replay = {
        "replay": "reproduced",
        "replayed_steps": 9,
        "seconds": 0.371,
        "forward_op": "Sqrt",
        "library": {"file": "/lib/tensorflow/python/ops/math_ops.py", "line": 5767, "function": "sqrt"},
        "graph": [
            {"role": "producer", "op_type": "Sqrt", "layer": "", "stage": "forward", "state": []},
            {"role": "origin", "op_type": "SqrtGrad", "layer": "", "stage": "backward", "state": ["inf"]},
            {"role": "consumer", "op_type": "<b>Mul</b>", "layer": "head", "stage": "backward", "state": ["nan"]},
            {"role": "consumer", "op_type": "<b>Mul</b>", "layer": "head", "stage": "backward", "state": ["nan"]},
        ],
    }
    origin = Origin(
        "backward",
        tensor="SqrtGrad",
        tensor_kind="gradient",
        op_type="SqrtGrad",
        op_name="SqrtGrad",
        source=Source("/home/me/project/train.py", 34, "rmse", "return tf.sqrt(error)  # <b>bold</b>"),
        replica=1,
        samples=(3, 17),
        precision="op",
        inputs=(
            OperandStats("Sqrt", "float32", (32,), 0.0, 1.9641, zero=2),
            OperandStats("mask", "float32", (32, 4), -3.0, 2.0, nan=1, inf=126, negative=1),
        ),
        output=counts,
    )
    spread = (Spread(0, 40, "backward", "head/bias", "gradient", counts, "head"),)
    run.writer.event(
        Incident(1, 40, 40, origin, spread=spread, last_finite_step=39, bad_steps=20, replay_json=json.dumps(replay))
    )
    run.writer.close()


def live(logdir: Path) -> None:
    """Appends at every line of standard input."""
    run = Run(logdir, "live")
    first = 0
    for _ in sys.stdin:
        run.steps(first, first + 50)
        first += 50
        run.writer.flush()
        sys.stdout.write(f"{first}\n")
        sys.stdout.flush()
    run.writer.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("logdir", type=Path)
    parser.add_argument("--live", action="store_true")
    options = parser.parse_args()
    for write in (live,) if options.live else (blowup, flash, healthy, op, twice):
        write(options.logdir)


if __name__ == "__main__":
    main()
