# Everything a developer types. `make help` lists it.

# The first Python that is new enough; or say which: make demo PYTHON=/path/to/python3.12
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in $(CANDIDATES); do $$name -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$name && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Stand for what was installed: copies of the packages, or the sources themselves with the tools to work on them.
INSTALLED := $(VENV)/.installed
DEVELOPING := $(VENV)/.developing
# The plugins of this repository, by name.
PLUGINS := $(patsubst plugins/%/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
METADATA := pyproject.toml hatch_build.py build_backend.py $(wildcard plugins/*/pyproject.toml)
SOURCES := $(shell find core plugins/*/src -type f -not -name '*.pyc')
PATHS := core plugins tests examples benchmarks docs conftest.py hatch_build.py build_backend.py line_budgets.py operator_stubs.py
# Each process begins with one half of the tests, and takes from the other's when it is done: what the tests of a file share is made once.
WORKERS := -n 2 --dist worksteal
# Where the int8 models of MLPerf Tiny are.
MODELS := ../shared/models
# After how many minutes `make bench` and `make bench-symbolic` begin nothing more; the next call goes on.
MINUTES := 35
# Where `make test-avx2` keeps what makes this processor look older.
OLDER_HOST := $(CURDIR)/build/older_host
AVX2_TITLE := Benchmarks with symbolic sizes, every engine as on a processor with AVX2 alone
AS_AVX2 := OLDER_HOST=$(OLDER_HOST) LD_AUDIT=$(OLDER_HOST)/older_host.so LD_PRELOAD=$(OLDER_HOST)/older_host.so
# Where `make conformance` writes.
REPORTS := docs/conformance

.PHONY: help demo test test-avx2 test-fast check lint format types contracts docs conformance bench bench-symbolic bench-symbolic-avx2 bench-operators bench-micro bench-real bench-gpu bench-vta peers clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-12s %s\n", $$1, $$2}'

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Inlaid needs Python 3.11 or newer. Name one: make demo PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# pip takes a plugin that it has installed before to be up to date, whatever has become of the folder.
$(INSTALLED): $(METADATA) $(SOURCES) | $(BIN)/python
	@$(PIP) uninstall --yes $(addprefix inlaid-,$(PLUGINS)) 2>/dev/null
	$(PIP) install ".[x86]"
	@touch $@

$(DEVELOPING): $(METADATA) requirements-dev.txt | $(BIN)/python
	$(PIP) install -r requirements-dev.txt
	$(PIP) install -e . $(addprefix -e plugins/,$(PLUGINS))
	@touch $@

demo: $(if $(wildcard $(DEVELOPING)),$(DEVELOPING),$(INSTALLED)) ## compile a trained network for this CPU, and classify handwritten digits with it
	$(BIN)/python examples/classify_digits.py

test: check ## lint, import contracts, types, all tests; PLUGIN=name for those of one plugin
	$(BIN)/python -m pytest $(WORKERS) $(addprefix plugins/,$(PLUGIN))

test-avx2: $(DEVELOPING) $(OLDER_HOST)/older_host.so ## all tests as on a processor with AVX2 alone, by replacing CPUID (Linux, binutils); PLUGIN=name
	ASAN_OPTIONS=verify_asan_link_order=0 $(AS_AVX2) $(BIN)/python -m pytest $(WORKERS) $(addprefix plugins/,$(PLUGIN))

$(OLDER_HOST)/older_host.so: plugins/x86/tests/older_host.c
	@mkdir -p $(OLDER_HOST)
	cc -O1 -shared -fPIC -o $@ $<
	sed -E '/^flags/s/ (avx512[a-z0-9_]*|amx_[a-z0-9]*|avx_vnni|gfni|vaes|vpclmulqdq)//g' /proc/cpuinfo > $(OLDER_HOST)/cpuinfo

test-fast: $(DEVELOPING) ## the tests that are not slow
	$(BIN)/python -m pytest $(WORKERS) -m "not slow"

check: lint contracts types ## what reads the code without running it

lint: $(DEVELOPING) ## ruff: style, mistakes, formatting
	$(BIN)/ruff check $(PATHS)
	$(BIN)/ruff format --check $(PATHS)
	$(BIN)/python line_budgets.py

format: $(DEVELOPING) ## let ruff put things right, and write the types of operators
	$(BIN)/python operator_stubs.py
	$(BIN)/ruff check --fix $(PATHS)
	$(BIN)/ruff format $(PATHS)

types: $(DEVELOPING) ## mypy, strict
	$(BIN)/mypy

contracts: $(DEVELOPING) ## import-linter: the layers of the core
	$(BIN)/lint-imports

docs: $(DEVELOPING) ## web pages of docs/, in docs/_build/html
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build/html

conformance: $(DEVELOPING) ## hold every plugin to the contract; writes a report of each to docs/conformance/
	@mkdir -p $(REPORTS)
	@set -e; for target in reference $(PLUGINS); do \
		$(BIN)/inlaid conformance --target $$target --report $(REPORTS)/$$target.json; done

bench: $(DEVELOPING) ## time Inlaid beside its peers for 35 minutes, those timed longest ago first; writes docs/benchmarks.md
	$(BIN)/python benchmarks/bench.py --minutes $(MINUTES) --write docs/benchmarks.md

bench-symbolic: $(DEVELOPING) ## the same with symbolic sizes, beside packages for one size; writes docs/benchmarks-symbolic.md
	$(BIN)/python benchmarks/symbolic.py --minutes $(MINUTES) --write docs/benchmarks-symbolic.md

bench-symbolic-avx2: $(DEVELOPING) $(OLDER_HOST)/older_host.so ## kernels and models with symbolic sizes, all engines as on a processor with AVX2 alone
	$(AS_AVX2) $(BIN)/python benchmarks/symbolic.py --kernels --results $(OLDER_HOST)/symbolic.jsonl --write docs/benchmarks-symbolic-avx2.md --title "$(AVX2_TITLE)"
	$(AS_AVX2) $(BIN)/python benchmarks/symbolic.py --precisions f32 --sizes 1 --against onnxruntime --minutes $(MINUTES) \
		--results $(OLDER_HOST)/symbolic.jsonl --write docs/benchmarks-symbolic-avx2.md --title "$(AVX2_TITLE)"

bench-micro: $(DEVELOPING) ## instructions and memory on emulated microcontrollers; MODELS=folder; writes docs/benchmarks-micro.md
	$(BIN)/python benchmarks/micro.py --models $(MODELS) --write docs/benchmarks-micro.md

bench-operators: $(DEVELOPING) ## time every canonical operator beside ONNX Runtime, about half an hour; writes docs/benchmarks-operators.md
	$(BIN)/python benchmarks/sweep.py --write docs/benchmarks-operators.md

bench-real: $(DEVELOPING) ## values and times of exported models beside ONNX Runtime; installs exporters (4 GB); writes docs/benchmarks-real.md
	$(BIN)/python benchmarks/bench_real.py --install --write docs/benchmarks-real.md

bench-gpu: $(DEVELOPING) ## time the cuda target beside PyTorch and Triton on an NVIDIA GPU, 8 minutes a group; GROUP=gemm; writes docs/benchmarks-gpu.md
	$(BIN)/python benchmarks/gpu.py $(if $(GROUP),--group $(GROUP)) --write docs/benchmarks-gpu.md

bench-vta: $(DEVELOPING) ## cycles of ResNet-18 on the Versatile Tensor Accelerator's timing simulator; writes docs/benchmarks-vta.md
	$(BIN)/python benchmarks/vta.py --write docs/benchmarks-vta.md

peers: $(DEVELOPING) ## install the engines that `make bench` compares with besides ONNX Runtime (several GB)
	$(PIP) install "pip>=25.1"
	$(PIP) install --group bench

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
