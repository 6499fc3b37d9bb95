"""`nanwatch try`: real programs in real processes, once per remedy; and how they are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_nanwatch.cli import exits
from tb_nanwatch.cli.main import main
from tb_nanwatch.cli.trying import outcome, side_by_side
from tb_nanwatch.cli.trying.outcome import Outcome
from tb_nanwatch.cli.trying.plan import COMMON, Known, plan
from tb_nanwatch.cli.trying.program import Program
from tb_nanwatch.errors import UsageError
from tb_nanwatch.format import telling
from tb_nanwatch.format.treatment import CONTROL, DOSES, Place, Treatment

Capture = pytest.CaptureFixture[str]
REPOSITORY = Path(__file__).parents[2]

FIT = """
import keras, numpy as np
import tb_nanwatch as nanwatch
keras.utils.set_random_seed(1)
rng = np.random.default_rng(0)
x = rng.normal(size=(256, 8)).astype("float32")
y = (x @ rng.normal(size=(8, 1))).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(3.0), "mse", jit_compile=False)
model.fit(x, y, batch_size=16, epochs=40, verbose=0, callbacks=[nanwatch.NanWatch("logs/run1")])
print("the fit is over")
"""

LOOP = """
import tensorflow as tf
import tb_nanwatch as nanwatch
w = tf.Variable(tf.ones([2, 1]), name="w")
optimizer = tf.keras.optimizers.SGD(0.1)
@tf.function
def train_step(x):
    with tf.GradientTape() as tape:
        p = tf.nn.relu(x @ w)
        loss = -tf.reduce_mean(tf.math.log(p))
    optimizer.apply_gradients([(tape.gradient(loss, w), w)])
    return loss
step = nanwatch.watch(train_step, "logs/run1", variables=[w], optimizer=optimizer, trial_seconds=0)
good, bad = tf.constant([[1.0, 1], [2, 1]]), tf.constant([[1.0, 1], [-9, -9]])
for number in range(40):
    step(bad if number == 4 else good)
"""

GRAPH = """
import numpy as np, tensorflow as tf
import tb_nanwatch as nanwatch
tf1 = tf.compat.v1
tf1.disable_eager_execution()
x, y = tf1.placeholder(tf.float32, [None, 4]), tf1.placeholder(tf.float32, [None, 1])
w = tf1.get_variable("w", initializer=np.ones((4, 1), np.float32))
loss = tf.reduce_mean(tf.square(x @ w - y))
train_op = tf1.train.GradientDescentOptimizer(1e6).minimize(loss)
rng = np.random.default_rng(0)
with tf1.Session() as sess:
    sess.run(tf1.global_variables_initializer())
    nanwatch.watch_session(sess, "logs/run1", loss=loss)
    for _ in range(100):
        sess.run(train_op, {x: rng.normal(size=(8, 4)), y: rng.normal(size=(8, 1))})
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Writes train.py into an empty current folder; gives the command that runs it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))

    def write(text: str) -> list[str]:
        (tmp_path / "train.py").write_text(text)
        return [sys.executable, "train.py"]

    return write


def tried(capsys: Capture, *arguments: str) -> tuple[int, Any]:
    code = main(["try", "--format", "json", *arguments])
    return code, json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


# ---------------------------------------------------------------- real trainings


def test_a_fit_that_explodes(script: Any, capsys: Capture, tmp_path: Path) -> None:
    command = script(FIT)
    code, document = tried(capsys, "--remedy", "lower_learning_rate=0.01", "--steps", "30", "--", *command)
    assert code == exits.HEALTHY
    assert document["steps"] == 30
    control, (lowered,) = document["control"], document["outcomes"]
    assert (control["outcome"], control["first_bad_step"]) == ("nonfinite", 3)
    assert (lowered["label"], lowered["outcome"], lowered["steps"]) == ("lower_learning_rate_0.01", "finite", 30)
    assert lowered["loss_fell"] is True
    assert lowered["losses"][-1] < lowered["losses"][0] / 2
    assert lowered["applied"] == "learning rate times 0.01"
    assert lowered["exit_code"] == 0
    folder = tmp_path / "logs/run1/try/lower_learning_rate_0.01"
    assert Path(lowered["run"]) == folder
    assert "the fit is over" in (folder / "output.txt").read_text()
    assert [p.name for p in (tmp_path / "logs/run1").iterdir()] == ["try"]
    assert main(["report", "logs", "--run", "run1/try/lower_learning_rate_0.01"]) == exits.HEALTHY


def test_a_guard_for_the_operation_of_an_earlier_run(script: Any, capsys: Capture) -> None:
    """A loop of its own, with a log of 0 at step 4; the remedies come from the run that failed."""
    command = script(LOOP)
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    named = ["--remedy", "clip_predictions_or_from_logits", "--remedy", "use_activation_or_normalization"]
    code = main(["try", "--logdir", "logs", *named, "--steps", "20", "--", *command])
    out = capsys.readouterr().out
    assert code == exits.HEALTHY, out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert rows["control"][1:6] == ["not", "finite", "at", "step", "4"]
    assert rows["clip_predictions_or_from_logits"][1:3] == ["finite", "20"]
    assert rows["use_activation_or_normalization"][1:3] == ["not", "applicable"]
    assert "Held: clip_predictions_or_from_logits; without a remedy step 4 was not finite." in " ".join(out.split())
    assert Path("logs/run1/try/clip_predictions_or_from_logits/output.txt").is_file()


def test_a_session(script: Any, capsys: Capture) -> None:
    command = script(GRAPH)
    asked = ["--remedy", "clip_gradients=norm:1e-7", "--remedy", "mixed_precision_policy", "--steps", "20"]
    code, document = tried(capsys, *asked, "--jobs", "3", "--", *command)
    assert code == exits.HEALTHY
    clipped, float32 = document["outcomes"]
    assert document["control"]["outcome"] == "nonfinite"
    assert (clipped["outcome"], clipped["steps"]) == ("finite", 20)
    assert (float32["outcome"], float32["note"]) == ("not_applicable", "the types of a graph are fixed when it is made")


# ---------------------------------------------------------------- programs that do not train


def test_a_syntax_error(script: Any, capsys: Capture) -> None:
    code = main(["try", "--jobs", "1", "--", *script("import sys\nprint('hello')\nthis is no Python\n")])
    out = capsys.readouterr().out
    assert code == exits.NOTHING_READABLE
    assert "control: exit code 1" in out
    assert "SyntaxError: invalid syntax" in out
    assert "Inconclusive: without a remedy, did not start." in out
    assert out.count("not run") == sum(len(DOSES[name]) for name in COMMON)
    (named,) = [word for word in out.split() if "nanwatch-control-" in word]
    assert "SyntaxError" in Path(named).read_text()


def test_a_program_without_a_recorder(script: Any, capsys: Capture) -> None:
    code, document = tried(capsys, "--jobs", "1", "--", *script("print('training')"))
    assert code == exits.NOTHING_READABLE
    assert document["control"]["outcome"] == "no_recorder"
    assert "is NanWatch, watch, watch_session or NanWatchHook in the program?" in document["control"]["note"]


def test_no_such_program(script: Any, capsys: Capture) -> None:
    script("")
    assert main(["try", "--", "./no-such-program"]) == exits.USAGE
    assert "cannot run './no-such-program': No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--remedy", "prayer", "--", "true"], "unknown remedy 'prayer'; there is lower_learning_rate, clip_gradients"),
        (["--remedy", "lower_learning_rate=10", "--", "true"], "a factor between 0 and 1, such as 0.1, not '10'"),
        (["--remedy", "initializer=he", "--", "true"], "initializer takes no value, and got 'he'"),
        (["--remedy", "guard_division", "--", "true"], "nothing to try: guard_division: it is for one operation"),
        (["--steps", "0", "--", "true"], "--steps must be at least 1, not 0"),
        (["--steps", "3"], "name the program to run: nanwatch try -- python train.py"),
    ],
)
def test_wrong_usage(arguments: list[str], error: str, capsys: Capture) -> None:
    assert main(["try", *arguments]) == exits.USAGE
    assert error in capsys.readouterr().err


def test_options_of_the_program_are_its_own(capsys: Capture, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    program = "import sys; print(sys.argv[1:])"
    for dashes in (["--"], []):
        code, document = tried(capsys, "--jobs", "1", *dashes, sys.executable, "-c", program, "--steps", "-1")
        assert code == exits.NOTHING_READABLE
        assert Path(document["control"]["output"]).read_text() == "['--steps', '-1']\n"


# ---------------------------------------------------------------- the end of it

PARENT = """
import signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
{before}
print(child.pid, flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come about")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(script: Any, tmp_path: Path, monkeypatch: Any, number: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    command = script(PARENT.format(before=""))
    trying = subprocess.Popen(
        [sys.executable, "-m", "tb_nanwatch", "try", "--remedy", "initializer", "--", *command],
        stdout=subprocess.PIPE,
        text=True,
    )
    outputs = until(lambda: len(found := [p for p in scratch.glob("*/*.txt") if p.stat().st_size]) == 2 and found)
    children = [int(path.read_text().split()[0]) for path in outputs]
    assert all(map(alive, children))
    trying.send_signal(number)
    out, _ = trying.communicate(timeout=60)
    assert trying.returncode == exits.INTERRUPTED
    assert out.count("interrupted") == 3  # both runs, and the verdict
    until(lambda: not any(map(alive, children)))
    assert not list(scratch.glob("nanwatch-try-*"))


def test_a_program_that_ignores_signals_is_killed(script: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(side_by_side, "STAGES", tuple((number, 0.3) for number, _ in side_by_side.STAGES))
    deaf = "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGTERM)]"
    program = Program(script(PARENT.format(before=deaf)), Treatment(CONTROL), tmp_path)

    def interrupt_when_started() -> None:
        if program.output.stat().st_size:
            raise KeyboardInterrupt

    assert not side_by_side.run([program], 1, interrupt_when_started, lambda: True)
    assert program.exit_code == -signal.SIGKILL
    assert outcome.of_program(program).outcome == outcome.STOPPED
    child = int(program.output.read_text().split()[0])
    until(lambda: not alive(child))


def test_what_a_program_leaves_behind_is_ended(script: Any, tmp_path: Path) -> None:
    program = Program(script(PARENT.format(before="").rpartition("time.sleep")[0]), Treatment(CONTROL), tmp_path)
    assert side_by_side.run([program], 1, lambda: None, lambda: True)
    assert program.exit_code == 0
    child = int(program.output.read_text().split()[0])
    until(lambda: not alive(child))


def test_a_program_whose_recorder_failed_is_stopped(script: Any, tmp_path: Path) -> None:
    text = """
import json, os, time
from tb_nanwatch.format import telling
telling.tell(json.loads(os.environ["TB_NANWATCH_TRY"])["report"], "failed", why="cannot write: disk full")
time.sleep(600)
"""
    program = Program(script(text), Treatment(CONTROL), tmp_path)
    assert side_by_side.run([program], 1, lambda: None, lambda: True)
    assert program.exit_code != 0
    found = outcome.of_program(program)
    assert (found.outcome, found.note) == ("inconclusive", "the recorder cannot write: disk full")


# ---------------------------------------------------------------- what to try, and what it proves


def test_the_plan_follows_the_incident() -> None:
    known = Known("run1", 500, ("guard_division", "use_activation_or_normalization", "clean_input"), Place("RealDiv"))
    planned = plan([], None, known)
    assert [t.label for t in planned.treatments] == [
        "control",
        "guard_division",
        "clean_input_finite",
        "clean_input_scale",
    ]
    assert {t.steps for t in planned.treatments} == {564}
    assert planned.treatments[1].place == Place("RealDiv")
    assert planned.left_out == (("use_activation_or_normalization", "it needs an edit of the program"),)


def test_labels_are_the_names_of_runs() -> None:
    labels = [t.label for t in plan(["lower_learning_rate", "clip_gradients"], 7, None).treatments]
    assert labels == [
        "control",
        "lower_learning_rate_0.1",
        "lower_learning_rate_0.01",
        "clip_gradients_norm_1",
        "clip_gradients_value_0.5",
        "clip_gradients_value_1",
    ]


@pytest.mark.parametrize(
    ("control", "other", "expected"),
    [
        (("nonfinite", 13, 12), ("finite", 200, None), "finite"),
        (("nonfinite", 13, 12), ("nonfinite", 20, 19), "nonfinite"),
        (("nonfinite", 13, 12), ("finite", 12, None), "inconclusive"),
        (("finite", 200, None), ("finite", 200, None), "inconclusive"),
        (("finite", 200, None), ("nonfinite", 3, 2), "inconclusive"),
        (("did_not_start", 0, None), ("finite", 200, None), "inconclusive"),
        (("nonfinite", 13, 12), ("not_applicable", 0, None), "not_applicable"),
    ],
)
def test_only_beside_a_control_that_fails(control: Any, other: Any, expected: str) -> None:
    one, two = (
        Outcome(name, name, "", word, steps, first)
        for name, (word, steps, first) in ((CONTROL, control), ("initializer", other))
    )
    assert outcome.against(one, two).outcome == expected


def test_lines_that_are_none_of_ours_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "report"
    path.write_bytes(
        b'\xff\xfe\n[]\n{"event": "step"}\n{"event": "step", "step": "x"}\n{"event": "step", "step": 4}\n{"ev'
    )
    listener = telling.Listener(path)
    assert listener.new() == [{"event": "step", "step": 4}]
    telling.tell(str(path), "done", steps=5)  # behind half a line
    telling.tell(str(path), "done", steps=6)
    assert listener.new() == [{"event": "done", "steps": 6}]


def test_a_treatment_survives_the_environment(tmp_path: Path) -> None:
    from tb_nanwatch.format import treatment

    report = tmp_path / "r"
    report.touch()
    asked = Treatment("safe_where", "", 12, str(report), Place("Exp", "a b.py", 3, "x/Exp", True))
    assert treatment.parse(asked.as_json()) == asked
    with pytest.raises(UsageError, match="label must be"):
        treatment.parse(json.dumps(json.loads(asked.as_json()) | {"label": os.sep}))
