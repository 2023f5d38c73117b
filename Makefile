# Everything runs from the repository's own virtual environment; `tools/setup` makes it.
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-console demo-frames docs browser screenshots test full chaos simulate prove lint format bench mutants lock clean
# What the caller has set for another Python must not reach this one.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

PYTHON_FILES := src tests tools bench examples

help: ## list what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

setup: ## make this machine ready: virtual environment, packages, Java, Kafka's jars
	@tools/setup

demo: setup ## tell the update-before-create story
	@.venv/bin/redrive demo

demo-console: setup ## the same, and then its dead letters on a web page, until Ctrl-C
	@.venv/bin/redrive demo --console

demo-frames: setup ## orders as DataFrames: parked, buried, sent once, on Spark and a real Kafka
	@.venv/bin/python examples/frames/demo.py

docs: setup ## build the manual, with search, in .build/site; a broken link fails
	@.venv/bin/zensical build --strict
	@echo 'Open .build/site/index.html'

browser: ## a Chromium for the tests of the console
	@tools/browser

screenshots: setup browser ## the pictures of the console in docs/
	@for test in from_a_group flow_moves held_let_go; do REDRIVE_SCREENSHOTS=$(CURDIR)/docs/assets/console \
		.venv/bin/python tools/run_tests.py -q tests/console/test_browser.py -k $$test || exit 1; done

test: lint browser ## lint, then every promise once
	@.venv/bin/python tools/run_tests.py -n 3 --max-worker-restart=1 --durations=10 \
		--durations-min=1 $(ARGS)

full: setup browser ## what `make test` shows, again: on the other engine, with other deliveries
	@.venv/bin/python tools/run_tests.py -n 2 -m full --durations=10 --durations-min=1 $(ARGS)

chaos: setup browser ## kills, zombies and outages at full length: about three quarters of an hour
	@.venv/bin/python tools/run_tests.py -m chaos -rP --show-capture=stdout --durations=0 --durations-min=1 $(ARGS)

simulate: setup ## the worker under a seeded scheduler with faults: SEEDS=10000, or SEED=17 again
	@PYTHONPATH=tests:tests/engines .venv/bin/python -m simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000)) $(ARGS)

prove: setup ## what is duplicated at each failure point, on both engines; writes docs/prove/
	@.venv/bin/redrive prove --engine worker --write docs/prove/worker.md
	@.venv/bin/redrive prove --engine spark --write docs/prove/spark.md

lint: setup ## style, types, direction of imports, what must not be in the repository
	@.venv/bin/ruff check $(wildcard $(PYTHON_FILES))
	@.venv/bin/ruff format --check $(wildcard $(PYTHON_FILES))
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-logo
	@.venv/bin/python tools/check_repository.py

format: setup ## put the code into its form and mend what can be mended
	@.venv/bin/ruff check --fix-only $(wildcard $(PYTHON_FILES))
	@.venv/bin/ruff format $(wildcard $(PYTHON_FILES))

bench: setup ## measure what redrive costs
	@tools/bench $(ARGS)

mutants: setup ## plant bugs and see that the tests catch each one
	@.venv/bin/python tools/mutants.py -j 2 $(ARGS)

lock: setup ## renew the locked packages; ARGS=--upgrade takes newer ones
	@.venv/bin/uv pip compile --universal --generate-hashes --extra dev --no-header --quiet \
		$(ARGS) pyproject.toml --output-file requirements.lock

clean: ## stop the local stack; remove the virtual environment, caches and build output
	@if [ -x .venv/bin/redrive ]; then .venv/bin/redrive local down || true; fi
	@rm -rf .venv .build .cache dist .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache spark-warehouse metastore_db derby.log
	@find src tests tools bench examples -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
