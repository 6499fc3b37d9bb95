"""One incident, told: where it began, how it spread, how it ended, and what came before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from tb_nanwatch.diagnose import place, restarted, skipped, slot, words
from tb_nanwatch.diagnose.causes import Case, Cause
from tb_nanwatch.diagnose.finite import loss_stayed_finite, was_finite
from tb_nanwatch.diagnose.headline import OPERATED, named, subject
from tb_nanwatch.diagnose.outcome import tried
from tb_nanwatch.format.records import Incident, Spread

SPREAD_NAMED: Final = 4  # tensors named per step
SPREAD_STEPS: Final = 3  # steps told one by one
WORTH_TELLING: Final = 0.3  # confidence of a further cause
OTHERS_TOLD: Final = 2
TREND_STEPS: Final = 3  # before an incident, of which the absence of growth can be told

#: The stretch of a step that each phase stands for.
PHASE_WORDS: Final = {
    "input": "before anything was computed",
    "forward": "in the forward pass",
    "loss": "after the layers",
    "backward": "in the backward pass",
    "update": "in the optimizer's update",
    "weights": "when watching began",
    "metric": "beside the training itself",
}

#: What the phase says of where the value came from.
MEANING: Final = {
    "input": "It came in with the data; nothing in the network made it.",
    "weights": "What made it bad happened before, and is not in this run: look at what was loaded, such as a "
    "checkpoint that was written when the values were bad already, or at how the weights were set.",
    "metric": "Loss, gradients and weights stayed finite: only a metric was touched.",
}

#: What was finite right before, said where that step measured it.
STILL_GOOD: Final = {
    "forward": "The batch itself was finite.",
    "loss": "The outputs of the layers were finite; the loss computed from them was not.",
    "backward": "The loss of that step was finite; the gradient was not.",
    "update": "The gradients of that step were finite; what the optimizer made of them was not.",
}

GRAPHS: Final = ("hook", "watch_session")  # entry points

ACTIONS: Final = {
    "stop": 'Training was stopped, as asked by on_nonfinite="stop".',
    "raise": 'Training was ended by an exception, as asked by on_nonfinite="raise".',
    "skip": 'Updates with non-finite gradients were not applied, as asked by on_nonfinite="skip".',
}


def tell(case: Case, causes: Sequence[Cause], remedies: Sequence[Mapping[str, Any]], first: bool) -> Iterator[str]:
    """Paragraphs on one incident; the first of a run is told with what came before it. `remedies` as in the report."""
    incident = case.incident
    yield " ".join(_beginning(case))
    yield _cause(causes[0])
    others = _others(causes[1:])
    if others:
        yield others
    if remedies:
        yield to_do(remedies)
    spread = _spread(incident)
    if spread:
        yield spread
    yield " ".join(_ending(case))
    if first:
        yield " ".join(_before(case))


def _beginning(case: Case) -> Iterator[str]:
    incident, origin = case.incident, case.incident.origin
    operated = case.op.known and origin.phase in OPERATED
    what = place.what(origin, case.op) if operated else subject(origin)
    layer = ""
    if origin.layer and (operated or words.printable(origin.layer) not in what):
        layer = f" {'in' if operated else 'of'} layer {words.printable(origin.layer)}"
    if origin.layer_class:
        layer += f" ({words.printable(origin.layer_class)})"
    phase = PHASE_WORDS.get(origin.phase, f"in phase {words.printable(origin.phase)}")
    if origin.phase == "loss" and _is_graph(case):
        phase = "on the way from the feeds to the loss"
    counts = words.bad_elements(origin.output)
    held = f"{'made' if operated else 'held'} the first bad value{f': {counts}' if counts else ''}"
    yield f"At step {slot.step(incident, case.replay):,}, {phase}, {what}{layer} {held}."
    if operated:
        yield from place.source_sentence(origin, case.replay)
        given = place.operands(origin.inputs)
        if given:
            yield given
    if origin.phase in MEANING:
        yield MEANING[origin.phase]
    if (
        origin.phase in STILL_GOOD
        and not (origin.phase == "loss" and _is_graph(case))
        and was_finite(case.run, incident)
    ):
        hidden = origin.phase == "loss" and loss_stayed_finite(case.run, incident)  # no bad loss was recorded
        yield "The outputs of the layers were finite." if hidden else STILL_GOOD[origin.phase]
    lost = slot.sentence(incident, case.replay)
    if lost:
        yield lost
    if origin.replica >= 0:
        yield f"It happened on replica {origin.replica}."
    if origin.samples:
        yield f"In the batch it was {place.samples(origin)}."
    replayed = place.replay_sentence(case.replay)
    if replayed and origin.phase != "weights":  # no step made those
        yield replayed


def _is_graph(case: Case) -> bool:
    """Whether it is a graph of TensorFlow 1, in which nothing tells where the layers end and the loss begins."""
    return case.run.header.entry_point in GRAPHS


def _spread(incident: Incident) -> str:
    origin = incident.origin
    later = [
        s
        for s in sorted(incident.spread, key=lambda s: s.order)
        if not _is_origin(s, origin.tensor_kind, origin.tensor)
    ]
    if not later:
        return ""
    told = []
    for step, group in groupby(later, key=lambda s: s.step):
        places = [words.place(s.kind, s.tensor, s.layer) for s in group]
        when = "in the same step" if step == incident.first_step else f"at step {step:,}"
        told.append(f"{words.listing(places, SPREAD_NAMED)} {when}")
    text = "; ".join(told[:SPREAD_STEPS])
    rest = f"; more at {words.count(len(told) - SPREAD_STEPS, 'later step')}" if len(told) > SPREAD_STEPS else ""
    return f"From there it reached {text}{rest}."


def _is_origin(spread: Spread, kind: str, tensor: str) -> bool:
    return spread.kind == kind and spread.tensor == tensor


def _ending(case: Case) -> Iterator[str]:
    incident, run = case.incident, case.run
    bad = words.count(incident.bad_steps, "bad step")
    if incident.recovered and incident.last_step is not None:
        yield f"It recovered: {bad}, the last one {incident.last_step:,}; after it values were finite again."
    elif (last := restarted.cut_off(run, incident)) is not None:
        yield f"It did not recover: values were still bad at step {last:,}, where that start of the run ended."
        anew = restarted.finite_since(run, incident)
        if anew is not None:
            yield f"The run was started again at step {anew:,}; everything recorded since then was finite."
    elif incident.last_step is not None:
        yield f"It ended at step {incident.last_step:,} ({bad}) and too few finite steps followed to call it recovered."
    elif run.last_step > incident.first_step:
        until = "where the run ended" if run.ended else "the last one recorded so far"
        yield f"It did not recover: values were still bad at step {run.last_step:,}, {until}."
    else:
        yield "No later step was recorded."
    if incident.origin.phase != "metric" and loss_stayed_finite(run, incident):
        yield "The loss did not show it: it was finite at every step of the incident."
    if skipped.by_loss_scaling(run, incident):
        those = "update of that step" if incident.bad_steps == 1 else "updates of those steps"
        yield f"Loss scaling skipped the {those}: the weights took no harm."
    if incident.action in ACTIONS:
        yield ACTIONS[incident.action]


def _before(case: Case) -> Iterator[str]:
    incident = case.incident
    finite = incident.last_finite_step if incident.last_finite_step is not None else case.run.last_finite_step
    if finite is None or finite >= incident.first_step:
        yield (
            "No step before it was finite throughout."
            if incident.first_step > case.run.first_step
            else "It is the first recorded step."
        )
    else:
        yield f"The last step with everything finite was {finite:,}."
    risen = [
        f"{trend.label} {'grew step by step' if trend.steady else 'rose'} from {words.magnitude(trend.first)} at step "
        f"{trend.first_step:,} to {words.magnitude(trend.last)} at step {trend.last_step:,}"
        for trend in case.run_up[:2]
    ]
    if risen:
        yield f"Up to then {words.listing(risen)}."
    if not case.trends and incident.first_step - case.run.first_step >= TREND_STEPS:
        yield "Neither loss nor gradients nor weights had grown tenfold in the steps before it."


def _cause(cause: Cause) -> str:
    if cause.name == "none":
        return f"The cause is not proven: {'; '.join(cause.evidence)}."
    sure = "certain" if cause.confidence >= 1 else f"confidence {cause.confidence:.0%}"
    return f"Cause: {named(cause.name)} ({sure}): {'; '.join(cause.evidence)}."


def _others(causes: Sequence[Cause]) -> str:
    likely = [cause for cause in causes if cause.confidence >= WORTH_TELLING][:OTHERS_TOLD]
    told = [f"{named(cause.name)} ({cause.confidence:.0%}): {cause.evidence[0]}" for cause in likely]
    return f"Also possible: {'; '.join(told)}." if told else ""


def to_do(remedies: Sequence[Mapping[str, Any]]) -> str:
    """The first remedy with its reason and what came of trying it, the names of the others, and what did not help."""
    first = remedies[0]
    refuted = [r for r in remedies[1:] if r.get("trial", {}).get("outcome") == "nonfinite"]
    rest = [r for r in remedies[1:] if r not in refuted]
    parts = [f"What to do: {words.remedy(first['name'])}.", first["why"], tried(first.get("trial", {}))]
    parts += [f"Otherwise: {_listed(rest)}."] if rest else []
    parts += [f"Tried in vain: {_listed(refuted)}."] if refuted else []
    return " ".join(part for part in parts if part)


def _listed(remedies: Sequence[Mapping[str, Any]]) -> str:
    return words.listing([words.remedy(remedy["name"]) for remedy in remedies])
