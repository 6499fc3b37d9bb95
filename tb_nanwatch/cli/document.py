"""What a renderer is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tb_nanwatch.diagnose import PostMortem


@dataclass(frozen=True)
class Document:
    """Diagnosed runs of a logdir, and what could not be read there and belongs to none of them."""

    logdir: str
    runs: tuple[PostMortem, ...]
    damage: tuple[str, ...]

    def title(self, found: PostMortem) -> str:
        """What a run is called where people read; "." says nothing, so the logdir's own run has its folder's name."""
        return (Path(self.logdir).expanduser().resolve().name if found.run.name == "." else "") or found.run.name
