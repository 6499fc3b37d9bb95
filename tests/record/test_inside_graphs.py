"""Ops of TF1 graphs inside loops, branches and functions are named, and their guards tried."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.format import capsule
from tb_nanwatch.record.graph import flat, observed
from tb_nanwatch.record.graph.memory import Fed

tf1 = tf.compat.v1
START = np.array([1.0, 2.0, 3.0, 4.0], np.float32)


@pytest.fixture(params=["switches", "functions"])
def control_flow(request: pytest.FixtureRequest) -> Iterator[str]:
    """Loops and branches of ops among the others, or of calls of functions."""
    before = tf1.control_flow_v2_enabled()
    (tf1.disable_control_flow_v2 if request.param == "switches" else tf1.enable_control_flow_v2)()
    yield request.param
    (tf1.enable_control_flow_v2 if before else tf1.disable_control_flow_v2)()


def branch(x: Any, w: Any) -> Any:
    return tf1.cond(tf.reduce_sum(x) > 0, lambda: tf.math.log(x * w - 1), lambda: x * w)


def loop(x: Any, w: Any) -> Any:
    """Bad in the third round."""

    def body(n: Any, h: Any) -> Any:
        return n + 1, h / (2.0 - tf.cast(n, tf.float32) * tf.reduce_max(tf.cast(tf.equal(x, 0), tf.float32)))

    return tf1.while_loop(lambda n, _: n < 4, body, (0, x * w))[1]


def lists(x: Any, w: Any) -> Any:
    """What is bad leaves the loop in a list."""

    def body(n: Any, list_: Any) -> Any:
        size = 100.0 * tf.reduce_max(tf.cast(tf.equal(x, 0), tf.float32)) * tf.cast(n, tf.float32)
        return n + 1, list_.write(n, tf.exp(x * w * size))

    return tf1.while_loop(lambda n, _: n < 3, body, (0, tf.TensorArray(tf.float32, 3)))[1].stack()


def gradient(x: Any, w: Any) -> Any:
    """The loss stays finite."""

    def body(n: Any, h: Any) -> Any:
        return n + 1, tf.sqrt(h) * w

    return tf1.while_loop(lambda n, _: n < 2, body, (0, x * w))[1]


def each(x: Any, w: Any) -> Any:
    return tf.map_fn(lambda row: tf.reduce_sum(row * w) / tf.reduce_min(row), x)


def function(x: Any, w: Any) -> Any:
    @tf.function(jit_compile=True)
    def called(z: Any) -> Any:
        return tf.math.log(z)

    return called(x * w)


#: program -> (op, its forward op, piece of its line, extent of the input that matters, samples, remedy that holds)
PROGRAMS: dict[
    str, tuple[Callable[[Any, Any], Any], str, str | None, str, tuple[float, float], tuple[int, ...], str]
] = {
    "branch": (branch, "Log", None, "lambda: tf.math.log", (-1.0, 11.0), (1,), "clip_predictions_or_from_logits"),
    "loop": (loop, "RealDiv", None, "return n + 1, h / (2.0", (0.0, 0.0), (0, 1), "guard_division"),
    "lists": (lists, "Exp", None, "list_.write(n, tf.exp", (0.0, 1200.0), (0, 1), "clip_predictions_or_from_logits"),
    "gradient": (
        gradient,
        "SqrtGrad",
        "Sqrt",
        "tf.sqrt(h) * w",
        (0.0, np.sqrt(np.sqrt(12) * 4)),
        (1,),
        "guard_division",
    ),
    "each": (each, "RealDiv", None, "tf.map_fn(lambda row", (0.0, 0.0), (1,), "guard_division"),
    "function": (function, "Log", None, "return tf.math.log(z)", (0.0, 12.0), (1,), "clip_predictions_or_from_logits"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_op_its_line_and_what_would_have_held(program: str, control_flow: str, tmp_path: Path) -> None:
    build, op_type, forward, text, extent, samples, remedy = PROGRAMS[program]
    train(build, tmp_path, trial_seconds=30)
    (incident,) = only_run(tmp_path).incidents
    origin, replay = incident.origin, json.loads(incident.replay_json)
    assert (incident.first_step, origin.op_type, replay.get("forward_op")) == (2, op_type, forward)
    assert (origin.precision, replay["replay"]) == ("op", "reproduced")
    assert origin.phase == ("backward" if forward else "loss")
    lines, first = inspect.getsourcelines(build)
    assert origin.source is not None
    assert Path(origin.source.file) == Path(__file__)
    assert text in lines[origin.source.line - first]
    assert origin.samples == samples
    assert any((i.min, i.max) == pytest.approx(extent) for i in origin.inputs)
    assert [n["op_type"] for n in replay["graph"] if n["role"] == "origin"] == [op_type]
    assert {n["role"] for n in replay["graph"]} == {"producer", "origin", "consumer"}
    guard = replay["trials"][0]
    assert (guard["remedy"], guard["outcome"], guard["control"]) == (remedy, "finite", "nonfinite")


def test_what_a_loop_drops_is_no_origin(control_flow: str, tmp_path: Path) -> None:
    """The logarithm in the loop is bad at every step, and nothing comes of it; that behind the loop is the origin."""

    def build(x: Any, w: Any) -> Any:
        def body(n: Any, h: Any) -> Any:
            return n + 1, tf.where(tf.math.log(-tf.stop_gradient(x)) < 0, h * 2, h * w)

        return tf.math.log(tf1.while_loop(lambda n, _: n < 3, body, (0, x * w))[1])

    train(build, tmp_path, trial_seconds=0)
    (incident,) = only_run(tmp_path).incidents
    assert incident.first_step == 2
    assert incident.origin.op_type == "Log"
    assert [(i.min, i.nan) for i in incident.origin.inputs] == [(0.0, 0)]


def test_a_healthy_loop_has_no_incident(control_flow: str, tmp_path: Path) -> None:
    train(lambda x, w: loop(x + 1, w), tmp_path)
    assert only_run(tmp_path).incidents == ()


# ---------------------------------------------------------------- what else programs do


def log_of(x: Any, w: Any) -> Any:
    """The logarithm of x in a loop: -inf where x is 0."""
    return tf1.while_loop(lambda n, _: n < 2, lambda n, h: (n + 1, h * w + tf.math.log(x)), (0, x * w))[1]


def test_a_case_is_looked_into(control_flow: str, tmp_path: Path) -> None:
    def build(x: Any, w: Any) -> Any:
        rank = tf.cast(tf.reduce_sum(x) * 0, tf.int32)
        return tf.switch_case(rank, [lambda: tf.math.log(x) * w, lambda: tf.sqrt(x) * w])

    train(build, tmp_path, trial_seconds=0)
    assert named(tmp_path) == (
        "Log",
        (1,),
        "return tf.switch_case(rank, [lambda: tf.math.log(x) * w, lambda: tf.sqrt(x) * w])",
    )


def test_where_no_copy_can_run_what_cannot_be_fetched_is_left_out() -> None:
    with tf1.Graph().as_default() as graph, tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [2, 4], "x")
        chosen = tf.switch_case(tf.constant(0), [lambda: tf.math.log(x), lambda: tf.sqrt(x)])
        loss = tf.reduce_mean(chosen)
        seen = observed.fetched(session, graph, Fed(0, None, {"x:0": rows(2)}), [loss], [])
    assert seen.bad(loss) == (False, True)
    assert any(not graph.is_fetchable(t) for op in seen.ops for t in op.outputs)


def test_a_divisor_that_a_loop_does_not_change_is_guarded_in_its_gradient(control_flow: str, tmp_path: Path) -> None:
    def build(x: Any, w: Any) -> Any:
        return tf1.while_loop(lambda n, _: n < 2, lambda n, h: (n + 1, h * w / x), (0, x * w))[1]

    train(build, tmp_path, trial_seconds=30)
    assert named(tmp_path)[:2] == ("RealDiv", (1,))
    assert guarded(tmp_path) == ("guard_division", "finite")


def test_a_gradient_that_was_written_out_has_its_own_line(control_flow: str, tmp_path: Path) -> None:
    def build(x: Any, w: Any) -> Any:
        @tf.custom_gradient
        def root(a: Any) -> Any:
            return 2 * tf.sqrt(a), lambda dy: dy / tf.sqrt(a)

        return tf1.while_loop(lambda n, _: n < 2, lambda n, h: (n + 1, root(h) * w), (0, x * w))[1]

    train(build, tmp_path, trial_seconds=30)
    assert named(tmp_path) == ("RealDiv", (1,), "return 2 * tf.sqrt(a), lambda dy: dy / tf.sqrt(a)")
    (incident,) = only_run(tmp_path).incidents
    assert incident.origin.phase == "backward"
    assert "forward_op" not in json.loads(incident.replay_json)
    assert guarded(tmp_path) == ("guard_division", "finite")


@pytest.mark.parametrize(
    ("dtype", "words"),
    [(tf.float16, "log(max(x, 0.0001))"), (tf.bfloat16, "log(max(x, 1e-10))")],
    ids=["half", "brain"],
)
def test_guards_and_trials_of_half_precision(dtype: Any, words: str, control_flow: str, tmp_path: Path) -> None:
    with tf1.Graph().as_default():
        x = tf1.placeholder(dtype, [None, 4], "x")
        w = tf1.get_variable("w", initializer=tf.constant(START, dtype), use_resource=True)
        steps(tf.reduce_mean(log_of(x, w)), lambda step: {x: rows(step).astype(dtype.as_numpy_dtype)}, tmp_path)
    assert named(tmp_path)[:2] == ("Log", (1,))
    assert guarded(tmp_path) == ("clip_predictions_or_from_logits", "finite")
    (incident,) = only_run(tmp_path).incidents
    assert json.loads(incident.replay_json)["trials"][0]["note"] == words


def test_tables_are_filled(control_flow: str, tmp_path: Path) -> None:
    with tf1.Graph().as_default():
        x, word = tf1.placeholder(tf.float32, [None, 4], "x"), tf1.placeholder(tf.string, [None], "word")
        pairs = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([0, 1], tf.int64))
        w = tf1.get_variable("w", initializer=np.stack([START, START]), use_resource=True)
        chosen = tf.nn.embedding_lookup(w, tf.lookup.StaticHashTable(pairs, -1).lookup(word))
        steps(tf.reduce_mean(log_of(x, chosen)), lambda step: {x: rows(step), word: ["b", "a"]}, tmp_path)
    assert named(tmp_path)[:2] == ("Log", (1,))
    assert guarded(tmp_path) == ("clip_predictions_or_from_logits", "finite")


def test_what_lies_before_a_tensor_that_is_fed_is_not_needed(control_flow: str, tmp_path: Path) -> None:
    with tf1.Graph().as_default():
        middle = tf.sqrt(tf1.placeholder(tf.float32, [None, 4], "x"))
        w = tf1.get_variable("w", initializer=START, use_resource=True)
        steps(tf.reduce_mean(log_of(middle, w)), lambda step: {middle: rows(step)}, tmp_path)
    assert named(tmp_path)[:2] == ("Log", (1,))
    assert guarded(tmp_path) == ("clip_predictions_or_from_logits", "finite")


def test_the_element_of_a_data_set_is_that_of_the_step(control_flow: str, tmp_path: Path) -> None:
    with tf1.Graph().as_default():
        batches = tf1.data.Dataset.from_tensor_slices(np.stack([rows(step) for step in range(4)])).repeat()
        x = tf1.data.make_one_shot_iterator(batches).get_next()
        w = tf1.get_variable("w", initializer=START, use_resource=True)
        steps(tf.reduce_mean(log_of(x, w)), lambda _: {}, tmp_path)
    assert named(tmp_path)[:2] == ("Log", (1,))


def test_lists_of_numbers_are_kept_as_arrays(tmp_path: Path) -> None:
    with tf1.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        w = tf1.get_variable("w", initializer=START, use_resource=True)
        steps(tf.reduce_mean(tf.math.log(x * w)), lambda step: {x: rows(step).tolist()}, tmp_path, trial_seconds=0)
    assert named(tmp_path)[:2] == ("Log", (1,))
    (manifest,) = tmp_path.glob("**/manifest.json")
    batch = capsule.parse(manifest.read_text()).batch
    assert [(part.kind, part.name, part.shape) for part in batch.items] == [("array", "x:0", (2, 4))]


def test_a_queue_is_not_waited_for(tmp_path: Path) -> None:
    with tf1.Graph().as_default():
        queue = tf1.FIFOQueue(9, [tf.float32], [[2, 4]])
        put = queue.enqueue_many(np.stack([rows(step) for step in range(4)]))
        w = tf1.get_variable("w", initializer=START, use_resource=True)
        steps(tf.reduce_mean(tf.math.log(queue.dequeue() * w)), lambda _: {}, tmp_path, before=put)
    (incident,) = only_run(tmp_path).incidents
    replay = json.loads(incident.replay_json)
    assert replay["replay"] == "not possible"
    assert replay["why"].startswith("fifo_queue_Dequeue waits for what a thread of the program brings")


def test_a_function_of_a_graph_that_was_loaded(control_flow: str, tmp_path: Path) -> None:
    with tf1.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        w = tf1.get_variable("w", initializer=START, use_resource=True)
        loss = tf.reduce_mean(function(x, w))
        apply = tf1.train.GradientDescentOptimizer(1e-9).minimize(loss)
        tf1.train.export_meta_graph(str(tmp_path / "graph"))
    with tf1.Graph().as_default() as graph:
        tf1.train.import_meta_graph(str(tmp_path / "graph"))
        run_steps(
            graph.get_operation_by_name(apply.name), graph.get_tensor_by_name(loss.name), None,
            lambda step: {"x:0": rows(step)}, tmp_path / "run",
        )  # fmt: skip
    (incident,) = only_run(tmp_path / "run").incidents
    assert (incident.origin.op_type, incident.origin.samples) == ("Log", (1,))
    assert guarded(tmp_path / "run") == ("clip_predictions_or_from_logits", "finite")


def test_a_copy_holds_what_the_step_needs(control_flow: str) -> None:
    with tf1.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [2, 4], "x")
        w = tf1.get_variable("w", initializer=START, use_resource=True)
        tf1.get_variable("other", initializer=START, use_resource=True)
        loss = tf.reduce_mean(log_of(x, w))
        tf.reduce_sum(x, name="aside")
        copy = flat.flatten(graph, [loss], [], [], ["x:0"])
    names = {op.name for op in copy.graph.get_operations()}
    assert not names & {"aside", "other"}
    with copy.graph.as_default(), tf1.Session() as session:
        assert [v.op.name for v in tf1.global_variables()] == ["w"]
        session.run(tf1.global_variables_initializer())
        found = session.run(copy.losses[0], {"x:0": np.full((2, 4), 3.0)})
    log = np.log(np.float32(3))
    assert found == pytest.approx(np.mean((3 * START * START + log) * START + log))


def named(logdir: Path) -> tuple[str, tuple[int, ...], str]:
    """(op, samples, its line) of the only incident, which is that of step 2 and was reproduced."""
    (incident,) = only_run(logdir).incidents
    assert (incident.first_step, json.loads(incident.replay_json)["replay"]) == (2, "reproduced")
    assert incident.origin.source is not None
    return incident.origin.op_type, incident.origin.samples, incident.origin.source.code


def guarded(logdir: Path) -> tuple[str, str]:
    """(remedy, outcome) of the first trial."""
    (incident,) = only_run(logdir).incidents
    trial = json.loads(incident.replay_json)["trials"][0]
    return trial["remedy"], trial["outcome"]


def rows(step: int) -> Any:
    """float32[2, 4]; the second one of step 2 begins with a zero."""
    made = np.full((2, 4), 3.0, np.float32)
    made[1, 0] = 0.0 if step == 2 else 3.0
    return made


def train(build: Callable[[Any, Any], Any], logdir: Path, **options: Any) -> None:
    """Four steps on `rows`."""
    with tf1.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        w = tf1.get_variable("w", initializer=START, use_resource=True)
        steps(tf.reduce_mean(build(x, w)), lambda step: {x: rows(step)}, logdir, **options)


def steps(loss: Any, feed: Callable[[int], Any], logdir: Path, before: Any = (), **options: Any) -> None:
    """Four steps of descent on a loss; `before` is run first."""
    optimizer = tf1.train.GradientDescentOptimizer(tf.constant(1e-9, loss.dtype))
    pairs = optimizer.compute_gradients(loss)
    run_steps(optimizer.apply_gradients(pairs), loss, pairs, feed, logdir, before, **options)


def run_steps(
    apply: Any, loss: Any, pairs: Any, feed: Callable[[int], Any], logdir: Path, before: Any = (), **options: Any
) -> None:
    with tf1.Session() as raw:
        raw.run([tf1.global_variables_initializer(), tf1.tables_initializer(), before])
        session = nanwatch.watch_session(raw, logdir, loss=loss, grads_and_vars=pairs, **options)
        for step in range(4):
            session.run(apply, feed(step))
        session.close()


@pytest.mark.parametrize("scope", ["norm", "average"], ids=["beside_a_weight", "alone"])
def test_what_only_a_moving_average_shows_is_named(scope: str, tmp_path: Path) -> None:
    """Neither the loss nor a gradient is bad: the last batch of one sample has no unbiased variance."""
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        w = tf1.get_variable("norm/gain", initializer=START)
        with tf1.variable_scope(scope):
            moving = tf1.get_variable("moving", initializer=np.ones(4, np.float32), trainable=False)
            variance = tf.math.reduce_variance(x * w, 0)
            count = tf.cast(tf.shape(x)[0], tf.float32)
            average = tf1.assign_sub(moving, 0.1 * (moving - variance * (count / (count - 1.0))))
        loss = tf.reduce_mean(tf.square(x * w))
        optimizer = tf1.train.MomentumOptimizer(0.01, 0.9)
        pairs = optimizer.compute_gradients(loss)
        with tf1.control_dependencies([average]):
            train = optimizer.apply_gradients(pairs)
        with tf1.Session() as plain:
            plain.run(tf1.global_variables_initializer())
            watched = nanwatch.watch_session(plain, str(tmp_path), loss=loss, grads_and_vars=pairs)
            for rows in (8, 8, 8, 1, 8):
                watched.run([loss, train], {x: np.arange(4.0 * rows).reshape(rows, 4)})
            watched.run(average, {x: np.ones((2, 4))})
            watched.close()
    run = only_run(tmp_path)
    assert run.steps == 5  # averaging alone is no training
    incident = run.incidents[0]
    assert incident.first_step == 3
    assert (incident.origin.op_type, incident.origin.phase, incident.origin.layer) == ("RealDiv", "forward", scope)
    assert "count / (count - 1.0)" in incident.origin.source.code
