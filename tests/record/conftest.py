"""Tests of the recorder: helpers of this folder are importable, and failures of the watcher surface as errors."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _failures_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_NANWATCH_STRICT", "1")
