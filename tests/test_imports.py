"""What an import loads, seen in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

OUTSIDE_RECORD = """
import pkgutil, sys
import tb_nanwatch
for module in pkgutil.walk_packages(tb_nanwatch.__path__, "tb_nanwatch."):
    if not module.name.startswith("tb_nanwatch.record") and not module.name.endswith("__main__"):
        __import__(module.name)
        print(module.name)
"""
WRITER = "import tb_nanwatch.record.writer"
PACKAGE = "import tb_nanwatch; dir(tb_nanwatch); tb_nanwatch.UsageError"


@pytest.mark.parametrize("program", [PACKAGE, WRITER, OUTSIDE_RECORD], ids=["package", "writer", "other floors"])
def test_no_tensorflow_is_loaded(program: str) -> None:
    check = "\nloaded = {'tensorflow', 'keras', 'tf_keras'} & set(sys.modules)\nassert not loaded, loaded\n"
    done = subprocess.run(
        [sys.executable, "-c", "import sys\n" + program + check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if program is OUTSIDE_RECORD:
        assert {"tb_nanwatch.format.codec", "tb_nanwatch.plugin.loader", "tb_nanwatch.cli.main"} <= set(
            done.stdout.split()
        )


def test_unknown_names_are_attribute_errors() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import tb_nanwatch; tb_nanwatch.nanwatch"], capture_output=True, text=True, check=False
    )
    assert "AttributeError: module 'tb_nanwatch' has no attribute 'nanwatch'" in done.stderr


def test_public_names_exist() -> None:
    import tb_nanwatch

    for name in tb_nanwatch.__all__:
        assert getattr(tb_nanwatch, name) is not None
