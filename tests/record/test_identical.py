"""Training is bit-identical with the watcher and without, also where a NaN occurs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import networks
import numpy as np
import pytest

import tb_nanwatch as nanwatch
from tb_nanwatch.store.catalog import Catalog


def train(network: str, jit: bool, poisoned: bool, callbacks: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    keras.backend.clear_session()  # the same names in both runs
    model = networks.compiled_model(network, jit)
    x, y = networks.data(network, poisoned)
    history = model.fit(x, y, batch_size=networks.BATCH, epochs=1, verbose=0, callbacks=callbacks)
    state = {f"{n} {v.name}": np.asarray(v) for n, v in enumerate([*model.variables, *model.optimizer.variables])}
    return state, history.history


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def recorded_steps(logdir: Path) -> tuple[int, int, int]:
    """First and last step in the file, and how many: a replay must not count."""
    catalog = Catalog(logdir)
    catalog.refresh()
    (run,) = catalog.runs().values()
    return run.first_step, run.last_step, run.steps


@pytest.mark.parametrize("poisoned", [False, True], ids=["finite", "poisoned"])
@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
@pytest.mark.parametrize("network", networks.ALL)
def test_fit_is_bit_identical(network: str, jit: bool, poisoned: bool, tmp_path: Path) -> None:
    alone, alone_history = train(network, jit, poisoned, [])
    watched, watched_history = train(network, jit, poisoned, [nanwatch.NanWatch(tmp_path / "run")])
    assert alone.keys() == watched.keys()
    different = [name for name in alone if bits(alone[name]) != bits(watched[name])]
    assert not different
    assert recorded_steps(tmp_path) == (0, networks.STEPS - 1, networks.STEPS)
    assert {k: bits(v) for k, v in alone_history.items()} == {k: bits(v) for k, v in watched_history.items()}
