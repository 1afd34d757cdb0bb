# Every command makes the virtual environment it needs; stamps make the second call cheap.
#   make demo    the main job on real files         make test    the test suite
#   make check   everything a change must pass      make format  rewrite the code in the house style

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
# The first interpreter that is new enough and can make a virtual environment.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,$(shell $(name) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(name))))
RUN_EXTRAS := local,files
DEV_EXTRAS := all
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Idle OpenMP threads that spin starve the others when cores are few.
export OMP_WAIT_POLICY := PASSIVE
# Nothing is ever downloaded at run time.
export HF_HUB_OFFLINE := 1
export ANONYMIZED_TELEMETRY := False

.PHONY: help install install-dev demo test versions check format format-check lint types imports docs bench quality proof clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

$(VENV)/.pip.stamp:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer with the venv module was found. Install one (Debian: python3 and python3-venv), or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.run.stamp: pyproject.toml | $(VENV)/.pip.stamp
	$(PY) -m pip install --quiet --prefer-binary --editable ".[$(RUN_EXTRAS)]"
	@touch $@

$(VENV)/.dev.stamp: pyproject.toml | $(VENV)/.pip.stamp
	$(PY) -m pip install --quiet --prefer-binary --editable ".[$(DEV_EXTRAS)]" --group dev
	@touch $(VENV)/.run.stamp $@

install: $(VENV)/.run.stamp ## the package with what the demo needs

install-dev: $(VENV)/.dev.stamp ## the package with what the checks need

demo: $(VENV)/.run.stamp ## run the main job on real files (ARGS="--embeddings hash" …)
	$(BIN)/agentrag demo $(ARGS)

test: $(VENV)/.dev.stamp ## run the tests (ARGS="-k name" …)
	$(PY) -m pytest $(ARGS)

versions: $(VENV)/.dev.stamp ## the tests on the lowest dependencies and on every other declared Python (ARGS=3.13)
	$(PY) -m tests.versions $(ARGS)

check: format-check lint types imports test docs ## everything a change must pass

format: $(VENV)/.dev.stamp ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

format-check: $(VENV)/.dev.stamp ## is the code in the house style
	$(BIN)/ruff format --check .

lint: $(VENV)/.dev.stamp ## ruff
	$(BIN)/ruff check .

types: $(VENV)/.dev.stamp ## mypy, strict
	$(BIN)/mypy

imports: $(VENV)/.dev.stamp ## lower layers never import higher ones
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.dev.stamp ## run the code of README and GUIDE and check the links
	$(PY) -m pytest -q tests/docs

proof: $(VENV)/.dev.stamp ## the slow profile of the property tests
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-proof} $(PY) -m pytest -m "slow or not slow" $(ARGS)

bench: $(VENV)/.dev.stamp ## speed of the engine (ARGS=--peer adds langchain-chroma)
	$(PY) benchmarks/engine.py $(ARGS)

quality: $(VENV)/.dev.stamp ## nDCG, recall and MRR on collections (ARGS="DATA" names their folder)
	$(PY) benchmarks/quality.py $(ARGS)

clean: ## remove the virtual environment and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
