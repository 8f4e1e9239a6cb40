# kfm: the recipes. `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp-$(shell cat requirements.lock pyproject.toml | cksum | cut -d' ' -f1)

.PHONY: setup demo test lint bench drill lock schemas clean

setup: $(STAMP)

$(STAMP):
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	rm -f $(VENV)/.stamp-*
	touch $@

demo: setup
	@$(BIN)/kfm demo --dir demo

test: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/python -m kfm.secrets .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 3 --dist loadfile

lint: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/python -m kfm.secrets .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

drill: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile -m drill
	KFM_SEEDS=12 $(BIN)/python -m pytest -n 2 tests/model/test_engine_model.py
	$(BIN)/python -m benchmarks.kill_random --rounds 200
	$(BIN)/python -m benchmarks.drill_demo

# JSON Schemas from the records, and the command reference from the parsers.
schemas: setup
	$(BIN)/python -m kfm.model.schemas schemas
	$(BIN)/python -m kfm.cli.reference > docs/commands.md

# Needs `uv` on the PATH; writes hashes only, never an address.
lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --extra geo --extra raster --extra postgres --extra tiles --extra search --extra dev -o requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache
