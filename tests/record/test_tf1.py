"""TF1 graphs under watch: what is written is what happened, which runs count, and that nothing else changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest
import tensorflow as tf
from graphs import Program, batches, regression, train
from recorded import check_norms, check_statistics, incidents, norm, only_run, values

import tb_nanwatch as nanwatch
from tb_nanwatch.record.graph.memory import EVERY
from tb_nanwatch.record.graph.session import _watches

tf1 = tf.compat.v1
STEPS = 23
WEIGHTS = ["hidden/w", "hidden/b", "out/w", "out/b"]


def session(program: Program, data: Any, logdir: Path, **options: Any) -> list[Any]:
    given = {"loss": program.loss, "grads_and_vars": program.grads_and_vars, **options}
    losses, _ = train(program, data, lambda sess: nanwatch.watch_session(sess, logdir, **given))
    return losses


def monitored(program: Program, data: Any, logdir: Path, checkpoints: str | None = None, **options: Any) -> list[Any]:
    given = {"loss": program.loss, "grads_and_vars": program.grads_and_vars, **options}
    losses = []
    with program.graph.as_default():
        hook = nanwatch.NanWatchHook(logdir, **given)
        with tf1.train.MonitoredTrainingSession(checkpoint_dir=checkpoints, hooks=[hook]) as sess:
            for x, y in data:
                if sess.should_stop():
                    break
                losses.append(sess.run([program.loss, program.train_op], program.feed(x, y))[0])
    return losses


ENTRIES: dict[str, Callable[..., list[Any]]] = {"session": session, "hook": monitored}


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
def test_every_number_of_every_step(entry: str, resource: bool, tmp_path: Path) -> None:
    data = batches(STEPS)
    steps = graphs.regression_by_hand(data)
    losses = ENTRIES[entry](regression(resource), data, tmp_path, every=5)
    assert losses == pytest.approx([float(s["loss/loss"]) for s in steps], rel=1e-3)
    run = only_run(tmp_path)
    assert (run.steps, run.ended) == (STEPS, True)
    assert run.header.entry_point == ("watch_session" if entry == "session" else "hook")
    tags = [tag for tag in steps[0] if not tag.startswith(("loss", "update"))]
    check_norms(run, steps, tags)
    check_norms(run, steps, [f"update/{name}" for name in WEIGHTS], every=10)
    check_statistics(run, steps, tags, every=5)
    assert values(run, "loss/loss", "value") == pytest.approx(dict(enumerate(losses)))
    assert values(run, "scalar/learning_rate", "value") == pytest.approx(dict.fromkeys(range(STEPS), 0.1))
    assert run.series("loss/loss", "value").iterations.tolist() == list(range(1, STEPS + 1))
    assert [i.name for i in run.kind("activation")] == ["hidden/output", "out/output"]
    assert {(i.name, i.layer, i.trainable) for i in run.kind("weight")} == {
        (name, name.partition("/")[0], True) for name in WEIGHTS
    }


def test_gradients_are_found_where_none_are_given(tmp_path: Path) -> None:
    data = batches(STEPS)
    session(regression(optimizer=lambda: tf1.train.AdamOptimizer(0.01)), data, tmp_path, grads_and_vars=None)
    run = only_run(tmp_path)
    first = graphs.regression_by_hand(data)[0]  # before the first update all optimizers see the same
    for name in WEIGHTS:
        assert values(run, f"gradient/{name}")[0] == pytest.approx(norm(first[f"gradient/{name}"]), rel=5e-3)
    assert {i.layer for i in run.kind("weight")} == {"hidden", "out"}  # nothing that Adam keeps


def test_losses_of_the_collection_are_taken(tmp_path: Path) -> None:
    program = regression()
    program.graph.add_to_collection(tf1.GraphKeys.LOSSES, program.loss)
    losses = session(program, batches(3), tmp_path, loss=None)
    assert values(only_run(tmp_path), "loss/loss", "value") == pytest.approx(dict(enumerate(losses)))


def test_without_a_loss_the_rest_is_recorded(tmp_path: Path, capsys: Any) -> None:
    session(regression(), batches(3), tmp_path, loss=None)
    assert "pass loss=" in capsys.readouterr().out
    run = only_run(tmp_path)
    assert run.kind("loss") == run.kind("activation") == ()
    assert {i.name for i in run.kind("gradient")} == set(WEIGHTS)


def test_a_loss_that_the_run_does_not_fetch_is_read(tmp_path: Path) -> None:
    program, data = regression(), batches(5)
    train(program, data, lambda s: nanwatch.watch_session(s, tmp_path, loss=program.loss), program.train_op)
    expected = [float(s["loss/loss"]) for s in graphs.regression_by_hand(data)]
    assert list(values(only_run(tmp_path), "loss/loss", "value").values()) == pytest.approx(expected, rel=1e-3)


# ---------------------------------------------------------------- the training stays as it was


@pytest.mark.parametrize("poisoned", [False, True], ids=["finite", "poisoned"])
@pytest.mark.parametrize("resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("fetch_loss", [True, False], ids=["loss", "train_op"])
def test_training_is_bit_identical(poisoned: bool, resource: bool, fetch_loss: bool, tmp_path: Path) -> None:
    data = batches(100, bad=60 if poisoned else None)

    def result(watched: bool) -> list[bytes]:
        program = graphs.convolutional(resource)

        def watch(sess: Any) -> Any:
            return nanwatch.watch_session(
                sess, tmp_path, loss=program.loss, grads_and_vars=program.grads_and_vars, every=7
            )

        fetches = [program.loss, program.train_op] if fetch_loss else program.train_op
        losses, variables = train(program, data, watch if watched else None, fetches)
        return [np.asarray(v).tobytes() for v in [*(losses if fetch_loss else ()), *variables]]

    assert result(watched=True) == result(watched=False)
    run = only_run(tmp_path)
    assert run.steps == 100
    assert {i.layer for i in run.kind("activation")} >= {"conv", "norm", "hidden"}
    assert incidents(run) == ([(60, "input", "x")] if poisoned else [])


def test_a_monitored_session_is_bit_identical(tmp_path: Path) -> None:
    data = batches(100, bad=60)

    def result(hooks: Callable[[Program], list[Any]]) -> list[bytes]:
        program = graphs.convolutional()
        with program.graph.as_default(), tf1.train.MonitoredTrainingSession(hooks=hooks(program)) as sess:
            found = [sess.run([program.loss, program.train_op], program.feed(x, y))[0] for x, y in data]
            found += sess.run(tf1.global_variables())
        return [np.asarray(v).tobytes() for v in found]

    assert result(lambda p: [nanwatch.NanWatchHook(tmp_path, loss=p.loss)]) == result(lambda _: [])
    assert incidents(only_run(tmp_path)) == [(60, "input", "x")]


@pytest.fixture(params=[True, False], ids=["control_flow_v2", "control_flow_v1"])
def _loops(request: Any) -> Iterator[None]:
    before = tf1.control_flow_v2_enabled()
    (tf1.enable_control_flow_v2 if request.param else tf1.disable_control_flow_v2)()
    yield
    (tf1.enable_control_flow_v2 if before else tf1.disable_control_flow_v2)()


@pytest.mark.usefixtures("_loops")
def test_a_recurrent_cell_in_a_loop(tmp_path: Path) -> None:
    data = batches(40, bad=25)
    plain = train(graphs.recurrent(), data, None)
    program = graphs.recurrent()
    watched = train(program, data, lambda s: nanwatch.watch_session(s, tmp_path, loss=program.loss, every=4))
    assert [np.asarray(v).tobytes() for part in plain for v in part] == [
        np.asarray(v).tobytes() for part in watched for v in part
    ]
    run = only_run(tmp_path)
    assert {i.name for i in run.kind("gradient")} == {"cell/w", "cell/u", "out/w"}
    assert [i.layer for i in run.kind("activation")] == ["cell", "out"]
    x, (w, u) = data[0][0], (np.random.default_rng(7).normal(size=(4, 3)), 0.5 * np.eye(3))
    states = [np.zeros((8, 3))]
    for _ in range(5):
        states.append(np.tanh(x @ w + states[-1] @ u))
    assert values(run, "activation/cell/output")[0] == pytest.approx(norm(np.stack(states[1:])), rel=5e-3)
    assert incidents(run) == [(25, "input", "x")]


# ---------------------------------------------------------------- which runs are steps


def test_only_training_is_counted(tmp_path: Path) -> None:
    program = regression(optimizer=lambda: tf1.train.AdamOptimizer(0.1))
    (x, y), *_ = batches(1)
    with program.graph.as_default():
        hidden = next(v for v in tf1.trainable_variables() if v.op.name == "hidden/w")
        clip = hidden.assign(tf.clip_by_value(hidden, -1, 1))
        average = tf1.train.ExponentialMovingAverage(0.9).apply([hidden])
        metric, update_metric = tf1.metrics.mean(program.grads_and_vars[0][0])
        saver, initializer = tf1.train.Saver(), tf1.global_variables_initializer()
        with tf1.Session() as sess:
            nanwatch.watch_session(sess, tmp_path / "run", loss=program.loss, grads_and_vars=program.grads_and_vars)
            sess.run([initializer, tf1.local_variables_initializer()])
            for _ in range(3):
                sess.run([program.train_op, program.loss], program.feed(x, y))
                sess.run([program.loss, update_metric], program.feed(x, y))
                sess.run([clip, average])
                saver.restore(sess, saver.save(sess, str(tmp_path / "model")))
                hidden.load(np.ones((4, 5)), sess)
                sess.run(metric)
            program.train_op.run(program.feed(x, y))  # through the default session
            sess.run(initializer)
            sess.close()
    assert only_run(tmp_path / "run").steps == 4


def test_results_have_the_structure_of_the_fetches(tmp_path: Path) -> None:
    program = regression()
    (x, y), *_ = batches(1)
    with program.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        assert nanwatch.watch_session(sess, tmp_path, loss=program.loss) is sess
        metadata = tf1.RunMetadata()
        result = sess.run(
            {"all": (program.train_op, [program.loss]), "name": "Mean:0"},
            feed_dict={"x:0": x.tolist(), program.y: y},
            options=tf1.RunOptions(trace_level=tf1.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )
        assert result["all"][0] is None
        assert result["all"][1][0] == result["name"] > 0
        assert len(metadata.step_stats.dev_stats) > 0
    assert values(only_run(tmp_path), "input/x") == pytest.approx({0: norm(x)}, rel=5e-3)


def test_embeddings_unused_variables_and_integers(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        words = tf1.placeholder(tf.int32, [None], "words")
        table = graphs.variable("words/table", np.ones((10, 3)))
        graphs.variable("unused/w", np.ones(2))
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(table, words)))
        optimizer = tf1.train.AdamOptimizer(0.1)
        pairs = optimizer.compute_gradients(loss)
        train_op = optimizer.apply_gradients([p for p in pairs if p[0] is not None])
        assert isinstance(pairs[0][0], tf.IndexedSlices)
        assert pairs[1][0] is None
        with tf1.Session() as sess:
            sess.run(tf1.global_variables_initializer())
            nanwatch.watch_session(sess, tmp_path, loss=loss, grads_and_vars=pairs)
            sess.run(train_op, {words: [1, 1, 4]})
            sess.close()
    run = only_run(tmp_path)
    assert run.kind("input") == ()
    assert values(run, "gradient/words/table") == pytest.approx({0: norm(np.full((3, 3), 2.0))}, rel=5e-3)
    assert values(run, "activation/words/output") == pytest.approx({0: 3.0}, rel=5e-3)
    assert values(run, "weight/unused/w") == pytest.approx({0: 2**0.5}, rel=5e-3)


def test_two_optimizers_take_turns(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 2], "x")
        a, b = graphs.variable("a/w", np.ones((2, 2))), graphs.variable("b/w", np.ones((2, 2)))
        output = tf.matmul(tf.tanh(tf.matmul(x, a)), b)
        losses = {"plus": tf.reduce_sum(output), "minus": -tf.reduce_sum(output)}
        trains = [
            tf1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[v])
            for loss, v in zip(losses.values(), (a, b), strict=True)
        ]
        with tf1.Session() as sess:
            sess.run(tf1.global_variables_initializer())
            nanwatch.watch_session(sess, tmp_path, loss=losses)
            for number in range(6):
                sess.run(trains[number % 2] if number < 4 else trains, {x: np.ones((3, 2))})
            sess.close()
    run = only_run(tmp_path)
    assert run.steps == 6
    assert set(values(run, "gradient/a/w")) == {0, 2, 4, 5}
    assert set(values(run, "gradient/b/w")) == {1, 3, 4, 5}
    assert set(values(run, "activation/a/output")) == set(range(6))
    plus, minus = values(run, "loss/plus", "value"), values(run, "loss/minus", "value")
    assert plus == pytest.approx({step: -value for step, value in minus.items()})


def test_accumulated_gradients_are_steps(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 2], "x")
        w = graphs.variable("line/w", np.ones((2, 1)))
        total = tf1.get_variable("total", [2, 1], initializer=tf1.zeros_initializer(), trainable=False)
        loss = tf.reduce_mean(tf.matmul(x, w))
        (gradient,) = tf.gradients(loss, [w])
        add, clear = total.assign_add(gradient), total.assign(tf.zeros([2, 1]))
        apply = tf1.train.GradientDescentOptimizer(0.1).apply_gradients([(total, w)])
        with tf1.Session() as sess:
            sess.run(tf1.global_variables_initializer())
            nanwatch.watch_session(sess, tmp_path, loss=loss, grads_and_vars=[(gradient, w)])
            for _ in range(2):
                for _ in range(3):
                    sess.run(add, {x: np.ones((3, 2))})
                sess.run(apply)
                sess.run(clear)
            sess.close()
    run = only_run(tmp_path)
    assert run.steps == 8
    assert set(values(run, "gradient/line/w")) == {0, 1, 2, 4, 5, 6}
    assert values(run, "weight/line/w")[7] == pytest.approx(2**0.5 * 0.4, rel=5e-3)


# ---------------------------------------------------------------- trouble


def test_an_incident_is_on_disk_before_the_run_returns(tmp_path: Path) -> None:
    program, data = regression(), batches(8, bad=5)
    with program.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        nanwatch.watch_session(sess, tmp_path, loss=program.loss, grads_and_vars=program.grads_and_vars)
        for number, (x, y) in enumerate(data):
            sess.run(program.train_op, program.feed(x, y))
            if number == 5:
                run = only_run(tmp_path)
                assert incidents(run) == [(5, "input", "x")]
                assert run.incidents[0].origin.output.nan == 1
                assert (run.last_step, run.counts[5]["weight/hidden/w"].nan) == (5, 20)
    assert len(only_run(tmp_path).incidents) == 1


def test_a_logarithm_of_zero_is_found_in_the_loss(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        x = tf1.placeholder(tf.float32, [None, 2], "x")
        w = graphs.variable("softmax/w", np.eye(2))
        chance = tf.nn.softmax(tf.matmul(x, w))
        loss = -tf.reduce_sum(x * tf.math.log(chance))
        step = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
        with tf1.Session() as sess:
            sess.run(tf1.global_variables_initializer())
            nanwatch.watch_session(sess, tmp_path, loss=loss)
            for size in (1.0, 2.0, 500.0):
                sess.run(step, {x: [[size, 0.0]]})
            sess.close()
    run = only_run(tmp_path)
    assert incidents(run) == [(2, "loss", "Log")]
    assert run.last_finite_step == 1


def test_raise_ends_a_session_and_stop_asks_a_monitored_one(tmp_path: Path, capsys: Any) -> None:
    data = batches(8, bad=5)
    for number, policy in enumerate(("raise", "stop")):
        logdir = tmp_path / f"session{number}"
        with pytest.raises(nanwatch.NonFiniteError, match="step 5 is not finite") as caught:
            session(regression(), data, logdir, on_nonfinite=policy)
        assert caught.value.incident["origin"]["phase"] == "input"
        assert only_run(logdir).steps == 6
        assert "step 5 is not finite; replaying 6 steps and trying remedies" in capsys.readouterr().out
    assert len(monitored(regression(), data, tmp_path / "stop", on_nonfinite="stop")) == 6
    with pytest.raises(nanwatch.NonFiniteError, match="step 5 is not finite"):
        monitored(regression(), data, tmp_path / "raise", on_nonfinite="raise")


def test_exceptions_of_the_run_pass_unchanged(tmp_path: Path) -> None:
    program = regression()
    (x, y), *_ = batches(1)
    wrong: list[tuple[Any, Any]] = [
        (program.train_op, {program.x: x}),  # nothing fed for y
        (program.train_op, program.feed(x, y[:3])),  # shapes that do not fit
        (program.train_op, program.feed(x[:, :2], y)),
        (None, None),
        ([program.train_op, 3], program.feed(x, y)),
        (program.train_op, {3: x}),
        ("nowhere:0", None),
    ]
    found = []
    for watched in (False, True):
        with program.graph.as_default(), tf1.Session() as sess:
            sess.run(tf1.global_variables_initializer())
            if watched:
                nanwatch.watch_session(sess, tmp_path, loss=program.loss)
            for fetches, feed in wrong:
                with pytest.raises(Exception) as caught:  # noqa: PT011
                    sess.run(fetches, feed)
                found.append((type(caught.value), str(caught.value).partition("\n")[0]))
            if watched:
                sess.run(program.train_op, program.feed(x, y))
    assert found[: len(wrong)] == found[len(wrong) :]
    assert only_run(tmp_path).steps == 1


def test_bad_weights_before_the_first_step(tmp_path: Path) -> None:
    program = regression()
    (x, y), *_ = batches(1)
    with program.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        tf1.trainable_variables()[2].load(np.full((5, 1), np.nan), sess)
        nanwatch.watch_session(sess, tmp_path, loss=program.loss)
        sess.run(program.train_op, program.feed(x, y))
        sess.close()
    assert incidents(only_run(tmp_path)) == [(0, "weights", "out/w")]


# ---------------------------------------------------------------- use


def test_wrong_use_is_explained(tmp_path: Path) -> None:
    program = regression()
    other = tf.Graph()
    with other.as_default():
        untrained = graphs.variable("w", np.ones(2))
    file = tmp_path / "file"
    file.write_text("")
    with tf1.Session(graph=program.graph) as sess, tf1.Session(graph=other) as idle:

        def fails(match: str, sess: Any = sess, logdir: Any = tmp_path / "run", **given: Any) -> None:
            with pytest.raises(nanwatch.UsageError, match=match):
                nanwatch.watch_session(sess, logdir, **given)

        fails("not available for TF1 graphs", on_nonfinite="skip")
        fails("unknown option 'evry'", evry=3)
        fails("not a floating type", loss=tf1.train.get_global_step(program.graph).read_value())
        fails("no tensor of the graph", loss=untrained)
        fails("no tensor of the graph", loss=3.0)
        fails("pairs of gradient and variable", grads_and_vars=[program.loss])
        fails("no tensor of the graph", grads_and_vars=[(None, untrained)])
        fails("nothing in the graph trains", sess=idle)
        fails("cannot be written", logdir=file / "run", loss=program.loss)
        fails("takes a tf.compat.v1.Session, not int", sess=3)
        with program.graph.as_default(), tf1.train.MonitoredSession() as managed:
            fails(r"hooks=\[NanWatchHook", sess=managed)
        program.graph.finalize()
        fails("the graph is finalized")
        with tf.Graph().as_default(), tf1.Session() as empty:
            fails("no trainable variables", sess=empty)
    with pytest.raises(nanwatch.UsageError, match="not available for TF1 graphs"):
        nanwatch.NanWatchHook(tmp_path, on_nonfinite="skip")


def test_watching_again_ends_the_earlier_recording(tmp_path: Path) -> None:
    program, data = regression(), batches(6)
    with program.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        for name in ("first", "second"):
            nanwatch.watch_session(sess, tmp_path / name, loss=program.loss)
            for x, y in data[:3]:
                sess.run(program.train_op, program.feed(x, y))
        sess.close()
        assert "run" not in vars(sess)
    for name in ("first", "second"):
        run = only_run(tmp_path / name)
        assert (run.steps, run.ended) == (3, True)


def test_a_session_is_let_go(tmp_path: Path) -> None:
    import gc
    import weakref

    program = regression()
    (x, y), *_ = batches(1)
    sess = tf1.Session(graph=program.graph)
    with program.graph.as_default():
        sess.run(tf1.global_variables_initializer())
    nanwatch.watch_session(sess, tmp_path, loss=program.loss)
    sess.run(program.train_op, program.feed(x, y))
    gone = weakref.ref(sess)
    del sess
    gc.collect()
    assert gone() is None
    assert only_run(tmp_path).ended
    assert len(_watches) == 0


def test_monitored_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    data = batches(10)
    first = monitored(regression(), data[:5], tmp_path / "run", checkpoints=str(tmp_path / "run"))
    second = monitored(regression(), data[5:], tmp_path / "run", checkpoints=str(tmp_path / "run"))
    run = only_run(tmp_path / "run")
    assert (run.steps, len(run.attempts)) == (10, 2)
    expected = [float(s["loss/loss"]) for s in graphs.regression_by_hand(data)]
    assert first + second == pytest.approx(expected, rel=1e-3)
    assert run.series("loss/loss", "value").iterations.tolist() == list(range(1, 11))


def test_feeds_and_variables_of_the_newest_steps_are_kept(tmp_path: Path) -> None:
    program, data = regression(), batches(EVERY + 3)
    with program.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        nanwatch.watch_session(sess, tmp_path, loss=program.loss)
        variables = {v.op.name: v for v in tf1.global_variables()}
        for number, (x, y) in enumerate(data):
            if number == EVERY:
                expected = sess.run(variables)
            sess.run(program.train_op, program.feed(x, y))
        memory = _watches[sess]().watcher.recorder.memory
        assert [fed.step for fed in memory.until(EVERY + 1)] == [EVERY, EVERY + 1]
        assert memory.until(EVERY - 1) == []
        assert memory.until(EVERY + 2)[2].feeds["x:0"] is data[EVERY + 2][0]
        assert set(memory.variables) == set(expected)
        assert all(np.array_equal(memory.variables[name], expected[name]) for name in expected)


def test_variables_beyond_the_budget_are_not_kept(tmp_path: Path, capsys: Any) -> None:
    graph = tf.Graph()
    with graph.as_default():
        w = graphs.variable("w", np.ones((600, 600)))
        loss = tf.reduce_sum(w)
        step = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf1.Session() as sess:
            sess.run(tf1.global_variables_initializer())
            nanwatch.watch_session(sess, tmp_path, loss=loss, replay_megabytes=1)
            for _ in range(3):
                sess.run(step)
    assert capsys.readouterr().out.count("replay_megabytes") == 1
    assert only_run(tmp_path).steps == 3


def test_a_loss_that_overflows_in_a_trial_is_told_as_an_infinity(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        w = graphs.variable("w", np.ones(4))
        loss = tf.reduce_sum(tf.square(w))
        step = tf1.train.GradientDescentOptimizer(1e30).minimize(loss)
        with tf1.Session() as sess:
            sess.run(tf1.global_variables_initializer())
            nanwatch.watch_session(sess, tmp_path, loss=loss)
            for _ in range(3):
                sess.run(step)
            sess.close()
    (incident,) = only_run(tmp_path).incidents
    losses = [v for trial in json.loads(incident.replay_json)["trials"] for v in trial["losses"]]
    assert "Infinity" in losses
    assert "NaN" not in losses


PROGRAM = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
import tb_nanwatch as nanwatch

tf.disable_v2_behavior()
x = tf.placeholder(tf.float32, [None, 3])
y = tf.placeholder(tf.float32, [None, 2])
W = tf.Variable(tf.zeros([3, 4]) + 0.5)
b = tf.Variable(tf.zeros([4]))
h = tf.nn.relu(tf.matmul(x, W) + b)
V = tf.Variable(tf.zeros([4, 2]))
c = tf.Variable(tf.zeros([2]))
p = tf.nn.softmax(tf.matmul(h, V) + c)
loss = tf.reduce_mean(-tf.reduce_sum(y * tf.log(p), 1))
train_step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
sess = tf.InteractiveSession()
nanwatch.watch_session(sess, sys.argv[1], loss=loss)
tf.global_variables_initializer().run()
for i in range(12):
    train_step.run(feed_dict={x: np.ones((4, 3)) * (1e4 if i == 9 else 1), y: np.eye(2)[[0, 0, 1, 0]]})
print("loss", loss.eval({x: np.ones((4, 3)), y: np.eye(2)[[0, 0, 1, 0]]}))
"""


def test_an_old_program_in_a_process_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "loss nan" in done.stdout
    run = only_run(tmp_path)
    assert (run.steps, run.ended) == (12, True)
    assert {i.name for i in run.kind("gradient")} == {"Variable", "Variable_1", "Variable_2", "Variable_3"}
    assert [i.name for i in run.kind("activation")] == ["Relu/output", "Softmax/output"]
    assert run.incidents[0].first_step in (9, 10)
    assert run.incidents[0].origin.phase == "loss"


# ---------------------------------------------------------------- gradients of other kinds, and other ways to run


def embedded(optimizer: Any, within: str = "") -> Program:
    """The rows of a table that are looked up, summed and compared with y; `within`: a conditional around the update."""
    graph = tf.Graph()
    with graph.as_default():
        ids, y = tf1.placeholder(tf.int32, [3], "ids"), tf1.placeholder(tf.float32, [3, 2], "y")
        with tf1.variable_scope("", use_resource=True):
            table = graphs.variable("words/table", np.arange(12).reshape(6, 2) / 10)
            w = graphs.variable("out/w", np.eye(2))
            loss = tf.reduce_sum(tf.square(tf.matmul(tf.nn.embedding_lookup(table, ids), w) - y))
            made = optimizer()
            if within:
                control = tf1.control_flow_v2_enabled()
                (tf1.enable_control_flow_v2 if within == "v2" else tf1.disable_control_flow_v2)()
                try:
                    pairs = made.compute_gradients(loss, [w])
                    made._create_slots([w]) if hasattr(made, "_create_slots") else None
                    train = tf1.cond(loss < 1e9, lambda: tf.group(made.apply_gradients(pairs)), tf.no_op)
                finally:
                    (tf1.enable_control_flow_v2 if control else tf1.disable_control_flow_v2)()
            else:
                train = made.minimize(loss)
    return Program(graph, loss, None, train, ids, y)


def looked_up(count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(1)
    return [(rng.permutation(6)[:3].astype(np.int32), rng.normal(size=(3, 2)).astype(np.float32)) for _ in range(count)]


def first_gradients(ids: Any, y: Any) -> dict[str, Any]:
    """Of the rows and of w, before the first update."""
    rows = (np.arange(12).reshape(6, 2) / 10)[ids]
    error = rows - y
    return {"words/table": 2 * error, "out/w": 2 * rows.T @ error}


@pytest.mark.parametrize("optimizer", ["Adam", "Adagrad", "GradientDescent", "Momentum", "RMSProp", "Ftrl"])
def test_sparse_gradients_without_being_given(optimizer: str, tmp_path: Path) -> None:
    program = embedded(
        lambda: getattr(tf1.train, f"{optimizer}Optimizer")(*([0.1, 0.9][: 1 + (optimizer == "Momentum")]))
    )
    data = looked_up(4)
    train(program, data, lambda s: nanwatch.watch_session(s, tmp_path, loss=program.loss))
    run = only_run(tmp_path)
    assert run.steps == 4
    for name, gradient in first_gradients(*data[0]).items():
        assert values(run, f"gradient/{name}")[0] == pytest.approx(norm(gradient), rel=6e-3), name


@pytest.mark.parametrize("within", ["v1", "v2"])
def test_gradients_applied_inside_a_conditional(within: str, tmp_path: Path) -> None:
    program = embedded(lambda: tf1.train.GradientDescentOptimizer(0.1), within)
    data = looked_up(4)
    train(program, data, lambda s: nanwatch.watch_session(s, tmp_path, loss=program.loss))
    run = only_run(tmp_path)
    assert run.steps == 4
    assert values(run, "gradient/out/w")[0] == pytest.approx(norm(first_gradients(*data[0])["out/w"]), rel=6e-3)


@pytest.mark.parametrize("given", [True, False], ids=["pairs", "minimize"])
def test_both_norms_of_clipped_gradients(given: bool, tmp_path: Path) -> None:
    data = batches(5)
    graph = tf.Graph()
    with graph.as_default():
        x, y = tf1.placeholder(tf.float32, [None, 4], "x"), tf1.placeholder(tf.float32, [None, 1], "y")
        with tf1.variable_scope("", use_resource=True):
            w = graphs.variable("out/w", np.ones((4, 1)))
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
        optimizer = tf1.train.GradientDescentOptimizer(0.1)
        pairs = optimizer.compute_gradients(loss)
        clipped, _ = tf.clip_by_global_norm([g for g, _ in pairs], 0.5)
        program = Program(graph, loss, pairs, optimizer.apply_gradients([(clipped[0], w)]), x, y)
    train(
        program,
        data,
        lambda s: nanwatch.watch_session(s, tmp_path, loss=loss, grads_and_vars=pairs if given else None),
    )
    here, steps = np.ones((4, 1)), []
    for a, b in data:
        gradient = 2 * a.T @ (a @ here - b) / len(a)
        used = gradient * min(1, 0.5 / norm(gradient))
        here = here - 0.1 * used
        steps.append({"gradient/out/w": gradient if given else used, "applied/out/w": used, "weight/out/w": here})
    run = only_run(tmp_path)
    check_norms(run, steps, [tag for tag in steps[0] if given or not tag.startswith("applied")])
    assert (run.by_tag("applied/out/w") is not None) == given


def test_callables_of_a_watched_session(tmp_path: Path) -> None:
    program, data = regression(), batches(6, bad=4)
    with program.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        nanwatch.watch_session(sess, tmp_path, loss=program.loss)
        step = sess.make_callable([program.loss, program.train_op], [program.x, program.y])
        look = sess.make_callable(program.loss, [program.x, program.y])
        losses = []
        for x, y in data:
            losses.append(step(x, y)[0])
            look(x, y)
    run = only_run(tmp_path)
    assert run.steps == 6
    assert incidents(run) == [(4, "input", "x")]
    assert list(values(run, "loss/loss", "value").values())[:4] == pytest.approx(losses[:4])


def test_a_callable_without_feeds(tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        with tf1.variable_scope("", use_resource=True):
            w = graphs.variable("out/w", np.ones((4, 1)))
        loss = tf.reduce_sum(tf.square(w))
        train_op = tf1.train.GradientDescentOptimizer(0.25).minimize(loss)
        with tf1.Session() as sess:
            sess.run(tf1.global_variables_initializer())
            nanwatch.watch_session(sess, tmp_path, loss=loss)
            step, look = sess.make_callable(train_op), sess.make_callable(loss)
            for _ in range(4):
                step()
                look()
    run = only_run(tmp_path)
    assert values(run, "weight/out/w") == pytest.approx({n: 2 * 0.5 ** (n + 1) for n in range(4)}, rel=6e-3)


def test_partial_runs_are_said_to_be_unwatched(tmp_path: Path, capsys: Any) -> None:
    program, data = regression(), batches(2)
    with program.graph.as_default(), tf1.Session() as sess:
        sess.run(tf1.global_variables_initializer())
        with tf.control_dependencies([program.train_op]):
            trained = tf.constant(1)
        nanwatch.watch_session(sess, tmp_path, loss=program.loss)
        for x, y in data:
            handle = sess.partial_run_setup([program.loss, trained], [program.x, program.y])
            loss = sess.partial_run(handle, program.loss, {program.x: x, program.y: y})
            sess.partial_run(handle, trained)
        assert np.isfinite(loss)
    said = capsys.readouterr().out
    assert said.count("partial_run: a step that runs in parts is not recorded: train with sess.run") == 1
    assert only_run(tmp_path).steps == 0
