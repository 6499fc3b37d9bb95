"""A bound on the norm of the gradient."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_nanwatch.diagnose.remedies.remedy import FIT, GRAPH, Advice, Patient, number, optimizer
from tb_nanwatch.diagnose.window import norms, total_norm

STEPS: Final = 64
ORDINARY: Final = (1e-3, 1e3)  # bounds beyond are no bounds


def clip_gradients(patient: Patient) -> Advice:
    """The bound with which a trial held; else what the total norm was while the run was well, 1 where nobody knows."""
    bound, known = _bound(patient)
    if patient.value is not None:
        bound, known = number(patient.value), False
    known_as = f" While the run was well it was typically {bound}." if known else ""
    if patient.setting == "clipvalue":
        return _by_value(patient, bound)
    why = f"A bound on the global gradient norm stops one large gradient from throwing the weights.{known_as}"
    if patient.style == FIT:
        return Advice(why, f"{optimizer(patient)}.global_clipnorm = {bound}  # after model.compile(...), before fit")
    if patient.style == GRAPH:
        return _in_graph(why, f"gradients, _ = tf.clip_by_global_norm(gradients, {bound})")
    return Advice(why, f"gradients, _ = tf.clip_by_global_norm(gradients, {bound})  # before optimizer.apply_gradients")


def _by_value(patient: Patient, bound: str) -> Advice:
    why = "A bound on every element of the gradients stops one large element from throwing the weights."
    if patient.style == FIT:
        return Advice(why, f"{optimizer(patient)}.clipvalue = {bound}  # after model.compile(...), before fit")
    clipped = f"[g if g is None else tf.clip_by_value(g, -{bound}, {bound}) for g in gradients]"
    if patient.style == GRAPH:
        return _in_graph(why, f"gradients = {clipped}")
    return Advice(why, f"gradients = {clipped}  # before optimizer.apply_gradients")


def _in_graph(why: str, clipping: str) -> Advice:
    lines = (
        "gradients, variables = zip(*grads_and_vars)",
        clipping,
        "train_op = optimizer.apply_gradients(zip(gradients, variables))",
    )
    return Advice(why, "\n".join(lines))


def _bound(patient: Patient) -> tuple[str, bool]:
    first, last = max(0, patient.step - STEPS), patient.step - 1
    if last < first or not patient.run.kind("gradient"):
        return "1.0", False
    total = total_norm(norms(patient.run, "gradient", first, last))
    total = total[np.isfinite(total) & (total > 0)]
    if not len(total):
        return "1.0", False
    typical = float(np.median(total[: max(len(total) // 2, 1)]))  # the early half: the late one may have grown already
    if not ORDINARY[0] <= typical <= ORDINARY[1]:
        return "1.0", False
    return number(float(f"{typical:.1g}")), True
