# make demo       install, train the sick networks, start TensorBoard on them
# make demo-logs  the same without the server
# make test       everything that must hold before a change goes in; needs Node 20 and Chromium for the tab
# make proto      regenerate the protobuf module after a change of nanwatch.proto
#
# Needs Python 3.10 to 3.13. Each step leaves a stamp in .venv and is not repeated.

PYTHON ?= python3
VENV ?= .venv
LOGS ?= logs
PORT ?= 6006
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
STATIC := tb_nanwatch/plugin/static

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo demo-logs test lint types unit frontend bundle e2e proto clean

# TensorFlow's notes on CPU features and missing GPUs would drown what the demos say.
export TF_CPP_MIN_LOG_LEVEL ?= 2
export TF_ENABLE_ONEDNN_OPTS ?= 1

# ---------------------------------------------------------------- the product

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "tb_nanwatch needs Python 3.10 to 3.13 (TensorFlow has no wheels for others); '$(PYTHON)' is" \
	       "$$($(PYTHON) -V 2>&1). Choose one with 'make PYTHON=python3.12 ...'." >&2; exit 1; }
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing python3-venv"; apt-get -qq update; \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y python3-venv >/dev/null; \
	  else \
	    echo "Python's venv module is missing: 'sudo apt-get install python3-venv', then again." >&2; exit 1; \
	  fi; fi
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The CPU build is a third of the size; it has no wheel for every machine, and then the plain one is as good.
$(VENV)/.tensorflow: $(VENV)/.made
	@echo "Installing TensorFlow (some minutes the first time)"
	@$(PIP) install 'tensorflow-cpu>=2.16' 2>/dev/null || $(PIP) install 'tensorflow>=2.16'
	@touch $@

$(VENV)/.installed: setup.py $(VENV)/.tensorflow
	@echo "Installing tb_nanwatch"
	@$(PIP) install --editable '.[demo]'
	@touch $@

demo-logs: $(VENV)/.installed
	@$(PY) demo/run_all.py $(LOGS)

demo: demo-logs
	@$(PY) demo/serve.py $(LOGS) --port $(PORT)

# ---------------------------------------------------------------- the tests

$(VENV)/.tested: setup.py $(VENV)/.installed
	@echo "Installing what the tests need"
	@$(PIP) install --editable '.[test,remote]'
	@# Keras 2 of TensorFlow's own version; its wheel asks for the large TensorFlow where the small one does.
	@$(PIP) install --no-deps "tf_keras~=$$($(PY) -c 'import tensorflow as tf; print(tf.__version__.rpartition(".")[0])').0"
	@touch $@

test: lint types unit frontend bundle e2e
	@echo "All checks passed."

lint: $(VENV)/.tested
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/.tested
	$(VENV)/bin/mypy

# Two workers: the tests that train spend half their time starting TensorFlow. A file stays on one worker.
unit: $(VENV)/.tested
	$(PY) -m pytest -n 2 --dist loadfile

frontend/node_modules/.installed: frontend/package.json frontend/package-lock.json
	@command -v npm >/dev/null || { \
	  echo "The tests of the tab need Node 20 or newer with npm (https://nodejs.org). The product itself does not." >&2; exit 1; }
	cd frontend && npm ci --no-audit --no-fund
	@touch $@

frontend: frontend/node_modules/.installed
	cd frontend && npm run check
	cd frontend && npm test

# The committed bundle is what users get: it must be what the sources say.
bundle: frontend/node_modules/.installed
	fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	(cd frontend && npm run build -- --outDir "$$fresh" --emptyOutDir); \
	diff -r "$$fresh" $(STATIC) || { \
	  echo "$(STATIC) is not what frontend/ builds: run 'npm run build' in frontend/ and commit the result." >&2; exit 1; }

CHROMIUM = $(shell command -v chromium || command -v chromium-browser || command -v google-chrome || true)

e2e: frontend/node_modules/.installed $(VENV)/.tested
	@if [ -z "$(CHROMIUM)" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Chromium"; apt-get -qq update; \
	    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium >/dev/null; \
	  else \
	    echo "The browser tests need Chromium: 'sudo apt-get install chromium', then again. The product does not." >&2; exit 1; \
	  fi; fi
	cd frontend && PYTHON=$(abspath $(PY)) npm run e2e

# ---------------------------------------------------------------- upkeep

# The compiler of grpcio-tools 1.62 writes modules without a check of the runtime's version: they import on
# protobuf 3.20 to 7. It has wheels for Python up to 3.12.
PROTO_PYTHON ?= $(PYTHON)
proto:
	tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	$(PROTO_PYTHON) -m venv "$$tools"; \
	"$$tools/bin/pip" --disable-pip-version-check --quiet install 'grpcio-tools==1.62.*' 'setuptools<81'; \
	cd tb_nanwatch/format && "$$tools/bin/python" -m grpc_tools.protoc -I. --python_out=. --pyi_out=. nanwatch.proto

clean:
	rm -rf $(VENV) $(LOGS) frontend/node_modules build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
