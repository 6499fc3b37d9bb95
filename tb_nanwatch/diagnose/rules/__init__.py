"""What is wrong with a run although nothing became non-finite. One rule a file: a function from a Run to Findings.

A rule answers with nothing unless it is sure: a healthy run must stay without findings. `RULES` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tb_nanwatch.diagnose.rules.bad_initialization import bad_initialization
from tb_nanwatch.diagnose.rules.dead_relu import dead_relu
from tb_nanwatch.diagnose.rules.ended_by_error import ended_by_error
from tb_nanwatch.diagnose.rules.exploding_gradient import exploding_gradient
from tb_nanwatch.diagnose.rules.extreme_column import extreme_column
from tb_nanwatch.diagnose.rules.falling_loss_scale import falling_loss_scale
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.forecast import forecast
from tb_nanwatch.diagnose.rules.growth import growth
from tb_nanwatch.diagnose.rules.input_extreme_scale import input_extreme_scale
from tb_nanwatch.diagnose.rules.label_invalid import label_invalid
from tb_nanwatch.diagnose.rules.learning_rate_too_high import learning_rate_too_high
from tb_nanwatch.diagnose.rules.learning_rate_too_low import learning_rate_too_low
from tb_nanwatch.diagnose.rules.loss_spike import loss_spike
from tb_nanwatch.diagnose.rules.saturated_activation import saturated_activation
from tb_nanwatch.diagnose.rules.small_headroom import small_headroom
from tb_nanwatch.diagnose.rules.stalled import stalled
from tb_nanwatch.diagnose.rules.symmetric_weights import symmetric_weights
from tb_nanwatch.diagnose.rules.update_too_large import update_too_large
from tb_nanwatch.diagnose.rules.update_too_small import update_too_small
from tb_nanwatch.diagnose.rules.vanishing_gradient import vanishing_gradient
from tb_nanwatch.diagnose.rules.zero_weights import zero_weights
from tb_nanwatch.store.run import Run

Rule = Callable[[Run], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    ended_by_error,
    label_invalid,
    vanishing_gradient,
    exploding_gradient,
    bad_initialization,
    zero_weights,
    symmetric_weights,
    learning_rate_too_high,
    learning_rate_too_low,
    update_too_large,
    update_too_small,
    stalled,
    dead_relu,
    saturated_activation,
    input_extreme_scale,
    extreme_column,
    forecast,
    growth,
    small_headroom,
    falling_loss_scale,
    loss_spike,
)

__all__ = ["RULES", "Finding", "Rule", "findings_of"]


def findings_of(run: Run) -> tuple[Finding, ...]:
    """The findings of all rules, by first step."""
    found = [finding for rule in RULES for finding in rule(run)]
    return tuple(sorted(found, key=lambda finding: (finding.first_step, finding.rule, finding.tensor)))
