"""Runs of a stack of dense layers, number by number, as the rules on gradients, updates and beginnings look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import runs

from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import SCALAR_KINDS, FullBlock, RunHeader, TensorInfo
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.writer import RunWriter
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

UNITS, BATCH, EVERY = 16, 32, 10
Value = Callable[[int, int], float]  # of layer and step


def steady(value: float) -> Value:
    return lambda _, __: value


def recorded(
    logdir: Path,
    depth: int = 3,
    steps: int = 120,
    *,
    output: Value = lambda _, __: 16.0,
    gradient: Value = lambda _, __: 0.5,
    weight: Value = lambda _, __: 4.0,
    update: Value = lambda _, __: 0.004,
    mean: Value = lambda _, __: 0.001,
    loss: Callable[[int], float] = lambda step: 2.0 * 0.98**step,
    rate: Callable[[int], float] = lambda _: 1e-3,
    dtype: str = "float32",
    iterations: int = 1,
) -> Run:
    """Norms of layers d0, d1 ...; updates and means of weights (elementwise) at every tenth step; NaN: not recorded."""
    shape = (UNITS, UNITS)
    kinds = ("activation", "gradient", "update", "weight")
    infos = [
        TensorInfo(
            n * depth + i,
            kind,
            f"d{i}/output" if kind == "activation" else f"d{i}/kernel",
            f"d{i}",
            "Dense",
            dtype,
            (BATCH, UNITS) if kind == "activation" else shape,
            10 * i + n,
            kind == "weight",
        )
        for n, kind in enumerate(kinds)
        for i in range(depth)
    ]
    scalars = [TensorInfo(900, "loss", "loss", shape=()), TensorInfo(901, "scalar", "learning_rate")]
    numbers = np.arange(steps)
    norm = {"activation": output, "gradient": gradient, "update": update, "weight": weight}
    table = np.array([[norm[i.kind](int(i.layer[1:]), int(s)) for i in infos] for s in numbers])
    codes = magnitude.encode(table)
    codes[np.isnan(table)] = magnitude.NOT_MEASURED
    is_update = np.array([i.kind == "update" for i in infos])
    codes[np.ix_(numbers % EVERY != 0, is_update)] = magnitude.NOT_MEASURED
    writer = RunWriter(logdir, RunHeader(writer_id="w", wall_time=runs.START, every=EVERY, entry_point="keras_fit"))
    writer.declare([*infos, *scalars])
    writer.rows(
        Rows(
            steps=numbers,
            wall_times=runs.START + numbers,
            iterations=numbers + iterations,
            norm_ids=np.array([info.id for info in infos]),
            norms=codes,
            scalar_ids=np.array([900, 901]),
            scalars=np.array([[loss(int(s)), rate(int(s))] for s in numbers], np.float32),
        )
    )
    full = numbers[::EVERY]
    measured = [i for i in infos if i.kind in ("weight", "activation")]
    means = np.array([[mean(int(i.layer[1:]), int(s)) if i.kind == "weight" else 0.1 for i in measured] for s in full])
    plane = means.astype(np.float32)
    ids = np.array([i.id for i in measured])
    writer.full(FullBlock(full, ids, np.abs(means) + 1, plane, plane * 0, plane * 0))
    writer.close()
    assert all(info.kind not in SCALAR_KINDS for info in infos)
    catalog = Catalog(logdir)
    catalog.refresh()
    return catalog.runs()["."]


def rules(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """(rule, tensor) of each."""
    return [(finding.rule, finding.tensor) for finding in findings]
