from __future__ import annotations

import pkgutil

import pytest

from tb_nanwatch.cli import commands, exits
from tb_nanwatch.cli.main import main
from tb_nanwatch.version import __version__

COMMANDS = [module.name for module in pkgutil.iter_modules(commands.__path__)]


def test_commands() -> None:
    assert {"report", "verify", "export"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_exit_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    out = capsys.readouterr().out
    assert caught.value.code == 0
    assert f"  nanwatch {command} " in out
    assert exits.TEXT in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"nanwatch {__version__}\n"
