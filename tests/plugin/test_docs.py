"""http_api.md lists the routes that there are, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import tb_nanwatch.plugin as package
from tb_nanwatch.plugin import query
from tb_nanwatch.plugin.plugin import NanWatchPlugin

DOCS = (Path(package.__file__).parent / "http_api.md").read_text(encoding="utf-8")
HEADINGS = dict(re.findall(r"^## `(/[a-z*/]+)\??([^`]*)`$", DOCS, re.MULTILINE))


def test_routes(tmp_path: Path) -> None:
    plugin = NanWatchPlugin(SimpleNamespace(logdir=str(tmp_path), flags=None))
    assert set(HEADINGS) == set(plugin.get_plugin_apps())
    plugin.board.stop()


def test_limits_are_documented() -> None:
    assert f"`level` 0..{query.MAX_LEVEL}" in DOCS
    assert f"at most {query.MAX_ROWS}" in DOCS
    assert f"`bins` 1..{query.MAX_BINS} (default {query.DEFAULT_BINS})" in DOCS
    assert f"`kind` one of {' '.join(query.KINDS)}" in DOCS
