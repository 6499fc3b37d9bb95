"""How pip builds and installs the package; the frontend bundle is committed, so no Node is needed."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent


def _version() -> str:
    text = (HERE / "tb_nanwatch" / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise RuntimeError("tb_nanwatch/version.py holds no __version__")
    return match.group(1)


setup(
    name="tb-nanwatch",
    version=_version(),
    description="A flight recorder for TensorFlow training: where, when and why values became NaN or Inf",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=["tb_nanwatch", "tb_nanwatch.*"]),
    package_data={
        "tb_nanwatch": [
            "py.typed",
            "format/nanwatch.proto",
            "**/*.pyi",
            "plugin/http_api.md",
            "plugin/static/*",
            "plugin/static/**/*",
            "cli/*.j2",
            "cli/*.html",
            "cli/**/*.j2",
            "cli/**/*.html",
            "cli/**/*.css",
        ],
    },
    zip_safe=False,
    python_requires=">=3.10",
    install_requires=[
        "tensorboard>=2.16",
        "protobuf>=3.20.3",
        "werkzeug>=2",
        "numpy>=1.23",
        "google-crc32c>=1.5",
        "rich>=12",
        "jinja2>=3",
    ],
    extras_require={
        # No requirement: people have tensorflow, tensorflow-cpu or a nightly, and the tab and the commands need none.
        "tensorflow": ["tensorflow>=2.16"],
        "remote": ["fsspec>=2023.1"],
        "demo": ["scikit-learn>=1.2"],
        "test": [
            "scikit-learn>=1.2",
            "markdown-it-py>=2",
            "pytest>=8",
            "pytest-xdist>=3",
            "hypothesis>=6.100",
            "mypy>=1.11",
            # The rules and the layout change between minor versions: one of them, for everybody.
            "ruff==0.17.*",
        ],
    },
    entry_points={
        "console_scripts": ["nanwatch = tb_nanwatch.cli.main:main"],
        "tensorboard_plugins": ["nanwatch = tb_nanwatch.plugin.loader:NanWatchLoader"],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
