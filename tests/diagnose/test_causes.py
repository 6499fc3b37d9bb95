"""Each cause from what the replay saw of an operation, and what is no such cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import runs
from operations import CASES, INF, MINUS_INF, NAN, ZEROS, examined, first, operand, post_mortem

from tb_nanwatch.format.records import TensorInfo


@pytest.mark.parametrize("name", CASES)
def test_cause(name: str, tmp_path: Path) -> None:
    given, cause, remedies = CASES[name]
    incident = first(post_mortem(tmp_path, **given))
    assert incident["cause"]["name"] == cause
    assert 0.4 < incident["cause"]["confidence"] < 1
    assert [remedy["name"] for remedy in incident["remedies"]][: len(remedies)] == remedies
    assert all(remedy["why"] and remedy["snippet"] for remedy in incident["remedies"])
    assert len(incident["remedies"]) <= 5
    confidences = [c["confidence"] for c in (incident["cause"], *incident["other_causes"])]
    assert confidences == sorted(confidences, reverse=True)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"op_type": "Log", "inputs": [operand("p", 0.1, 1)]}, id="log of what it is defined for"),
        pytest.param(
            {"op_type": "RealDiv", "inputs": [operand("a", 0, 1, zero=3), operand("b", 1, 2)]}, id="zero above"
        ),
        pytest.param({"op_type": "Softmax", "inputs": [operand("a", 0, 1)]}, id="softmax of finite scores"),
        pytest.param({"op_type": "Exp", "inputs": [operand("a", 0, 1)]}, id="exp of 1"),
        pytest.param({"op_type": "Sqrt", "inputs": [operand("a", 0, 1, zero=1)]}, id="the root of zero itself"),
        pytest.param({"op_type": "NewKindOfOp", "inputs": [operand("a", 0, 1, zero=1)]}, id="an unknown op"),
        pytest.param({"op_type": "RealDiv"}, id="no operands"),
        pytest.param(
            {"op_type": "MatMul", "inputs": [operand("a", 0, 1)], "output": NAN}, id="a NaN that no growth makes"
        ),
    ],
)
def test_no_cause_is_invented(given: dict[str, Any], tmp_path: Path) -> None:
    assert first(post_mortem(tmp_path, **given))["cause"]["name"] == "none"


def test_the_evidence_has_the_numbers(tmp_path: Path) -> None:
    incident = first(post_mortem(tmp_path, "Log", [ZEROS], MINUS_INF))
    assert incident["cause"]["evidence"][0] == (
        "Log received 3 exact zeros in softmax/Softmax (float32, 128 elements from 0 to 1): "
        "the logarithm is -Infinity at 0 and NaN below"
    )


def test_an_exponential_overflows_on_its_positive_side(tmp_path: Path) -> None:
    incident = first(post_mortem(tmp_path, "Exp", [operand("logits", -2778, 2554)], INF))
    assert incident["cause"]["name"] == "exp_overflow"
    assert incident["cause"]["evidence"][0].startswith("Exp received values up to 2,554 in logits")


def abnormal(info: TensorInfo, step: int) -> float:
    return 1e6 if info.kind == "input" and step == 10 else runs.calm(info, step)


def test_one_abnormal_batch(tmp_path: Path) -> None:
    """Its square overflows: not the growth is the cause, but the data."""
    incident = first(post_mortem(tmp_path, "Square", [operand("Sub", -1, 4e19)], INF, values=abnormal))
    assert incident["cause"]["name"] == "input_extreme_scale"
    assert incident["cause"]["evidence"][0] == "the input x of this batch is 989,724 times as large as in those before"
    assert incident["remedies"][0]["name"] == "clean_input"


def test_an_abnormal_batch_is_a_suspect_beside_another_cause(tmp_path: Path) -> None:
    incident = first(post_mortem(tmp_path, "Log", [ZEROS], MINUS_INF, values=abnormal))
    assert incident["cause"]["name"] == "log_of_nonpositive"
    assert [cause["name"] for cause in incident["other_causes"]] == ["input_extreme_scale"]


def test_growth_by_updates(tmp_path: Path) -> None:
    found = post_mortem(tmp_path, "Square", [operand("Sub", -1, 4e19)], INF, at=30, values=runs.exploding)
    incident = first(found)
    assert [incident["cause"]["name"], incident["other_causes"][0]["name"]] == ["bad_learning_rate", "growth_overflow"]
    assert incident["other_causes"][0]["evidence"][0] == (
        "Square of Sub (float32, 128 elements from -1 to 4e19) passed 3.4e38, the largest float32"
    )


def test_growth_does_not_explain_a_log_of_zero(tmp_path: Path) -> None:
    found = post_mortem(tmp_path, "Log", [ZEROS], MINUS_INF, at=30, values=runs.exploding)
    assert first(found)["cause"]["name"] == "log_of_nonpositive"


def test_an_update_larger_than_the_weights(tmp_path: Path) -> None:
    def thrown(info: TensorInfo, step: int) -> float:
        return 400.0 if info.kind == "update" and step == 9 else runs.calm(info, step)

    incident = first(post_mortem(tmp_path, "Square", [operand("Sub", -1, 4e19)], INF, values=thrown))
    assert incident["cause"]["name"] == "bad_learning_rate"
    assert "was 99.7 times as large as the weights that it changed" in incident["cause"]["evidence"][0]


def test_loss_scale_in_the_backward_pass(tmp_path: Path) -> None:
    inputs = [operand("gradient of h", -3, 6e4, "float16"), operand("k", -3, 3, "float16")]
    infos = runs.network([*runs.TABLE, ("scalar", "loss_scale", "", "", ())])

    def scaled(info: TensorInfo, step: int) -> float:
        return 65536.0 if info.kind == "scalar" else runs.calm(info, step)

    incident = first(post_mortem(tmp_path, "MatMul", inputs, INF, "backward", values=scaled, infos=infos))
    assert incident["cause"]["name"] == "loss_scale"
    assert "scaled by 65,536" in incident["cause"]["evidence"][0]
    assert incident["other_causes"][0]["name"] == "float16_overflow"


def test_skipped_steps_only(tmp_path: Path) -> None:
    infos = runs.network([*runs.TABLE, ("scalar", "loss_scale", "", "", ())])

    def skipping(info: TensorInfo, step: int) -> float:
        if info.kind == "gradient":
            return float("inf")
        return 2.0 if info.kind == "scalar" else runs.calm(info, step)

    runs.write(tmp_path, skipping, range(60), infos, events=[runs.incident("backward", at=55, spread=False)])
    assert first(examined(tmp_path))["cause"]["name"] == "loss_scale"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"replay": 3, "graph": "x", "error": ["a"]}', '{"seconds": NaN}']
)
def test_a_replay_that_is_no_replay(text: str, tmp_path: Path) -> None:
    event = runs.incident("loss", replay_json=text)
    runs.write(tmp_path, events=[event])
    found = first(examined(tmp_path))
    assert found["cause"]["name"] == "none"


def test_zeros_of_a_softmax_are_explained(tmp_path: Path) -> None:
    incident = first(post_mortem(tmp_path, "Log", [ZEROS], MINUS_INF))
    assert incident["cause"]["evidence"][1].startswith("the zeros come from Softmax, which underflows")


def test_a_log_of_what_the_data_alone_made(tmp_path: Path) -> None:
    fed = {"inputs": ["x"], "layers": [], "variables": []}
    incident = first(post_mortem(tmp_path, "Log", [operand("Sub", -1, 1, negative=2)], replay={"fed_by": fed}))
    assert incident["remedies"][0]["name"] == "clean_input"
    assert incident["replay"]["fed_by"] == fed


def test_the_feature_that_is_bad(tmp_path: Path) -> None:
    replay = '{"replay": "reproduced", "element": "x", "features": [[3], [5], "?", []]}'
    runs.write(tmp_path, events=[runs.incident("input", replay_json=replay)])
    assert "at features 3 and 5 of the sample" in " ".join(first(examined(tmp_path))["cause"]["evidence"])


@pytest.mark.parametrize(("gradient", "cause"), [(400.0, "bad_learning_rate"), (4.0, "growth_overflow")])
def test_one_update_that_replaced_the_weights(gradient: float, cause: str, tmp_path: Path) -> None:
    infos = runs.network([*runs.TABLE, ("scalar", "learning_rate", "", "", ())])
    sizes = {"scalar": 0.01, "gradient": gradient, "weight": 4.0}

    def thrown(info: TensorInfo, step: int) -> float:
        return sizes.get(info.kind, 1.0)

    given = ("Square", [operand("Sub", -1, 4e19)], INF)
    assert first(post_mortem(tmp_path, *given, at=1, values=thrown, infos=infos))["cause"]["name"] == cause


def test_small_numbers_did_not_grow(tmp_path: Path) -> None:
    """1 / 0 overflows at any scale: neither growth nor the initial weights are suspects."""
    below = operand("Sqrt", 0, 2, zero=1)
    incident = first(post_mortem(tmp_path, "RealDiv", [operand("Sub", 1, 2), below], INF, "forward", at=0))
    assert incident["cause"]["name"] == "division_by_zero"
    assert incident["other_causes"] == []


@pytest.mark.parametrize(
    ("phase", "causes"), [("forward", ["bad_initialization"]), ("loss", ["bad_initialization"]), ("update", [])]
)
def test_nothing_grew_before_the_first_step(phase: str, causes: list[str], tmp_path: Path) -> None:
    incident = first(post_mortem(tmp_path, "Square", [operand("Sub", -1, 4e19)], INF, phase, at=0))
    named = [c["name"] for c in (incident["cause"], *incident["other_causes"])]
    assert [name for name in named if name != "none"] == causes


def test_a_slope_that_no_rule_of_its_own_tells_of(tmp_path: Path) -> None:
    """The derivative of atan2 divides by the sum of squares."""
    inputs = [operand("x", 0, 1, zero=1), operand("AddV2", 0, 2, zero=1)]
    incident = first(post_mortem(tmp_path, "RealDiv", inputs, phase="backward", replay={"forward_op": "Atan2"}))
    assert incident["cause"]["name"] == "division_by_zero"


def test_a_loss_scale_that_fell_in_vain(tmp_path: Path) -> None:
    infos = runs.network([*runs.TABLE, ("scalar", "loss_scale", "", "", ())])

    def skipping(info: TensorInfo, step: int) -> float:
        if info.kind == "gradient":
            return float("inf")
        return 2.0 ** (15 - step // 4) if info.kind == "scalar" else runs.calm(info, step)

    runs.write(tmp_path, skipping, range(60), infos, events=[runs.incident("backward", at=55, spread=False)])
    cause = first(examined(tmp_path))["cause"]
    assert cause["name"] == "loss_scale"
    assert cause["evidence"][1] == "the loss scale fell from 32,768 to 4 over steps 0 to 55"
