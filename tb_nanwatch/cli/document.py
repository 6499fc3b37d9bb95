"""What a renderer is given."""

from __future__ import annotations

from dataclasses import dataclass

from tb_nanwatch.diagnose import PostMortem


@dataclass(frozen=True)
class Document:
    """Diagnosed runs of a logdir, and what could not be read there and belongs to none of them."""

    logdir: str
    runs: tuple[PostMortem, ...]
    damage: tuple[str, ...]
