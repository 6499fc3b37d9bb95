"""What became of a capsule's step that ran again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from tb_nanwatch.format.records import Origin

NO_VERDICT: Final = "no verdict"


@dataclass(frozen=True)
class Verdict:
    """What became of the step. outcome: finite, nonfinite, or "no verdict" where it ran from another state than the
    failing step did; how: "op by op", "compiled" where only that fails, or "graph".

    loss: None where nobody knows it. put_in: how many variables came from the capsule; missing: names of the capsule's
    that the program lacks; unset: names of the program's that the capsule lacks. notes: what else a reader should know.
    """

    outcome: str
    loss: float | None
    how: str = "op by op"
    origin: Origin | None = None
    why: str = ""
    put_in: int = 0
    missing: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def judged(self, weights: Collection[str]) -> Verdict:
        """No verdict where variables of the capsule are missing; of one that is not finite, where `weights` are.

        Of a graph, loss and gradients need no slots of the optimizer: something of the program must be unset, too.
        """
        wrong = self.missing if self.outcome == "finite" else [name for name in self.missing if name in weights]
        if not wrong or (self.how == "graph" and not self.unset):
            return self
        so_far = "finite" if self.outcome == "finite" else "not finite"
        some = f"{len(wrong):,} variable{'' if len(wrong) == 1 else 's'}"
        why = f"{so_far} without {some} of the capsule, which did not fit the program by name and shape"
        return replace(self, outcome=NO_VERDICT, why=f"{why}; {self.why}" if self.why else why)
