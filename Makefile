# Every target sets up what it needs: one virtual environment, from the lock file, with nothing but Python.
#   make demo                         watch flights become features
#   make PYTHON=/path/to/python3 …    choose the Python (3.11 to 3.13)

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-crash test check lint format types layers house bench docs nightly mutants lock setup clean

# Tests start hundreds of processes; without bytecode each compiles umbel again. Images often switch it off.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WARM := $(VENV)/.warm
WORKERS ?= 4  # more than cores: many tests wait for servers

help:
	@echo "make demo         flights become features over HTTP, checked against a recomputation"
	@echo "make demo-crash   the same, while its processes are killed at random"
	@echo "make test         all tests but those of nightly and check"
	@echo "make check        lint, types, layers, house rules"
	@echo "make bench        the benchmark table; writes benchmarks/results.json"
	@echo "make docs         the documentation, in docs/_build/html"
	@echo "make nightly      the tests that take minutes"
	@echo "make mutants MODULES=windowing/tile_points.py   changes that no test sees"
	@echo "make lock         resolve the dependencies anew"
	@echo "make clean        remove all that make made"

demo: setup
	$(BIN)/python -m examples.flights.demo

demo-crash: setup
	$(BIN)/python -m examples.flights.demo --kills 10

# While the servers are installed the tests are compiled: else each of the processes would compile all of them.
# A worker that ends ends the run: replaced, it would get tests that are done, and the last ones would wait for ever.
test: setup $(WARM)
	$(BIN)/pytest -q --collect-only > /dev/null & tests/servers/install && wait
	$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup --max-worker-restart 0 -m "not nightly" --ignore tests/house  # those are of `make check`

nightly: setup $(WARM)
	tests/servers/install images
	$(BIN)/pytest -q -m nightly
	UMBEL_TESTS=nightly $(BIN)/pytest -q -n $(WORKERS) tests/laws  # forty times the examples of `make test`

MODULES ?= windowing/tile_points.py
OPTIONS ?=
mutants: setup
	$(BIN)/python -m tests.mutants $(MODULES) $(OPTIONS)

# `make -k check` goes on after a fault and shows them all
check: lint format types layers house

lint: setup
	$(BIN)/ruff check .

format: setup
	$(BIN)/ruff format --check --quiet .

types: setup
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/typing/mypy.ini --cache-dir .mypy_cache/projects tests/typing/shop.py

layers: setup
	$(BIN)/lint-imports --no-cache

house: setup
	$(BIN)/pytest -vv --tb=short tests/house

bench: setup
	$(BIN)/python -m benchmarks.run

docs: setup
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

lock: setup
	$(BIN)/uv pip compile pyproject.toml --system-certs --all-extras --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-annotate --custom-compile-command "make lock" --quiet --output-file requirements.lock

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@python="$$(.ci/python $(PYTHON))" && echo "setting up $(VENV) with $$python: some minutes" && \
	  { [ -x $(BIN)/python ] || "$$python" -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check
	@touch $@

$(WARM): $(READY)  # what Java has learned of Spark: tests that start it do so in half the time
	@$(BIN)/umbel warm-up || echo "without it, Spark's starts in tests take longer"
	@touch $@

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .mutants .import_linter_cache \
	  benchmarks/.data examples/flights/.data .umbel
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
