"""What pip builds is the whole product: a tab and a command line without Node and without TensorFlow."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

#: An import hook that stands for a machine without TensorFlow.
BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "keras", "tf_keras"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the sources, with a PATH on which there is no Node."""
    folder = tmp_path_factory.mktemp("install")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "tb_nanwatch", folder / "source" / "tb_nanwatch", ignore=ignore)
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder / "source" / name)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--wheel-dir", str(folder), "--quiet"]
    empty = folder / "no-programs"
    empty.mkdir()
    subprocess.run(command, cwd=folder / "source", check=True, env={**os.environ, "PATH": str(empty)})
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's contents and nothing else."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(installed: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process that sees the installed package, not the sources, and no TensorFlow."""
    env = {**os.environ, "PYTHONPATH": str(installed)}
    here = f"import tb_nanwatch; assert tb_nanwatch.__file__.startswith({str(installed)!r}), tb_nanwatch.__file__\n"
    return subprocess.run(
        [sys.executable, "-c", BLOCK + here + program, *arguments],
        capture_output=True,
        text=True,
        cwd=installed,
        env=env,
        check=False,
    )


def test_everything_that_runs_is_in_the_wheel(wheel: Path) -> None:
    there = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "tb_nanwatch").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert not needed - there
    assert "tb_nanwatch/plugin/static/index.js" in there
    assert not [name for name in there if name.split("/")[0] in ("tests", "demo", "frontend", "benchmarks")]


def test_entry_points(installed: Path) -> None:
    (metadata,) = installed.glob("*.dist-info")
    entries = configparser.ConfigParser()
    entries.read(metadata / "entry_points.txt")
    assert dict(entries["console_scripts"]) == {"nanwatch": "tb_nanwatch.cli.main:main"}
    assert dict(entries["tensorboard_plugins"]) == {"nanwatch": "tb_nanwatch.plugin.loader:NanWatchLoader"}
    described = (metadata / "METADATA").read_text(encoding="utf-8")
    assert "Requires-Dist: tensorflow" in described
    required = [line for line in described.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not [line for line in required if line.startswith("Requires-Dist: tensorflow")]


def test_the_report_runs_without_tensorflow(installed: Path, tmp_path: Path) -> None:
    run_file = tmp_path / "events.out.tfevents.1800000000.host.nanwatch"
    run_file.write_bytes((REPOSITORY / "tests/golden/v1/run.bin").read_bytes())
    program = "import sys\nfrom tb_nanwatch.cli.main import main\nsys.exit(main())"
    done = run(installed, program, "report", str(tmp_path), "--format", "json")
    assert done.returncode == 4, done.stdout + done.stderr
    assert '"first_step": 10' in done.stdout


def test_the_tab_loads_without_tensorflow(installed: Path, tmp_path: Path) -> None:
    program = """
import sys
from tensorboard.backend import application
from tensorboard.plugins import base_plugin
from tb_nanwatch.plugin.loader import NanWatchLoader
import argparse
flags = argparse.Namespace(logdir=sys.argv[1], logdir_spec="", reload_interval=5.0, window_title="", path_prefix="")
context = base_plugin.TBContext(logdir=sys.argv[1], flags=flags, window_title="")
loader = NanWatchLoader() if isinstance(NanWatchLoader, type) else NanWatchLoader
plugin = loader.load(context)
assert plugin.plugin_name == "nanwatch"
print(sorted(plugin.get_plugin_apps()))
"""
    done = run(installed, program, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "/runs" in done.stdout
