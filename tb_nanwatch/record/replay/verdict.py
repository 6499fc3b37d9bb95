"""What became of a capsule's step that ran again."""

from __future__ import annotations

from dataclasses import dataclass

from tb_nanwatch.format.records import Origin


@dataclass(frozen=True)
class Verdict:
    """What became of the step. outcome: finite or nonfinite; how: "op by op", "compiled" where only that fails, or
    "graph".

    loss: None where nobody knows it. put_in: how many variables came from the capsule; missing: names of the capsule's
    that the program lacks; unset: names of the program's that the capsule lacks.
    """

    outcome: str
    loss: float | None
    how: str = "op by op"
    origin: Origin | None = None
    why: str = ""
    put_in: int = 0
    missing: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
