"""The JSON report and its words, for runs that the real writer wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import golden_text
import pytest
import runs

from tb_nanwatch.diagnose import PostMortem, examine
from tb_nanwatch.diagnose.strict import dumps
from tb_nanwatch.format.records import Counts, Incident, Note, Origin, TensorInfo
from tb_nanwatch.store.catalog import Catalog

GOLDEN = Path(__file__).parent / "golden"


def examined(logdir: Path) -> PostMortem:
    catalog = Catalog(logdir)
    catalog.refresh()
    (run,) = catalog.runs().values()
    return examine(run)


@pytest.mark.parametrize("phase", runs.ORIGINS)
def test_each_phase(phase: str, tmp_path: Path) -> None:
    runs.blow_up(tmp_path, phase, at=0 if phase == "weights" else runs.BAD)
    found = examined(tmp_path)
    said = "\n".join((found.verdict.headline, *found.verdict.paragraphs))
    golden_text.check(GOLDEN / f"{phase}.json", dumps(found.entry, indent=1) + "\n")
    golden_text.check(GOLDEN / f"{phase}.txt", said + "\n")
    assert found.entry["status"] == "incident"
    assert found.entry["incidents"][0]["origin"]["phase"] == phase


def keys_of(value: Any) -> Any:
    return {key: keys_of(item) for key, item in value.items()} if isinstance(value, dict) else None


def test_the_report_has_the_keys_of_the_design(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "backward")
    entry = examined(tmp_path).entry
    assert set(entry) == {"run", "status", "steps", "last_finite_step", "incidents", "findings", "damage"}
    (incident,) = entry["incidents"]
    assert keys_of(incident) == {
        "first_step": None,
        "last_step": None,
        "recovered": None,
        "detected_step": None,
        "origin": {
            **dict.fromkeys(["phase", "layer", "tensor", "kind", "op_type", "op_name", "source", "replica"]),
            **dict.fromkeys(["samples", "precision", "inputs"]),
            "output": dict.fromkeys(["nan", "pos_inf", "neg_inf", "size"]),
        },
        "replay": None,
        "spread": None,
        "cause": dict.fromkeys(["name", "confidence", "evidence"]),
        "other_causes": None,
        "remedies": None,
        "capsule": None,
    }


def test_a_healthy_run(tmp_path: Path) -> None:
    runs.write(tmp_path)
    found = examined(tmp_path)
    assert found.entry == {
        "run": ".",
        "status": "healthy",
        "steps": 40,
        "last_finite_step": 39,
        "incidents": [],
        "findings": [],
        "damage": [],
    }
    assert found.verdict.headline == "Healthy: 40 steps, nothing non-finite"


def test_a_run_without_steps_is_not_called_healthy(tmp_path: Path) -> None:
    runs.write(tmp_path, steps=range(0))
    found = examined(tmp_path)
    assert found.entry["status"] == "empty"
    assert found.verdict.headline == "Nothing recorded yet"


@pytest.mark.parametrize("steps", [40, 300, 5000])
def test_a_skipped_overflow_is_not_called_finite(steps: int, tmp_path: Path) -> None:
    def scaled(info: TensorInfo, step: int) -> float:
        return float("inf") if info.kind == "gradient" and step == steps - 1 else runs.calm(info, step % 9)

    runs.write(tmp_path, scaled, range(steps))
    found = examined(tmp_path)
    assert found.entry["status"] == "healthy"
    assert found.verdict.headline == f"Healthy: {steps:,} steps, no incident"
    assert found.verdict.paragraphs[0].startswith("Some values in the gradients were not finite")


def test_notes_that_limit_the_word_of_a_report(tmp_path: Path) -> None:
    runs.write(tmp_path, events=[Note(33, "disabled", "out of\nmemory"), Note(1, "uncounted", "7 further incidents")])
    said = examined(tmp_path).verdict.paragraphs
    assert "Recording stopped before step 33: out of\\nmemory." in said
    assert "7 further incidents." in said


def test_a_recovered_incident(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "loss", last=31)
    found = examined(tmp_path)
    (incident,) = found.entry["incidents"]
    assert (incident["first_step"], incident["last_step"], incident["recovered"]) == (30, 31, True)
    assert found.verdict.headline == "Non-finite for a while at steps 30 to 31: first in the loss (NaN)"
    assert any("It recovered: 2 bad steps, the last one 31" in p for p in found.verdict.paragraphs)


def test_growth_is_named_as_the_cause(tmp_path: Path) -> None:
    """With weights that multiply at every step it is the learning rate, and growth is what that looks like."""
    runs.blow_up(tmp_path, "loss", values=runs.exploding)
    incident = examined(tmp_path).entry["incidents"][0]
    assert incident["cause"]["name"] == "bad_learning_rate"
    assert incident["cause"]["evidence"][0] == "the weights dense/kernel multiplied by about 8 at every step"
    growth = incident["other_causes"][0]
    assert growth["name"] == "growth_overflow"
    assert 0.6 <= growth["confidence"] <= 0.9
    assert "the loss grew 1.55e26 times from step 0 to step 29, from 2 to 3.09e26" in growth["evidence"]


def test_growth_with_calm_weights_is_no_learning_rate(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "loss", values=lambda i, s: 1.0 if i.kind in ("weight", "update") else runs.exploding(i, s))
    assert examined(tmp_path).entry["incidents"][0]["cause"]["name"] == "growth_overflow"


def test_remedies_of_growth_have_not_been_tried(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "loss", values=runs.exploding)
    remedies = examined(tmp_path).entry["incidents"][0]["remedies"]
    assert [remedy["name"] for remedy in remedies] == ["lower_learning_rate", "clip_gradients"]
    assert {remedy["trial"]["outcome"] for remedy in remedies} == {"not_run"}


def test_a_rise_that_ends_low_is_no_overflow(tmp_path: Path) -> None:
    """A loss that grew a thousandfold to 2,000 does not overflow float32: something else made the NaN."""
    runs.blow_up(tmp_path, "loss", values=lambda info, step: 2.0 * 1.3**step if info.kind == "loss" else 1.0)
    assert examined(tmp_path).entry["incidents"][0]["cause"]["name"] == "none"


def test_no_cause_is_said_with_what_is_known(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "backward")
    cause = examined(tmp_path).entry["incidents"][0]["cause"]
    assert (cause["name"], cause["confidence"]) == ("none", 0.0)
    assert "without warning" in cause["evidence"][0]


def test_a_killed_run_keeps_its_incident(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "update", close=False)
    found = examined(tmp_path)
    assert found.entry["incidents"][0]["first_step"] == 30
    assert any("the last one recorded so far" in p for p in found.verdict.paragraphs)


def test_infinities_are_strings(tmp_path: Path) -> None:
    origin = Origin("forward", "l", "l/output", "activation", inputs=(), output=Counts(nan=1))
    event = Incident(0, 5, 5, origin, last_finite_step=4)
    runs.write(tmp_path, events=[event])
    json.loads(dumps(examined(tmp_path).entry), parse_constant=lambda c: pytest.fail(f"{c} is not JSON"))


@pytest.mark.parametrize("name", ["\x1b[31m", "[bold]", "<script>", "a\nb", "\u202e", "x" * 5000, ""])
def test_hostile_names_are_printable_in_the_words(name: str, tmp_path: Path) -> None:
    origin = Origin("backward", name, name, "gradient", name, output=Counts(nan=1, size=4))
    runs.write(tmp_path, events=[Incident(0, 5, 5, origin)])
    verdict = examined(tmp_path).verdict
    for text in (verdict.headline, *verdict.paragraphs):
        assert text.isprintable()
        assert len(text) < 1000


def test_many_incidents_are_counted_not_told(tmp_path: Path) -> None:
    events = [runs.incident("loss", at=20 * n, last=20 * n, number=n, spread=False) for n in range(1, 6)]
    runs.write(tmp_path, steps=range(150), events=events)
    found = examined(tmp_path)
    assert len(found.entry["incidents"]) == 5
    assert found.verdict.headline.endswith("first in the loss (NaN); 4 more incidents after it")
    assert "2 later incidents followed; the list has them." in found.verdict.paragraphs


def test_examining_is_pure(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "backward")
    catalog = Catalog(tmp_path)
    catalog.refresh()
    (run,) = catalog.runs().values()
    first, second = examine(run), examine(run)
    assert (first.entry, first.verdict) == (second.entry, second.verdict)
    assert repr(first.before) == repr(second.before)  # NaN is not equal to itself


def from_nothing(size: float) -> runs.Values:
    """One matrix begins at nothing and grows by the first updates, to that norm."""

    def values(info: TensorInfo, step: int) -> float:
        grown = size * 2.0 ** (step - 29)
        return {"weight/out/kernel": grown, "update/out/kernel": 0.1 * grown}.get(info.tag, runs.calm(info, step))

    return values


@pytest.mark.parametrize(
    ("phase", "size", "told"),
    [
        ("input", 50.0, False),  # nothing that grew made the data bad
        ("forward", 1e-3, False),  # as a bias that begins at 0
        ("forward", 50.0, True),
    ],
)
def test_growth_is_told_where_it_may_have_to_do_with_it(phase: str, size: float, told: bool, tmp_path: Path) -> None:
    runs.blow_up(tmp_path, phase, from_nothing(size))
    found = examined(tmp_path)
    said = " ".join(found.verdict.paragraphs)
    assert ("Up to then the weights out/kernel grew step by step" in said) == told
    assert "had grown tenfold" not in said
    assert ("weights out/kernel rose" in str(found.entry["incidents"][0]["cause"])) == told
