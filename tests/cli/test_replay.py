"""`nanwatch replay`: what it prints, what an edit changes, and what damage does."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_nanwatch.cli import exits
from tb_nanwatch.cli.main import main
from tb_nanwatch.format import arrays
from tb_nanwatch.format import capsule as layout
from tb_nanwatch.format.records import Counts, OperandStats, Origin, Source
from tb_nanwatch.record import off
from tb_nanwatch.record.replay.verdict import Verdict

Capture = pytest.CaptureFixture[str]

# ---------------------------------------------------------------- reading


def test_every_sample_of_a_large_batch_may_be_bad(tmp_path: Path) -> None:
    document = json.loads((write(tmp_path / "capsule") / layout.MANIFEST).read_text(encoding="utf-8"))
    document["origin"]["samples"] = list(range(5000))
    assert layout.parse(json.dumps(document)).origin.samples == tuple(range(5000))


# ---------------------------------------------------------------- printing


def write(folder: Path, **changes: Any) -> Path:
    """A capsule made by hand: a table whose sample 1 lacks a value, and 8x8 pictures in bfloat16."""
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    table[1, 2] = np.nan
    pictures = np.zeros((2, 8, 8, 1), np.float32)
    pictures[1, 2:6, 2:6] = 1.0
    bits = (pictures.view(np.uint32) >> 16).astype(np.uint16)
    batch = layout.Part(
        "tuple",
        "x",
        (
            layout.Part("array", "x/table", arrays=("a0",), dtype="float32", shape=(2, 3)),
            layout.Part("array", "x/image", arrays=("a1",), dtype="bfloat16", shape=(2, 8, 8, 1)),
            layout.Part("left_out", "rows", value="iterator"),
        ),
    )
    origin = Origin(
        "input",
        op_type="MatMul",
        source=Source("train.py", 3, "loss", "y = x @ w"),
        samples=(1,),
        inputs=(OperandStats("x", "float32", (2, 3), -1.0, 4.0, nan=1, zero=1, negative=2),),
        output=Counts(nan=1, size=2),
    )
    given = {
        "step": 12,
        "origin": origin,
        "batch": batch,
        "wall_time": 1_700_000_000.0,
        "versions": {"tensorflow": "2.20"},
        "source": (layout.Excerpt("train.py", 3, "loss", 2, ("def loss(x):", "    y = x @ w", "    return y")),),
        "state": (layout.Kept("w", "float32", (3, 1), "v0", True),),
        "state_bytes": 12,
        "left_out": ("rows of the batch",),
    }
    folder.mkdir(parents=True)
    arrays.write(folder / layout.BATCH, [("a0", table), ("a1", bits)])
    arrays.write(folder / layout.STATE, [("v0", np.zeros((3, 1), np.float32))])
    capsule = layout.Capsule(**{**given, **changes})  # type: ignore[arg-type]
    (folder / layout.MANIFEST).write_text(layout.write(capsule), encoding="utf-8")
    return folder


def test_text(tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", str(write(tmp_path / "c"))]) == exits.HEALTHY
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == "Step 12, 2023-11-14 22:13:20 UTC"
    assert lines[1] == "  phase input: MatMul made 1 NaN of 2 elements, sample 1"
    assert "train.py:3, in loss" in lines
    assert ">     3     y = x @ w" in lines
    assert "  x: float32 2x3, -1 to 4, 1 NaN, 1 zero, 2 negative" in lines
    assert "    not finite at [2] of a sample" in lines
    assert "    column 2, 2 to 2, 1 NaN" in lines
    assert "    sample 1: 3 4 NaN, 3 to 4, 1 NaN" in lines
    assert "      " + "  @@@@  " in out
    assert "  rows: not kept (iterator)" in lines
    assert "  1 variable (1 of them weights), 12 bytes" in lines
    assert "  not: rows of the batch" in lines


def test_json(tmp_path: Path, capsys: Capture) -> None:
    folder = write(tmp_path / "c")
    assert main(["replay", str(folder), "--format", "json"]) == exits.HEALTHY
    document = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert document["step"] == 12
    assert document["origin"]["source"] == {"file": "train.py", "line": 3, "function": "loss", "code": "y = x @ w"}
    table, image, rows = document["batch"]
    assert (table["nan"], table["min"], table["max"], table["features"]) == (1, 0.0, 4.0, [[2]])
    assert [c["index"] for c in table["columns"]] == [2, 0, 1]
    assert table["samples"][0]["values"] == [3.0, 4.0, "NaN"]
    assert (image["dtype"], image["max"], image["zero"]) == ("bfloat16", 1.0, 112)
    assert image["samples"][0]["picture"][3] == "  @@@@  "
    assert rows["kind"] == "left_out"


def test_a_name_cannot_steer_the_terminal(tmp_path: Path, capsys: Capture) -> None:
    folder = write(tmp_path / "c", origin=Origin("loss", op_type="\x1b[2JLog"), versions={"a\r\n": "\x07"})
    assert main(["replay", str(folder)]) == exits.HEALTHY
    out = capsys.readouterr().out
    assert "\\x1b[2JLog" in out
    assert not set(out) & set("\x1b\x07\r")


# ---------------------------------------------------------------- damage


def manifest(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / layout.MANIFEST
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return apply


def cut(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    return apply


def replaced(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(data) and None


def linked(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        elsewhere = folder.parent / name
        (folder / name).rename(elsewhere)
        (folder / name).symlink_to(elsewhere)

    return apply


def pipe(folder: Path) -> None:
    (folder / layout.MANIFEST).unlink()
    os.mkfifo(folder / layout.MANIFEST)


def member(header: str, data: bytes, **how: Any) -> Callable[[Path], None]:
    """A batch whose array a0 has this header."""

    def apply(folder: Path) -> None:
        padded = header.encode().ljust(118)
        with zipfile.ZipFile(folder / layout.BATCH, "w", **how) as archive:
            archive.writestr("a0.npy", b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + data)

    return apply


def deep(document: Any) -> None:
    part = document["batch"]
    for _ in range(200):
        part = {"kind": "tuple", "items": [part]}
    document["batch"] = part


DAMAGE = {
    "no manifest": (lambda folder: (folder / layout.MANIFEST).unlink(), "holds no capsule"),
    "half a manifest": (cut(layout.MANIFEST), "is no JSON"),
    "not utf-8": (replaced(layout.MANIFEST, b"\xff\xfe{"), "is no text"),
    "a list": (replaced(layout.MANIFEST, b"[]"), "'format_version' is missing"),
    "brackets": (replaced(layout.MANIFEST, b"[" * 100_000), "is no JSON"),
    "NaN": (replaced(layout.MANIFEST, b'{"format_version": NaN}'), "is not strict JSON"),
    "newer": (manifest(lambda d: d.update(format_version=2)), "format version 2"),
    "no phase": (manifest(lambda d: d["origin"].update(phase="x")), "no phase 'x'"),
    "a step that is a text": (manifest(lambda d: d.update(step="12")), "'step' is missing or no int"),
    "an unknown part": (manifest(lambda d: d["batch"].update(kind="pickle")), "kind 'pickle'"),
    "nested deeply": (manifest(deep), "nested too deeply"),
    "a negative shape": (manifest(lambda d: d["batch"]["items"][0].update(shape=[-2, 3])), "'shape'"),
    "a huge shape": (manifest(lambda d: d["batch"]["items"][0].update(shape=[1 << 60])), "not what the manifest says"),
    "an absolute path": (
        manifest(lambda d: d["batch"]["items"][0].update(arrays=["/etc/passwd"])),
        "lacks the array '/etc/passwd'",
    ),
    "another dtype": (manifest(lambda d: d["batch"]["items"][0].update(dtype="int32")), "not what the manifest says"),
    "half a batch": (cut(layout.BATCH), "batch.npz is damaged"),
    "half a state": (cut(layout.STATE), "state.npz is damaged"),
    "an empty batch": (replaced(layout.BATCH, b""), "batch.npz is damaged"),
    "no batch": (lambda folder: (folder / layout.BATCH).unlink(), "batch.npz: No such file"),
    "a linked batch": (linked(layout.BATCH), "batch.npz is no ordinary file"),
    "a linked manifest": (linked(layout.MANIFEST), "is no ordinary file"),
    "a pipe": (pipe, "is no ordinary file"),
    "compressed": (
        member("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", bytes(1 << 20), compression=8),
        "claims to hold more",
    ),
    "objects": (member("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }", bytes(48)), "is damaged"),
    "a shape beyond its data": (
        member("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 9), }", bytes(24)),
        "is damaged: its size",
    ),
    "a header that is none": (member("import os", bytes(24)), "is damaged"),
    "a header of brackets": (member("(" * 110, bytes(24)), "is damaged"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_an_error_that_says_what(name: str, tmp_path: Path, capsys: Capture) -> None:
    folder = write(tmp_path / "c")
    spoil, message = DAMAGE[name]
    spoil(folder)
    assert main(["replay", str(folder)]) == exits.NOTHING_READABLE
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize("at", range(0, 100, 9))
def test_a_flipped_byte_is_no_crash(at: int, tmp_path: Path, capsys: Capture) -> None:
    for name in (layout.MANIFEST, layout.BATCH):
        folder = write(tmp_path / name)
        data = bytearray((folder / name).read_bytes())
        data[len(data) * at // 100] ^= 0x11
        (folder / name).write_bytes(data)
        assert main(["replay", str(folder)]) in (exits.HEALTHY, exits.NOTHING_READABLE)


def test_not_a_capsule(tmp_path: Path, capsys: Capture) -> None:
    assert main(["replay", str(tmp_path / "nothing")]) == exits.NOTHING_READABLE
    assert "does not exist" in capsys.readouterr().err
    assert main(["replay", str(tmp_path)]) == exits.NOTHING_READABLE
    assert "holds no capsule" in capsys.readouterr().err


# ---------------------------------------------------------------- running again

FIT = """
import keras, numpy as np, tensorflow as tf

def loss(y, p):
    return -tf.reduce_mean(y * tf.math.log(p + EPSILON), axis=-1)

def build():
    print("building")
    layers = keras.layers
    narrow = [layers.Dense(5, "relu"), layers.Dropout(0.3), layers.Dense(1, "sigmoid")]
    model = keras.Sequential([keras.Input((4,)), *narrow])
    model.compile(keras.optimizers.Adam(1e-2), loss, jit_compile=False)
    return model

def wider():
    layers = keras.layers
    model = keras.Sequential([keras.Input((4,)), layers.Dense(7, "relu"), layers.Dense(1, "sigmoid")])
    model.compile(keras.optimizers.Adam(1e-2), loss, jit_compile=False)
    return model

def train(logdir):
    import tb_nanwatch as nanwatch
    keras.utils.set_random_seed(0)
    model = build()
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([-np.abs(kernel), bias])
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    x[44] = -1e6
    watched = nanwatch.NanWatch(logdir, trial_seconds=0)
    model.fit(x, np.ones((64, 1), "float32"), 8, shuffle=False, verbose=0, callbacks=[watched])
    watched.close()
"""

LOOP = """
import tensorflow as tf

def make():
    w = tf.Variable([[2.0], [1.0]], name="w")
    count = tf.Variable(0, dtype=tf.int64, name="count")

    @tf.function
    def step(x, y, scale=1.0):
        count.assign_add(1)
        with tf.GradientTape() as tape:
            error = tf.reduce_sum((x @ w - y) ** 2, axis=1)
            loss = scale * tf.reduce_mean(tf.sqrt(error + EPSILON))
        w.assign_sub(0.1 * tape.gradient(loss, w))
        return loss

    return step, [w, count]

def raises():
    return undefined_name

def not_a_pair():
    return 3

def train(logdir):
    import tb_nanwatch as nanwatch
    step, variables = make()
    with nanwatch.watch(step, logdir, variables=variables[:1], trial_seconds=0) as watched:
        for number in range(6):
            x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
            y = x @ variables[0] if number == 4 else tf.zeros([2, 1])
            watched(x, y, scale=2.0)
"""

EAGER = """
import random
import keras, numpy as np, tensorflow as tf

def make():
    layers = keras.layers
    hidden = [layers.Dense(5, "relu"), layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((4,)), *hidden, layers.Dense(1, "sigmoid")])
    optimizer = keras.optimizers.Adam(1e-2)

    def step(x, y):
        noise = np.random.normal(size=(8, 4)).astype("float32") + tf.random.normal([8, 4])
        kept = tf.cast(random.random() > 0.2, tf.float32)
        with tf.GradientTape() as tape:
            loss = -tf.reduce_mean(y * tf.math.log(kept * model(x + noise, training=True) + EPSILON))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step, [model, optimizer]

def train(logdir):
    import tb_nanwatch as nanwatch
    keras.utils.set_random_seed(1)
    step, (model, optimizer) = make()
    with nanwatch.watch(step, logdir, model=model, optimizer=optimizer, trial_seconds=0) as watched:
        for number in range(30):
            x = np.random.RandomState(number).normal(size=(8, 4)).astype("float32")
            watched(x, np.ones((8, 1), "float32"))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs, each also edited so that it holds, and the capsules of their runs."""
    folder = tmp_path_factory.mktemp("programs")
    sys.path.insert(0, str(folder))
    for name, text in (("fit", FIT), ("loop", LOOP), ("eager", EAGER)):
        (folder / f"{name}_as_it_was.py").write_text(f"EPSILON = 0.0\n{text}")
        (folder / f"{name}_edited.py").write_text(f"EPSILON = 1e-6\n{text}")
        (folder / f"{name}_unguarded.py").write_text(f"EPSILON = 0.0\n{text}\ntrain({str(folder / name)!r})\n")
        import_module(f"{name}_as_it_was").train(folder / name)
    (folder / "broken.py").write_text("raise SystemExit(0)\n")
    parsing = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--rate', default=1e-6, type=float)\n"
    )
    (folder / "loop_parsing.py").write_text(f"{parsing}EPSILON = parser.parse_args().rate\n{LOOP}")
    sys.path.remove(str(folder))
    return folder


FIT_CAPSULE = "fit/plugins/nanwatch/step_5"
LOOP_CAPSULE = "loop/plugins/nanwatch/step_4"


def test_a_keras_model_that_still_fails(here: Path, capsys: Capture) -> None:
    assert main(["replay", FIT_CAPSULE, "--model", "fit_as_it_was:build"]) == exits.INCIDENT
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0] == "still not finite: loss Infinity"
    assert lines[1] == "  phase loss: Log made 1 -Inf of 8 elements, sample 4"
    assert lines[2].endswith("fit_as_it_was.py:6, in loss")
    assert "  16 variables set as they were before the step" in lines
    assert "building" in told.err  # what the user's code prints is not part of the answer


def test_an_edit_that_holds(here: Path, capsys: Capture) -> None:
    assert main(["replay", FIT_CAPSULE, "--model", "fit_edited:build", "--format", "json"]) == exits.HEALTHY
    again = json.loads(capsys.readouterr().out)["again"]
    assert again["outcome"] == "finite"
    assert 1.0 < again["loss"] < 4.0
    assert again["put_in"] == 16
    assert again["missing"] == []
    (rate,) = again["unset"]  # may be what was edited
    assert rate.endswith("/learning_rate")


def test_a_model_of_another_shape_gives_no_verdict(here: Path, capsys: Capture) -> None:
    assert main(["replay", FIT_CAPSULE, "--model", "fit_edited:wider", "--format", "json"]) == exits.FAILURE
    again = json.loads(capsys.readouterr().out)["again"]
    assert again["outcome"] == "no verdict"
    assert again["why"] == "finite without 10 variables of the capsule, which did not fit the program by name and shape"
    assert any(name.endswith("kernel") for name in again["missing"])
    assert any(name.endswith("kernel") for name in again["unset"])


def test_a_loop_that_still_fails(here: Path, capsys: Capture) -> None:
    assert main(["replay", LOOP_CAPSULE, "--step", "loop_as_it_was:make", "--format", "json"]) == exits.INCIDENT
    again = json.loads(capsys.readouterr().out)["again"]
    assert again["origin"]["phase"] == "backward"
    assert again["origin"]["op_type"] == "SqrtGrad"
    assert again["origin"]["source"]["code"] == "loss = scale * tf.reduce_mean(tf.sqrt(error + EPSILON))"
    assert again["put_in"] == 2
    assert again["loss"] == 0.0


def test_a_loop_whose_edit_holds(here: Path, capsys: Capture) -> None:
    assert main(["replay", LOOP_CAPSULE, "--step", "loop_edited:make"]) == exits.HEALTHY
    # twice the root of EPSILON, which only comes out with the recorded weights, batch and scale
    assert capsys.readouterr().out.splitlines() == [
        "finite now: loss 0.002",
        "  2 variables set as they were before the step",
    ]


def test_a_program_that_reads_its_command_line_gets_none(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["replay", LOOP_CAPSULE, "--step", "loop_parsing:make"]
    monkeypatch.setattr(sys, "argv", ["nanwatch", *command])
    assert main(command) == exits.HEALTHY
    assert capsys.readouterr().out.startswith("finite now: loss 0.002\n")
    assert sys.argv == ["nanwatch", *command]


def test_randomness_outside_graphs_is_as_it_was(here: Path, capsys: Capture) -> None:
    (capsule,) = Path("eager/plugins/nanwatch").iterdir()
    assert main(["replay", str(capsule), "--step", "eager_as_it_was:make", "--format", "json"]) == exits.INCIDENT
    again = json.loads(capsys.readouterr().out)["again"]
    assert again["origin"]["op_type"] == "Log"
    assert again["put_in"] == 21  # with the slots that the optimizer makes in its first step
    assert again["missing"] == []
    assert main(["replay", str(capsule), "--step", "eager_edited:make"]) == exits.HEALTHY
    assert capsys.readouterr().out.startswith("finite now: loss 13.8\n")  # -log(EPSILON): the same draw as then


@pytest.mark.parametrize(
    ("outcome", "missing", "told"),
    [("nonfinite", ("w",), "no verdict"), ("nonfinite", ("slot",), "nonfinite"), ("finite", ("slot",), "no verdict"),
     ("finite", (), "finite")],
)  # fmt: skip
def test_when_a_verdict_means_something(outcome: str, missing: tuple[str, ...], told: str) -> None:
    verdict = Verdict(outcome, 1.0, missing=missing).judged({"w"})
    assert verdict.outcome == told
    assert (told == "no verdict") == bool(verdict.why)


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file below."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.mark.parametrize(
    ("capsule", "option", "target", "logdir"),
    [(FIT_CAPSULE, "--model", "fit_unguarded:build", "fit"), (LOOP_CAPSULE, "--step", "loop_unguarded:make", "loop")],
)
def test_a_program_that_trains_when_imported_records_nothing(
    capsule: str, option: str, target: str, logdir: str, here: Path, capsys: Capture
) -> None:
    before = tree(here / logdir)
    assert main(["replay", capsule, option, target, "--format", "json"]) == exits.INCIDENT
    assert tree(here / logdir) == before
    again = json.loads(capsys.readouterr().out)["again"]
    (note,) = again["notes"]
    assert note.startswith(f"importing {target.partition(':')[0]} begins a recording in {here / logdir}, so it seems")
    assert 'if __name__ == "__main__"' in note
    assert off.VARIABLE not in os.environ


def test_a_recorder_that_was_left_off_is_no_obstacle(
    here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As for a user who sets the variable."""
    monkeypatch.setenv(off.VARIABLE, "1")
    monkeypatch.syspath_prepend(here)
    import_module("fit_edited").train(tmp_path / "fit")
    import_module("loop_edited").train(tmp_path / "loop")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("loop_edited:nothing", exits.USAGE, "has no function nothing"),
        ("no_such_module:make", exits.USAGE, "there is no module no_such_module"),
        ("loop_edited:not_a_pair", exits.USAGE, "returns (step, variables); loop_edited:not_a_pair returned int"),
        ("loop_edited:raises", exits.FAILURE, "raised NameError at"),
        ("broken:make", exits.FAILURE, "importing broken raised SystemExit"),
    ],
)
def test_a_target_that_cannot_be_used(target: str, code: int, message: str, here: Path, capsys: Capture) -> None:
    assert main(["replay", LOOP_CAPSULE, "--step", target]) == code
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


@pytest.mark.parametrize("option", ["--model", "--step"])
@pytest.mark.parametrize("target", ["", "train", "train:", ":make", "train:make()", "train.py:make", "../train:make"])
def test_another_form_of_target_is_refused_at_once(option: str, target: str, capsys: Capture) -> None:
    """Before the capsule is read, and long before TensorFlow is loaded."""
    assert main(["replay", "no/such/capsule", option, target]) == exits.USAGE
    told = capsys.readouterr()
    assert f"{option} {target!r} is not of the form module:function" in told.err
    assert told.out == ""


def test_damage_of_the_state_is_found_before_the_step_runs(here: Path, tmp_path: Path, capsys: Capture) -> None:
    import shutil

    folder = tmp_path / "capsule"
    shutil.copytree(here / LOOP_CAPSULE, folder)
    data = bytearray((folder / layout.STATE).read_bytes())
    data[160] ^= 0xFF  # in the numbers of the first array
    (folder / layout.STATE).write_bytes(data)
    assert main(["replay", str(folder), "--step", "loop_edited:make"]) == exits.NOTHING_READABLE
    assert "state.npz" in capsys.readouterr().err


def test_the_folder_of_a_run_leads_to_its_capsules(tmp_path: Path, capsys: Capture) -> None:
    for place in ("run/plugins/nanwatch/step_9", "run/plugins/nanwatch/step_12", "other/plugins/nanwatch/step_\x1b[1m"):
        folder = tmp_path / place
        folder.parent.mkdir(parents=True, exist_ok=True)
        write(folder)
    said = [f"{tmp_path}/run/plugins/nanwatch/step_9", f"{tmp_path}/run/plugins/nanwatch/step_12"]
    for given in (tmp_path / "run", tmp_path):
        assert main(["replay", str(given)]) == exits.NOTHING_READABLE
        first, *rest = capsys.readouterr().err.splitlines()
        assert first == f"nanwatch: {given} is no capsule itself; below it there is:"
        assert [line.strip() for line in rest] == said


# ---------------------------------------------------------------- what only the first step makes

LATE = """
import keras, numpy as np, tensorflow as tf

def loss(y, p):
    return -tf.reduce_mean(y * tf.math.log(p + EPSILON), axis=-1)

def with_metrics():
    model = keras.Sequential([keras.layers.Dense(5, "relu"), keras.layers.Dense(1, "relu", bias_initializer="ones")])
    model.compile("adam", loss, metrics=["mae", "mse"], jit_compile=False)
    return model

class Pair(keras.Model):  # without a call of its own, with two optimizers
    def __init__(self):
        super().__init__()
        self.a, self.b = keras.layers.Dense(1, "relu", bias_initializer="ones"), keras.layers.Dense(1)

    def compile(self, one, other):
        super().compile(jit_compile=False)
        self.one, self.other = one, other

    def train_step(self, data):
        x, y = data
        with tf.GradientTape(persistent=True) as tape:
            first = tf.reduce_mean(loss(y, self.a(x)))
            second = tf.reduce_mean(self.b(x) ** 2)
        for value, layer, optimizer in ((second, self.b, self.other), (first, self.a, self.one)):
            weights = layer.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(value, weights), weights))
        return {"loss": first + second}

def pair():
    model = Pair()
    model.compile(keras.optimizers.Adam(1e-3), keras.optimizers.Adam(1e-3))
    return model

def loop():
    model = keras.Sequential([keras.layers.Dense(5, "relu"), keras.layers.Dense(1, "relu", bias_initializer="ones")])
    optimizer = keras.optimizers.Adam(1e-3)
    mean = keras.metrics.Mean()  # the step's own

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(loss(y, model(x)))
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights))
        mean.update_state(value)
        return value

    return step, [model, optimizer]

def data():
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
    x[:, 0] = np.abs(x[:, 0])
    x[20:22] = -1e6, 1e6, -1e6, 1e6
    x[21] *= -1
    return x, np.ones((32, 1), "float32")

def train(logdir):
    import tb_nanwatch as nanwatch
    for name, make in (("with_metrics", with_metrics), ("pair", pair)):
        keras.utils.set_random_seed(0)
        watched = nanwatch.NanWatch(f"{logdir}/{name}", trial_seconds=0)
        make().fit(*data(), batch_size=8, shuffle=False, verbose=0, callbacks=[watched])
        watched.close()
    keras.utils.set_random_seed(0)
    step, (model, optimizer) = loop()
    x, y = data()
    with nanwatch.watch(step, f"{logdir}/loop", model=model, optimizer=optimizer, trial_seconds=0) as watched:
        for at in range(0, 32, 8):
            watched(tf.constant(x[at : at + 8]), tf.constant(y[at : at + 8]))
"""


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("late")
    sys.path.insert(0, str(folder))
    for name, epsilon in (("late_as_it_was", "0.0"), ("late_edited", "1e-6")):
        (folder / f"{name}.py").write_text(f"EPSILON = {epsilon}\n{LATE}")
    import_module("late_as_it_was").train(folder)
    sys.modules.pop("late_as_it_was")
    sys.path.remove(str(folder))
    return folder


@pytest.mark.parametrize(("name", "option"), [("with_metrics", "--model"), ("pair", "--model"), ("loop", "--step")])
@pytest.mark.parametrize(
    ("module", "outcome", "code"),
    [("late_as_it_was", "nonfinite", exits.INCIDENT), ("late_edited", "finite", exits.HEALTHY)],
)
def test_what_the_first_step_makes_gets_its_state(
    name: str, option: str, module: str, outcome: str, code: int, late: Path, monkeypatch: Any, capsys: Capture
) -> None:
    monkeypatch.chdir(late)
    sys.modules.pop(module, None)  # as in a process of its own
    (capsule,) = (late / name / "plugins/nanwatch").iterdir()
    assert main(["replay", str(capsule), option, f"{module}:{name}", "--format", "json"]) == code
    again = json.loads(capsys.readouterr().out)["again"]
    assert (again["outcome"], again["missing"]) == (outcome, [])
    assert [name for name in again["unset"] if not name.endswith("learning_rate")] == []
