"""A learning rate so low that nothing moves: gradients ask for a change, and all steps together hardly make one.

AWS calls an update below 1e-8 of the weights too small, MindInsight one below 1e-4, UMLAUT a learning rate below 1e-7;
fine-tuning and warmup do with less than 1e-5 on purpose. Here all the updates of the run, added up, are less than a ten
thousandth of every matrix (fine-tuning with Adam at 1e-6 makes four times that in 300 steps), while a gradient is
more than a thousandth of its matrix (training that has converged asks for less), the learning rate is not on its way
up, and the loss is where it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.rules.activations import last_step
from tb_nanwatch.diagnose.rules.course import stuck
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.updates import learning_rate, moves
from tb_nanwatch.store.run import Run

FEWEST_STEPS: Final = 100
WHOLE: Final = 1e-4  # of the weights, over the run
ASKED: Final = 1e-3  # gradient over weight
RISING: Final = 1.05  # times what it was
LOWEST: Final = 1e-7  # learning rate at which updates of exactly zero are believed; else they may be accumulated


def learning_rate_too_low(run: Run) -> Iterable[Finding]:
    """At most one finding, on the matrix that moved most."""
    last = last_step(run)
    steps = last - run.first_step + 1
    if steps < FEWEST_STEPS or not stuck(run, last):
        return
    moved = moves(run, last)
    rates = learning_rate(run, last)
    if not moved or (_rising(rates) if len(rates) else any(_rising(m.ratios[m.ratios > 0]) for m in moved)):
        return
    whole = [float(np.mean(m.ratios)) * steps for m in moved]
    most = int(np.argmax(whole))
    if whole[most] >= WHOLE or not any(m.asked >= ASKED for m in moved):
        return
    if whole[most] == 0 and not (len(rates) and 0 < float(rates.max()) <= LOWEST):
        return
    name = words.printable(moved[most].info.name)
    share = f"{words.magnitude(whole[most])} of its norm ({name})"
    evidence = [
        f"{words.count(steps, 'step')} together changed no layer by more than {share}, and the loss is where it was"
    ]
    if len(rates):
        evidence.append(f"the learning rate is {words.magnitude(float(np.median(rates)))}")
    yield Finding(
        "learning_rate_too_low",
        "warning",
        moved[most].info.name,
        run.first_step,
        last,
        tuple(evidence),
        ("raise_learning_rate",),
        "weight",
    )


def _rising(values: NDArray[np.float64]) -> bool:
    """Whether a warmup is under way: the last values are above the first."""
    return len(values) > 1 and float(values[-1]) > RISING * float(values[0])
