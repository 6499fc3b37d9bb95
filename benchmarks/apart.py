"""One process of `overhead.py`: one network in one mode, some variants and the plain training that they share.

    python benchmarks/apart.py JOB.json

reads a Job and writes its results beside it.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

Result = dict[str, Any]  # what is known of one variant: numbers, or {"reason": why there are none}


@dataclass(frozen=True)
class Job:
    """What to measure. mode and style: see overhead.py; steps: in a group, None: the network's."""

    network: str
    mode: str
    style: str
    variants: tuple[str, ...]
    groups: int
    seconds: float | None
    steps: int | None
    epoch_steps: int

    def save(self, path: Path) -> None:
        """As JSON."""
        path.write_text(json.dumps(asdict(self)))


def measure(job: Job, scratch: Path) -> dict[str, Result]:
    """Results of the variants, and of a second plain training as "control"."""
    if job.mode == "mirrored":  # two devices, which must be made before anything else is
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    from networks import NETWORKS
    from peers import GROUPED, Setting, seated
    from rotation import rotate

    network = NETWORKS[job.network]
    steps = job.steps or network.group_steps
    if job.mode == "grouped":
        steps = -(-steps // GROUPED) * GROUPED
    results: dict[str, Result] = {}
    trainings: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for name in ("plain", "control", *job.variants):
            say(f"{job.network}, {job.mode}: warming up {name}")
            setting = Setting(network, job.mode, job.style, scratch / name)
            try:
                trainings[name] = stack.enter_context(seated(name, setting))
            except Exception as error:
                if name in ("plain", "control"):
                    raise
                results[name] = {"reason": reason(error)}
        plain = trainings.pop("plain")
        sizes = {name: _size(scratch / name) for name in trainings}
        about = f"{job.network}, {job.mode}, {' '.join(job.variants)}"
        taken = rotate(
            plain,
            trainings,
            job.groups,
            steps,
            job.epoch_steps,
            job.seconds,
            lambda done: say(f"{about}: group {done} of {job.groups}"),
        )
        for name, training in trainings.items():
            results[name] = taken[name].summary(steps)
            results[name]["bytes"] = (_size(scratch / name) - sizes[name]) / (len(taken[name].own) * steps)
            try:
                training.close()
            except Exception as error:
                results[name] = {"reason": reason(error)}
    return results


def reason(error: BaseException) -> str:
    """Why a variant cannot run, in one line: of TensorFlow's many the part that says what is not there."""
    missing = re.search(r"No registered '\w+' OpKernel for \w+ devices", str(error))
    text = missing[0] if missing else str(error).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {text}"


def say(text: str, stream: TextIO = sys.stdout) -> None:
    """Progress: on a terminal one line that is overwritten. The stdout of this process is the stderr of overhead.py."""
    if stream.isatty():
        stream.write(f"\r\x1b[2K{text[:110]}")
    elif text:
        stream.write(f"{text}\n")
    stream.flush()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _load(given: Mapping[str, Any]) -> Job:
    return Job(**{**given, "variants": tuple(given["variants"])})


if __name__ == "__main__":
    folder = Path(sys.argv[1]).parent
    found = measure(_load(json.loads(Path(sys.argv[1]).read_text())), folder / "logs")
    (folder / "results.json").write_text(json.dumps(found))
