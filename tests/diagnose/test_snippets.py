"""Every snippet runs as it stands, in a program that trains with Keras, by a loop of its own or in a graph of TF1."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import runs
import tensorflow as tf
from operations import CASES, examined, first, operand, post_mortem

from tb_nanwatch.diagnose import remedies
from tb_nanwatch.diagnose.causes.domain_error import DOMAINS
from tb_nanwatch.diagnose.functions import FUNCTIONS
from tb_nanwatch.diagnose.operation import DIVISIONS, EXPONENTIALS, LOGS
from tb_nanwatch.format.records import BatchPart, Column, Counts, FirstBatches, OperandStats

STYLES = {"keras_fit": "fit", "watch": "loop", "watch_session": "graph"}
ROWS = 64
X = BatchPart("x", "float32", (32, 16))
Y = BatchPart("y", "int64", (32,))


def data(parts: Sequence[BatchPart]) -> dict[str, Any]:
    """Arrays for the parts of a batch, by name."""
    rng = np.random.default_rng(0)
    made = {}
    for part in parts:
        numbers = rng.integers(0, 3, (ROWS, *(part.shape or (1,))[1:]))
        made[part.name] = numbers.astype(part.dtype)
    return made


def nested(flat: Mapping[str, Any]) -> Any:
    """Parts by their paths as dicts and tuples."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *above, last = name.split("/")
        place = tree
        for step in above:
            place = place.setdefault(step, {})
        place[last] = value

    def folded(node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        whole = {key: folded(value) for key, value in node.items()}
        return tuple(whole.values()) if all(key.isdigit() for key in whole) else whole

    return {name: folded(node) for name, node in tree.items()}


def program(style: str, parts: Sequence[BatchPart] = (X, Y), mapping: bool = False) -> dict[str, Any]:
    """What is there in a program of that style."""
    flat = data(parts)
    elements = nested(flat)
    several = tuple(elements.values())
    scope: dict[str, Any] = {"tf": tf, "np": np, "keras": keras, "K": keras.backend}
    if style == "graph":
        v1 = tf.compat.v1
        w = v1.get_variable("weights", (16, 3))
        scope["hidden"] = tf.cast(v1.placeholder_with_default(flat[parts[0].name], None), tf.float32)
        loss = tf.reduce_mean(tf.square(w))
        scope |= {"learning_rate": 0.1, "optimizer": v1.train.GradientDescentOptimizer(0.1)}
        scope |= {"grads_and_vars": scope["optimizer"].compute_gradients(loss)}
        scope |= {name: np.asarray(value) for name, value in flat.items()}
    else:
        source = elements if mapping else several if len(several) > 1 else several[0]
        scope["dataset"] = tf.data.Dataset.from_tensor_slices(source).batch(32)
        model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(3)])
        model.compile("adam", "mse")
        scope |= {"model": model} if style == "fit" else {"optimizer": model.optimizer}
        scope |= {"gradients": [tf.ones((2, 2)), None]} if style == "loop" else {}
        scope |= {"loss": tf.constant(2.0), "x": tf.ones((4, 16))}
    three = tf.constant([[0.5, 0.25, 0.25]])
    names = ("logits", "labels", "y_pred", "prediction", "numerator", "denominator", "p", "scores", "weights")
    return {**dict.fromkeys(names, three), **scope}


def execute(snippet: str, scope: dict[str, Any]) -> dict[str, Any]:
    """Run the lines at the place in the program where they belong; what is there afterwards."""
    lines = [f"result = {line[7:]}" if line.startswith("return ") else line for line in snippet.split("\n")]
    exec(compile("\n".join(lines), "snippet", "exec"), scope)  # that is what is tested
    if "dataset" in scope and any("dataset" in line for line in lines):
        scope["batches"] = list(scope["dataset"])
    return scope


@pytest.fixture(autouse=True)
def policy() -> Iterator[None]:
    before = keras.mixed_precision.dtype_policy()
    yield
    keras.mixed_precision.set_dtype_policy(before)


def run_in(style: str, snippet: str, parts: Sequence[BatchPart] = (X, Y), mapping: bool = False, **more: Any) -> Any:
    """In a graph of its own, where the style is that."""
    if style != "graph":
        return execute(snippet, {**program(style, parts, mapping), **more})
    with tf.Graph().as_default():
        return execute(snippet, {**program(style, parts), **more})


@pytest.mark.parametrize("entry_point", STYLES)
@pytest.mark.parametrize("case", CASES)
def test_of_every_case(case: str, entry_point: str, tmp_path: Path) -> None:
    found = first(post_mortem(tmp_path, **CASES[case][0], entry_point=entry_point))
    assert found["remedies"]
    labels = Y if "probabilities" not in case else BatchPart("y", "float32", (32, 4))
    for remedy in found["remedies"]:
        run_in(STYLES[entry_point], remedy["snippet"], (X, labels))


RULES = (
    "dead_relu", "saturated_activation", "vanishing_gradient", "exploding_gradient", "bad_initialization",
    "learning_rate_too_low", "learning_rate_too_high", "input_extreme_scale", "label_invalid", "small_headroom",
)  # fmt: skip
LAYERS = {
    "Dense": (16, 4), "Conv2D": (3, 3, 8, 16), "Conv1DTranspose": (3, 8, 4), "LSTM": (8, 32), "GRU": (8, 24),
    "SimpleRNN": (8, 8), "Embedding": (100, 8), "Lambda": (), "MyLayer": (4, 4), "EinsumDense": (2, 3, 4), "": (4,),
}  # fmt: skip


@pytest.mark.parametrize("entry_point", STYLES)
@pytest.mark.parametrize("layer_class", LAYERS)
def test_of_every_rule_for_any_layer(layer_class: str, entry_point: str, tmp_path: Path) -> None:
    table = [("activation", "block/it/output", "block/it", layer_class, (32, 4))]
    table += (
        [("weight", "block/it/kernel", "block/it", layer_class, LAYERS[layer_class])] if layer_class != "Lambda" else []
    )
    runs.write(tmp_path, infos=runs.network([*table, ("loss", "loss", "", "", ())]), entry_point=entry_point)
    run = examined(tmp_path).run
    for rule in RULES:
        patient = remedies.of_finding(run, rule, "block/it/output", 3)
        for name in remedies.REMEDIES:
            run_in(STYLES[entry_point], remedies.entry(name, patient, {})["snippet"])


def test_a_layer_has_the_size_that_it_had(tmp_path: Path) -> None:
    infos = runs.network([("weight", "it/kernel", "it", "Conv2D", (3, 5, 8, 16)), ("loss", "loss", "", "", ())])
    runs.write(tmp_path, infos=infos)
    patient = remedies.of_finding(examined(tmp_path).run, "bad_initialization", "it/kernel", 0)
    line = remedies.entry("initializer", patient, {})["snippet"]
    assert line == 'keras.layers.Conv2D(16, (3, 5), kernel_initializer="he_normal", name="it")'


# ---------------------------------------------------------------- batches of any form

FORMS: dict[str, tuple[tuple[BatchPart, ...], bool]] = {
    "x and y": ((X, Y), False),
    "x alone": ((X,), False),
    "with weights": ((X, Y, BatchPart("sample_weight", "float32", (32,))), False),
    "a dict of features": (
        (BatchPart("x/table", "float32", (32, 16)), BatchPart("x/age", "float32", (32, 3)), Y),
        False,
    ),
    "two inputs": ((BatchPart("x/0", "float32", (32, 16)), BatchPart("x/1", "float32", (32, 3)), Y), False),
    "a dict of all": ((BatchPart("features", "float32", (32, 16)), BatchPart("labels", "int64", (32,))), True),
    "pictures of bytes": ((BatchPart("x", "uint8", (32, 8, 8, 3)), Y), False),
    "arguments of any name": ((BatchPart("lambda", "float32", (32, 16)), BatchPart("1", "int64", (32,))), False),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("entry_point", ["keras_fit", "watch"])
@pytest.mark.parametrize(
    ("cause", "samples", "bad"),
    [("input_extreme_scale", (), ""), ("input_nonfinite", (3,), "x"), ("input_nonfinite", tuple(range(32)), "x"),
     ("label_invalid", (), ""), ("division_by_zero", (), ""), ("domain_error", (2,), "")],
)  # fmt: skip
def test_of_a_batch_of_any_form(
    form: str, entry_point: str, cause: str, samples: tuple[int, ...], bad: str, tmp_path: Path
) -> None:
    parts, mapping = FORMS[form]
    runs.write(tmp_path, entry_point=entry_point, events=[FirstBatches(2, 3, parts, mapping)])
    run = examined(tmp_path).run
    patient = replace(remedies.of_finding(run, cause, "", 3), samples=samples, bad_input=bad)
    snippet = remedies.entry("clean_input", patient, {})["snippet"]
    labels = [p for p in parts if p.name in ("y", "labels")]
    if (cause == "label_invalid" and not labels) or (bad and parts[0].dtype == "uint8"):
        return
    after = run_in(STYLES[entry_point], snippet, parts, mapping)
    element = after["batches"][0]
    before = run_in(STYLES[entry_point], "pass", parts, mapping)["dataset"].element_spec
    tf.nest.assert_same_structure(element, before)


def test_only_the_part_that_is_meant_is_changed(tmp_path: Path) -> None:
    parts, _ = FORMS["a dict of features"]
    column = Column(7, 0.0, 2.1e6)
    odd = (replace(parts[0], columns=16, typical=1.0, rows=96, extreme=(column,), extreme_count=1), *parts[1:])
    runs.write(tmp_path, events=[FirstBatches(2, 3, odd)])
    patient = remedies.of_finding(examined(tmp_path).run, "input_extreme_scale", "x/table", 0)
    snippet = remedies.entry("clean_input", patient, {})["snippet"]
    (x, y), *_ = run_in("fit", snippet, parts)["batches"]
    flat = data(parts)
    expected = flat["x/table"][:32].copy()
    expected[:, 7] /= np.float32(2.1e6)
    np.testing.assert_array_equal(x["table"], expected)
    np.testing.assert_array_equal(x["age"], flat["x/age"][:32])
    np.testing.assert_array_equal(y, flat["y"][:32])


# ---------------------------------------------------------------- functions that are not defined everywhere

OUTSIDE = {
    "Log": [-1.0, 0.0, 2.0], "Log1p": [-2.0, -1.0, 2.0], "Xlogy": [-1.0, 0.0, 2.0], "Xlog1py": [-2.0, -1.0, 2.0],
    "Exp": [95.0, 0.0], "Expm1": [95.0, 0.0], "Sinh": [-95.0, 95.0, 0.0], "Cosh": [-95.0, 95.0, 0.0],
    "Sqrt": [-2.0, 0.0, 3.0], "Rsqrt": [-2.0, 0.0, 3.0], "Pow": [-2.0, 0.0, 3.0],
    "Acos": [-1.5, 1.5, 1.0, 0.5], "Asin": [-1.5, 1.5, 1.0, 0.5], "Atanh": [-1.5, 1.5, 1.0, 0.5],
    "Erfinv": [-1.5, 1.5, 1.0, 0.5], "Acosh": [0.5, 1.0, 3.0], "Ndtri": [-0.5, 1.5, 0.0, 0.5],
    "Lgamma": [-1.0, 0.0, 3.0], "Digamma": [-1.0, 0.0, 3.0], "Reciprocal": [0.0, 2.0],
}  # fmt: skip
KEPT_INSIDE = frozenset({"clip_predictions_or_from_logits", "safe_where"})
DIVISION = frozenset({"guard_division", "safe_where", "clean_input"})
OF_EXPONENTIALS = frozenset({"clip_predictions_or_from_logits", "lower_learning_rate", "clip_gradients"})
OFFERED: dict[str, frozenset[str]] = {
    **dict.fromkeys(LOGS, KEPT_INSIDE | {"use_activation_or_normalization"}),
    **dict.fromkeys(EXPONENTIALS, OF_EXPONENTIALS),
    **dict.fromkeys(DOMAINS, KEPT_INSIDE),
    **dict.fromkeys(("Sqrt", "Pow"), KEPT_INSIDE | {"guard_division"}),
    **dict.fromkeys(DIVISIONS, DIVISION),
    "Rsqrt": KEPT_INSIDE | DIVISION,  # it is a root and divides
}


def inputs_of(op: str) -> list[OperandStats]:
    numbers = OUTSIDE.get(op, [0.0, 2.0])
    counts = {"zero": numbers.count(0.0), "negative": sum(n < 0 for n in numbers)}
    bad = operand("v", min(numbers), max(numbers), **counts)
    other = operand("other", 0.5, 0.5, shape=())
    divides = op in DIVISIONS and op not in ("Reciprocal", "Inv", "Rsqrt")
    return [other, bad] if divides or op.startswith("Xlog") else [bad, other]


@pytest.mark.parametrize("op", sorted(OFFERED))
def test_remedies_fit_the_function(op: str, tmp_path: Path) -> None:
    output = Counts(pos_inf=2, size=64) if op in EXPONENTIALS or op in DIVISIONS else Counts(nan=2, size=64)
    found = first(post_mortem(tmp_path, op, inputs_of(op), output))
    names = {remedy["name"] for remedy in found["remedies"]}
    assert names
    assert names <= OFFERED[op], f"{op}: {found['cause']}"


@pytest.mark.parametrize("own", [True, False], ids=["own line", "no line"])
@pytest.mark.parametrize("op", sorted(FUNCTIONS))
def test_what_is_kept_inside_is_finite_and_so_is_its_slope(op: str, own: bool, tmp_path: Path) -> None:
    call = FUNCTIONS[op].call.format(x="v", y="w" if own or op != "Pow" else "y")
    code = f"result = 2.0 * {call}" if own else ""
    output = Counts(pos_inf=2, size=64) if op in EXPONENTIALS or op in DIVISIONS else Counts(nan=2, size=64)
    found = first(post_mortem(tmp_path, op, inputs_of(op), output, code=code, samples=()))
    ran = 0
    for remedy in found["remedies"]:
        if remedy["name"] not in ("clip_predictions_or_from_logits", "safe_where", "guard_division"):
            continue
        if "result" not in remedy["snippet"] and "root" not in remedy["snippet"]:
            continue  # of a loss, or of a quotient
        v = tf.constant(OUTSIDE[op])
        with tf.GradientTape() as tape:
            tape.watch(v)
            scope = execute(remedy["snippet"], {"tf": tf, "keras": keras, "v": v, "x": v, "w": 0.5, "y": 0.5})
            result = scope.get("result", scope.get("root"))
        slope = tape.gradient(result, v)
        assert np.isfinite(result).all(), remedy["snippet"]
        assert slope is not None, remedy["snippet"]
        assert np.isfinite(slope).all(), remedy["snippet"]
        ran += 1
    assert ran or (op == "Log" and not own)


def test_no_snippet_names_what_no_program_has(tmp_path: Path) -> None:
    """Apart from the names of the program's own line, those that a reader knows at once."""
    known = {"tf", "np", "keras", "x", "y", *dir(builtins)}
    known |= {"dataset", "model", "optimizer", "learning_rate", "gradients", "loss", "labels", "logits", "prediction"}
    known |= {"numerator", "denominator", "scores", "grads_and_vars", "hidden", "y_pred"}
    for number, (given, _, _) in enumerate(CASES.values()):
        for entry_point in STYLES:
            for remedy in first(post_mortem(tmp_path / f"{number}{entry_point}", **given, entry_point=entry_point))[
                "remedies"
            ]:
                tree = ast.parse(remedy["snippet"])
                used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
                bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
                bound |= {a.arg for n in ast.walk(tree) if isinstance(n, ast.Lambda) for a in n.args.args}
                assert used - bound <= known, remedy["snippet"]


def test_a_schedule_is_replaced_as_its_optimizer_allows(tmp_path: Path) -> None:
    infos = runs.network([*runs.TABLE, ("scalar", "learning_rate", "", "", ())])
    runs.write(
        tmp_path, lambda info, step: 0.1 * 0.9**step if info.kind == "scalar" else runs.calm(info, step), infos=infos
    )
    patient = remedies.of_finding(examined(tmp_path).run, "learning_rate_too_high", "", 30)
    snippet = remedies.entry("lower_learning_rate", patient, {})["snippet"]
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)), "mse")
    execute(snippet, {"keras": keras, "model": model})
    assert float(model.optimizer.learning_rate) == pytest.approx(0.1 * 0.9**30 / 10, rel=0.01)


@pytest.mark.parametrize("scaled", [True, False])
def test_a_loss_scale_has_the_optimizer_that_clips_inside(scaled: bool, tmp_path: Path) -> None:
    infos = runs.network([*runs.TABLE, ("scalar", "loss_scale", "", "", ())])
    scale = 32768.0 if scaled else np.nan  # without one, the series is there and has no value
    runs.write(tmp_path, lambda info, step: scale if info.kind == "scalar" else runs.calm(info, step), infos=infos)
    patient = remedies.of_finding(examined(tmp_path).run, "exploding_gradient", "", 30)
    snippet = remedies.entry("clip_gradients", patient, {})["snippet"]
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    clips = keras.optimizers.SGD(0.1)
    model.compile(keras.mixed_precision.LossScaleOptimizer(clips) if scaled else clips, "mse")
    execute(snippet, {"model": model})
    assert clips.global_clipnorm == 0.7


def test_what_is_all_zero_is_looked_for_where_the_denominator_comes_from(tmp_path: Path) -> None:
    parts, _ = FORMS["a dict of features"]
    runs.write(tmp_path, events=[FirstBatches(2, 3, parts)])
    patient = remedies.of_finding(examined(tmp_path).run, "division_by_zero", "", 3)
    snippet = remedies.entry("clean_input", replace(patient, feeds=("x/age", "x/table"), replica=1), {})["snippet"]
    assert 'x["age"] != 0' in snippet
    assert snippet.endswith(".batch(batch_size)")  # what a replica was given says nothing of the whole
