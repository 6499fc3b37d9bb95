"""`nanwatch report`: its formats, its exit codes, its manners."""

from __future__ import annotations

import html
import io
import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import golden_text
import pytest
import runs
from markdown_it import MarkdownIt
from operations import operand, post_mortem

from tb_nanwatch.cli import exits
from tb_nanwatch.cli.main import main
from tb_nanwatch.format.records import Counts, Incident, Origin

GOLDEN = Path(__file__).parent / "golden"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder "logs" in the current directory, so that no path of this machine is in the output."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "logs"


@pytest.mark.parametrize("style", ["text", "json", "markdown", "html"])
@pytest.mark.parametrize("kind", ["explode", "many", "operation"])
def test_golden(style: str, kind: str, logs: Path, capsys: Capture) -> None:
    if kind == "explode":
        runs.blow_up(logs, "loss", values=runs.exploding)
    elif kind == "operation":
        root, gradient = operand("Sqrt", 0, 1.96, shape=(32,), zero=7), operand("Tile", 0.03125, 0.03125, shape=(32,))
        replay = {"forward_op": "Sqrt", "library": {"file": "/lib/site-packages/tensorflow/math_ops.py", "line": 5767}}
        code = "return tf.sqrt(error)"
        post_mortem(logs, "SqrtGrad", [root, gradient], Counts(pos_inf=7, size=32), "backward", code, replay=replay)
    else:
        runs.blow_up(logs / "a_backward", "backward")
        runs.blow_up(logs / "b_flash", "forward", last=31)
        runs.write(logs / "c_healthy")
    assert main(["report", "logs", "--format", style]) == exits.INCIDENT
    out = capsys.readouterr().out
    golden_text.check(GOLDEN / f"{kind}.{style}", out)
    assert "\x1b" not in out


def test_text_is_the_default(logs: Path, capsys: Capture) -> None:
    runs.write(logs)
    assert main(["report", "logs"]) == exits.HEALTHY
    assert "Healthy: 40 steps, nothing non-finite" in capsys.readouterr().out


def test_one_run_by_name(logs: Path, capsys: Capture) -> None:
    runs.blow_up(logs / "bad", "loss")
    runs.write(logs / "good")
    assert main(["report", "logs", "--run", "good", "--format", "json"]) == exits.HEALTHY
    assert [run["run"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["good"]
    assert main(["report", "logs", "--run", "ugly"]) == exits.USAGE
    assert "there is no run 'ugly'; there is bad and good" in capsys.readouterr().err


def test_a_finding_is_a_warning(logs: Path, capsys: Capture) -> None:
    rows = [(kind, f"d{i}/kernel", f"d{i}", "Dense", (8, 8)) for kind in ("gradient", "weight") for i in range(12)]

    def values(info: Any, step: int) -> float:
        return 0.02 * 0.25 ** (11 - int(info.layer[1:])) if info.kind == "gradient" else 1.0

    runs.write(logs, values, infos=runs.network(rows))
    assert main(["report", "logs"]) == exits.WARNINGS
    assert "No NaN or Inf in 40 steps, but vanishing gradient (d0/kernel)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda logs: None, "logs does not exist"),
        (lambda logs: logs.mkdir(), "no run recorded by nanwatch below logs"),
        (lambda logs: logs.write_bytes(b"x"), "logs is not a folder"),
    ],
    ids=["missing", "empty", "file"],
)
def test_nothing_readable(make: Any, says: str, logs: Path, capsys: Capture) -> None:
    make(logs)
    assert main(["report", "logs", "--format", "json"]) == exits.NOTHING_READABLE
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"format_version": 1, "logdir": "logs", "runs": []}
    assert says in captured.err


def test_a_run_without_steps(logs: Path) -> None:
    runs.write(logs, steps=range(0))
    assert main(["report", "logs"]) == exits.NOTHING_READABLE


def test_wrong_usage(capsys: Capture) -> None:
    for argv in ([], ["report"], ["report", "logs", "--format", "pdf"], ["raport"]):
        with pytest.raises(SystemExit) as caught:
            main(argv)
        assert caught.value.code == exits.USAGE


HOSTILE = "\x1b[31m<script>alert(1)</script>[bold red]`|*\n\u202e"


@pytest.mark.parametrize("style", ["text", "json", "markdown", "html"])
def test_hostile_names(style: str, logs: Path, capsys: Capture) -> None:
    origin = Origin("backward", HOSTILE, HOSTILE, "gradient", HOSTILE, output=Counts(nan=1, size=4))
    event = Incident(0, 5, 5, origin, last_finite_step=4)
    infos = runs.network([("gradient", HOSTILE, HOSTILE, HOSTILE, (2, 2)), ("loss", HOSTILE, "", "", ())])
    runs.write(logs / "[red]\x1b[31m<b>x", infos=infos, events=[event])
    assert main(["report", "logs", "--format", style]) == exits.INCIDENT
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    if style == "html":
        assert "<script" not in out
        assert "<b>" not in out
    if style == "markdown":
        page = rendered(out)
        assert not set(re.findall(r"<(\w+)", page)) - MARKDOWN_TAGS
        assert "<em" not in page
    if style == "text":
        assert "[bold red]" in out  # shown, not obeyed


MARKDOWN_TAGS = {
    "h1",
    "h2",
    "h3",
    "p",
    "strong",
    "code",
    "pre",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "ul",
    "li",
}


def rendered(markdown: str) -> str:
    """As HTML, with everything switched on that a reader might have."""
    return str(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))


def test_operations_are_code_in_markdown(logs: Path, capsys: Capture) -> None:
    post_mortem(logs, "Log", [operand("p", 0, 1, zero=1)], code="x = tf.math.log(p | q)  # <b> *a* @someone")
    main(["report", "logs", "--format", "markdown"])
    out = capsys.readouterr().out
    assert r"\`" not in out
    page = rendered(out)
    assert "<strong>Blew up at step 10: <code>Log</code> at train.py:34 (train_step) was NaN" in page
    assert "<code>x = tf.math.log(p | q)  # &lt;b&gt; *a* @someone</code>" in page


@pytest.mark.parametrize("name", ["a`b", "`", "``a``", "a`<b>`c", "`|`|", "\\`", "[x](http://y)", "~~a~~", "$a$"])
def test_a_name_means_nothing_in_markdown(name: str, logs: Path, capsys: Capture) -> None:
    """Whatever backticks it holds; only their own show may be lost."""
    origin = Origin("backward", name, name, "gradient", name, output=Counts(nan=1, size=4))
    event = Incident(0, 5, 5, origin, last_finite_step=4)
    runs.write(logs, infos=runs.network([("gradient", name, name, name, (2, 2))]), events=[event])
    main(["report", "logs", "--format", "markdown"])
    page = rendered(capsys.readouterr().out)
    assert not set(re.findall(r"<(\w+)", page)) - MARKDOWN_TAGS
    (row,) = re.findall("<tr>\\s*<td>5</td>.*?</tr>", page, re.DOTALL)
    assert row.count("<td") == 10
    bare = html.escape(name.replace("`", ""))
    assert bare in re.sub("`|</?code>", "", row)


def test_html_stands_alone(logs: Path, capsys: Capture) -> None:
    runs.blow_up(logs, "loss", values=runs.exploding)
    main(["report", "logs", "--format", "html"])
    tags: list[tuple[str, list[tuple[str, str | None]]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append((tag, attrs))

    Reader().feed(capsys.readouterr().out)
    assert {"svg", "table", "style"} <= {tag for tag, _ in tags}
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in tags}
    assert not [attr for _, attrs in tags for attr in attrs if attr[0] in ("src", "href", "onload", "style")]


def test_html_leads_to_each_run(logs: Path, capsys: Capture) -> None:
    runs.blow_up(logs / "a<b", "loss")
    runs.write(logs / "good")
    main(["report", "logs", "--format", "html"])
    page = capsys.readouterr().out
    assert re.findall(r'href="([^"]*)"', page) == ["#run-1", "#run-2"]
    assert re.findall(r' id="([^"]*)"', page) == ["run-1", "run-2"]


def test_operations_are_code_in_html(logs: Path, capsys: Capture) -> None:
    post_mortem(logs, "Log", [operand("p", 0, 1, zero=1)], code="x = tf.math.log(p)  # `a`<b>")
    main(["report", "logs", "--format", "html"])
    page = capsys.readouterr().out
    assert '<p class="headline">Blew up at step 10: <code>Log</code> at' in page
    assert "# `a`&lt;b&gt;" not in page
    assert "# <code>a</code>&lt;b&gt;" in page


def test_what_stands_last_is_the_overview(logs: Path, capsys: Capture) -> None:
    runs.blow_up(logs / "bad", "loss")
    runs.write(logs / "good")
    main(["report", "logs"])
    bad, good = capsys.readouterr().out.rstrip().splitlines()[-2:]
    assert bad.split()[:3] == ["bad", "incident", "40"]
    assert good.split()[:3] == ["good", "healthy", "40"]


def test_a_run_of_its_own_has_the_name_of_its_folder(logs: Path, capsys: Capture, monkeypatch: Any) -> None:
    runs.write(logs)
    monkeypatch.chdir(logs)
    main(["report", "."])
    assert capsys.readouterr().out.startswith("run logs healthy")


def test_nothing_made_what_came_in_with_the_data(logs: Path, capsys: Capture) -> None:
    post_mortem(logs, "MatMul", [operand("x", 0, 1, nan=1)], phase="input")
    main(["report", "logs"])
    out = capsys.readouterr().out
    assert "the batch already held bad values" in out
    assert "What made the first bad value" not in out
    assert "What went into it" not in out


def test_damage_is_shown(logs: Path, capsys: Capture) -> None:
    runs.write(logs)
    (file,) = logs.iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(data)
    main(["report", "logs"])
    assert re.search(r"Damage:\n  events\.out\.tfevents.* skipped \d+ bytes at offset \d+", capsys.readouterr().out)


def process(*argv: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tb_nanwatch", *argv]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONIOENCODING": "ascii"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, **more)


def test_as_a_module_and_on_a_narrow_encoding(logs: Path) -> None:
    runs.blow_up(logs, "loss")
    done = process("report", "logs")
    out, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (exits.INCIDENT, b"")
    assert b"Blew up at step 30" in out
    assert b"\x1b" not in out


def test_a_reader_that_leaves_early(logs: Path) -> None:
    for number in range(30):
        runs.blow_up(logs / f"r{number}", "loss")
    done = process("report", "logs")
    assert done.stdout is not None
    done.stdout.close()
    _, err = done.communicate(timeout=60)
    assert (done.returncode, err) == (exits.BROKEN_PIPE, b"")


def test_ctrl_c(logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    runs.write(logs)

    def interrupt(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("tb_nanwatch.cli.commands.report.examine", interrupt)
    assert main(["report", "logs"]) == exits.INTERRUPTED
    assert capsys.readouterr().err == "interrupted\n"


def test_colours_and_spinner_only_on_a_terminal(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    runs.blow_up(logs, "loss")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    out, err = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["report", "logs"]) == exits.INCIDENT
    assert "\x1b[1;31m" in out.getvalue()
    assert "Reading logs" in err.getvalue()
