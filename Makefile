# What a person types. The work is done by deploy/*.sh and cargo; caches live outside the clone (deploy/env.sh).
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
MEMBERS ?= sim

.PHONY: help demo build test test-long bench lint
help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:[^#]*## /\t/' | expand -t 12

demo: ## tells the story on three clusters; MEMBERS=sim|local|real, ONCE=1 to exit when told
	@case $(MEMBERS) in sim) needs=demo ;; local|real) needs=$(MEMBERS) ;; *) echo "MEMBERS is sim, local or real" >&2; exit 2 ;; esac
	deploy/setup.sh $$needs
	. deploy/env.sh
	cargo build --locked --workspace --bin drover --bin drover-lab # --workspace: the features, and so the crates, of make test
	exec "$$CARGO_TARGET_DIR/debug/drover" demo --members $(MEMBERS) $(if $(ONCE),--once)

build: ## all binaries, optimised
	@deploy/setup.sh demo
	. deploy/env.sh
	cargo build --workspace --bins --release
	echo "binaries are in $$CARGO_TARGET_DIR/release"

test: ## set-up, format, clippy and all tests, on real Kubernetes control planes too
	@exec deploy/test.sh

test-long: ## the same with the longer runs
	@exec deploy/test.sh --long

bench: ## what this build does a second, how long things take, what it needs; NAMES="decisions plan" for some of it
	@deploy/setup.sh test
	. deploy/env.sh
	export DROVER_KUBE_BIN=$$(deploy/local-kube/build.sh kubernetes)
	cargo build --locked --release --workspace --bins
	exec "$$CARGO_TARGET_DIR/release/drover" bench $(NAMES)

lint: ## format, clippy, licences and sources (the first time builds cargo-deny)
	@. deploy/env.sh
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	deploy/deny.sh
