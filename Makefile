# Every target works in a fresh clone: each has tools/setup.py make the virtual environment that it needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest --quiet
PARALLEL := --numprocesses 2 --dist worksteal

NATIVE_MODULE := ls src/latewood/_native*.so >/dev/null 2>&1

# A test starts hundreds of programs; each would compile our modules anew.
export PYTHONDONTWRITEBYTECODE :=

# What the pure Python kernel must be able to carry as well as the native one.  Most tests of the kernel try both twins
# in every run, whichever is picked; these ask for the one that is.
PURE_KERNEL_TESTS := $(addprefix tests/kernel/,test_choice.py test_commands.py test_twins.py)
PURE_TESTS := $(PURE_KERNEL_TESTS) tests/segment tests/log tests/queue tests/meta/test_native_present.py

.DEFAULT_GOAL := help
.PHONY: help setup demo cluster test check bench crash chaos simulate identity fresh format api clean

help: ## Say what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: ## Make .venv: the package, its tools, the native module, a Java if there is none; NATIVE=install installs cargo
	@$(PYTHON) tools/setup.py --native "$(NATIVE)"

demo: setup ## Show the pipeline end to end: a kill -9, readers, Spark, tiers, SQL, a picture
	@$(BIN)/python -m examples.demo

cluster: setup ## Show a cluster whose leader is killed while a writer goes on
	@$(BIN)/python examples/cluster.py

test: setup ## Run every test, then those of the log again on the pure kernel
	@echo "tests: usually 8 minutes on 2 cores, 12 without the native module" >&2
	$(PYTEST) $(PARALLEL)
	@! $(NATIVE_MODULE) || { set -x; LATEWOOD_PURE=1 $(PYTEST) $(PARALLEL) $(PURE_TESTS); }

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
IDENTITY_MINUTES ?= 60

identity: setup ## Move, replace, restore, fork, starve: is each directory, log and life still the one meant? SEEDS=17:18
	$(BIN)/python -m tests.identity.campaign --minutes $(IDENTITY_MINUTES) --seeds $(SEEDS)
	$(BIN)/python -m tests.identity.campaign --planted 40

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
