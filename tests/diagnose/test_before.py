from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import runs

from tb_nanwatch.diagnose.before import Line, before
from tb_nanwatch.store.catalog import Catalog


def test_the_steps_around_an_incident(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "backward")
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = catalog.runs()["."]
    table = before(run, run.incidents[0])
    assert table.first_bad == 30
    assert table.steps == tuple(range(18, 33))
    lines = {line.label: line.values for line in table.lines}
    assert list(lines) == [
        "the loss",
        "norm of all gradients",
        "norm of all weights",
        "norm of the gradient of dense/kernel",
    ]
    loss = lines["the loss"][0]
    assert loss is not None
    assert math.isclose(loss, runs.calm(runs.network()[3], 18), rel_tol=1e-6)
    gradients = lines["norm of all gradients"]
    assert gradients[11] is not None
    assert math.isclose(gradients[11], math.hypot(0.51, 0.51), rel_tol=0.01)
    assert gradients[12] is not None
    assert math.isnan(gradients[12])


def test_an_incident_at_the_first_step(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "weights", at=0)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = catalog.runs()["."]
    assert before(run, run.incidents[0]).steps == (0, 1, 2)


def test_heights() -> None:
    line = Line("", (1.0, None, 10.0, 100.0, float("nan"), 0.0))
    heights = line.heights
    assert heights[1] is None
    assert np.allclose([h for h in heights if h is not None], [0, 0.5, 1, -1, 0])
    assert Line("", (None,)).heights == (None,)
    assert Line("", (5.0, 5.0)).heights == (0.0, 0.0)
