"""A SIGKILL at any moment loses nothing of an incident that was announced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tb_nanwatch.diagnose import examine
from tb_nanwatch.store.catalog import Catalog

KILLS = 30


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork a process")
def test_announced_incidents_survive_a_kill(tmp_path: Path) -> None:
    program = Path(__file__).with_name("crashing.py")
    subprocess.run([sys.executable, str(program), str(tmp_path), str(KILLS), "1"], check=True, timeout=540)
    announced_in_all = 0
    for number in range(KILLS):
        said = (tmp_path / f"{number}.txt").read_text()
        announced = {int(step.replace(",", "")) for step in re.findall(r"step ([\d,]+) is not finite", said)}
        catalog = Catalog(tmp_path / str(number))
        catalog.refresh()
        (run,) = catalog.runs().values()
        incidents = examine(run).entry["incidents"]
        assert announced
        assert announced <= {incident["first_step"] for incident in incidents}
        announced_in_all += len(announced)
    assert announced_in_all > KILLS  # some were killed later than right after their first incident
