"""What an incident costs: rewind, replay op by op, the rows at full resolution, and trials of remedies.

Each network trains in a process of its own, some steps to get warm, then up to a step whose loss takes the root of a
negative number, 63 steps behind a shadow, which is as far as it gets. Bound: twice the ordinary time of the replayed
steps plus 15 seconds, without the trials. Then the state is put back, and training goes on: its speed after, over its
speed before, in the same process. Seconds are those of the wall and, since a machine may be shared, of the processor,
over all threads; a speed is that of the processor's seconds.

    python -m benchmarks.incident [--networks mlp,cnn] [--modes plain,xla] [--trials 0,default]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.networks import BATCHES, NETWORKS

STEPS_BEHIND: Final = 63
MEASURED: Final = 44  # steps whose median is the ordinary time, before and after; no shadow is kept in them
QUICK: Final = 20  # percentile of them that speeds are compared by: of steps that others disturbed least
SETTLING: Final = 16  # steps after the incident that still belong to it
ALLOWED: Final = 15.0  # seconds beside twice the replayed steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--modes", default="plain,xla")
    parser.add_argument("--trials", default="0,default", help="seconds for trials, or default")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measured(*args.one.split(":"))))
        return
    print(
        "network      mode   trials  steps   wall: step ms  incident s  bound s   cpu: step ms  incident s  bound s  "
        "speed after/before  origin"
    )
    for network in args.networks.split(","):
        for mode in args.modes.split(","):
            for trials in args.trials.split(","):
                print(_line(network, mode, trials), flush=True)


def _line(network: str, mode: str, trials: str) -> str:
    command = [sys.executable, "-m", "benchmarks.incident", "--one", f"{network}:{mode}:{trials}"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        return f"{network:12} {mode:6} {trials:8} failed: {ran.stderr.strip().splitlines()[-1:]}"
    got = json.loads(ran.stdout.splitlines()[-1])
    line = f"{network:12} {mode:6} {trials:7} {got['steps']:5}"
    for clock in ("wall", "cpu"):
        bound = 2 * got["steps"] * got[clock]["step"] + ALLOWED
        over = "!" if trials == "0" and got[clock]["incident"] > bound else " "
        line += f" {1000 * got[clock]['step']:15.1f} {got[clock]['incident']:11.2f}{over} {bound:7.2f}"
    return f"{line} {got['cpu']['after']:19.3f}  {got['origin']}"


def measured(network: str, mode: str, trials: str) -> dict[str, Any]:
    """Train one network through an incident; seconds, and what the report says of it."""
    import keras
    import tensorflow as tf

    import tb_nanwatch as nanwatch
    from tb_nanwatch.record.replay.memory import EVERY
    from tb_nanwatch.store.catalog import Catalog

    keras.utils.set_random_seed(0)
    chosen = NETWORKS[network]
    model, optimizer = chosen.build(), chosen.optimizer()
    x, y = chosen.data()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(jit_compile=mode == "xla")
    def step(x: Any, y: Any, factor: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) * tf.sqrt(factor)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    batches = [(tf.constant(x[n]), tf.constant(y[n])) for n in range(BATCHES)]
    options: dict[str, Any] = {} if trials == "default" else {"trial_seconds": int(trials)}
    good, bad = tf.constant(1.0), tf.constant(-1.0)
    times: list[tuple[float, float]] = []  # of the wall and of the processor
    with tempfile.TemporaryDirectory() as logdir:
        with nanwatch.watch(step, logdir, model=model, optimizer=optimizer, **options) as watched:

            def run(factor: Any) -> None:
                start, cpu = time.perf_counter(), time.process_time()
                float(watched(*batches[len(times) % BATCHES], factor))
                times.append((time.perf_counter() - start, time.process_time() - cpu))

            while len(times) < 2 * EVERY + STEPS_BEHIND:
                run(good)
            ordinary = np.median(times[-MEASURED:], axis=0)
            quick = np.percentile(times[-MEASURED:], QUICK, axis=0)
            variables = [*model.variables, *optimizer.variables]
            kept = [np.array(v) for v in variables]
            run(bad)
            incident = np.array(times[-1]) - ordinary
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)
            for _ in range(SETTLING + MEASURED):
                run(good)
            after = quick / np.percentile(times[-MEASURED:], QUICK, axis=0)
        catalog = Catalog(Path(logdir))
        catalog.refresh()
        (recorded,) = catalog.runs().values()
        (told,) = recorded.incidents
        replay = json.loads(told.replay_json)
    clocks = {
        clock: {"step": float(ordinary[n]), "incident": float(incident[n]), "after": float(after[n])}
        for n, clock in enumerate(("wall", "cpu"))
    }
    return {**clocks, "steps": replay["replayed_steps"], "origin": f"{told.origin.op_type} ({replay['replay']})"}


if __name__ == "__main__":
    main()
