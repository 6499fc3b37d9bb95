"""Incidents as they open, spread and end, from the states of single steps."""

from __future__ import annotations

from typing import Any

import pytest

from tb_nanwatch.format.records import Counts, Incident, TensorInfo
from tb_nanwatch.record.incidents import KEPT_WHOLE, RECOVERED_AFTER, SKIPS_ARE_TROUBLE, Change, Incidents
from tb_nanwatch.record.judge import Bad, StepState

INFOS = {
    info.tag: info
    for info in (
        TensorInfo(1, "input", "x"),
        TensorInfo(2, "input", "y"),
        TensorInfo(3, "activation", "first/output", "first", "Dense", order=1000),
        TensorInfo(4, "activation", "second/output", "second", "Dense", order=2000),
        TensorInfo(5, "loss", "loss"),
        TensorInfo(6, "gradient", "first/kernel", "first", "Dense", order=1001),
        TensorInfo(7, "gradient", "second/kernel", "second", "Dense", order=2001),
        TensorInfo(8, "weight", "first/kernel", "first", "Dense", order=1002, trainable=True),
        TensorInfo(9, "metric", "metrics"),
        TensorInfo(10, "weight", "second/kernel", "second", "Dense", order=2002, trainable=True),
    )
}
GRADIENTS = frozenset({"first/kernel", "second/kernel"})


def state(step: int, *tags: str, **more: Any) -> StepState:
    return StepState(step, tuple(Bad(INFOS[tag], Counts(nan=1, size=4)) for tag in tags), **more)


class Following:
    """Feeds steps one after the other; keeps what was told of them."""

    def __init__(self, **options: Any) -> None:
        self.incidents = Incidents(**options)
        self.changes: list[Change] = []
        self.step = 0

    def __call__(self, *tags: str, times: int = 1, **more: Any) -> list[Change]:
        new: list[Change] = []
        for _ in range(times):
            new += self.incidents.follow(state(self.step, *tags, **more))
            self.step += 1
        self.changes += new
        return new

    def close(self) -> None:
        self.changes += self.incidents.close()

    @property
    def told(self) -> dict[int, Incident]:
        """The newest record of every incident."""
        return {change.incident.id: change.incident for change in self.changes}


def test_recovered_after_ten_finite_steps_and_not_before() -> None:
    run = Following()
    assert run(times=3) == []
    (opened,) = run("loss/loss")
    assert opened.opened
    assert opened.urgent
    assert opened.incident.first_step == 3
    assert opened.incident.last_finite_step == 2
    assert run(times=RECOVERED_AFTER - 1) == []
    (ended,) = run()
    assert not ended.opened
    assert ended.incident.recovered
    assert ended.incident.last_step == 3
    assert run("loss/loss")[0].incident.id == 1


def test_a_shorter_gap_belongs_to_the_same_incident() -> None:
    run = Following()
    run("loss/loss", times=2)
    run(times=RECOVERED_AFTER - 1)
    assert run("loss/loss") == []
    assert run.incidents.current is not None
    assert run.incidents.current.bad_steps == 3
    run(times=RECOVERED_AFTER)
    assert len(run.told) == 1
    assert run.told[0].last_step == 11
    assert run.told[0].first_step == 0


def test_bad_weights_keep_an_incident_open() -> None:
    run = Following()
    run("input/x", "weight/first/kernel")
    run("weight/first/kernel", times=50)
    assert len(run.told) == 1
    assert run.incidents.current is not None
    assert run.incidents.current.last_step is None
    run.close()
    assert not run.told[0].recovered


def test_an_incident_ends_with_a_run_that_ends_finite() -> None:
    run = Following()
    run("loss/loss", times=2)
    run()
    run.close()
    assert run.told[0].recovered
    assert run.told[0].last_step == 1


def test_spread_goes_on_in_order_of_the_step() -> None:
    run = Following()
    (opened,) = run("gradient/first/kernel", "gradient/second/kernel", "loss/loss", "activation/second/output")
    assert [s.tensor for s in opened.incident.spread] == [
        "second/output",
        "loss",
        "second/kernel",  # gradients come last layer first
        "first/kernel",
    ]
    assert [s.order for s in opened.incident.spread] == [0, 1, 2, 3]
    assert run("loss/loss") == []
    (grown,) = run("loss/loss", "weight/first/kernel")
    assert not grown.urgent
    assert [(s.order, s.step, s.kind) for s in grown.incident.spread[4:]] == [(4, 2, "weight")]
    assert grown.incident.bad_steps == 3


@pytest.mark.parametrize(
    ("bad", "phase", "layer", "tensor"),
    [
        (["input/x", "activation/first/output", "loss/loss"], "input", "", "x"),
        (["activation/second/output", "activation/first/output", "loss/loss"], "forward", "first", "first/output"),
        (["loss/loss", "gradient/first/kernel"], "loss", "", "loss"),
        (["gradient/first/kernel", "gradient/second/kernel"], "backward", "second", "second/kernel"),
        (["weight/first/kernel"], "update", "first", "first/kernel"),
        (["metric/metrics"], "metric", "", "metrics"),
    ],
)
def test_the_phase_is_that_of_the_first_bad_tensor(bad: list[str], phase: str, layer: str, tensor: str) -> None:
    finite = GRADIENTS - {INFOS[tag].name for tag in bad if tag.startswith("gradient/")}
    run = Following()
    run()
    (opened,) = run(*bad, finite_gradients=finite)
    origin = opened.incident.origin
    assert (origin.phase, origin.layer, origin.tensor) == (phase, layer, tensor)
    assert origin.output == Counts(nan=1, size=4)


def test_a_weight_whose_gradient_nobody_read_is_not_blamed_on_the_optimizer() -> None:
    (opened,) = Following()("weight/first/kernel")
    assert (opened.incident.origin.phase, opened.incident.origin.precision) == ("backward", "step")


def test_weights_that_were_bad_before_watching() -> None:
    run = Following(weights_bad=frozenset({"second/kernel"}))
    (opened,) = run("activation/first/output", "loss/loss", "weight/first/kernel", "weight/second/kernel")
    assert opened.incident.origin.phase == "weights"
    assert opened.incident.origin.tensor == "second/kernel"
    assert opened.incident.last_finite_step is None


def test_weights_that_were_repaired_before_the_first_step() -> None:
    run = Following(weights_bad=frozenset({"second/kernel"}))
    assert run() == []
    (opened,) = run("weight/first/kernel", finite_gradients=GRADIENTS)
    assert opened.incident.origin.phase == "update"


def test_metrics_that_stay_bad_do_not_open_another_incident() -> None:
    run = Following()
    run("loss/loss", "metric/metrics")
    run("metric/metrics", times=RECOVERED_AFTER + 20)  # a running mean: NaN until the epoch ends
    assert [c.incident.recovered for c in run.changes] == [False, True]
    assert run.told[0].last_step == 0
    run()  # a new epoch
    (opened,) = run("metric/metrics")
    assert opened.incident.origin.phase == "metric"


def test_what_reaches_nothing_that_matters_is_no_incident() -> None:
    run = Following()
    assert run("activation/first/output", "input/y", times=5) == []  # a -inf mask, a NaN label that is weighted away
    assert run.incidents.last_finite_step == 4
    (opened,) = run("input/y", "activation/first/output", "activation/second/output", "loss/loss")
    assert opened.incident.origin.tensor == "second/output"
    assert [s.tensor for s in opened.incident.spread] == ["second/output", "loss"]


def test_steps_that_loss_scaling_skips_are_no_incident() -> None:
    run = Following()
    assert run("gradient/first/kernel", times=SKIPS_ARE_TROUBLE - 1, scaled=True) == []
    assert run(scaled=True) == []
    assert run("gradient/first/kernel", times=SKIPS_ARE_TROUBLE - 1, scaled=True) == []
    (opened,) = run("gradient/first/kernel", scaled=True)
    assert opened.incident.origin.phase == "backward"
    assert opened.incident.first_step == run.step - 1


def test_skipped_steps_are_counted_beside_harmless_activations() -> None:
    run = Following()
    run("activation/first/output", scaled=True)
    bad = ("activation/first/output", "gradient/first/kernel")
    assert run(*bad, times=SKIPS_ARE_TROUBLE - 1, scaled=True) == []
    assert len(run(*bad, scaled=True)) == 1


@pytest.mark.parametrize("also", ["loss/loss", "activation/second/output", "weight/first/kernel"])
def test_loss_scaling_does_not_excuse_what_it_cannot_repair(also: str) -> None:
    assert len(Following()("gradient/first/kernel", also, scaled=True)) == 1


def test_incidents_behind_the_hundredth_are_counted() -> None:
    run = Following(first_id=KEPT_WHOLE - 2)
    for _ in range(5):
        run("loss/loss", times=3)  # three bad steps each: incidents are counted, not steps
        run(times=RECOVERED_AFTER)
    assert sorted(run.told) == [KEPT_WHOLE - 2, KEPT_WHOLE - 1]
    assert all(incident.recovered for incident in run.told.values())
    assert run.incidents.uncounted == 3
    assert run.incidents.bad_steps == 15
    run.close()
    assert len(run.told) == 2


def test_the_count_of_earlier_recorders_goes_on() -> None:
    run = Following(first_id=7)
    assert run("loss/loss")[0].incident.id == 7


def test_spread_is_bounded() -> None:
    run = Following()
    many = tuple(Bad(TensorInfo(n, "activation", f"layer_{n}", order=n)) for n in range(2000))
    run.changes += run.incidents.follow(StepState(0, (*many, Bad(INFOS["loss/loss"]))))
    assert len(run.told[0].spread) == 512
