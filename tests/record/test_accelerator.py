"""As on an accelerator, where the host reads every step one call later: the same file, at the latest a call after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import data, incidents, mlp, only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.record import recorder
from tb_nanwatch.record.naming import NamedVariable
from tb_nanwatch.record.weights import DeviceWeights, HostWeights

HOW: dict[str, dict[str, Any]] = {
    "uncompiled": {},
    "xla": {"jit_compile": True},
    "eager": {"run_eagerly": True},
    "grouped": {"steps_per_execution": 4},
}


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "on_accelerator", lambda: True)


def fit(logdir: Path, how: str, bad: int | None = None, **options: Any) -> Any:
    model = mlp(**HOW[how])
    x, y = data(192, bad)
    watcher = nanwatch.NanWatch(logdir, every=5, trial_seconds=0, **options)
    history = model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[watcher])
    watcher.close()
    return model, history


@pytest.mark.parametrize("how", HOW)
def test_the_same_numbers_at_the_same_steps(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, _ = fit(tmp_path / "at_once", how)
    monkeypatch.setattr(recorder, "on_accelerator", lambda: True)
    later, _ = fit(tmp_path / "later", how)
    assert all(np.array_equal(a, b) for a, b in zip(at_once.get_weights(), later.get_weights(), strict=True))
    one, other = only_run(tmp_path / "at_once"), only_run(tmp_path / "later")
    assert [info.tag for info in one.tensors] == [info.tag for info in other.tensors]
    for info in one.tensors:
        for stat in ("norm", "max_abs", "mean", "zero_share", "value"):
            expected, found = one.series(info.tag, stat), other.series(info.tag, stat)
            assert np.array_equal(expected.steps, found.steps), (info.tag, stat)
            assert np.array_equal(expected.iterations, found.iterations), (info.tag, stat)
            assert found.values == pytest.approx(expected.values, rel=0.01, abs=1e-6), (info.tag, stat)


@pytest.mark.parametrize("how", HOW)
def test_an_incident_is_that_of_its_own_step(how: str, tmp_path: Path, later: None) -> None:
    fit(tmp_path, how, bad=20, replay=False)
    run = only_run(tmp_path)
    assert incidents(run) == [(2, "input", "x")]
    (incident,) = run.incidents
    assert incident.origin.output.nan == 4
    assert incident.last_finite_step == 1
    assert run.steps == 24


@pytest.mark.parametrize("how", ["uncompiled", "xla", "eager"])
def test_stop_and_raise_come_a_call_later(how: str, tmp_path: Path, later: None) -> None:
    fit(tmp_path / "stop", how, bad=20, on_nonfinite="stop")
    assert only_run(tmp_path / "stop").steps == 4
    with pytest.raises(nanwatch.NonFiniteError) as raised:
        fit(tmp_path / "raise", how, bad=20, on_nonfinite="raise")
    assert raised.value.incident["first_step"] == 2


def test_the_last_step_is_not_forgotten(tmp_path: Path, later: None) -> None:
    fit(tmp_path / "record", "uncompiled", bad=191)
    assert incidents(only_run(tmp_path / "record")) == [(23, "input", "x")]
    with pytest.raises(nanwatch.NonFiniteError) as raised:
        fit(tmp_path / "raise", "uncompiled", bad=191, on_nonfinite="raise")
    assert raised.value.incident["first_step"] == 23


def test_a_custom_loop(tmp_path: Path, later: None) -> None:
    v = tf.Variable(tf.ones([3]), name="v")

    @tf.function
    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * x)
        v.assign_sub(0.1 * tape.gradient(loss, v))
        return loss

    with nanwatch.watch(train, tmp_path, variables=[v]) as step:
        for n in range(20):
            step(tf.ones([3]) * (np.inf if n == 19 else 1))
    run = only_run(tmp_path)
    assert run.steps == 20
    assert incidents(run) == [(19, "input", "x")]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_weights_on_the_device_are_measured_as_those_of_the_host(dtype: str) -> None:
    rng = np.random.default_rng(1)
    variables = [
        tf.Variable(tf.cast(rng.normal(size=shape) * scale, dtype), name="v")
        for shape, scale in (((3,), 1.0), ((20, 30), 1e-3), ((300, 300), 10.0), ((0, 4), 1.0))
    ]
    named = [NamedVariable(f"v{n}", "", "", v, n != 1) for n, v in enumerate(variables)]
    host, device = HostWeights(named), DeviceWeights(named)
    squares = host.squares()
    np.testing.assert_allclose(np.asarray(device.squares()), squares, rtol=1e-4)
    np.testing.assert_allclose(np.asarray(device.statistics(squares)), host.statistics(squares), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.asarray(device.exact_statistics()), host.exact_statistics(), rtol=1e-4, atol=1e-6)
    assert host.updates() is None
    assert device.updates() is None
    for _ in range(2):
        host.remember()
        device.remember()
        for v in variables:
            v.assign_add(tf.ones_like(v) / 4)
        np.testing.assert_allclose(np.asarray(device.updates()), host.updates(), rtol=1e-2)
        assert len(host.updates()) == 3
    variables[0].assign(tf.cast([np.nan, np.inf, -np.inf], dtype))
    np.testing.assert_allclose(np.asarray(device.exact_statistics()), host.exact_statistics(), rtol=1e-4, atol=1e-6)
    assert not np.isfinite(np.asarray(device.squares())[0])
    assert not np.isfinite(host.squares()[0])
