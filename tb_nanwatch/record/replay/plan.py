"""Which remedies are tried against an incident, cheapest and likeliest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from tb_nanwatch.format.records import Origin
from tb_nanwatch.record.optimizers import clips, inner_of
from tb_nanwatch.record.replay import remedies
from tb_nanwatch.record.replay.guards import Guard
from tb_nanwatch.record.replay.remedies import Remedy

VALUES: Final = (1.0, 0.5)  # bounds of single elements of gradients, as most programs have them
ADAM: Final = 1e-7  # what Keras adds to the root in Adam's denominator
ADAM_HALF: Final = 1e-4  # 1e-7 is 0 in float16
OWN_MAKING: Final = ("forward", "loss", "backward", "update")  # phases in which training itself may be at fault


def remedies_for(bench: Any, origin: Origin, guard: Guard | None, through_where: bool) -> Iterator[Remedy]:
    """What to try, in that order. A generator: what comes later may use what running the earlier ones has shown."""
    trained = origin.phase in OWN_MAKING
    grew = trained and guard is None
    own = origin.source is not None and "/" in origin.source.code  # a division of the program's, as in its schedule
    if guard is not None and origin.phase != "input" and (own or origin.phase != "update"):
        yield remedies.guard(guard, through_where)
    elif origin.phase == "update" and origin.op_type in ("RealDiv", "Div", "Rsqrt"):
        yield _epsilon(bench)
    half = _is_half(origin)
    if half:
        yield remedies.float32(bench.subject.weights)
    at_once = bench.from_the_start and len(bench.calls) == 1  # before any update
    if grew and at_once:
        yield _initial(bench, guard)
    if grew:
        yield _slower(bench)
    yield from _cleaner(bench, origin)
    if trained and not grew:
        yield _slower(bench)
    if trained:
        yield from _clipped(bench, half)
    if trained and not (grew and at_once):
        yield _initial(bench, guard)


def _epsilon(bench: Any) -> Remedy:
    inner = inner_of(bench.ways.optimizer)
    if not isinstance(getattr(inner, "epsilon", None), float):
        return Remedy("guard_division", "", impossible="the optimizer has no epsilon that can be set")
    half = any(v.dtype.name.startswith("float16") for v in bench.subject.weights)
    return remedies.epsilon(inner, ADAM_HALF if half else ADAM)


def _is_half(origin: Origin) -> bool:
    """Whether float16 had to do with it: an operand of that type, or a number that was cast to it."""
    return any(operand.dtype == "float16" for operand in origin.inputs) or (
        origin.op_type == "Cast" and any(max(abs(o.min), abs(o.max)) > 65504 for o in origin.inputs)
    )


def _slower(bench: Any) -> Remedy:
    variable = bench.subject.learning_rate
    if variable is None and not hasattr(bench.ways.optimizer, "learning_rate"):
        why = "the learning rate is a number of the program, which a recorded step cannot be given anew"
        return Remedy("lower_learning_rate", "", impossible=why)
    hundredth = remedies.lower_learning_rate(variable, 0.01, remedies.lower_learning_rate(variable, 0.001))
    return remedies.lower_learning_rate(variable, 0.1, hundredth)


def _cleaner(bench: Any, origin: Origin) -> Iterator[Remedy]:
    data = bench.calls[-1].data
    size = remedies.batch_size(bench.part(data))
    bad = () if bench.all_bad else origin.samples or bench.bad_samples()
    if bad and len(bad) < size:
        yield remedies.replace_samples(tuple(bad), data, bench.replica)
    elif bad:
        yield Remedy(
            "clean_input", "", impossible=f"all {size} samples of the batch fail: there is no good one to keep"
        )
    if origin.phase != "input":
        scaled = remedies.scale_inputs(data, bench.calls[-1].names or ())
        if scaled is not None:
            yield scaled


def _clipped(bench: Any, half: bool) -> Iterator[Remedy]:
    name = "clip_gradients"
    if not clips(bench.ways.optimizer):
        yield Remedy(name, "", impossible="the recorder was not given the optimizer that applies the gradients")
        return
    if half:
        why = "in float16 the gradients are infinite before they can be clipped"
        yield Remedy(name, "", impossible=why)
        return
    yield remedies.clip_gradients(norm=1.0)
    early = bench.norms[: max(len(bench.norms) // 2, 1)]  # the late ones may have grown already
    typical = float(np.median(early)) if early else 1.0
    if not 0.5 < typical < 2 and 1e-3 < typical < 1e3:
        yield remedies.clip_gradients(norm=float(f"{typical:.1g}"))
    for value in VALUES:
        yield remedies.clip_gradients(value=value)


def _initial(bench: Any, guard: Guard | None) -> Remedy:
    if not bench.from_the_start:
        why = f"new initial weights need a new run: the state kept is that before step {bench.calls[0].step:,}"
        return Remedy("initializer", "", impossible=why)
    if guard is not None:
        return Remedy("initializer", "", impossible="the operation fails for the values that it was given")
    return remedies.initializer(bench.subject.weights, bench.kernels)
