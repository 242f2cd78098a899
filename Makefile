# Commands for developers. `make help` lists them.

# The first Python that is new enough. To choose one: make demo PYTHON=/path/to/python3.12
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in $(CANDIDATES); do $$name -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$name && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Stamp files of what is installed: copies of the packages, or the sources themselves with the development tools.
INSTALLED := $(VENV)/.installed
DEVELOPING := $(VENV)/.developing
# Folders of this repository's plugins: targets, formats and tools.
PLUGINS := $(patsubst plugins/%/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
METADATA := pyproject.toml hatch_build.py build_backend.py runtime/pyproject.toml core/pyproject.toml $(wildcard plugins/*/pyproject.toml)
SOURCES := $(shell find core runtime/src plugins/*/src -type f -not -name '*.pyc')
PATHS := core plugins runtime tests examples benchmarks docs conftest.py hatch_build.py build_backend.py tools
# Each worker starts with half of the tests and then steals from the other, since the tests of a file share expensive fixtures.
WORKERS := -n 2 --dist worksteal
# Folder of the int8 models of MLPerf Tiny.
MODELS := ../shared/models
# Minutes after which `make bench` and `make bench-symbolic` start no further measurement; the next call continues.
MINUTES := 35
# Folder of the shared library and the CPU description that make this processor look older in `make test-avx2`.
OLDER_HOST := $(CURDIR)/build/older_host
AVX2_TITLE := Benchmarks with symbolic sizes, every engine as on a processor with AVX2 alone
AS_AVX2 := OLDER_HOST=$(OLDER_HOST) LD_AUDIT=$(OLDER_HOST)/older_host.so LD_PRELOAD=$(OLDER_HOST)/older_host.so
# Prints the kinds of all installed targets.
TARGETS := from inlaid.plugins.registry import default_registry; print(*default_registry().kinds())
# Virtual environment of `make test-newest`, and the tests that it runs: what depends on Python itself.
NEWEST := build/newest
NEWEST_TESTS := tests/unit/arith tests/unit/graph tests/unit/runtime tests/unit/types tests/plugin_api plugins/cli/tests/test_exit_codes.py plugins/onnx/tests/test_control.py
MINOR := import sys; print(*sys.version_info[:2], sep=".")
# Tests that run a sample of their cases without --exhaustive.
SAMPLED_TESTS := tests/devices/test_conformance.py tests/docs/test_pages.py tests/end_to_end/test_new_plugin.py tests/end_to_end/test_onnx_nodes.py tests/vendor_example/test_installed.py
# Output folder of `make conformance`.
REPORTS := docs/conformance

.PHONY: help generate demo dist dist-install test test-avx2 test-exhaustive test-fast test-newest properties fuzz check lint format types contracts docs conformance conformance-cuda bench bench-int8 bench-symbolic bench-avx2 bench-symbolic-avx2 bench-operators bench-variants bench-micro bench-real bench-gpu bench-vta opencl-drivers random-models peers clean

help: ## list the make targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-19s %s\n", $$1, $$2}'

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Inlaid needs Python 3.11 or newer. Name one: make demo PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# pip considers an installed folder up to date even if it has changed.
$(INSTALLED): $(METADATA) $(SOURCES) | $(BIN)/python
	@$(PIP) uninstall --yes inlaid inlaid-core inlaid-runtime $(addprefix inlaid-,$(PLUGINS)) 2>/dev/null
	$(PIP) install ".[x86]"
	@touch $@

$(DEVELOPING): $(METADATA) requirements-dev.txt | $(BIN)/python
	$(PIP) install -r requirements-dev.txt
	$(PIP) install -e runtime -e core $(addprefix -e plugins/,$(PLUGINS)) -e .
	@touch $@

demo: $(if $(wildcard $(DEVELOPING)),$(DEVELOPING),$(INSTALLED)) ## compile a trained network for this CPU and classify handwritten digits
	$(BIN)/python examples/classify_digits.py

test: check ## run lint, import contracts, types and all tests, and list the slowest; PLUGIN=name: tests of one plugin
	$(BIN)/python -m pytest $(WORKERS) --durations=30 --durations-min=5 $(addprefix plugins/,$(PLUGIN))

test-avx2: $(DEVELOPING) $(OLDER_HOST)/older_host.so ## run all tests as on a CPU with AVX2 only, by intercepting CPUID (Linux, binutils); PLUGIN=name
	ASAN_OPTIONS=verify_asan_link_order=0 $(AS_AVX2) $(BIN)/python -m pytest $(WORKERS) $(addprefix plugins/,$(PLUGIN))

$(OLDER_HOST)/older_host.so: plugins/x86/tests/older_host.c
	@mkdir -p $(OLDER_HOST)
	cc -O1 -shared -fPIC -o $@ $<
	sed -E '/^flags/s/ (avx512[a-z0-9_]*|amx_[a-z0-9]*|avx_vnni|gfni|vaes|vpclmulqdq)//g' /proc/cpuinfo > $(OLDER_HOST)/cpuinfo

test-exhaustive: $(DEVELOPING) ## run all cases of the tests of which `make test` runs a sample
	$(BIN)/python -m pytest $(WORKERS) --exhaustive $(SAMPLED_TESTS)

test-fast: $(DEVELOPING) ## run all tests that are not marked slow
	$(BIN)/python -m pytest $(WORKERS) -m "not slow"

test-newest: $(METADATA) ## run a fast part of the tests with the newest Python on the PATH, where it is newer than that of the other tests
	@newest=$$(for name in python3.15 python3.14 python3.13 python3.12; do $$name -c 'import ensurepip, venv' 2>/dev/null && echo $$name && break; done); \
	if [ -z "$$newest" ] || [ "$$($$newest -c '$(MINOR)')" = "$$($(BIN)/python -c '$(MINOR)')" ]; then \
		echo "not run: the PATH has no newer Python than $$($(BIN)/python --version), with which the other tests run"; exit 0; fi; \
	set -e; echo "with $$newest"; $$newest -m venv --clear $(NEWEST); \
	$(NEWEST)/bin/python -m pip --quiet --disable-pip-version-check install hypothesis pytest pytest-xdist -e runtime -e core -e plugins/onnx -e plugins/quantization -e plugins/cli -e plugins/x86 -e .; \
	$(NEWEST)/bin/python -m pytest $(WORKERS) $(NEWEST_TESTS)

properties: $(DEVELOPING) ## run the unit tests with random examples of their properties, which `make test` draws alike each time
	$(BIN)/python -m pytest $(WORKERS) --hypothesis-profile=random tests/unit

fuzz: $(DEVELOPING) ## use 100,000 mutants of models, packages and launch plans, about 4 minutes; COUNT=number SEED=number
	$(BIN)/python -m tests.fuzz $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

check: lint contracts types ## run the static checks: lint, contracts, types

lint: $(DEVELOPING) ## check style, errors and formatting (ruff), names, stubs, the index of decisions, the map of the code; print lines per package
	$(BIN)/ruff check $(PATHS)
	$(BIN)/ruff format --check $(PATHS)
	$(BIN)/python tools/plugin_imports.py
	$(BIN)/python tools/import_names.py
	$(BIN)/python tools/names.py
	$(BIN)/python tools/decisions.py --check
	$(BIN)/python tools/code_map.py --check
	$(BIN)/python tools/operator_stubs.py --check
	$(BIN)/python tools/line_counts.py

format: $(DEVELOPING) ## fix and format the code (ruff), and generate operator stubs
	$(BIN)/python tools/operator_stubs.py
	$(BIN)/ruff check --fix $(PATHS)
	$(BIN)/ruff format $(PATHS)

generate: $(DEVELOPING) ## generate what follows from the operators' definitions: stubs, and the golden file of their relations
	$(BIN)/python tools/operator_stubs.py
	$(BIN)/ruff format -q core/inlaid/ops/__init__.pyi
	$(BIN)/python -m pytest -p no:xdist tests/conformance/test_relations.py -k refused_as_before --update-golden

types: $(DEVELOPING) ## check types (mypy, strict)
	$(BIN)/mypy

contracts: $(DEVELOPING) ## check the layers of the core (import-linter)
	$(BIN)/lint-imports

docs: $(DEVELOPING) ## build the web pages of docs/ in docs/_build/html
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build/html

conformance: $(DEVELOPING) ## run the conformance suite on every plugin; writes reports to docs/conformance/
	@mkdir -p $(REPORTS)
	@set -e; for target in $$($(BIN)/python -c '$(TARGETS)'); do \
		$(BIN)/inlaid conformance --target $$target --report $(REPORTS)/$$target.json; done

dist: $(DEVELOPING) ## build a wheel and an archive of every distribution in dist/, and check their metadata
	$(BIN)/python tools/dist.py

dist-install: $(DEVELOPING) ## install from dist/ in fresh environments what users and vendors install, and use it
	$(BIN)/python tools/dist.py --install

conformance-cuda: $(DEVELOPING) ## run the conformance suite on CUDA kernels that the CPU emulates, about 20 minutes of processor time; no GPU
	@mkdir -p $(REPORTS)
	$(BIN)/inlaid conformance --target cuda:arch=host --report $(REPORTS)/cuda_emulation.json

bench: $(DEVELOPING) ## time Inlaid against its peers for 35 minutes, oldest results first; writes docs/benchmarks.md
	$(BIN)/python benchmarks/bench.py --minutes $(MINUTES) --write docs/benchmarks.md
	$(BIN)/python benchmarks/summary.py

bench-int8: $(DEVELOPING) ## time 8-bit models with unsigned and signed activations, about 15 minutes; writes docs/benchmarks-int8.md
	$(BIN)/python benchmarks/bench.py --models --precisions int8 --threads 1 --against onnxruntime openvino --quick --results build/int8.jsonl \
		--write docs/benchmarks-int8.md --title "Benchmarks of 8-bit models, with unsigned and signed activations"

bench-symbolic: $(DEVELOPING) ## time symbolic sizes against fixed sizes and peers; writes docs/benchmarks-symbolic.md
	$(BIN)/python benchmarks/symbolic.py --minutes $(MINUTES) --write docs/benchmarks-symbolic.md

bench-avx2: $(DEVELOPING) $(OLDER_HOST)/older_host.so ## time whole models as on a CPU with AVX2 only; writes docs/benchmarks-avx2.md
	$(AS_AVX2) $(BIN)/python benchmarks/bench.py --models --precisions f32 int8 --against onnxruntime openvino --minutes $(MINUTES) \
		--results $(OLDER_HOST)/bench.jsonl --write docs/benchmarks-avx2.md --title "Benchmarks with AVX2: every engine held to it"
	$(BIN)/python benchmarks/summary.py

bench-symbolic-avx2: $(DEVELOPING) $(OLDER_HOST)/older_host.so ## time symbolic sizes as on a CPU with AVX2 only; writes docs/benchmarks-symbolic-avx2.md
	$(AS_AVX2) $(BIN)/python benchmarks/symbolic.py --kernels --results $(OLDER_HOST)/symbolic.jsonl --write docs/benchmarks-symbolic-avx2.md --title "$(AVX2_TITLE)"
	$(AS_AVX2) $(BIN)/python benchmarks/symbolic.py --precisions f32 --sizes 1 --against onnxruntime --minutes $(MINUTES) \
		--results $(OLDER_HOST)/symbolic.jsonl --write docs/benchmarks-symbolic-avx2.md --title "$(AVX2_TITLE)"

bench-micro: $(DEVELOPING) ## count instructions and memory on emulated microcontrollers; MODELS=folder; writes docs/benchmarks-micro.md
	$(BIN)/python benchmarks/micro.py --models $(MODELS) --write docs/benchmarks-micro.md

bench-operators: $(DEVELOPING) ## time every canonical operator against ONNX Runtime, about 30 minutes; writes docs/benchmarks-operators.md
	$(BIN)/python benchmarks/sweep.py --write docs/benchmarks-operators.md

bench-variants: $(DEVELOPING) $(OLDER_HOST)/older_host.so ## time variants of ordinary models, also held to AVX2, about 3 hours; QUICK=1: a part, 10 minutes; writes docs/benchmarks-variants.md
	$(BIN)/python benchmarks/variants_bench.py $(if $(QUICK),--quick --threads 1 --limit 285) --write docs/benchmarks-variants.md
	$(AS_AVX2) $(BIN)/python benchmarks/variants_bench.py $(if $(QUICK),--quick --threads 1 --limit 285) --write docs/benchmarks-variants.md

bench-real: $(DEVELOPING) ## compare exported models with ONNX Runtime, values and times; installs exporters (4 GB); writes docs/benchmarks-real.md
	$(BIN)/python benchmarks/bench_real.py --install --write docs/benchmarks-real.md

bench-gpu: $(DEVELOPING) ## time the cuda target against PyTorch and Triton on an NVIDIA GPU, 8 minutes per group; GROUP=gemm; writes docs/benchmarks-gpu.md
	$(BIN)/python benchmarks/gpu.py $(if $(GROUP),--group $(GROUP)) --write docs/benchmarks-gpu.md

bench-vta: $(DEVELOPING) ## count cycles of ResNet-18 on the timing simulator of VTA; writes docs/benchmarks-vta.md
	$(BIN)/python benchmarks/vta.py --write docs/benchmarks-vta.md

opencl-drivers: $(DEVELOPING) ## run the conformance suite on PoCL, Intel's CPU runtime (installs 0.8 GB) and rusticl, an hour; DRIVERS, KINDS, ONLY=prefixes; writes docs/opencl-drivers.md
	$(BIN)/python benchmarks/opencl_drivers.py --install $(if $(DRIVERS),--drivers $(DRIVERS)) $(if $(KINDS),--kinds $(KINDS)) \
		$(if $(ONLY),--only $(ONLY)) --write docs/opencl-drivers.md

random-models: $(DEVELOPING) ## compare 1,000 random models with ONNX Runtime and the interpreter, about 25 minutes; COUNT, SEED, ONLY=number
	$(BIN)/python benchmarks/random_models.py $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

peers: $(DEVELOPING) ## install further engines for `make bench` (several GB)
	$(PIP) install "pip>=25.1"
	$(PIP) install --group bench

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
