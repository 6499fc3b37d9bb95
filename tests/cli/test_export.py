from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import runs

from tb_nanwatch.cli import exits
from tb_nanwatch.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    runs.blow_up(tmp_path / "logs", "backward")
    return tmp_path / "logs"


def test_csv(logs: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "norms.csv"
    assert main(["export", str(logs), "--out", str(out)]) == exits.HEALTHY
    rows = list(csv.reader(out.open(encoding="utf-8")))
    assert rows[0][:4] == ["step", "wall_time", "iteration", "input/x"]
    column = rows[0].index("gradient/dense/kernel")
    assert float(rows[1][column]) == pytest.approx(0.5, rel=0.005)
    assert rows[31][:3] == ["30", repr(runs.START + 30), "30"]
    assert rows[31][column] == "NaN"
    assert len(rows) == 41
    assert "40 steps of 11 tensors" in capsys.readouterr().out


def test_npz(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "norms.npz"
    assert main(["export", str(logs), "--run", ".", "--tag", "gradient/*", "--out", str(out)]) == exits.HEALTHY
    with np.load(out) as arrays:
        assert arrays["tags"].tolist() == ["gradient/dense/kernel", "gradient/out/kernel"]
        assert arrays["values"].shape == (40, 2)
        assert np.isnan(arrays["values"][30]).all()
        assert arrays["state"][29:31, 0].tolist() == [16, 17]


def test_infinities_stay_what_they_were(tmp_path: Path) -> None:
    signs = {"gradient/dense/kernel": float("inf"), "loss/loss": -float("inf")}
    runs.write(tmp_path / "logs", lambda info, step: signs.get(info.tag, 1.0))
    out = tmp_path / "norms.csv"
    main(["export", str(tmp_path / "logs"), "--out", str(out)])
    header, row, *_ = csv.reader(out.open(encoding="utf-8"))
    assert row[header.index("gradient/dense/kernel")] == "Infinity"
    assert row[header.index("loss/loss")] == "-Infinity"


def test_json_of_another_statistic(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "norms.json"
    main(["export", str(logs), "--tag", "*/dense/kernel", "--stat", "max_abs", "--out", str(out)])
    document = json.loads(out.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert document["steps"] == [0]
    assert document["tensors"]["weight/dense/kernel"] == [pytest.approx(0.25, rel=0.005)]


def test_what_cannot_be_exported(logs: Path, tmp_path: Path, capsys: Capture) -> None:
    runs.write(logs / "second")
    for argv, says in (
        (["--out", "norms.xlsx"], "the ending chooses the format: .csv, .npz, .json"),
        (["--out", "norms.csv"], "there are 2 runs; name one with --run"),
        (["--run", "x", "--out", "norms.csv"], "there is no run 'x'"),
        (["--run", ".", "--tag", "no*", "--out", "norms.csv"], "no tensor of run '.'"),
    ):
        assert main(["export", str(logs), *argv]) == exits.USAGE
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["csv", "npz", "json"])
def test_where_nothing_can_be_written(ending: str, logs: Path, tmp_path: Path, capsys: Capture) -> None:
    """The error says what, where and what to do; nothing is read, nor written, before."""
    (tmp_path / f"folder.{ending}").mkdir()
    unreadable = ["export", str(tmp_path / "no logs"), "--out"]
    missing, folder = tmp_path / "no" / f"such.{ending}", tmp_path / f"folder.{ending}"
    assert main([*unreadable, str(missing)]) == exits.USAGE
    told = capsys.readouterr().err
    assert told == (
        f"nanwatch: --out {missing}: there is no folder {missing.parent}; make it first, or name a file in one that "
        "is there\n"
    )
    assert main([*unreadable, str(folder)]) == exits.USAGE
    told = capsys.readouterr().err
    assert told == f"nanwatch: --out {folder} is a folder; name a file, such as {folder}/run.{ending}\n"
    astray = tmp_path / f"astray.{ending}"
    astray.symlink_to(missing)
    assert main(["export", str(logs), "--out", str(astray)]) == exits.FAILURE
    told = capsys.readouterr().err
    why = "it cannot be written (No such file or directory); name a file where you may write"
    assert told == f"nanwatch: --out {astray}: {why}\n"
    assert not missing.parent.exists()


def test_formulas_do_not_run_in_a_spreadsheet(tmp_path: Path) -> None:
    from tb_nanwatch.cli.commands.export import _no_formula

    assert _no_formula("=cmd|x") == "'=cmd|x"
    assert _no_formula("weight/x") == "weight/x"
