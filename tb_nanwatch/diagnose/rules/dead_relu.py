"""A layer whose relu puts out 0 for every sample: no gradient passes it, so nothing will ever wake it.

AWS calls a relu dead from half of its units on, DeepDiagnosis and AUTOTRAINER from 70 %; healthy networks have nine of
ten zeros behind a relu. So all outputs must be zero here, with no gradient reaching the layer's weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import FEWEST_STEPS, last_step, layers
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.silent import silent_since
from tb_nanwatch.diagnose.rules.zero_weights import zero_weights
from tb_nanwatch.store.run import Run

#: Functions that are 0 for a whole half of the numbers, or as good as; "" is not known. A sigmoid at 0 is saturated.
RELUS: Final = ("", "relu", "relu6", "leaky_relu", "gelu", "silu", "swish")


def dead_relu(run: Run) -> Iterable[Finding]:
    """At most one finding, on the first layer that is dead at the end of what is known."""
    last = last_step(run)
    if last - run.first_step + 1 < FEWEST_STEPS:
        return
    candidates = [info for info in layers(run) if info.activation in RELUS]
    dead = [(info, since) for info in candidates if (since := silent_since(run, info, last)) is not None]
    if not dead or any(zero_weights(run)):  # weights of zeros put out zeros: that rule speaks of them
        return
    first, since = dead[0]
    names = [words.printable(info.layer or info.name) for info, _ in dead]  # a TF1 op may have no layer
    evidence = [f"every output of {names[0]} is exactly 0 and its weights receive no gradient"]
    if len(dead) > 1:
        others = words.listing(names[1:])
        evidence.append(f"so it is with {others}")
    remedies = ("use_activation_or_normalization", "initializer", "lower_learning_rate")
    yield Finding("dead_relu", "warning", first.name, since, last, tuple(evidence), remedies, first.kind)
