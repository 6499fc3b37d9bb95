"""Where capsules are run again: in the folder of the programs that left them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture
def here(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module's `trained` folder as the working directory, which a command has to put on the path itself."""
    monkeypatch.chdir(trained)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(trained)])
    return trained
