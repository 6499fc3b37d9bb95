"""Incidents with an operation at their origin, as a replay leaves them, in runs through the real writer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import runs

from tb_nanwatch.diagnose import PostMortem, examine
from tb_nanwatch.format.records import Counts, Incident, OperandStats, Origin, Source, TensorInfo
from tb_nanwatch.store.catalog import Catalog

NAN, INF, MINUS_INF = Counts(nan=2, size=64), Counts(pos_inf=2, size=64), Counts(neg_inf=2, size=64)


def operand(
    name: str, low: float, high: float, dtype: str = "float32", shape: tuple[int, ...] = (32, 4), **counts: int
) -> OperandStats:
    """An input of an operation."""
    return OperandStats(name, dtype, shape, low, high, **counts)


def examined(logdir: Path) -> PostMortem:
    """The post-mortem of the only run of a logdir."""
    catalog = Catalog(logdir)
    catalog.refresh()
    (run,) = catalog.runs().values()
    return examine(run)


def post_mortem(
    logdir: Path,
    op_type: str,
    inputs: Sequence[OperandStats] = (),
    output: Counts = NAN,
    phase: str = "loss",
    code: str = "",
    file: str = "/home/me/train.py",
    function: str = "train_step",
    layer: str = "",
    replay: dict[str, Any] | None = None,
    at: int = 10,
    values: runs.Values = runs.calm,
    infos: Sequence[TensorInfo] | None = None,
    samples: tuple[int, ...] = (3,),
    **header: Any,
) -> PostMortem:
    """Of a run that went bad at step `at` in the operation described."""
    origin = Origin(
        phase,
        layer,
        f"{layer}/{op_type}" if layer else op_type,
        "gradient" if phase == "backward" else "loss",
        op_type=op_type,
        op_name=op_type,
        source=Source(file, 34, function, code),
        samples=samples,
        precision="op",
        inputs=tuple(inputs),
        output=output,
    )
    told = {"replay": "reproduced", "replayed_steps": 4, "seconds": 0.5, **(replay or {})}
    event = Incident(0, at, at, origin, last_finite_step=at - 1 if at else None, replay_json=json.dumps(told))
    runs.write(logdir, values, infos=infos, events=[event], **header)
    return examined(logdir)


def first(found: PostMortem) -> dict[str, Any]:
    """The first incident of the report."""
    incident: dict[str, Any] = found.entry["incidents"][0]
    return incident


ZEROS = operand("softmax/Softmax", 0, 1, zero=3)
SPARSE = "SparseSoftmaxCrossEntropyWithLogits"
REFUSAL = "{{node __wrapped__Sparse}} Received a label value of 5 which is outside the valid range of [0, 5).  Label"

CASES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "log of exact zeros": (
        {"op_type": "Log", "inputs": [ZEROS], "output": MINUS_INF},
        "log_of_nonpositive",
        ["clip_predictions_or_from_logits", "safe_where"],
    ),
    "log of a linear output below zero": (
        {"op_type": "Log", "inputs": [operand("AddV2", -0.2, 3, negative=1)]},
        "log_of_nonpositive",
        ["use_activation_or_normalization", "clip_predictions_or_from_logits"],
    ),
    "log of a feature": (
        {"op_type": "Log", "inputs": [operand("x", -0.2, 3, negative=1)], "phase": "forward"},
        "log_of_nonpositive",
        ["clean_input", "clip_predictions_or_from_logits"],
    ),
    "log1p below -1": ({"op_type": "Log1p", "inputs": [operand("Sub", -1.5, 3, negative=9)]}, "log_of_nonpositive", []),
    "the slope of log at zero": (
        {"op_type": "Reciprocal", "inputs": [ZEROS], "output": INF, "phase": "backward",
         "replay": {"forward_op": "Log"}},
        "log_of_nonpositive",
        [],
    ),
    "x over zero": (
        {"op_type": "RealDiv", "inputs": [operand("Sub", 1, 2), operand("Sqrt", 0, 2, zero=1)], "output": INF},
        "division_by_zero",
        ["guard_division", "safe_where"],
    ),
    "zero over zero, no sum": (
        {"op_type": "RealDiv", "inputs": [operand("Sub", 0, 2, zero=1), operand("Sqrt", 0, 2, zero=1)]},
        "division_by_zero",
        ["guard_division", "safe_where"],
    ),
    "over a tiny number": (
        {"op_type": "RealDiv", "inputs": [operand("Sub", 1, 2), operand("Sqrt", 1e-41, 2)], "output": INF},
        "division_by_zero",
        [],
    ),
    "root of zero below": ({"op_type": "Rsqrt", "inputs": [ZEROS], "output": INF}, "division_by_zero", []),
    "a negative power of zero": (
        {"op_type": "Pow", "inputs": [ZEROS, operand("input 1", -1, -1, shape=())], "output": INF},
        "division_by_zero",
        [],
    ),
    "a mean over a mask": (
        {
            "op_type": "RealDiv",
            "inputs": [operand("Sum", 0, 0, shape=(), zero=1), operand("Sum", 0, 0, shape=(), zero=1)],
            "output": Counts(nan=1, size=1),
        },
        "masked_or_empty_reduction",
        ["guard_division", "safe_where"],
    ),
    "softmax over -inf": (
        {"op_type": "Softmax", "inputs": [operand("SelectV2", -1, 1, inf=8)],
         "output": Counts(nan=8, size=128), "phase": "forward"},
        "masked_or_empty_reduction",
        ["safe_where", "clean_input"],
    ),
    "mean of nothing": (
        {"op_type": "Mean", "inputs": [operand("GatherV2", 0, 0, shape=(0, 3))], "output": Counts(nan=1, size=1)},
        "masked_or_empty_reduction",
        [],
    ),
    "-inf minus -inf": (
        {"op_type": "Sub", "inputs": [operand("SelectV2", 0, 1, inf=8), operand("Max", 0, 1, inf=1)]},
        "masked_or_empty_reduction",
        ["safe_where"],
    ),
    "zero times -inf": (
        {"op_type": "Mul", "inputs": [operand("Cast", 0, 1, zero=8), operand("SelectV2", 0, 1, inf=1)]},
        "masked_or_empty_reduction",
        ["safe_where"],
    ),
    "slope of a root": (
        {"op_type": "SqrtGrad", "inputs": [operand("Sqrt", 0, 2, zero=7), operand("Tile", 1, 1)], "output": INF,
         "phase": "backward", "replay": {"forward_op": "Sqrt"}},
        "sqrt_or_pow_gradient_at_zero",
        ["guard_division", "safe_where"],
    ),
    "slope of a power": (
        {"op_type": "Pow", "inputs": [operand("x", 0, 2, zero=7), operand("input 1", -0.5, -0.5, shape=())],
         "output": INF,
         "phase": "backward", "replay": {"forward_op": "Pow"}},
        "sqrt_or_pow_gradient_at_zero",
        ["guard_division"],
    ),
    "exp of 132": (
        {"op_type": "Exp", "inputs": [operand("z/output", -3, 132)], "output": INF},
        "exp_overflow",
        ["clip_predictions_or_from_logits", "lower_learning_rate"],
    ),
    "exp of 20 in half precision": (
        {"op_type": "Exp", "inputs": [operand("z/output", -3, 20, "float16")], "output": INF, "phase": "forward"},
        "float16_overflow",
        ["mixed_precision_policy"],
    ),
    "a sum in half precision": (
        {"op_type": "Sum", "inputs": [operand("h", -3, 60, "float16")], "output": INF, "phase": "forward"},
        "float16_overflow",
        ["mixed_precision_policy"],
    ),
    "a cast to half precision": (
        {"op_type": "Cast", "inputs": [operand("h", -3, 70000)], "output": INF, "phase": "forward"},
        "float16_overflow",
        ["mixed_precision_policy"],
    ),
    "a scaled loss": (
        {"op_type": "Mul", "inputs": [operand("Mean", 3, 3, "float16", ()),
         operand("input 1", 32768, 32768, "float16", ())],
         "output": Counts(pos_inf=1, size=1)},
        "loss_scale",
        ["mixed_precision_policy"],
    ),
    "a label that is no class": (
        {"op_type": SPARSE, "inputs": [operand("logits", -1, 1, shape=(32, 5)), operand("y", 0, 5, "int32", (32,))]},
        "label_invalid",
        ["clean_input"],
    ),
    "a label that was refused": (
        {"op_type": SPARSE, "replay": {"replay": "refused", "error": REFUSAL}},
        "label_invalid",
        ["clean_input"],
    ),
    "labels that are no probabilities": (
        {"op_type": "SoftmaxCrossEntropyWithLogits", "inputs": [operand("logits", -1, 1),
         operand("y", -1, 1, negative=3)]},
        "label_invalid",
        ["clean_input"],
    ),
    "a branch that where threw away": (
        {"op_type": "Log", "inputs": [operand("x", -1, 3, negative=5)], "phase": "backward",
         "code": "c = tf.where(x > 0, tf.math.log(x), 0.0)", "replay": {"through_where": True}},
        "nan_gradient_through_where",
        ["safe_where"],
    ),
    "a branch that where threw away, under XLA": (
        {"op_type": "SqrtGrad", "inputs": [operand("Sqrt", 0, 2, zero=7), operand("Select", 0, 1, zero=7)],
         "phase": "backward",
         "code": "c = tf.where(x > 0, tf.sqrt(x), 0.0)", "replay": {"forward_op": "Sqrt"}},
        "nan_gradient_through_where",
        ["safe_where", "guard_division"],
    ),
    "root of a negative": (
        {"op_type": "Sqrt", "inputs": [operand("Sub", -2, 3, negative=2)]},
        "domain_error",
        ["clip_predictions_or_from_logits", "safe_where"],
    ),
    "root of a variance rounded below zero": (
        {"op_type": "Sqrt", "inputs": [operand("Sub", -1e-7, 3, negative=2)]},
        "domain_error",
        ["guard_division"],
    ),
    "factor of a singular matrix": (
        {"op_type": "Cholesky", "inputs": [operand("AddV2", 0, 1.6)], "output": NAN,
         "code": "factor = tf.linalg.cholesky(tf.matmul(x, x, transpose_b=True))"},
        "domain_error",
        ["guard_division", "clean_input"],
    ),
    "arc cosine beyond 1": ({"op_type": "Acos", "inputs": [operand("Sum", -0.5, 1.0000001)]}, "domain_error", []),
    "a product that overflowed at step 0": (
        {"op_type": "MatMul", "inputs": [operand("h", 0, 1e30), operand("k", -1e9, 1e9)], "output": INF,
         "phase": "forward", "at": 0},
        "bad_initialization",
        ["initializer", "use_activation_or_normalization"],
    ),
    "a square that overflowed without warning": (
        {"op_type": "Square", "inputs": [operand("Sub", -1, 4e19)], "output": INF},
        "growth_overflow",
        ["lower_learning_rate", "clip_gradients"],
    ),
}  # fmt: skip
