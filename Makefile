# Everything a contributor runs. `make demo` and `make test` need Python >= 3.11 and nothing else.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Which PostgreSQL the tests run on: `system` (the distribution's binaries), `wheel` (those of the
# `embedded` extra) or both, one run each. Empty: DATABASE_URL if set, else the first one found.
POSTGRES ?=
# Number of concurrent test processes, each with its own server.
JOBS ?= 4
# More arguments for pytest: make test ARGS="-k migrate -x"
ARGS ?=
# Which tests: all but the long ones. test-all has no such limit.
SELECTION ?= -m "not long"
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist=worksteal $(SELECTION) $(ARGS)
# Seed of the random faults of the soak.
SEED ?= 1
# How many short soaks, instead of the long ones.
SEEDS ?=

.DEFAULT_GOAL := help
.PHONY: help venv demo lint format test test-all test-database test-all-postgres freeze revision docs images soak figures bench bench-quick bench-chaos bench-parts bench-monitoring bench-page peers requirements release clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(READY) ## Make .venv with everything for development

$(READY): pyproject.toml requirements/dev.txt scripts/make_venv.sh
	@scripts/make_venv.sh $(VENV)
	@touch $@

demo: $(READY) ## Start a PostgreSQL, migrate, enqueue a few emails, show the queue
	@$(BIN)/mailgres demo

lint: $(READY) ## Check style, types and import direction
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY) ## Let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(READY) ## Run the tests but the long ones (POSTGRES="system wheel" for both kinds of binaries)
ifeq ($(strip $(POSTGRES)),)
	$(PYTEST)
else
	@set -e; for kind in $(POSTGRES); do \
	    echo "== tests on PostgreSQL binaries: $$kind"; \
	    env -u DATABASE_URL MAILGRES_EMBEDDED_BINARIES=$$kind $(PYTEST); \
	done
endif

test-all: $(READY) ## Run all tests, the long ones too: soaks, trials of the benchmarks, pg_cron
	@$(MAKE) --no-print-directory test SELECTION=

# The tests that depend most on the version of PostgreSQL: CI runs them on the second kind, too.
DATABASE_TESTS := $(addprefix tests/,claim lifecycle migrations processors)

test-database: $(READY) ## Run the tests that depend most on the version of PostgreSQL
	@$(MAKE) --no-print-directory test ARGS="$(DATABASE_TESTS) $(ARGS)"

test-all-postgres: $(READY) ## Run all tests on the system's PostgreSQL, then on the wheel's
	@$(MAKE) --no-print-directory test-all POSTGRES="system wheel"

freeze: $(READY) ## Write the checksums of the revisions, after make revision
	$(BIN)/python scripts/freeze.py

revision: $(READY) ## Begin a revision for a change of tables: make revision NAME=what_it_does
	$(BIN)/python scripts/revision.py $(NAME)

docs: $(READY) ## Write the generated pages of docs/
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/monitoring_page.py
	$(BIN)/python scripts/settings_page.py
	$(BIN)/python scripts/cli_page.py
	$(BIN)/python scripts/provider_errors.py
	$(BIN)/python scripts/metrics_page.py
	$(BIN)/python scripts/speed_table.py
	$(BIN)/python scripts/benchmarks_page.py
	$(BIN)/python scripts/pg_cron_jobs.py

images: $(READY) ## Write the pictures of the inbox and the page to docs/images/ (needs chromium and chromedriver)
	PYTHONPATH=tests $(BIN)/python scripts/inbox_images.py
	PYTHONPATH=tests $(BIN)/python scripts/page_images.py

soak: $(READY) ## Send 20,000 emails through faults, killed workers and restarts (minutes); SEED=n; SEEDS=100: many short ones
ifneq ($(strip $(SEEDS)),)
	@cd tests && ../$(BIN)/python -m e2e.soak_seeds --count $(SEEDS) --first $(SEED) $(ARGS)
else
	@set -e; for kind in resend ses smtp; do \
	    (cd tests && ../$(BIN)/python -m e2e.soak --kind $$kind --seed $(SEED) $(ARGS)); \
	done
endif

figures: $(READY) ## Accept what an email costs now, in tests/cost/figures.json
	@MAILGRES_ACCEPT_FIGURES=1 $(BIN)/python -m pytest -q tests/cost

peers: .venv-peers/.ready ## Install the queues that the benchmarks compare with, in environments of their own

.venv-peers/.ready: requirements/peers.txt benchmarks/peers/node/package-lock.json scripts/make_peers.sh
	@scripts/make_peers.sh
	@touch $@

bench-monitoring: $(READY) ## Measure the views at ten million emails (15 minutes, 10 GB) and keep the result
	$(BIN)/python -m benchmarks.monitoring

bench-page: $(READY) ## Measure the operator's page at ten million emails (15 minutes, 10 GB) and keep the result
	$(BIN)/python -m benchmarks.page

bench: $(READY) peers ## Compare with other queues (at most 20 minutes), keep the results, write docs/benchmarks.md
	$(BIN)/python -m benchmarks.scorecard

bench-quick: $(READY) peers ## The same with small numbers (at most 3 minutes)
	$(BIN)/python -m benchmarks.scorecard --quick

bench-chaos: $(READY) peers ## Disturb mailgres and four peers (at most 25 minutes) and keep the results
	$(BIN)/python -m benchmarks.chaos

bench-parts: $(READY) peers ## Run the benchmarks of each part (minutes) and keep their results
	@for name in enqueue claim drain worker providers webhooks events storage operator inbox; do $(BIN)/python -m benchmarks.$$name || exit 1; done

requirements: $(READY) ## Pin the newest versions, with hashes, in requirements/
	@scripts/lock.sh $(BIN)/uv

release: .venv-release/.ready ## Build, check and describe the version of src/mailgres/version.py in dist/
	.venv-release/bin/python scripts/release.py build

.venv-release/.ready: requirements/release.txt
	python3 -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --require-hashes --requirement $<
	@touch $@

clean: ## Remove the files that tools leave behind (not .venv)
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts migrations -name __pycache__ -type d -prune -exec rm -rf {} +
