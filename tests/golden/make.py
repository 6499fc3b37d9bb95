"""Writes the golden files of a format version: `python tests/golden/make.py`.

Each `NAME.bin` is an encoded record and `NAME.json` says what is in it; `run.bin` is a whole event file. Files that
are there are never rewritten: a version's golden files stay as they were when it was released, and every later
version must still read them.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tb_nanwatch.format import codec, framing, magnitude, metadata
from tb_nanwatch.format.records import (
    FORMAT_VERSION,
    BatchPart,
    Closed,
    Column,
    Counts,
    CountsRow,
    FirstBatches,
    FullBlock,
    Incident,
    Note,
    OperandStats,
    Origin,
    Record,
    RunHeader,
    Source,
    Spread,
    StepBlock,
    TensorInfo,
)

FOLDER = Path(__file__).parent / f"v{FORMAT_VERSION}"
LATER = frozenset({"activation"})  # fields that came after the golden files of their version
BEGAN = 1_800_000_000.0

TENSORS = (
    TensorInfo(0, "input", "x", shape=(-1, 4), order=0),
    TensorInfo(1, "activation", "dense/output", "dense", "Dense", "float32", (-1, 3), order=1),
    TensorInfo(2, "loss", "loss", shape=(), order=2),
    TensorInfo(3, "gradient", "dense/kernel", "dense", "Dense", "float32", (4, 3), 1, trainable=True),
    TensorInfo(4, "weight", "dense/kernel", "dense", "Dense", "float32", (4, 3), 1, trainable=True),
    TensorInfo(5, "activation", "größe/出力", "größe", "Lambda", "bfloat16", None, order=3),
)
NORMS = np.asarray(
    [[0.0, 1.0, 2.0, 3.5], [1e-30, 1.5, 2.0, 3.5], [1e30, np.inf, np.nan, 3.5], [-np.inf, np.nan, np.nan, np.nan]]
)
STEPS = StepBlock(
    steps=np.asarray([8, 9, 10, 12], np.int64),
    wall_times=BEGAN + np.asarray([0.5, 1.0, 1.5, 2.5]),
    iterations=np.asarray([8, 9, -1, 11], np.int64),
    norm_ids=np.asarray([0, 1, 3, 4], np.int64),
    norms=np.where(np.arange(16).reshape(4, 4) == 5, 0, magnitude.encode(NORMS)).astype(np.uint16),
    scalar_ids=np.asarray([2], np.int64),
    scalars=np.asarray([[0.5], [-0.25], [np.inf], [np.nan]], np.float32),
)
FULL = FullBlock(
    steps=np.asarray([0, 10], np.int64),
    ids=np.asarray([1, 3], np.int64),
    max_abs=np.asarray([[1.0, 2.5], [np.nan, 1e38]]),
    mean=np.asarray([[0.5, -0.25], [np.nan, 1.0]], np.float32),
    zero_share=np.asarray([[0.0, 1.0], [0.5, 0.25]], np.float32),
    subnormal_share=np.asarray([[0.0, 0.0], [0.0, 1e-9]], np.float32),
)
INCIDENT = Incident(
    id=0,
    first_step=10,
    detected_step=10,
    origin=Origin(
        phase="forward",
        layer="dense",
        tensor="dense/output",
        tensor_kind="activation",
        layer_class="Dense",
        op_type="Exp",
        op_name="model/dense/Exp",
        source=Source("train.py", 34, "train_step", "kl = tf.exp(log_var)"),
        replica=0,
        samples=(3, 5),
        precision="op",
        inputs=(OperandStats("log_var", "float32", (32, 4), -3.1, 91.7, zero=2, negative=60),),
        output=Counts(0, 5, 0, 128),
    ),
    last_step=12,
    recovered=True,
    spread=(
        Spread(0, 10, "forward", "dense/output", "activation", Counts(0, 5, 0, 128), "dense"),
        Spread(1, 10, "backward", "dense/kernel", "gradient", Counts(12, 0, 0, 12), "dense"),
    ),
    capsule="plugins/nanwatch/step_10",
    last_finite_step=9,
    wall_time=BEGAN + 1.5,
    action="record",
    bad_steps=2,
    replay_json='{"reproduced": true}',
)
RECORDS: dict[str, Record] = {
    "header": RunHeader(
        writer_id="0123abcd",
        format_version=1,
        segment=2,
        attempt=1,
        first_step=8,
        wall_time=BEGAN,
        host="host",
        pid=4242,
        entry_point="watch",
        every=10,
        versions={"tensorflow": "2.16.1", "tb_nanwatch": "0.1.0"},
        options={"every": "10"},
        worker=3,
        error_policy="stop",
    ),
    "tensors": TENSORS,
    "steps": STEPS,
    "steps_thinned": replace(STEPS, stride=4),
    "full": FULL,
    "counts": CountsRow(10, {1: Counts(0, 5, 0, 128), 3: Counts(12, 0, 1, 12)}),
    "incident": INCIDENT,
    "incident_open": replace(INCIDENT, last_step=None, recovered=False, last_finite_step=None, spread=()),
    "note": Note(8, "restart", "a new process continues the run"),
    "closed": Closed(5, 1),
    "batches": FirstBatches(
        10,
        3,
        (
            BatchPart(
                "x/größe",
                "float32",
                (32, 13),
                rows=96,
                columns=13,
                typical=3.25,
                extreme=(Column(7, 0.0, 2.1e6, 4.5e5, 3e5),),
                constant=(Column(3, 1.0, 1.0, 1.0), Column(9, -2.5, -2.5, -2.5)),
                extreme_count=1,
                constant_count=2,
            ),
            BatchPart("y", "int64", None),
        ),
        mapping=True,
    ),
}
RUN = ("header", "tensors", "steps", "full", "counts", "incident", "note", "closed")


def plain(value: Any) -> Any:
    """A record as strict JSON: arrays as lists, non-finite numbers as strings; of LATER what is set."""
    if is_dataclass(value) and not isinstance(value, type):
        known = [f for f in fields(value) if f.name not in LATER or getattr(value, f.name) != f.default]
        return {f.name: plain(getattr(value, f.name)) for f in known}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def event_file() -> bytes:
    """A whole event file of one recorder."""
    events = [metadata.version_event(BEGAN), *(metadata.wrap(RECORDS[name], 8, BEGAN) for name in RUN)]
    return b"".join(map(framing.frame, events))


def main() -> None:
    """Write what is missing."""
    FOLDER.mkdir(exist_ok=True)
    for name, record in RECORDS.items():
        data = codec.encode(record)
        _write(FOLDER / f"{name}.bin", data)
        twin = plain(codec.decode(data, unpack_steps=True))
        _write(FOLDER / f"{name}.json", (json.dumps(twin, indent=1, ensure_ascii=False) + "\n").encode())
    _write(FOLDER / "run.bin", event_file())


def _write(path: Path, data: bytes) -> None:
    if path.exists():
        sys.stderr.write(f"{path} stays as it is\n")
    else:
        path.write_bytes(data)


if __name__ == "__main__":
    main()
