"""A number above 65,504, the largest that float16 holds."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.causes.cause import Case, Cause
from tb_nanwatch.diagnose.operation import told
from tb_nanwatch.format.records import OperandStats
from tb_nanwatch.stats.dtypes import largest

MAXIMUM: Final = largest("float16")
REMEDIES: Final = ("mixed_precision_policy", "use_activation_or_normalization", "clean_input")


def float16_overflow(case: Case) -> Cause | None:
    """An op in float16 that made an infinity of finite numbers, or a cast of too large a number."""
    op = case.op
    if not op.overflowed:
        return _by_layer(case) if not op.known else None
    operand = max((o for o in op.inputs if "float" in o.dtype), key=_size, default=None)
    if operand is None:
        return None
    if op.name == "Cast" and operand.dtype != "float16" and MAXIMUM < _size(operand) < largest(operand.dtype):
        seen = f"{told(operand)} was cast to a smaller type, which it does not fit into: float16 ends at 65,504"
        return Cause("float16_overflow", 0.95, (seen,), REMEDIES)
    if op.dtype != "float16" or any(o.dtype != "float16" for o in op.inputs if "float" in o.dtype):
        return None
    seen = f"{op.said()} computed in float16, which ends at 65,504, from {told(operand)}"
    return Cause("float16_overflow", 0.8 if op.backward else 0.96, (seen,), REMEDIES)


def _by_layer(case: Case) -> Cause | None:
    """Without a replay: the first bad tensor is float16 and holds infinities."""
    origin = case.incident.origin
    info = case.run.by_tag(f"{origin.tensor_kind}/{origin.tensor}")
    if info is None or info.dtype != "float16" or not origin.output.pos_inf + origin.output.neg_inf:
        return None
    seen = f"{words.place(info.kind, info.name, info.layer)} is float16, which ends at 65,504, and overflowed"
    return Cause("float16_overflow", 0.7, (seen,), REMEDIES)


def _size(operand: OperandStats) -> float:
    return max(abs(operand.min), abs(operand.max))
