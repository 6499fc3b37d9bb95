"""The run that `nanwatch try` asked for: where it is written, when it ends, and what the asker is told meanwhile."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tb_nanwatch.errors import UsageError
from tb_nanwatch.format import telling, treatment
from tb_nanwatch.format.treatment import Treatment
from tb_nanwatch.record.applied.registry import remedy_for
from tb_nanwatch.record.applied.remedy import Feeds, GraphLoop, Loop, NotApplicable
from tb_nanwatch.record.naming import Names
from tb_nanwatch.record.optimizers import scalars_of
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.probe import Reading

EVERY: Final = 0.3  # seconds between two notices of progress


class TrialEnded(SystemExit):
    """The steps of a trial are done: the program ends here. Whoever started it knows the exit code."""

    def __init__(self) -> None:
        super().__init__(treatment.ENDED)


class Trial:
    """What this process tries, in all its recorders."""

    def __init__(self, asked: Treatment) -> None:
        self.asked = asked
        self._folders: dict[str, Path] = {}

    def folder(self, logdir: str | os.PathLike[str]) -> Path:
        """Where a recorder writes that was told to write to `logdir`: below it, in a folder without a run."""
        base = str(Path(logdir).absolute())
        if base not in self._folders:
            parent, number = Path(base) / "try", 1
            while (folder := parent / _numbered(self.asked.label, number)).exists():
                number += 1
            self._folders[base] = folder
        return self._folders[base]

    def tell(self, event: str, **fields: Any) -> None:
        """Tell the asker, as far as it can be reached."""
        if self.asked.report:
            with contextlib.suppress(OSError):
                telling.tell(self.asked.report, event, **fields)


class Trying:
    """A trial as one recorder sees it, with the remedy in force."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self._trial = trial
        self.remedy = remedy_for(trial.asked)
        self._problem: str | None = None
        self._over = False
        self._told = 0.0
        self._first = True
        self.news = ""  # what is in force, for the run's notes, once
        trial.tell("started", folder=str(folder))

    # ------------------------------------------------------------ what the remedy takes hold of

    def begin(self, names: Names, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        """Before the first step."""
        counts = [scalars_of(optimizer).iterations for optimizer in optimizers]
        done = max((int(np.asarray(count)) for count in counts if count is not None), default=-1)
        self.hold(self.remedy.begin, Loop(names, models, optimizers, done))

    def arguments(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """What the step is called with instead of `arguments`."""
        given: Sequence[Any] = self.hold(self.remedy.arguments, arguments, otherwise=arguments)
        return given

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Around the step, while it is traced or at every eager one."""
        with contextlib.ExitStack() as stack:
            self.hold(stack.enter_context, self.hold(self.remedy.around, otherwise=contextlib.nullcontext()))
            yield
            self.hold(stack.close)

    def gradients(self, sources: Any, gradients: Any, scaled: bool) -> Any:
        """What a tape gave, as the step goes on with it."""
        return self.hold(self.remedy.gradients, sources, gradients, scaled, otherwise=gradients)

    def as_applied(self, reading: Reading) -> Reading:
        """A step with the learning rates that were applied in it."""
        others = tuple(map(self.remedy.applied_rate, reading.others))
        return replace(reading, learning_rate=self.remedy.applied_rate(reading.learning_rate), others=others)

    def applying(self, optimizer: Any) -> None:
        """A Keras optimizer is about to apply gradients."""
        self.hold(self.remedy.applying, optimizer)

    def begin_graph(self, loop: GraphLoop) -> None:
        """Before the first training step of a session."""
        self.hold(self.remedy.begin_graph, loop)

    def feeds(self, loop: GraphLoop, feeds: Feeds) -> dict[Any, Any]:
        """What to feed in addition."""
        found: dict[Any, Any] = self.hold(self.remedy.feeds, loop, feeds, otherwise={}) if not self._problem else {}
        return found

    def hold(self, doing: Callable[..., Any], *arguments: Any, otherwise: Any = None) -> Any:
        """`doing(*arguments)`, a method of the remedy; where it cannot work, the trial ends after this step."""
        try:
            return doing(*arguments)
        except NotApplicable as error:
            self._problem = self._problem or str(error)
        except Exception as error:  # it does not matter why the remedy is not in force
            self._problem = self._problem or f"{type(error).__name__}: {str(error)[:300]}"
        return otherwise

    def before_step(self) -> None:
        """Raises TrialEnded if there shall be no further step."""
        if self._is_over():
            raise TrialEnded

    def after_step(self, steps: int, bad: tuple[int, str] | None) -> bool:
        """Whether training shall end. steps: how many are recorded; bad: the first that was not finite, in words."""
        if steps >= 1 and self._first:
            self._first = False
            self.hold(self.remedy.after_first_step)
            if self._problem is None:
                self._trial.tell("applied", words=self.remedy.words)
                self.news = self.remedy.words
        if steps < 1 or self._is_over():
            return self._over
        self._over = bad is not None or steps >= self._trial.asked.steps
        if bad is not None:
            self._trial.tell("nonfinite", step=bad[0], what=bad[1])
        elif self._over:
            self._trial.tell("done", steps=steps)
        elif time.monotonic() > self._told + EVERY:
            self._told = time.monotonic()
            self._trial.tell("step", step=steps)
        return self._over

    def failed(self, why: str) -> None:
        """The recorder has switched itself off, and the remedy with it."""
        self._trial.tell("failed", why=why)

    def _is_over(self) -> bool:
        if self._problem is not None and not self._over:
            self._over = True
            self._trial.tell("not_applicable", why=self._problem)
        return self._over


def under_trial(
    logdir: str | os.PathLike[str], options: Options
) -> tuple[str | os.PathLike[str], Options, Trying | None]:
    """Where and how a recorder writes, and the remedy that it shall try: mostly as it was told, and none."""
    trial = current()
    if trial is None:
        return logdir, options, None
    folder = trial.folder(logdir)
    return folder, replace(options, replay=False, trial_seconds=0), Trying(trial, folder)


def current() -> Trial | None:
    """The trial that the environment asks for, None mostly. What cannot be read is said once, and not followed."""
    text = os.environ.get(treatment.VARIABLE)
    return _parsed(text) if text else None


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> Trial | None:
    try:
        return Trial(treatment.parse(text))
    except UsageError as error:
        message = f"tb_nanwatch: the variable {treatment.VARIABLE} is not followed: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return None


def _numbered(label: str, number: int) -> str:
    return label if number == 1 else f"{label}-{number}"
