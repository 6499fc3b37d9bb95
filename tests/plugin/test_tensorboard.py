"""Inside real TensorBoard processes: both data paths, named logdirs, a path prefix."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import runs

REPOSITORY = Path(__file__).parents[2]
ENTRY_POINT = "[tensorboard_plugins]\nnanwatch = tb_nanwatch.plugin.loader:NanWatchLoader\n"
TRIES = 2000  # requests until the first scan has ended


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a process in which the package counts as installed, even where it is only checked out."""
    paths = [str(REPOSITORY)]
    if "nanwatch" not in {found.name for found in metadata.entry_points(group="tensorboard_plugins")}:
        folder = tmp_path_factory.mktemp("site")
        info = folder / "tb_nanwatch_checkout-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tb_nanwatch_checkout\nVersion: 0\n")
        (info / "entry_points.txt").write_text(ENTRY_POINT)
        paths.append(str(folder))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def without_tensorflow(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of a process that cannot import TensorFlow."""
    folder = tmp_path_factory.mktemp("blocked")
    for name in ("tensorflow", "keras"):
        (folder / f"{name}.py").write_text("raise ImportError('not installed')\n")
    return {**environment, "PYTHONPATH": os.pathsep.join([str(folder), environment["PYTHONPATH"]])}


@contextmanager
def tensorboard(environment: dict[str, str], *argv: str) -> Iterator[str]:
    """The address of a TensorBoard on a free port."""
    command = [sys.executable, "-m", "tensorboard.main", "--host", "127.0.0.1", "--port", "0", *argv]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line
            found = re.search(r"TensorBoard .* at (http://\S+)", line)
            if found:
                yield found[1].rstrip("/")
                break
        else:
            pytest.fail(f"TensorBoard did not start:\n{said}")
    finally:
        process.terminate()
        rest = process.communicate(timeout=60)[0]
    assert "Traceback" not in said + rest
    assert "In 3.0, this warning will become an error" not in said + rest


def get(url: str) -> Any:
    with urlopen(url) as response:
        body = response.read()
        return json.loads(body) if response.headers["Content-Type"] == "application/json" else body


def loaded(address: str) -> Any:
    """/runs once the first scan has ended."""
    for _ in range(TRIES):
        said = get(f"{address}/data/plugin/nanwatch/runs")
        if not said["loading"]:
            return said
    pytest.fail("the first scan does not end")


def check(address: str, run: str) -> None:
    """The tab is offered, its page addresses our routes as documented, and they answer."""
    assert run in [found["run"] for found in loaded(address)["runs"]]
    listing = get(f"{address}/data/plugins_listing")["nanwatch"]
    assert listing["enabled"] is True
    assert listing["tab_name"] == "NaN Watch"
    assert listing["loading_mechanism"] == {
        "type": "IFRAME",
        "module_path": f"{re.sub(r'^https?://[^/]+', '', address)}/data/plugin/nanwatch/static/index.js",
    }
    assert '<base href="plugin/nanwatch/" />' in get(f"{address}/data/plugin_entry.html?name=nanwatch").decode()
    base = f"{address}/data/plugin/nanwatch"
    assert get(f"{base}/report?run={run}")["status"] == "incident"
    assert get(f"{base}/tile?run={run}&kind=gradient&level=0&tile=0")[:4] == b"NWT1"
    for query, status in (("report", 400), ("report?run=none", 404), ("static/none.js", 404)):
        with pytest.raises(HTTPError) as caught:
            get(f"{base}/{query}")
        assert caught.value.code == status


@pytest.mark.parametrize("fast", ["true", "false"])
def test_both_data_paths(fast: str, tmp_path: Path, environment: dict[str, str]) -> None:
    runs.blow_up(tmp_path / "bad", "backward")
    with tensorboard(environment, "--logdir", str(tmp_path), f"--load_fast={fast}") as address:
        check(address, "bad")


def test_named_logdirs_below_a_prefix(tmp_path: Path, without_tensorflow: dict[str, str]) -> None:
    runs.blow_up(tmp_path / "x", "backward")
    runs.blow_up(tmp_path / "y" / "sub", "loss")
    spec = f"a:{tmp_path}/x,b:{tmp_path}/y"
    with tensorboard(without_tensorflow, "--logdir_spec", spec, "--path_prefix", "/deep/down") as address:
        assert address.endswith("/deep/down")
        assert [run["run"] for run in loaded(address)["runs"]] == ["a/.", "b/sub"]
        check(address, "a/.")
        listed = get(f"{address}/data/runs")
        assert set(listed) >= {"a/.", "b/sub"}  # TensorBoard's own names


def test_a_logdir_that_comes_later(tmp_path: Path, without_tensorflow: dict[str, str]) -> None:
    logdir = tmp_path / "not" / "yet"
    with tensorboard(without_tensorflow, "--logdir", str(logdir), "--reload_interval", "0.01") as address:
        assert loaded(address)["runs"] == []
        assert get(f"{address}/data/plugins_listing")["nanwatch"]["enabled"] is False
        runs.blow_up(logdir, "backward")
        for _ in range(TRIES):
            if [run["status"] for run in loaded(address)["runs"]] == ["incident"]:
                break  # it is seen before it is whole
        check(address, ".")
