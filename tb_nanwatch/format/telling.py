"""What a recorder tells `nanwatch try` while it runs: one JSON object a line, appended to a file.

started {folder}, applied {words}, step {step}, nonfinite {step, what}, done {steps}, not_applicable {why},
failed {why}.
Several processes may append; a line that is none of ours is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

EVENTS: Final[Mapping[str, Mapping[str, type]]] = {
    "started": {"folder": str},
    "applied": {"words": str},
    "step": {"step": int},
    "nonfinite": {"step": int, "what": str},
    "done": {"steps": int},
    "not_applicable": {"why": str},
    "failed": {"why": str},
}
LONGEST_LINE: Final = 1 << 16


def tell(path: str, event: str, **fields: Any) -> None:
    """Append an event. Raises OSError."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps({'event': event, **fields})}\n")


class Listener:
    """Reads what was appended since it last looked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[dict[str, Any]]:
        """Events of complete lines, oldest first."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [event for line in complete.splitlines() if (event := _event(line)) is not None]


def _event(line: bytes) -> dict[str, Any] | None:
    if len(line) > LONGEST_LINE:
        return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fields = EVENTS.get(str(told.get("event"))) if isinstance(told, dict) else None
    if fields is None or not all(isinstance(told.get(name), kind) for name, kind in fields.items()):
        return None
    return dict(told)
