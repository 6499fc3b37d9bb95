"""Snippets name the user's own line, layer and value, in the way the program trains."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import runs
from operations import CASES, INF, MINUS_INF, examined, first, operand, post_mortem

from tb_nanwatch.format.records import Counts, TensorInfo

PROBABILITIES = operand("p", 0, 1, zero=3)


def snippet(logdir: Path, remedy: str, *args: Any, **more: Any) -> str:
    offered = first(post_mortem(logdir, *args, **more))["remedies"]
    return str(next(r["snippet"] for r in offered if r["name"] == remedy))


def test_the_line_itself(tmp_path: Path) -> None:
    code = "loss = -tf.reduce_sum(y * tf.math.log(p))"
    lines = snippet(tmp_path, "clip_predictions_or_from_logits", "Log", [PROBABILITIES], MINUS_INF, code=code)
    assert lines == ("# train.py, line 34\nloss = -tf.reduce_sum(y * tf.math.log(tf.clip_by_value(p, 1e-10, 1.0)))")


def test_a_line_of_a_library_is_not_rewritten(tmp_path: Path) -> None:
    file = "/usr/lib/python3/site-packages/keras/losses.py"
    lines = snippet(
        tmp_path,
        "clip_predictions_or_from_logits",
        "Log",
        [PROBABILITIES],
        MINUS_INF,
        code="return tf.math.log(p)",
        file=file,
    )
    assert lines.startswith("y_pred = tf.clip_by_value(y_pred, 1e-10, 1.0)")


def test_a_division(tmp_path: Path) -> None:
    inputs = [operand("Sub", 0, 2, zero=1), operand("Sqrt", 0, 2, zero=1)]
    given = {"op_type": "RealDiv", "inputs": inputs, "code": "return (x - mean) / std"}
    assert snippet(tmp_path / "a", "guard_division", **given).endswith("return tf.math.divide_no_nan(x - mean, std)")
    assert snippet(tmp_path / "b", "safe_where", **given).splitlines()[1:] == [
        "safe = tf.where(tf.not_equal(std, 0), std, tf.ones_like(std))",
        "return tf.where(tf.not_equal(std, 0), (x - mean) / safe, tf.zeros_like(safe))",
    ]


def test_where_inside_out(tmp_path: Path) -> None:
    code = "curve = tf.where(dose > 0.0, self.scale * tf.math.log(dose), tf.zeros_like(dose))"
    lines = snippet(
        tmp_path,
        "safe_where",
        "Log",
        [operand("x", -1, 3, negative=5)],
        phase="backward",
        code=code,
        replay={"through_where": True},
    )
    assert lines.splitlines()[1:] == [
        "safe = tf.where(dose > 0, dose, tf.ones_like(dose))",
        "curve = tf.where(dose > 0.0, self.scale * tf.math.log(safe), tf.zeros_like(dose))",
    ]


RATED = runs.network([*runs.TABLE, ("scalar", "learning_rate", "", "", ())])


def test_where_keeps_an_exponential_from_overflowing(tmp_path: Path) -> None:
    found = snippet(
        tmp_path,
        "safe_where",
        "Exp",
        [operand("logits", -2778, 2554)],
        INF,
        phase="backward",
        code="p = tf.exp(logits)",
        replay={"through_where": True},
    )
    assert found.splitlines()[1:] == [
        "safe = tf.where(logits < 87, logits, tf.zeros_like(logits))",
        "p = tf.where(logits < 87, tf.exp(safe), tf.zeros_like(safe))",
    ]


def rated(info: TensorInfo, step: int) -> float:
    return 0.02 if info.kind == "scalar" else runs.calm(info, step)


@pytest.mark.parametrize(
    ("entry_point", "rate", "clip"),
    [
        ("keras_fit", "model.optimizer.learning_rate = 0.002", "model.optimizer.global_clipnorm = 0.7"),
        ("watch", "optimizer.learning_rate = 0.002", "gradients, _ = tf.clip_by_global_norm(gradients, 0.7)"),
        ("watch_session", "learning_rate = 0.002", "gradients, variables = zip(*grads_and_vars)"),
    ],
)
def test_the_way_the_program_trains(entry_point: str, rate: str, clip: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "op_type": "Square", "inputs": [operand("Sub", -1, 4e19)], "output": INF,
        "values": rated, "infos": RATED, "entry_point": entry_point,
    }  # fmt: skip
    assert snippet(tmp_path / "a", "lower_learning_rate", **given).startswith(rate)
    assert snippet(tmp_path / "b", "clip_gradients", **given).startswith(clip)


def test_the_layer_by_name(tmp_path: Path) -> None:
    inputs = [operand("h", 0, 1e30), operand("out/kernel", -1e9, 1e9)]
    found = snippet(tmp_path, "initializer", "MatMul", inputs, INF, "forward", layer="out", at=0)
    assert 'name="out"' in found
    assert "initializer" in found


def test_valid_labels(tmp_path: Path) -> None:
    logits, labels = operand("logits", -1, 1, shape=(32, 5)), operand("y", 0, 5, "int32", (32,))
    lines = snippet(tmp_path, "clean_input", "SparseSoftmaxCrossEntropyWithLogits", [logits, labels])
    assert lines == "dataset = dataset.unbatch().filter(lambda x, y: (y >= 0) & (y < 5)).batch(32)"


@pytest.mark.parametrize("layer", ['a"); import os; os.system("x', "a\nb", "<script>", "x" * 500])
def test_hostile_names_cannot_become_code(layer: str, tmp_path: Path) -> None:
    inputs = [operand(layer, 0, 1e30), operand(layer, -1e9, 1e9)]
    found = first(post_mortem(tmp_path, "MatMul", inputs, INF, "forward", layer=layer, at=0))
    for remedy in found["remedies"]:
        tree = ast.parse(remedy["snippet"])
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import)]
        assert "<" not in remedy["snippet"]


def test_every_snippet_is_python(tmp_path: Path) -> None:
    for number, (given, _, _) in enumerate(CASES.values()):
        for entry_point in ("keras_fit", "watch", "watch_session"):
            found = first(post_mortem(tmp_path / f"{number}{entry_point}", **given, entry_point=entry_point))
            for remedy in found["remedies"]:
                ast.parse(remedy["snippet"])


def test_nothing_is_said_to_have_been_tried(tmp_path: Path) -> None:
    found = first(post_mortem(tmp_path, "Log", [PROBABILITIES], Counts(neg_inf=3, size=9)))
    assert {remedy["trial"]["outcome"] for remedy in found["remedies"]} == {"not_run"}


def finite(remedy: str, **more: Any) -> dict[str, Any]:
    """A replay in which this remedy held."""
    trial = {"remedy": remedy, "outcome": "finite", "steps": 64, "control": "nonfinite", "note": "", **more}
    return {"trials": [trial]}


def test_the_learning_rate_that_held(tmp_path: Path) -> None:
    infos = runs.network([*runs.TABLE, ("scalar", "learning_rate", "", "", ())])

    def values(info: TensorInfo, step: int) -> float:
        return 0.5 if info.kind == "scalar" else runs.exploding(info, step)

    given = ("Square", [operand("Sub", -1, 4e19)], INF)
    lines = snippet(
        tmp_path, "lower_learning_rate", *given, at=30, values=values, infos=infos,
        replay=finite("lower_learning_rate", value=0.01), entry_point="keras_fit",
    )  # fmt: skip
    assert lines == "model.optimizer.learning_rate = 0.005  # after model.compile(...)"


def test_the_bound_that_held(tmp_path: Path) -> None:
    given = {"op_type": "Square", "inputs": [operand("Sub", -1, 4e19)], "output": INF, "at": 30}
    given |= {"values": runs.exploding, "entry_point": "keras_fit"}
    held = finite("clip_gradients", value=0.5, setting="clipvalue")
    assert snippet(tmp_path, "clip_gradients", **given, replay=held).startswith("model.optimizer.clipvalue = 0.5")


def test_a_trial_speaks_for_all_that_do_the_same(tmp_path: Path) -> None:
    found = post_mortem(
        tmp_path, "Pow", [operand("x", -1, 3, negative=5), operand("input 1", 0.5, 0.5, shape=())],
        code="y = x ** 0.5", replay=finite("guard_division", also=["clip_predictions_or_from_logits"]),
    )  # fmt: skip
    offered = first(found)["remedies"][0]
    assert offered["name"] == "clip_predictions_or_from_logits"
    assert offered["trial"]["outcome"] == "finite"
    assert offered["snippet"].endswith("y = tf.maximum(x, 1e-12) ** 0.5")


def test_an_optimizer_that_divides_by_zero(tmp_path: Path) -> None:
    inputs = [operand("Mul", 0, 1, zero=3), operand("AddV2", 0, 1, zero=3)]
    lines = snippet(tmp_path, "guard_division", "RealDiv", inputs, phase="update", entry_point="keras_fit")
    assert lines == "model.optimizer.epsilon = 1e-07  # after model.compile(...), before fit"


def test_a_scale_is_no_probability(tmp_path: Path) -> None:
    """The output of a relu may be below 1 by chance; a bound of 1 above would change what it means."""
    given = {"op_type": "Log", "inputs": [operand("Relu", 0, 0.4, zero=3)], "output": MINUS_INF}
    lines = snippet(tmp_path, "clip_predictions_or_from_logits", **given, code="nll = tf.math.log(sigma)")
    assert lines.endswith("nll = tf.math.log(tf.maximum(sigma, 1e-10))")


def test_a_mean_of_nothing(tmp_path: Path) -> None:
    given = {"op_type": "Mean", "inputs": [operand("GatherV2", 0, 0, shape=(0,))]}
    lines = snippet(tmp_path, "guard_division", **given, code="loss = tf.reduce_mean(hard)")
    assert lines.endswith("loss = tf.where(tf.size(hard) > 0, tf.reduce_mean(hard), 0.0)")


def every_sample_bad(tmp_path: Path, **more: Any) -> dict[str, Any]:
    replay = json.dumps({"replay": "reproduced", "element": "x", "features": [[7]], **more})
    found = runs.incident("input", replay_json=replay)
    event = replace(found, origin=replace(found.origin, tensor="x", samples=tuple(range(32))))
    runs.write(tmp_path, events=[event], entry_point="watch")
    remedy: dict[str, Any] = first(examined(tmp_path))["remedies"][0]
    return remedy


def test_a_bad_column_is_repaired_instead_of_dropping_every_sample(tmp_path: Path) -> None:
    remedy = every_sample_bad(tmp_path)
    assert "All 32 samples of step 30 hold it in x at feature 7: drop none, but repair it." in remedy["why"]
    assert remedy["snippet"].splitlines() == [
        "# x[..., 7] is not finite throughout: a column divided by its own deviation of 0, for example",
        "dataset = dataset.map(lambda x, y: (tf.where(tf.math.is_finite(x), x, tf.zeros_like(x)), y))",
    ]


def test_the_divisor_that_held(tmp_path: Path) -> None:
    given = {"op_type": "Exp", "inputs": [operand("logits", 0, 990)], "output": INF, "code": "w = tf.exp(logits)"}
    held = finite("clean_input", value=507.0, setting="scale x", course=[2.0, 1.0])
    lines = snippet(tmp_path, "clean_input", **given, replay=held)
    assert lines == "dataset = dataset.map(lambda x, y: (x / 507, y))"


def test_what_the_function_is_not_defined_for(tmp_path: Path) -> None:
    """In a graph that is fed, before it is fed; in one with a dataset, in that."""
    for name, lines in (
        ("x", "good = (x > 0).reshape(len(x), -1).all(axis=1)\nx, y = x[good], y[good]  # before feed_dict"),
        ("IteratorGetNext", "dataset = dataset.unbatch().filter(lambda x, y: tf.reduce_all(x > 0)).batch(32)"),
    ):
        infos = [replace(info, name=name) if info.kind == "input" else info for info in runs.network()]
        given = ("Log", [operand(name, -1, 1, negative=3)], MINUS_INF)
        got = snippet(tmp_path / name, "clean_input", *given, infos=infos, entry_point="watch_session")
        assert got == lines


@pytest.mark.parametrize("first_tried", ["guard_division", "clip_predictions_or_from_logits"])
def test_the_same_lines_are_offered_once(first_tried: str, tmp_path: Path) -> None:
    """A trial of bounds speaks for both remedies of a root; the name is that which fits the cause best."""
    names = ["guard_division", "clip_predictions_or_from_logits"]
    names.sort(key=lambda name: name != first_tried)
    trial = {"remedy": names[0], "also": names[1:], "outcome": "finite", "steps": 64, "control": "nonfinite"}
    given = {
        "op_type": "SqrtGrad",
        "inputs": [operand("Sqrt", 0, 2, zero=7), operand("Tile", 1, 1)],
        "output": INF,
        "phase": "backward",
        "code": "d = tf.sqrt(tf.reduce_sum(x, -1))",
        "replay": {
            "forward_op": "Sqrt",
            "trials": [trial | {"note": "bounds", "value": 1e-12, "course": [2.0, 1.0], "losses": [2.0, 1.0]}],
        },
    }
    offered = first(post_mortem(tmp_path, **given))["remedies"]
    lines = "# train.py, line 34\nd = tf.sqrt(tf.maximum(tf.reduce_sum(x, -1), 1e-12))"
    same = [remedy for remedy in offered if remedy["snippet"] == lines]
    assert [(remedy["name"], remedy["trial"]["outcome"]) for remedy in same] == [("guard_division", "finite")]
    assert len({remedy["snippet"] for remedy in offered}) == len(offered) > 1
