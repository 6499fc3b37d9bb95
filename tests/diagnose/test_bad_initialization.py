from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import runs

from tb_nanwatch.diagnose import examine
from tb_nanwatch.format.records import Counts, Incident, Origin, TensorInfo
from tb_nanwatch.store.catalog import Catalog

DEPTH = 8


def cause(logdir: Path, factor: float, at: int = 1, **header: Any) -> dict[str, Any]:
    """Of a network whose layers put out `factor` times what they are given."""
    rows = [("activation", f"d{i}/output", f"d{i}", "Dense", (32, 8)) for i in range(DEPTH)]

    def values(info: TensorInfo, step: int) -> float:
        return factor ** int(info.layer[1:]) if info.kind == "activation" else 1.0

    origin = Origin("forward", "d4", "d4/output", "activation", output=Counts(pos_inf=3, size=256))
    event = Incident(0, at, at, origin, last_finite_step=at - 1)
    runs.write(logdir, values, infos=runs.network([*rows, ("loss", "loss", "", "", ())]), events=[event], **header)
    catalog = Catalog(logdir)
    catalog.refresh()
    incident: dict[str, Any] = examine(catalog.runs()["."]).entry["incidents"][0]
    return {**incident["cause"], "remedies": [remedy["name"] for remedy in incident["remedies"]]}


def test_layers_that_multiply(tmp_path: Path) -> None:
    found = cause(tmp_path, 11.0)
    assert (found["name"], found["confidence"]) == ("bad_initialization", 0.8)
    assert "grew from 1 at d0 to 1.96e7 at d7, over 8 layers" in found["evidence"][0]
    assert found["remedies"][:2] == ["initializer", "use_activation_or_normalization"]


@pytest.mark.parametrize(("factor", "at"), [(1.0, 1), (2.0, 1), (0.1, 1), (11.0, 25)])
def test_other_incidents(factor: float, at: int, tmp_path: Path) -> None:
    assert cause(tmp_path, factor, at)["name"] == "none"
