"""The recorder's side of the replay: what is kept at every call, and when it is used."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import tensorflow as tf

from tb_nanwatch.format.records import Incident
from tb_nanwatch.record.collect import Collector
from tb_nanwatch.record.naming import handle_of
from tb_nanwatch.record.optimizers import first_values
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.replay import rerun
from tb_nanwatch.record.replay.capsule import Capsules
from tb_nanwatch.record.replay.groups import Staged
from tb_nanwatch.record.replay.memory import EVERY, Call, Memory, Ways
from tb_nanwatch.record.replay.state import Handles, RandomState
from tb_nanwatch.record.replay.trials import Subject
from tb_nanwatch.record.retrospect import Retrospect

MOST: Final = 3  # incidents of a run that are replayed
BATCH: Final = ["x", "y", "sample_weight"]  # names of the parts of a batch of Keras
NOT_STAGED: Final = "the several steps of a call take their batches where those cannot be kept, as under a strategy"
FIRST: Final = 16  # calls in which optimizers and models may still make variables

# Kernels that keep a random state of their own: running them again would change what the run draws next.
_DRAWING: Final = frozenset(
    [
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
        "ParameterizedTruncatedNormal",
        "Multinomial",
        "RandomShuffle",
        "RandomGamma",
        "RandomPoissonV2",
        "RandomPoisson",
    ]
)


class Rewind:
    """Keeps the memory, and investigates incidents with it.

    say: writes a note and prints it. state: the variables that a step changes, as far as the entry point knows.
    """

    def __init__(self, say: Callable[[str, str], None], options: Options, state: Callable[[], Iterable[Any]]) -> None:
        self._handles = Handles()
        self._state = state
        self._budget = options.replay_megabytes << 20
        self._say = say
        self._memory = Memory(self._handles, self._budget, self._too_large, self._first_known)
        self._draws = False
        self._under_xla = False
        self._eager = True
        self._investigated = 0
        self._calls = 0
        self._seconds = options.trial_seconds
        self.ways: Ways | None = None  # set by the entry point; without them nothing is kept
        self.staged: Staged | None = None  # where a call runs several steps; set by the entry point
        self.why_not = ""  # why nothing can be replayed, as far as that is known
        self._grouped = 0  # steps, at most, since the shadow
        self._first = 0  # of them
        self._made: Any = None

    @property
    def on(self) -> bool:
        return not self._memory.off and self.ways is not None

    def traced(self, graph: Any, under_xla: bool, ours: Iterable[Any]) -> None:
        """A step was traced into `graph`: now it is known what it reads, writes and draws.

        `ours` are the recorder's variables.
        """
        self._eager = False
        self._handles.add_graph(graph, ours)
        self._memory.made()  # a step that was only traced has changed nothing yet
        self._under_xla |= under_xla
        self._draws |= any(op.type in _DRAWING for op in graph.get_operations())
        definitions = graph.as_graph_def(add_shapes=False).library.function
        self._draws |= any(node.op in _DRAWING for f in definitions for node in f.node_def)

    @contextlib.contextmanager
    def making(self) -> Iterator[None]:
        """Around an eager step: what the variables that it makes hold at first is kept."""

        def creator(create: Callable[..., Any], **settings: Any) -> Any:
            variable = create(**settings)
            if tf.executing_eagerly() and self.on:
                self._handles.add_variables([variable])
                self._memory.made()
            return variable

        if not self.on or self._calls > FIRST:
            yield
            return
        with tf.variable_creator_scope(creator):
            yield

    def before(self, step: int, data: Any, names: list[str] | None) -> None:
        """Take note of the call that is step `step`."""
        if not self._counted():
            return
        if self._calls <= FIRST or step % 16 == 0:  # optimizers make their slots in the first step
            self._handles.add_variables(self._state())
        randomness = RandomState.now() if self._eager else None
        self._memory.before(Call(step, data, names, randomness))

    def before_group(self, step: Callable[[], int]) -> None:
        """Take note of a call of several steps; step() is the number of its first."""
        staged = self.staged
        if staged is None or not self._counted():
            return
        if self._calls <= FIRST or self._calls % 16 == 0:
            self._handles.add_variables(self._state())
        if self._calls > 1 and not staged.found:
            self._memory.off, self.why_not = True, NOT_STAGED
            return
        held = self._grouped * staged.first_bytes() if self._calls == 2 or self._grouped >= EVERY else 0
        if self._memory.shadow is None or self._grouped >= EVERY or self._memory.is_over(held):
            staged.clear()
            self._memory.renew()
            self._grouped, self._first = 0, step()
        self._grouped += staged.steps

    def _counted(self) -> bool:
        """Count a call; False if no replay will ever ask for it."""
        wanted = self.on and self._investigated < MOST
        self._calls += wanted
        return wanted

    def _unstage(self) -> None:
        """The calls of grouped steps, one by one."""
        if self.staged is not None:
            batches = self.staged.take()
            self._memory.calls = [Call(self._first + n, data, BATCH) for n, data in enumerate(batches)]

    def steps_until(self, step: int) -> int:
        """How many steps `investigate` will run again to reach `step`; 0 where it will run none."""
        if self.why_not or not self.on or self._investigated >= MOST:
            return 0
        if self.staged is not None:
            return max(0, step - self._first + 1) if self.staged.found else 0
        return len(self._memory.until(step))

    def investigate(
        self, incident: Incident, collector: Callable[[], Collector], subject: Subject, looking: Retrospect
    ) -> rerun.Outcome | None:
        """Replay the incident's first step, then try remedies; None where that was done often enough, or is off.

        `looking` looks at the steps before it, where they can be repeated.
        """
        ways = self.ways
        if self.staged is not None and not self.staged.found:
            self.why_not = NOT_STAGED
        if self.why_not:
            return rerun.Outcome(None, {"replay": "not possible", "why": self.why_not})
        if not self.on or ways is None or self._investigated >= MOST:
            return None
        self._investigated += 1
        start = time.monotonic()
        self._unstage()
        witness: Retrospect | None = looking
        if self._draws and ways.fresh is not None:
            self._made = self._made or ways.fresh()
            ways, witness = replace(ways, run=self._made), None
            subject = replace(subject, last_loss=lambda: None)
        trials = rerun.Trials(subject, self._seconds) if self._seconds else None
        outcome = rerun.investigate(
            self._memory, ways, incident.first_step, incident.origin, collector, self._under_xla, trials, witness
        )
        if self.staged is not None:  # its batches are gone
            self._memory.forget()
        outcome.extra["seconds"] = round(time.monotonic() - start, 3)
        return outcome

    def keep(self, incident: Incident, outcome: rerun.Outcome, capsules: Capsules) -> str:
        """Write the capsule of an incident that was replayed; its folder, empty without one."""
        if outcome.failing is None:
            return ""
        self._handles.learn_names(self._state())
        try:
            return capsules.write(incident, outcome, self._handles, self._under_xla, self._draws)
        except OSError as error:  # what else is recorded may still fit
            self._say("no_capsule", f"the capsule of step {incident.first_step:,} cannot be written: {error}")
            return ""

    def _first_known(self) -> set[int]:
        optimizer = self.ways.optimizer if self.ways is not None else None
        return {id(handle_of(variable)) for variable, _ in first_values(optimizer)}

    def _too_large(self, size: int) -> None:
        self.why_not = f"the state of this training takes more than replay_megabytes={self._budget >> 20:,}"
        self._say(
            "replay_off",
            f"the state of this training takes {size >> 20:,} MB, more than replay_megabytes={self._budget >> 20:,}: "
            "incidents will be located by layer, not by op",
        )
