"""The report tells where the step of an incident is kept, and the command that runs it again."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import runs

from tb_nanwatch.cli import exits
from tb_nanwatch.cli.main import main

Capture = pytest.CaptureFixture[str]
CAPSULE = "plugins/nanwatch/step_40"


def told(capsys: Capture, *arguments: str) -> str:
    assert main(["report", *arguments]) == exits.INCIDENT
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry_point", "option"), [("keras_fit", "--model"), ("watch", "--step"), ("hook", "--step"), ("", "")]
)
@pytest.mark.parametrize("style", ["text", "markdown", "html"])
def test_path_and_command(
    style: str, entry_point: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    events = [runs.incident("loss", capsule=CAPSULE)]
    runs.write(Path("logs/a run"), events=events, entry_point=entry_point)
    text = told(capsys, "logs", "--format", style).replace("&#39;", "'")
    command = f"nanwatch replay {shlex.quote(f'logs/a run/{CAPSULE}')}"
    assert f"{command}  # show it" in text
    again = f"{command} {option} MODULE:FUNCTION  # run it again, after an edit"
    assert (again in text) == bool(option)
    assert text.count("MODULE:FUNCTION") == bool(option)


def test_a_path_is_one_line_that_a_shell_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "/".join(["a long name"] * 12)
    runs.write(Path("logs") / name, events=[runs.incident("loss", capsule=CAPSULE)])
    (line,) = [line for line in told(capsys, "logs").splitlines() if "# show it" in line]
    assert shlex.split(line, comments=True) == ["nanwatch", "replay", f"logs/{name}/{CAPSULE}"]


def test_none_without_a_capsule(tmp_path: Path, capsys: Capture) -> None:
    runs.blow_up(tmp_path, "loss")
    assert "nanwatch replay" not in told(capsys, str(tmp_path))
