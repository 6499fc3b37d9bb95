"""Runs your program, as it is, once per remedy and once without, and says which remedy keeps it finite.

The recorder in the program (NanWatch, watch, watch_session or NanWatchHook) finds the remedy in its environment and
applies it to the training; a run ends after --steps training steps, or at the first that is not finite. Each is
written below the program's own logdir, as LOGDIR/try/REMEDY, with what it printed in output.txt. An outcome counts only
if the program without a remedy fails within the same steps. What else the program writes, such as checkpoints, every
run writes, too.

remedies:
  lower_learning_rate[=FACTOR]             times 0.1 and 0.01, or FACTOR
  clip_gradients[=norm:BOUND|value:BOUND]  by global norm 1, by value 0.5 and 1, or as told
  initializer                              kernels drawn anew: He for relu, Glorot else, orthogonal where recurrent
  clean_input[=finite|scale]               without samples that are not finite; inputs divided by their largest
  mixed_precision_policy                   float32 in the place of a mixed policy of Keras
  guard_division, safe_where, clip_predictions_or_from_logits
                                           the operation blamed in the newest incident of --logdir, kept in its domain

Here the exit codes are: 0 a remedy held, 3 inconclusive, 4 no remedy held, 5 no recorder was started, 130 interrupted.
"""

# ruff: noqa: N999  # the command is called so, and found by the name of its file

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tb_nanwatch.cli import exits, logdir
from tb_nanwatch.cli.render import outcomes as rendered
from tb_nanwatch.cli.render.outcomes import Tried
from tb_nanwatch.cli.trying import outcome, side_by_side
from tb_nanwatch.cli.trying.outcome import Outcome
from tb_nanwatch.cli.trying.plan import Plan, newest_incident, plan
from tb_nanwatch.cli.trying.program import Program
from tb_nanwatch.diagnose.words import printable
from tb_nanwatch.errors import UsageError

HELP: Final = "run your program once per remedy, side by side, and say which one holds"
EXAMPLES: Final = """\
  nanwatch try -- python train.py --epochs 3
  nanwatch try --logdir logs -- python train.py
  nanwatch try --remedy lower_learning_rate --remedy clip_gradients=norm:5 --steps 500 --jobs 3 -- python train.py"""

OUTPUT: Final = "output.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.usage = (
        "nanwatch try [--remedy NAME ...] [--logdir LOGDIR] [--steps N] [--jobs N] [--format F] -- PROGRAM ..."
    )
    parser.add_argument(
        "--remedy",
        action="append",
        default=[],
        metavar="NAME",
        help="what to try, may be repeated (default: what the newest incident of --logdir asks for, else common ones)",
    )
    parser.add_argument("--logdir", metavar="LOGDIR", help="where an earlier run of the program failed")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="training steps of each run (default: 200, or 64 beyond the incident)"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time (default: 2)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="the program and its arguments"
    )


def run(args: argparse.Namespace) -> int:
    """Run all, show the outcomes; the exit code says whether a remedy held."""
    command = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not command:
        raise UsageError("name the program to run: nanwatch try -- python train.py")
    for name, value in (("--steps", args.steps), ("--jobs", args.jobs)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    known = None
    if args.logdir is not None:
        folder = logdir.checked(args.logdir)
        with logdir.progress(f"Reading {printable(args.logdir)}"):
            known = newest_incident(folder)
    planned = plan(args.remedy, args.steps, known)
    if len(planned.treatments) == 1:
        raise UsageError(f"nothing to try: {planned.left_out[0][0]}: {planned.left_out[0][1]}")
    with tempfile.TemporaryDirectory(prefix="nanwatch-try-", ignore_cleanup_errors=True) as scratch:
        programs = [Program(command, asked, Path(scratch)) for asked in planned.treatments]
        with _shown(programs) as show:
            finished = side_by_side.run(programs, args.jobs, show, lambda: _may_fail(programs[0]))
        tried = _tried(command, planned, programs)
    (rendered.render_json if args.format == "json" else rendered.render)(tried, sys.stdout)
    return _code(tried) if finished else exits.INTERRUPTED


def _may_fail(control: Program) -> bool:
    """Whether the control runs, or ended as it must: else nothing that follows would prove anything."""
    return control.exit_code is None or control.nonfinite is not None


def _tried(command: Sequence[str], planned: Plan, programs: Sequence[Program]) -> Tried:
    alone = [outcome.of_program(program) for program in programs]
    kept = [_with_output(one) for one in alone]
    others = [outcome.against(kept[0], one) for one in kept]
    others += [outcome.left_out(remedy, why) for remedy, why in planned.left_out]
    incident = "" if planned.known is None else planned.known.run
    return Tried(command, planned.treatments[0].steps, incident, others)


def _with_output(one: Outcome) -> Outcome:
    """The output moved beside the run; where there is no run, into a file that stays."""
    if not one.output:
        return one
    folder = Path(one.run) if one.run and Path(one.run).is_dir() else None
    try:
        target = _lasting(one.label) if folder is None else folder / OUTPUT
        shutil.move(one.output, target)
    except OSError as error:
        return replace(one, output="", note=f"{one.note}\nthe output could not be kept: {error}".strip())
    return replace(one, output=str(target))


def _lasting(label: str) -> Path:
    """A new file of its own where temporary ones are."""
    handle, name = tempfile.mkstemp(prefix=f"nanwatch-{label}-", suffix=".txt")
    os.close(handle)
    return Path(name)


def _code(tried: Tried) -> int:
    if tried.held:
        return exits.HEALTHY
    if tried.control.outcome == outcome.NONFINITE:
        proven = any(one.outcome == outcome.NONFINITE for one in tried.outcomes[1:])
        return exits.INCIDENT if proven else exits.WARNINGS
    started = any(one.run for one in tried.outcomes)
    return exits.WARNINGS if started else exits.NOTHING_READABLE


@contextlib.contextmanager
def _shown(programs: Sequence[Program]) -> Iterator[Callable[[], None]]:
    """A bar per run on a terminal; gives what must be called to move them."""
    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.fields[state]}", markup=False), console=console, disable=not console.is_terminal
    ) as bars:
        tasks = [
            bars.add_task(p.asked.label, total=p.asked.steps, start=False, visible=False, state="") for p in programs
        ]

        def show() -> None:
            for task, program in zip(tasks, programs, strict=True):
                if program.running or program.exit_code is not None:
                    if not bars.tasks[task].started:
                        bars.start_task(task)
                    bars.update(
                        task, completed=min(program.step, program.asked.steps), visible=True, state=_state(program)
                    )
                if program.exit_code is not None:
                    bars.stop_task(task)

        yield show


def _state(program: Program) -> str:
    if program.nonfinite is not None:
        return f"not finite at step {program.nonfinite[0]:,}"
    if program.not_applicable or program.failed:
        return "not applicable" if program.not_applicable else "recorder failed"
    if program.exit_code is None:
        return "running" if program.folders else "starting"
    return "finite" if program.folders else "ended"
