# Everything a developer types. `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.developing
SOURCES := core plugins/*/src
PATHS := core plugins tests examples benchmarks hatch_build.py build_backend.py

.PHONY: help demo test test-fast lint format types contracts bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml hatch_build.py build_backend.py plugins/x86/pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check ".[x86]"
	touch $@

$(DEV): pyproject.toml hatch_build.py build_backend.py plugins/x86/pyproject.toml requirements-dev.txt
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -e . -e plugins/x86
	touch $@ $(STAMP)

demo: $(STAMP) ## compile ResNet-50 for this CPU, run it, and check the answer
	$(BIN)/python examples/resnet50.py

test: $(DEV) lint contracts types ## lint, import contracts, types, all tests
	$(BIN)/python -m pytest -n 2

test-fast: $(DEV) ## the tests that are not slow
	$(BIN)/python -m pytest -n 2 -m "not slow"

lint: $(DEV) ## ruff: style, mistakes, formatting
	$(BIN)/ruff check $(PATHS)
	$(BIN)/ruff format --check $(PATHS)

format: $(DEV) ## let ruff put things right
	$(BIN)/ruff check --fix $(PATHS)
	$(BIN)/ruff format $(PATHS)

types: $(DEV) ## mypy, strict
	$(BIN)/mypy

contracts: $(DEV) ## import-linter: the layers of the core
	$(BIN)/lint-imports

bench: $(DEV) ## time Inlay beside ONNX Runtime
	$(BIN)/python benchmarks/models.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
