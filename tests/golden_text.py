"""Golden files: REWRITE_GOLDEN=1 in the environment writes them anew, to be looked at before they are committed."""

from __future__ import annotations

import difflib
import os
from pathlib import Path


def check(path: Path, text: str) -> None:
    if os.environ.get("REWRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"{path} is missing: run with REWRITE_GOLDEN=1, look at it, commit it"
    golden = path.read_text(encoding="utf-8")
    assert text == golden, "\n".join(difflib.unified_diff(golden.splitlines(), text.splitlines(), str(path), "now"))
