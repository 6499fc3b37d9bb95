"""Write a large run through the real writer, without training anything.

Layers with weights, gradients, activations and updates, whose norms wander as those of a real run do: weights
slowly, gradients with a third of noise from batch to batch. For trying the tab, the report and the reader at a size
that would take days to train.

For example:

    python demo/synthetic_run.py --tensors 1000 --steps 100000 --nan-at 60000 logs/large
"""

from __future__ import annotations

import argparse
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import (
    Counts,
    CountsRow,
    FullBlock,
    Incident,
    Origin,
    RunHeader,
    Source,
    Spread,
    TensorInfo,
)
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.writer import RunWriter

CHUNK: Final = 2560  # steps generated at once: ten blocks
SECONDS_PER_STEP: Final = 0.05
BAD_STEPS: Final = 12  # how long the incident lasts; a skipped update leaves the weights finite
#: Per kind: log2 of a typical norm, noise from step to step and drift per step, both in octaves.
CHARACTER: Final = {
    "weight": (4.0, 0.0005, 0.0004),
    "gradient": (-3.0, 0.45, 0.003),
    "activation": (5.0, 0.06, 0.001),
    "update": (-6.0, 0.08, 0.002),
}
#: Tensors of one layer in the order in which they are dealt out: (kind, name behind the layer's).
OF_LAYER: Final = (
    ("weight", "kernel"),
    ("gradient", "kernel"),
    ("activation", "output"),
    ("update", "kernel"),
    ("weight", "bias"),
    ("gradient", "bias"),
    ("update", "bias"),
)


@dataclass(frozen=True)
class Plan:
    """What to write. `nan_at` is the first step of the incident, None for a healthy run."""

    tensors: int
    steps: int
    nan_at: int | None = None
    every: int = 10
    seed: int = 0


def tensors_of(count: int) -> list[TensorInfo]:
    """`count` tensors of as many layers as they need, and a loss behind them."""
    infos: list[TensorInfo] = []
    for i in range(count):
        layer = i // len(OF_LAYER)
        kind, part = OF_LAYER[i % len(OF_LAYER)]
        name = f"stage_{layer // 8}/conv_{layer % 8}"
        shape = {"kernel": (3, 3, 64, 64), "bias": (64,), "output": (-1, 32, 32, 64)}[part]
        infos.append(TensorInfo(i, kind, f"{name}/{part}", name, "Conv2D", "float32", shape, layer, kind == "weight"))
    return [*infos, TensorInfo(count, "loss", "loss", shape=(), order=count)]


class Wanderer:
    """Norms that wander. `next` gives log2 of them, float32[steps, tensors], going on where it ended."""

    def __init__(self, infos: Sequence[TensorInfo], rng: np.random.Generator) -> None:
        table = np.array([CHARACTER[info.kind] for info in infos], np.float32).reshape(-1, 3)
        self._rng = rng
        self._level = table[:, 0] + rng.normal(0, 1, len(infos)).astype(np.float32)
        self._noise, self._drift = table[:, 1], table[:, 2]

    def next(self, steps: int) -> NDArray[np.float32]:
        """The next steps."""
        shape = (steps, len(self._level))
        path = self._rng.standard_normal(shape, np.float32) * self._drift
        np.cumsum(path, axis=0, out=path)
        path += self._level
        # Pulled back to where it began, or a long run would leave what floats can hold.
        self._level = (path[-1] * 0.98 + 0.02 * self._level).astype(np.float32)
        path += self._rng.standard_normal(shape, np.float32) * self._noise
        return path


def write(plan: Plan, logdir: Path) -> Iterator[int]:
    """Write the run; yields after every chunk how many steps are done."""
    rng = np.random.default_rng(plan.seed)
    infos = tensors_of(plan.tensors)
    began = time.time() - plan.steps * SECONDS_PER_STEP
    writer = RunWriter(
        logdir,
        RunHeader(
            writer_id=uuid.uuid4().hex[:12],
            wall_time=began,
            host="synthetic",
            entry_point="synthetic_run",
            every=plan.every,
        ),
    )
    writer.declare(infos)
    wanderer = Wanderer(infos[:-1], rng)
    for first in range(0, plan.steps, CHUNK):
        steps = np.arange(first, min(first + CHUNK, plan.steps))
        log2 = wanderer.next(len(steps))
        rows = _rows(plan, infos, steps, log2, began, rng)
        full = _full(plan, steps, log2, rng)
        while not writer.flush():  # rows that a queue cannot take are dropped: wait for those before
            pass
        writer.rows(rows)
        if full is not None:
            writer.full(full)
        if plan.nan_at is not None and plan.nan_at in steps:
            for record in _incident(plan, infos, began):
                writer.event(record)
        yield int(steps[-1]) + 1
    writer.close(timeout=600)


def _rows(
    plan: Plan,
    infos: Sequence[TensorInfo],
    steps: NDArray[np.int64],
    log2: NDArray[np.float32],
    began: float,
    rng: np.random.Generator,
) -> Rows:
    codes = magnitude.encode(np.exp2(log2))
    loss = (0.2 + 2.0 / np.sqrt(1 + steps / 200) * np.exp(rng.normal(0, 0.05, len(steps)))).astype(np.float32)
    bad = _is_bad(plan, steps)
    if bad.any():
        codes[np.ix_(bad, np.array([i.id for i in _reached(infos)]))] = 1 + magnitude.NAN
        loss[bad] = np.nan
    return Rows(
        steps=steps,
        wall_times=began + steps * SECONDS_PER_STEP + rng.normal(0, 0.001, len(steps)),
        iterations=steps,
        norm_ids=np.arange(plan.tensors),
        norms=codes,
        scalar_ids=np.array([plan.tensors]),
        scalars=loss[:, None],
    )


def _full(
    plan: Plan, steps: NDArray[np.int64], log2: NDArray[np.float32], rng: np.random.Generator
) -> FullBlock | None:
    every = np.flatnonzero(steps % plan.every == 0)
    if not len(every):
        return None
    norms = np.exp2(log2[every].astype(np.float64))
    noise = rng.standard_normal(norms.shape, np.float32)
    zeros = np.clip(0.5 + 0.01 * noise, 0, 1) * (np.arange(plan.tensors) % len(OF_LAYER) == 2)
    return FullBlock(
        steps=steps[every],
        ids=np.arange(plan.tensors),
        max_abs=norms * 0.1 * np.exp2(0.2 * noise),
        mean=(norms * 0.001).astype(np.float32) * noise,
        zero_share=zeros.astype(np.float32),
        subnormal_share=np.zeros(norms.shape, np.float32),
    )


def _is_bad(plan: Plan, steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    if plan.nan_at is None:
        return np.zeros(len(steps), np.bool_)
    return (steps >= plan.nan_at) & (steps < plan.nan_at + BAD_STEPS)


def _reached(infos: Sequence[TensorInfo]) -> list[TensorInfo]:
    """What the NaN reaches: activations from the middle layer on, then every gradient, from the last layer back."""
    middle = max(info.order for info in infos[:-1]) // 2
    forward = [info for info in infos if info.kind == "activation" and info.order >= middle]
    return forward + [info for info in reversed(infos) if info.kind == "gradient"]


def _incident(plan: Plan, infos: Sequence[TensorInfo], began: float) -> Iterator[Incident | CountsRow]:
    assert plan.nan_at is not None
    reached = _reached(infos)
    counts = {info.id: Counts(nan=64, size=4096) for info in reached}
    last = min(plan.nan_at + BAD_STEPS, plan.steps) - 1
    for step in range(plan.nan_at, last + 1):
        yield CountsRow(step, counts)
    origin = next(iter(reached), infos[-1])
    first_phase = "forward" if origin.kind == "activation" else "backward"
    yield Incident(
        id=0,
        first_step=plan.nan_at,
        last_step=last if last < plan.steps - 1 else None,
        detected_step=plan.nan_at,
        recovered=last < plan.steps - 10,
        last_finite_step=plan.nan_at - 1 if plan.nan_at else None,
        wall_time=began + plan.nan_at * SECONDS_PER_STEP,
        action="skip",
        bad_steps=last + 1 - plan.nan_at,
        origin=Origin(
            phase=first_phase,
            layer=origin.layer,
            tensor=origin.name,
            tensor_kind=origin.kind,
            layer_class=origin.layer_class,
            op_type="Log",
            op_name=f"{origin.layer}/Log",
            source=Source("synthetic_run.py", 1, "call", "x = tf.math.log(x)"),
            precision="op",
            output=counts.get(origin.id, Counts()),
        ),
        spread=tuple(
            Spread(
                order,
                plan.nan_at,
                "forward" if info.kind == "activation" else "backward",
                info.name,
                info.kind,
                counts[info.id],
                info.layer,
            )
            for order, info in enumerate(reached)
        ),
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Write a run as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logdir", type=Path, help="folder of the run; made if need be, must hold no event files yet")
    parser.add_argument("--tensors", type=int, default=1000, metavar="N", help="tensors beside the loss (%(default)s)")
    parser.add_argument("--steps", type=int, default=100_000, metavar="M", help="training steps (%(default)s)")
    parser.add_argument("--nan-at", type=int, metavar="S", help="first step of an incident (none)")
    parser.add_argument("--every", type=int, default=10, help="steps between full statistics (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (%(default)s)")
    options = parser.parse_args(argv)
    if min(options.tensors, options.steps, options.every) < 1:
        parser.error("--tensors, --steps and --every are at least 1")
    if options.nan_at is not None and not 0 <= options.nan_at < options.steps:
        parser.error(f"--nan-at {options.nan_at}: the run has the steps 0 to {options.steps - 1}")
    if any(options.logdir.glob("*tfevents*")):
        parser.error(f"{options.logdir} already holds event files: name another folder")
    plan = Plan(options.tensors, options.steps, options.nan_at, options.every, options.seed)
    columns = (TextColumn("steps"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("steps", total=plan.steps)
        for done in write(plan, options.logdir):
            progress.update(task, completed=done)
    size = sum(path.stat().st_size for path in options.logdir.glob("*tfevents*"))
    sys.stdout.write(
        f"{plan.steps:,} steps of {plan.tensors:,} tensors in {size / 2**20:.1f} MiB: "
        f"{size / plan.steps / plan.tensors:.2f} bytes per tensor and step\n"
    )


if __name__ == "__main__":
    main()
