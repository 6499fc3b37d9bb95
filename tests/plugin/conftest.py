from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import runs
from served import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Over run "bad", which blows up in the backward pass at step 30, and the logdir's own healthy run."""
    runs.blow_up(tmp_path / "bad", "backward")
    runs.write(tmp_path)
    made = Server(tmp_path)
    yield made
    made.plugin.board.stop()
