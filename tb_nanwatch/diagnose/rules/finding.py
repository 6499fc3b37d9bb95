"""What a rule concludes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One weakness of a run: where, from when to when (steps, inclusive), what the rule saw, which remedies follow.

    kind: which tensor of that name is meant, as a weight and its gradient share theirs: a `TensorInfo.kind`, or empty.
    """

    rule: str
    severity: str
    tensor: str
    first_step: int
    last_step: int
    evidence: tuple[str, ...]
    remedies: tuple[str, ...]
    kind: str = ""
