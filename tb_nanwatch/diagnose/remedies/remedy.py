"""What a remedy is told of the incident or finding that it is for, and what it answers."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.batch import Batch
from tb_nanwatch.diagnose.causes import Case
from tb_nanwatch.diagnose.operation import Operation
from tb_nanwatch.format.records import Counts, OperandStats, TensorInfo
from tb_nanwatch.store.run import Run

MANY: Final = 8  # learning rates of a run: a callback lowers it now and then, a schedule at every step
FIT, LOOP, GRAPH = "fit", "loop", "graph"
NO_OP: Final = Operation("", "", False, False, (), Counts(), "", ())


@dataclass(frozen=True)
class Advice:
    """Why the remedy helps here, and the lines to write, as the user's program would have them."""

    why: str
    snippet: str


@dataclass(frozen=True)
class Patient:
    """What the snippets need to know: how the program trains, where the fault is, which values it had.

    style: FIT for Keras fit, LOOP for a custom step, GRAPH for TensorFlow 1. cause: name of the cause or rule.
    """

    run: Run
    style: str
    cause: str
    layer: str = ""
    layer_class: str = ""
    where: str = ""  # "train.py, line 34", "" where no line of the user's is known
    op: Operation = NO_OP
    batch: tuple[Batch, ...] = ()
    samples: tuple[int, ...] = field(default=())
    bad_input: str = ""
    step: int = 0
    phase: str = ""
    features: tuple[int, ...] = ()  # places in a sample that are bad, where a sample is a row
    feeds: tuple[str, ...] = ()  # parts of the batch that what failed was made of, nearest first
    replica: int = -1  # whose part of the batch it was
    trial: Mapping[str, Any] = field(default_factory=dict)  # of the remedy, as the report holds it

    @property
    def value(self) -> float | None:
        """The number with which a trial stayed finite; None where none did, or it has none."""
        value = self.trial.get("value")
        return float(value) if self.trial.get("outcome") == "finite" and value is not None else None

    @property
    def whole_batch(self) -> bool:
        """Whether every sample of the batch is bad."""
        shape = next((info.shape for info in self.run.kind("input") if info.shape), None)
        return len(self.samples) > 1 and shape is not None and len(self.samples) >= shape[0] > 0

    @property
    def setting(self) -> str:
        """What a finite trial set to that value, where there is a choice."""
        return str(self.trial.get("setting", "")) if self.trial.get("outcome") == "finite" else ""

    @property
    def learning_rate(self) -> float:
        """The last one recorded up to the step in question; 0 if none was."""
        values = self.run.series("scalar/learning_rate", "value", 0, max(self.step, 0)).values
        values = values[np.isfinite(values)]
        return float(values[-1]) if len(values) else 0.0

    @property
    def weighted(self) -> TensorInfo | None:
        """The weights of the layer in question, largest first."""
        found = [i for i in self.run.kind("weight") if i.layer == self.layer and i.shape]
        return max(found, key=lambda info: int(np.prod(info.shape or ())), default=None)

    @property
    def last_layer(self) -> TensorInfo | None:
        """The matrix of the last layer that has one: its last dimension is what the network puts out."""
        return next((i for i in reversed(self.run.kind("weight")) if i.shape and len(i.shape) > 1), None)


def of_case(case: Case, cause: str) -> Patient:
    """The patient that an incident is."""
    origin = case.incident.origin
    where = ""
    if case.op.code and origin.source is not None:
        where = f"{words.file_name(origin.source.file)}, line {origin.source.line}"
    return Patient(
        run=case.run,
        style=style_of(case.run),
        cause=cause,
        layer=origin.layer,
        layer_class=origin.layer_class,
        where=where,
        op=case.op,
        batch=case.batch,
        samples=origin.samples,
        bad_input=origin.tensor if origin.phase == "input" else "",
        step=case.incident.first_step,
        phase=origin.phase,
        feeds=_feeds(case),
        replica=origin.replica,
        features=tuple(
            place[0]
            for place in case.replay.get("features", ())
            if isinstance(place, list) and len(place) == 1 and isinstance(place[0], int)
        ),
    )


def _feeds(case: Case) -> tuple[str, ...]:
    fed = case.replay.get("fed_by", {}).get("inputs", ())
    return tuple(str(name) for name in fed) if isinstance(fed, list) else ()


def of_finding(run: Run, rule: str, tensor: str, step: int) -> Patient:
    """The patient that a finding on `tensor` is."""
    info = next((info for info in run.tensors if info.name == tensor), None)
    layer, layer_class = (info.layer, info.layer_class) if info is not None else ("", "")
    return Patient(run, style_of(run), rule, layer, layer_class, step=step)


def style_of(run: Run) -> str:
    """How the program of a run trains, by the recorder's entry point."""
    entry = run.header.entry_point
    if entry.startswith(("keras", "tf_keras")):
        return FIT
    return LOOP if entry in ("", "watch") else GRAPH


def number(value: float) -> str:
    """A value as Python source, short: 0.0001, 1e-05, 20."""
    return f"{value:.3g}"


def described(operand: OperandStats | None) -> str:
    """The name of an operand as a variable in a snippet, "x" where it is none."""
    name = operand.name if operand is not None else ""
    return name if name.isidentifier() and name.islower() and not keyword.iskeyword(name) else "x"


def exponent(op: Operation) -> str:
    """The other argument of a power, as source: its value where that is one number."""
    other = op.operand(1)
    known = other is not None and other.min == other.max
    return number(other.min) if known and other is not None else "y"


def optimizer(patient: Patient) -> str:
    """The optimizer that bounds gradients, as the program reaches it: one that scales the loss has it inside."""
    scaled = bool(np.isfinite(patient.run.series("scalar/loss_scale", "value").values).any())
    return f"{'model.' if patient.style == FIT else ''}optimizer{'.inner_optimizer' if scaled else ''}"


def rate_set(patient: Patient, value: str) -> str:
    """A line that sets the learning rate, also of an optimizer that has a schedule."""
    if patient.style == GRAPH:
        return f"learning_rate = {value}  # before the optimizer is made"
    name = "model.optimizer" if patient.style == FIT else "optimizer"
    when = "  # after model.compile(...)" if patient.style == FIT else ""
    rates = patient.run.series("scalar/learning_rate", "value", 0, max(patient.step, 0)).values
    if len(np.unique(rates[np.isfinite(rates)])) > MANY and value.replace(".", "").replace("e-", "").isdigit():
        value = f"keras.optimizers.schedules.ExponentialDecay({value}, 1000, 1.0)"
        when = "  # or that much less where your schedule begins"
    return f"{name}.learning_rate = {value}{when}"
