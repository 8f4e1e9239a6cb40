# kfm: the recipes. `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
sum = $(shell cat $(1) pyproject.toml tools/venv.py | cksum | cut -d' ' -f1)
DEMO := $(VENV)/.demo-$(call sum,requirements-demo.lock)
ALL := $(VENV)/.all-$(call sum,requirements.lock)
# Compiled code is kept whatever the environment says: every child of a test would compile it again. The tests are compiled beside mypy,
# once for all workers. The folders come in their own order, which ends with the quick unit tests, so that no worker is left with a long file.
# The limit is for what hangs: it names the test, and is ten times what any takes on an idle machine.
# Workspaces of tests lie in memory where there is plenty: what they show by kill and fault does not need a disk, and a test syncs a hundred times.
MEMORY := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 {print "/dev/shm"}')
TESTS := $(if $(MEMORY),TMPDIR=$(MEMORY)) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

.PHONY: setup everything demo test lint bench drill mutants lock schemas clean

# What the demo and most datasets need: about a third of everything.
setup: $(DEMO)

# And rasters, tiles, search, PostgreSQL, and what only the tests use.
everything: $(ALL)

$(DEMO):
	@$(PYTHON) tools/venv.py $(VENV) requirements-demo.lock "the demo"
	@rm -f $(VENV)/.demo-* && touch $@

$(ALL):
	@$(PYTHON) tools/venv.py $(VENV) requirements.lock "everything"
	@rm -f $(VENV)/.demo-* $(VENV)/.all-* && touch $(DEMO) $@

demo: setup
	@$(BIN)/kfm demo --dir demo

test: everything
	@$(BIN)/python -m tests.brought
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/python -m kfm.workspace.secrets .
	@$(BIN)/python -m compileall -q -x /template/ src
	@$(TESTS) --collect-only -qq > /dev/null 2>&1 & $(BIN)/mypy; said=$$?; wait; exit $$said
	$(TESTS) --timeout 600 -n 3 --dist loadfile --no-loadscope-reorder
	$(BIN)/python tools/mutants.py --few

# Would the test that each requirement names notice if the behaviour were gone? On copies; `make test` tries a few of them.
mutants: everything
	$(BIN)/python tools/mutants.py

lint: everything
	$(BIN)/ruff check src tests benchmarks tools
	$(BIN)/ruff format --check src tests benchmarks tools
	$(BIN)/python -m kfm.workspace.secrets .
	$(BIN)/mypy

bench: everything
	$(BIN)/python -m benchmarks

drill: everything
	$(TESTS) --timeout 7200 -n 2 --dist loadfile -m drill --no-fold-skipped --ignore tests/integration/test_reader_load.py
	$(TESTS) --timeout 7200 -m drill tests/integration/test_reader_load.py
	KFM_OTHER_EXAMPLES=1 $(TESTS) $$(grep -rl 'from hypothesis' tests)
	$(BIN)/python -m benchmarks.kill_random --rounds 200
	$(BIN)/python -m benchmarks.drill_demo
	$(BIN)/python tools/mutants.py

# JSON Schemas from the records, the command reference from the parsers, the picture of the rooms from the imports, the files of runners.
schemas: everything
	$(BIN)/python -m kfm.cli.schemas schemas
	$(BIN)/python -m kfm.cli.reference > docs/commands.md
	$(BIN)/python tools/draw_fields.py > docs/fields.md
	$(BIN)/python tools/draw_rooms.py > docs/rooms.svg
	$(BIN)/python tools/draw_runners.py deploy
	$(BIN)/python tools/telemetry_types.py > types/telemetry.ts

# Needs `uv` on the PATH; writes hashes only, never an address. The demo's lock is a part of the whole one.
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --group build --extra geo --extra api
lock:
	$(LOCK) --extra raster --extra postgres --extra tiles --extra search --extra neo4j --extra dev -o requirements.lock pyproject.toml
	$(LOCK) --constraints requirements.lock -o requirements-demo.lock pyproject.toml

clean:
	rm -rf $(VENV) $(VENV).lock demo .pytest_cache .mypy_cache .ruff_cache
