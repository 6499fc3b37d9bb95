"""Healthy training of the benchmark networks, and under dynamic loss scaling: there must be no incident.

    python -m benchmarks.false_origins [--networks mlp,lstm] [--policies float32,mixed_float16] [--batch 2]

Exit code 1 if any run tells of an incident.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.networks import BATCHES, NETWORKS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--policies", default="float32,mixed_float16")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, help="samples of each batch, all unless told: float16 is slow on CPUs")
    parser.add_argument("--jit", action="store_true", help="compile with XLA")
    args = parser.parse_args()
    found = 0
    for policy in args.policies.split(","):
        for network in args.networks.split(","):
            start = time.monotonic()
            steps, incidents, skipped = trained(network, policy, args.steps, args.jit, args.batch)
            found += len(incidents)
            what = f"{steps:,} steps, {skipped} skipped updates, {len(incidents)} incidents {incidents or ''}"
            print(f"{network:12} {policy:14} {what} in {time.monotonic() - start:.0f} s", flush=True)
    return 1 if found else 0


def trained(network: str, policy: str, steps: int, jit: bool, batch: int | None) -> tuple[int, list[Any], int]:
    """(recorded steps, (first step, origin) of the incidents, updates that dynamic loss scaling left out)."""
    import keras
    import tensorflow as tf

    import tb_nanwatch as nanwatch
    from tb_nanwatch.store.catalog import Catalog

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(policy)
    chosen = NETWORKS[network]
    model, optimizer = chosen.build(), chosen.optimizer()
    if policy == "mixed_float16":  # from a scale that overflows at first, and grows into overflows again
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=2.0**24, dynamic_growth_steps=100)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=jit)
    x, y = (array[:, :batch] for array in chosen.data())
    batches = tf.data.Dataset.from_tensor_slices((x, y)).repeat().take(steps)
    assert len(x) == BATCHES
    with tempfile.TemporaryDirectory() as logdir:
        watcher = nanwatch.NanWatch(logdir)
        model.fit(batches, epochs=1, verbose=0, callbacks=[watcher])
        watcher.close()
        catalog = Catalog(Path(logdir))
        catalog.refresh()
        (run,) = catalog.runs().values()
    keras.mixed_precision.set_global_policy("float32")
    applied = int(getattr(optimizer, "inner_optimizer", optimizer).iterations)
    return run.steps, [(i.first_step, i.origin.op_type or i.origin.tensor) for i in run.incidents], steps - applied


if __name__ == "__main__":
    sys.exit(main())
