"""What the documents say is what the code does."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = [
    REPOSITORY / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "tb_nanwatch/plugin/http_api.md")
]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, f"README.md has no section {title!r}"
    return found[1]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (document.parent / target).exists(), (
            f"{document.name} links to {target}"
        )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: p.name)
def test_files_named_exist(document: Path) -> None:
    roots = [REPOSITORY, REPOSITORY / "tb_nanwatch", REPOSITORY / "tb_nanwatch/format"]
    for name in re.findall(r"`([\w./]+\.(?:py|md|proto|ts|tsx))`", document.read_text(encoding="utf-8")):
        if "NAME" not in name:
            assert any((root / name).exists() for root in roots), f"{document.name} names {name}"


def test_python_examples_parse() -> None:
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) >= 2
    for example in examples:
        ast.parse(example)


def test_commands() -> None:
    from tb_nanwatch.cli import commands

    documented = set(re.findall(r"^\| `nanwatch (\w+)", section("The command line"), re.MULTILINE))
    assert documented == {module.name for module in pkgutil.iter_modules(commands.__path__)}


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    from tb_nanwatch.cli import commands
    from tb_nanwatch.cli.main import main

    for module in pkgutil.iter_modules(commands.__path__):
        with pytest.raises(SystemExit) as ended:
            main([module.name, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert f"nanwatch {module.name}" in shown
        assert len(shown.splitlines()) > 8


def test_exit_codes() -> None:
    from tb_nanwatch.cli import exits

    assert (exits.HEALTHY, exits.WARNINGS, exits.INCIDENT, exits.NOTHING_READABLE) == (0, 3, 4, 5)
    assert "Exit codes: 0 healthy, 3 warnings, 4 an incident, 5 nothing readable" in README


def test_options() -> None:
    from tb_nanwatch.record.options import Options

    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| `([^`]+)` \|", section("Options"), re.MULTILINE)
    documented = {name: ast.literal_eval(default) for names, default in rows for name in re.findall(r"\w+", names)}
    assert documented == {field.name: field.default for field in dataclasses.fields(Options)}


def test_routes() -> None:
    from tb_nanwatch.plugin.plugin import NanWatchPlugin

    text = (REPOSITORY / "tb_nanwatch/plugin/http_api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^## `(/[\w/*]+)", text, re.MULTILINE))
    routes = re.findall(r'"(/[\w/*]+)"', inspect.getsource(NanWatchPlugin.get_plugin_apps))
    assert documented == set(routes)


def test_changelog_names_this_version() -> None:
    from tb_nanwatch.version import __version__

    assert f"## {__version__}" in (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
