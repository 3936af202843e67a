# Tarn. Two commands matter: `make demo` shows it, `make test` proves it. Both install what is missing.
SHELL := /bin/bash
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
export TARN_DATA_DIR ?= ./data

.PHONY: help demo run test build fmt lint sqlx openapi bench-start bench-placement bench-api bench-audit bench-billing bench chaos-billing gpu-suite bench-gpu clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

demo: install-build build ## a customer rents a Pool-96 on a simulated host; ONCE=1 ends after the story
	$(TARGET)/debug/tarn demo $(if $(ONCE),--once)

run: install-build build ## the control plane alone, on SQLite in TARN_DATA_DIR
	$(TARGET)/debug/tarn serve

test: install-test build ## every test, on SQLite and PostgreSQL, with real processes
	$(CARGO) test --workspace --locked

build: ## the binaries and libraries, as tests and demo use them
	$(CARGO) build --workspace --locked

release: ## optimised binaries and libraries
	$(CARGO) build --workspace --locked --release

.PHONY: install-build install-test release
install-build:
	@deploy/dev/install.sh build
install-test:
	@deploy/dev/install.sh test

fmt: ## format the code
	$(CARGO) fmt --all

lint: ## format check and clippy, warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

sqlx: install-test ## check every query against both engines and renew the offline data
	migrations/prepare.sh

openapi: build ## renew api/openapi.json from the code
	$(TARGET)/debug/tarn openapi > api/openapi.json

bench-start: install-build build ## request to running, over 40 starts of a Pool-96 on the simulated host
	@data=$$(mktemp -d) && $(TARGET)/debug/tarn demo --once --starts 40 --data-dir $$data; status=$$?; rm -rf "$$data"; exit $$status

bench-placement: ## placement decisions per second over a 10,000-GPU fleet
	$(CARGO) bench -p tarn-provisioner --locked

bench-api: install-test ## authenticated reads per second, SQLite and PostgreSQL, beside a bare handler
	$(CARGO) bench -p tarn --bench requests --locked

bench-audit: install-test ## seconds to audit 10^6 entries, beside the database's own count of them
	$(CARGO) bench -p tarn --bench audit --locked

bench-billing: install-test ## transfers, evidence, settlement and audit beside raw inserts and two other ledgers; commits durable
	TARN_TEST_POSTGRES_FSYNC=on $(CARGO) run --release --target-dir $(TARGET)/bench-billing --manifest-path api/benches/billing/Cargo.toml

bench: bench-placement bench-start bench-api bench-billing ## all benchmarks that need no GPU

ROUNDS ?= 1000
chaos-billing: install-test build ## kill -9 of tarn serve under load, ROUNDS times on each engine; the books added up after each
	TARN_CHAOS_ROUNDS=$(ROUNDS) TARN_CHAOS_SEED=$(SEED) $(CARGO) test -p tarn --test api --locked -- --nocapture chaos::campaign

.PHONY: chaos-crowd mutants-billing
chaos-crowd: install-test build ## 50 rounds of 200 creates at once for 100 cards on each engine: exactly 100 are made in each
	TARN_CROWD_ROUNDS=50 $(CARGO) test -p tarn --test api --locked -- --nocapture s1_two_hundred

mutants-billing: ## breaks every invariant of money on purpose and requires that a test notices; SHORT=1 tries one fault of each
	python3 api/simulation/mutants/run.py --target $(TARGET)/mutants $(if $(SHORT),--short --seeds 200)

gpu-suite: ## the pooled device on this machine's own NVIDIA card; prints a table of checks
	@command -v $(CARGO) >/dev/null && $(CARGO) build --release --locked -p tarn-broker -p tarn-standin-cuda -p tarn-standin-nvml -p tarn-witness || true
	python3 pool-agent/tests/hardware/suite.py --artefacts $(TARGET)/release $(SUITE)

bench-gpu: ## measure it there: bare against pooled, tables and plots into docs/
	@command -v $(CARGO) >/dev/null && $(CARGO) build --release --locked -p tarn-broker -p tarn-standin-cuda -p tarn-standin-nvml -p tarn-witness || true
	python3 pool-agent/tests/hardware/suite.py --bench --artefacts $(TARGET)/release --out $(TARGET)/bench-gpu $(SUITE)
	python3 pool-agent/tests/hardware/report.py $(TARGET)/bench-gpu/results.json

clean: ## remove build results (never data)
	$(CARGO) clean
