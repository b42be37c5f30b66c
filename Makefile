# Everything a developer does, by name. Needs GNU make, python3 with venv and headers, and gcc; all else goes into .venv.

PYTHON ?= python3
# More for pip, such as where to find wheels: make install PIP_FLAGS="--find-links wheels"
PIP_FLAGS ?=
# Test processes: one a core, at least two.
JOBS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); [ "$$cores" -ge 2 ] && echo "$$cores" || echo 2)
# More for pytest, such as: make test PYTEST_FLAGS="-k barrier"
PYTEST_FLAGS ?=

BIN := .venv/bin
STAMP := .venv/installed
# Compiled in place by the install, where there is a C compiler.
NATIVE := $(wildcard sglang_fence/native/*.[ch])

# Test processes share the cores: one thread of torch in each. Nothing in the tests is fetched from a model hub.
TEST_ENV := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install run test matrix bench generate lint format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## Create .venv with the project and its tools, once

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(PIP_FLAGS) -e ".[dev]"
	touch $@

run: $(STAMP) ## Serve the embedded model's default prompts on this machine's best device
	$(BIN)/sglang-fence run

test: $(STAMP) ## Run the tests; those that need a GPU or SGLang skip themselves where there is none
	$(TEST_ENV) $(BIN)/python -m pytest -n $(JOBS) $(PYTEST_FLAGS)

matrix: $(STAMP) ## Run the long tests, over every configuration
	$(TEST_ENV) $(BIN)/python -m pytest -n $(JOBS) -m matrix $(PYTEST_FLAGS)

bench: $(STAMP) ## Measure what the fence and its observer cost
	$(BIN)/sglang-fence bench

generate: $(STAMP) ## Make anew what is made from the code: the page of metrics, dashboards, Kubernetes' copies
	$(BIN)/sglang-fence docs metrics > docs/metrics.md
	$(BIN)/sglang-fence docs benchmarks > docs/benchmarks.md
	$(BIN)/sglang-fence docs benchmarks-plot > docs/benchmarks/fence.svg
	$(BIN)/python -m dashboards.source
	$(BIN)/python -m dashboards.cases
	$(BIN)/python deploy/kubernetes/generate.py

lint: $(STAMP) ## Check style, format, types and the layering
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/sglang-fence audit --static sglang_fence

format: $(STAMP) ## Put files into the house's format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean: ## Remove the environment and everything that is generated
	rm -f sglang_fence/native/*.so
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
