# Every target works in a fresh clone: each makes the virtual environment that it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest --quiet
PARALLEL := --numprocesses 2 --dist worksteal

# What builds the package lives in .venv too: an isolated build would compile every crate anew.
BUILD_REQUIRES := $(BIN)/python -c 'import pathlib, tomllib; \
  print(*tomllib.loads(pathlib.Path("pyproject.toml").read_text())["build-system"]["requires"], sep="\n")'

CARGO := $(shell command -v cargo 2>/dev/null)
NATIVE_SOURCES := $(shell find native -name target -prune -o -type f \( -name '*.rs' -o -name 'Cargo.toml' \) -print)
NATIVE_PRESENT := ls src/latewood/_native*.so >/dev/null 2>&1

# What the pure Python kernel must be able to carry as well as the native one.  Most tests of the kernel try both twins
# in every run, whichever is picked; these ask for the one that is.
PURE_KERNEL_TESTS := $(addprefix tests/kernel/,test_choice.py test_commands.py test_twins.py)
PURE_TESTS := $(PURE_KERNEL_TESTS) tests/segment tests/log tests/queue tests/meta/test_native_present.py

.DEFAULT_GOAL := help
.PHONY: help setup demo cluster test check bench crash chaos simulate fresh format api clean

help: ## Say what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: $(VENV)/.installed ## Make .venv, with the package, its tools and the native kernel
	@:

demo: setup ## Show the pipeline end to end: a kill -9, readers, Spark, tiers, SQL, a picture
	@$(BIN)/python -m examples.demo

cluster: setup ## Show a cluster whose leader is killed while a writer goes on
	@$(BIN)/python examples/cluster.py

test: setup ## Run every test, then those of the log again on the pure kernel
ifneq ($(CARGO),)
	@$(NATIVE_PRESENT) || { echo "cargo is here, latewood._native is not: make --always-make setup" >&2; exit 1; }
endif
	$(PYTEST) $(PARALLEL)
	LATEWOOD_PURE=1 $(PYTEST) $(PARALLEL) $(PURE_TESTS)

check: setup ## Formatting, lint, types, import layers and unit tests: about a minute
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	@! cargo fmt --version >/dev/null 2>&1 || cargo fmt --check --manifest-path native/Cargo.toml
	@! cargo clippy --version >/dev/null 2>&1 || \
		cargo clippy --quiet --release --manifest-path native/Cargo.toml -- --deny warnings
	$(PYTEST) $(PARALLEL) -m "not slow" --ignore tests/crash

bench: setup ## Measure log, catalog, store and Spark against their peers and the limits of this machine
	@missed=0; for one in log catalog store spark; do $(BIN)/python bench/$$one.py || missed=1; done; exit $$missed

CAMPAIGNS := tests/crash tests/model tests/replica tests/runtime/test_seam.py tests/spark/test_seam_spark.py tests/spark/test_sink_crash.py

crash: setup ## The long campaigns: every power-cut state, and many more kills, flips, models and seams
	$(PYTEST) $(PARALLEL) $(CAMPAIGNS) --campaign --timeout 0

CHAOS_OPERATIONS ?= 1000000
CHAOS_MINUTES ?= 60
CHAOS_TOTALS ?= chaos.json

chaos: setup ## Kill, pause, cut off, fill and damage nodes of a real cluster while clients check; goes on where it ended
	$(BIN)/python -m tests.replica.campaign --operations $(CHAOS_OPERATIONS) --minutes $(CHAOS_MINUTES) --totals $(CHAOS_TOTALS)

SEEDS ?= 0:10000

simulate: setup ## Live through 10,000 small clusters in a bad world, on a model of a disk and on the real logs: hours
	$(BIN)/python -m latewood.testing.simulate --store model --seeds $(SEEDS)
	$(BIN)/python -m latewood.testing.simulate --store log --seeds $(SEEDS)
	$(BIN)/python -m latewood.testing.simulate --planted all

ROWS ?=
ONLY ?=

fresh: ## Run make demo and make test in new minimal systems of Debian 12, 13 and 14, as root: ROWS=13-bare, ONLY=demo
	@$(PYTHON) -m tools.fresh $(if $(ROWS),--rows '$(ROWS)') $(if $(ONLY),--commands '$(ONLY)')

format: setup ## Format the source and apply the safe lint fixes
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

api: setup ## Write the snapshot of the public API anew
	$(BIN)/python -m tests.meta.public_api > tests/meta/public_api.new
	mv tests/meta/public_api.new tests/meta/public_api.txt

clean: ## Remove everything that was made here
	rm -rf $(VENV) build dist native/target src/*.egg-info src/latewood/_native*.so
	rm -f $(CHAOS_TOTALS)
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The native module is optional, so pip says nothing when it does not build.  Where cargo exists that is an error
# here, and the old module is removed first, so that it cannot stand in for one that no longer builds.
$(VENV)/.installed: pyproject.toml $(NATIVE_SOURCES)
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(MAKE) --no-print-directory venv
	@$(BUILD_REQUIRES) | $(PIP) install --requirement /dev/stdin
	@rm -f src/latewood/_native*.so
	@$(PIP) install --no-build-isolation --editable '.[dev]'
ifeq ($(CARGO),)
	@echo "cargo is not here: the pure Python kernel is used"
else
	@$(NATIVE_PRESENT) || { cargo build --release --manifest-path native/Cargo.toml; exit 1; }
endif
	@touch $@

.PHONY: venv
venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Latewood needs Python 3.11 or later: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null || { \
	  echo "Python cannot make $(VENV): install its venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
