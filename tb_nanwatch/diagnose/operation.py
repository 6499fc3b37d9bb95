"""The operation that made the first bad value, as the replay saw it: what kind it is and what went into it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.format.records import Counts, Incident, OperandStats, Origin
from tb_nanwatch.stats.dtypes import largest

LOGS: Final = frozenset({"Log", "Log1p", "Xlogy", "Xlog1py"})
EXPONENTIALS: Final = frozenset({"Exp", "Expm1", "Sinh", "Cosh"})
DIVISIONS: Final = frozenset({"RealDiv", "Div", "Reciprocal", "Inv", "Rsqrt", "Xdivy", "Mod", "FloorMod", "FloorDiv"})
SOFTMAXES: Final = frozenset({"Softmax", "LogSoftmax"})
REDUCTIONS: Final = frozenset(
    {"Sum", "Mean", "Prod", "Size", "Max", "Min", "SegmentSum", "SegmentMean", "UnsortedSegmentSum", "SparseReduceSum"}
)
#: Sums, products and powers: what they make of finite numbers is infinite only where the numbers are too large.
# fmt: off
GROWING: Final = frozenset(
    {
        "Square", "SquaredDifference", "Mul", "MulNoNan", "MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2",
        "BatchMatMulV3", "Einsum", "Add", "AddV2", "AddN", "Sub", "BiasAdd", "Sum", "Mean", "Prod", "L2Loss", "Pow",
        "Cumsum", "Cumprod", "Conv1D", "Conv2D", "_FusedConv2D", "Conv3D", "DepthwiseConv2dNative",
        "Conv2DBackpropInput", "Conv2DBackpropFilter", "Cast", "AvgPool", "SparseTensorDenseMatMul",
        "UnsortedSegmentSum", "SegmentSum", "FusedBatchNormV3", "_FusedBatchNormEx", "FusedBatchNormGradV3",
        "RealDiv", "Relu6Grad", "TanhGrad", "BiasAddGrad",
    }
)
# fmt: on
LARGE: Final = 1e6  # with it a product or a sum may overflow; with less only a division by nearly 0 does
MOST_TEXT: Final = 500  # of one text taken over from the replay


@dataclass(frozen=True)
class Operation:
    """One op of the incident's step.

    name: its type, "" where no replay found it. forward: the type of the op in the user's forward pass that it is or
    whose gradient it computes. code: the line of the program, "" if that is a library's.
    """

    name: str
    forward: str
    backward: bool
    through_where: bool
    inputs: tuple[OperandStats, ...]
    output: Counts
    code: str
    samples: tuple[int, ...]
    forward_known: bool = False  # whether the replay named the forward op

    @property
    def known(self) -> bool:
        """Whether a replay found it."""
        return bool(self.name)

    @property
    def overflowed(self) -> bool:
        """Whether it made an infinity, and did so from finite inputs."""
        made = self.output.pos_inf + self.output.neg_inf > 0
        return self.known and made and not any(operand.inf or operand.nan for operand in self.inputs)

    @property
    def outgrown(self) -> bool:
        """Whether it is a sum, product or power that overflowed because what went in was large."""
        return self.overflowed and self.name in GROWING and (self.largest_input >= LARGE or self.dtype == "float16")

    @property
    def dtype(self) -> str:
        """Type of its floating operands, "" where there is none."""
        return next((o.dtype for o in self.inputs if "float" in o.dtype), "")

    def operand(self, index: int) -> OperandStats | None:
        """One of the inputs; None where there is no such."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def largest_input(self) -> float:
        """Largest magnitude among the finite elements of its inputs; 0 without any."""
        return max((max(abs(o.min), abs(o.max)) for o in self.inputs if "float" in o.dtype), default=0.0)

    def said(self) -> str:
        """The op in words: "Log", "the gradient of Sqrt"."""
        if self.backward and self.forward_known:
            return f"the gradient of {words.printable(self.forward)} ({words.printable(self.name)})"
        return f"{'the gradient op ' if self.backward and not self.through_where else ''}{words.printable(self.name)}"


def operation(incident: Incident, replay: Mapping[str, Any]) -> Operation:
    """The operation at the origin of an incident. `replay` is what `replay_of` gives."""
    origin = incident.origin
    forward = replay.get("forward_op") or origin.op_type
    return Operation(
        name=origin.op_type,
        forward=str(forward),
        backward=origin.phase == "backward",
        through_where=bool(replay.get("through_where")),
        inputs=origin.inputs,
        output=origin.output,
        code=code_of(origin),
        samples=origin.samples,
        forward_known="forward_op" in replay,
    )


def code_of(origin: Origin) -> str:
    """The user's line at the origin; "" where the innermost line is a library's."""
    source = origin.source
    return "" if source is None or is_library(source.file) else source.code.strip()


def is_library(file: str) -> bool:
    """Whether a file is a library's rather than part of the user's program."""
    return "site-packages" in file or "dist-packages" in file


def replay_of(incident: Incident) -> dict[str, Any]:
    """What the replay left beside the origin, with every value of the kind it should be; empty if nothing was left."""
    try:
        read = json.loads(incident.replay_json or "{}")
    except ValueError:
        return {}
    return dict(_checked(read)) if isinstance(read, dict) else {}


_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "replay": str,
    "why": str,
    "error": str,
    "forward_op": str,
    "through_where": bool,
    "library": dict,
    "graph": list,
    "stack": list,
    "fed_by": dict,
    "element": str,
    "features": list,
    "trials": list,
    "slot": dict,
    "seconds": (int, float),
    "replayed_steps": int,
}


def _checked(read: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, kind in _KINDS.items():
        value = read.get(name)
        if isinstance(value, kind):
            yield name, value[:MOST_TEXT] if isinstance(value, str) else value


def told(operand: OperandStats) -> str:
    """An operand in words: "error (float32, 32 elements from 0 to 1.96)"."""
    name = words.printable(operand.name) or "its input"
    return f"{name} ({words.printable(operand.dtype)}, {extent(operand)})"


def extent(operand: OperandStats) -> str:
    """Its size and range: "32 elements from 0 to 1.96"; without the range where nothing is finite."""
    reach = f" from {words.magnitude(operand.min)} to {words.magnitude(operand.max)}" if operand.has_range else ""
    return f"{words.count(math.prod(operand.shape), 'element')}{reach}"


def exponent_limit(dtype: str) -> float:
    """Largest x whose exponential a dtype can hold: 88.7 in float32, 11.1 in float16."""
    limit = largest(dtype)
    return 88.7 if math.isnan(limit) else math.log(limit)
