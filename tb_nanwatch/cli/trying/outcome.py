"""What came of each run: what its recorder wrote and told, its exit code, and the control beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.cli.trying.program import Program
from tb_nanwatch.diagnose.words import count, escaped
from tb_nanwatch.format.treatment import CONTROL, ENDED
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

FEW: Final = 9  # values of a loss that are told
LONGEST: Final = 300  # of a line that is quoted

FINITE, NONFINITE, INCONCLUSIVE = "finite", "nonfinite", "inconclusive"
NOT_APPLICABLE, DID_NOT_START, UNWATCHED, NOT_RUN, STOPPED = (
    "not_applicable",
    "did_not_start",
    "no_recorder",
    "not_run",
    "interrupted",
)


@dataclass(frozen=True)
class Outcome:
    """One run. outcome: one of the words above; steps: recorded; losses: some of them, first and last among them;
    loss_fell: its mean over the last quarter of the steps beside that over the first, None where it is not known.

    run: its folder, "" where no recorder was started. note: in words, what else is to be said.
    """

    label: str
    remedy: str
    value: str
    outcome: str
    steps: int = 0
    first_bad_step: int | None = None
    losses: tuple[float, ...] = ()
    loss_fell: bool | None = None
    applied: str = ""
    note: str = ""
    exit_code: int | None = None
    run: str = ""
    output: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "losses": list(self.losses)}


def of_program(program: Program) -> Outcome:
    """What is known of one run by itself."""
    asked = program.asked
    started = program.exit_code is not None or program.running
    bare = Outcome(
        asked.label,
        asked.remedy,
        asked.value,
        FINITE,
        applied=program.words,
        exit_code=program.exit_code,
        run=str(program.folders[0]) if program.folders else "",
        output=str(program.output) if started else "",
    )
    if not started:
        return replace(bare, outcome=NOT_RUN)
    if program.not_applicable:
        return replace(bare, outcome=NOT_APPLICABLE, note=printable_line(program.not_applicable))
    measured = _measured(bare, [run for folder in program.folders for run in _runs(folder)], program)
    if measured.outcome == NONFINITE:
        return measured
    if program.failed:
        return replace(measured, outcome=INCONCLUSIVE, note=f"the recorder {printable_line(program.failed)}")
    if program.stopped and not program.over:
        return replace(measured, outcome=STOPPED)
    return measured if program.done else _ended_early(measured, program)


def _ended_early(measured: Outcome, program: Program) -> Outcome:
    code = program.exit_code
    crashed = code not in (0, ENDED)
    how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    lines = "\n".join(printable_line(line) for line in program.tail())
    if not program.folders:
        if crashed:
            return replace(measured, outcome=DID_NOT_START, note=f"{how}\n{lines}")
        why = "it ended without starting a recorder: is NanWatch, watch, watch_session or NanWatchHook in the program?"
        return replace(measured, outcome=UNWATCHED, note=why)
    if not measured.steps:
        return replace(measured, outcome=DID_NOT_START, note=f"it ended before its first step, {how}\n{lines}")
    if crashed:
        after = f"it ended after {count(measured.steps, 'step')}, {how}"
        return replace(measured, outcome=INCONCLUSIVE, note=f"{after}\n{lines}")
    return measured


def _runs(folder: Path) -> list[Run]:
    if not folder.is_dir():
        return []
    catalog = Catalog(folder)
    catalog.refresh()
    return list(catalog.runs().values())


def _measured(bare: Outcome, runs: Sequence[Run], program: Program) -> Outcome:
    steps = max((run.steps for run in runs), default=0)
    bad = [run.incidents[0].first_step for run in runs if run.incidents]
    bad += [program.nonfinite[0]] if program.nonfinite is not None else []
    losses = next((values for run in runs if len(values := _losses(run))), np.zeros(0))
    quarter = len(losses) // 4
    few = losses if len(losses) <= FEW else losses[np.linspace(0, len(losses) - 1, FEW).astype(int)]
    return replace(
        bare,
        outcome=NONFINITE if bad else FINITE,
        steps=steps,
        first_bad_step=min(bad, default=None),
        losses=tuple(few.tolist()),
        loss_fell=bool(losses[-quarter:].mean() < losses[:quarter].mean()) if quarter else None,
    )


def _losses(run: Run) -> NDArray[np.float64]:
    """Those that are finite, in order."""
    infos = run.kind("loss")
    values = run.series(infos[0].tag, "value").values if infos else np.zeros(0)
    return values[np.isfinite(values)]


def against(control: Outcome, other: Outcome) -> Outcome:
    """An outcome is worth something only if the program unchanged failed within the same steps."""
    if other.remedy == CONTROL or other.outcome not in (FINITE, NONFINITE, NOT_RUN):
        return other
    if control.outcome == NONFINITE:
        first = control.first_bad_step or 0
        if other.outcome == FINITE and other.steps <= first:
            why = f"it ended before step {first:,}, at which the control failed"
            return replace(other, outcome=INCONCLUSIVE, note=why)
        return other
    told = {
        FINITE: f"the control stayed finite, too, over {count(control.steps, 'step')}",
        STOPPED: "the control was interrupted",
        NOT_RUN: "",
    }.get(control.outcome, "the control did not come to a step that failed")
    return replace(other, outcome=other.outcome if other.outcome == NOT_RUN else INCONCLUSIVE, note=told)


def printable_line(text: str) -> str:
    """One line of somebody else's, harmless to a terminal."""
    line = escaped(" ".join(text.split("\n")))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def left_out(remedy: str, why: str) -> Outcome:
    """Of a remedy that cannot be tried at all."""
    return Outcome(remedy, remedy, "", NOT_APPLICABLE, note=why)
