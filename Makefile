# Commands for people. The work is done by deploy/*.sh and cargo; caches are outside the clone (deploy/env.sh).
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
MEMBERS ?= sim

.PHONY: help demo build dist check test test-long bench experiments lint learned-groups clients docs
# What is shipped: no laboratory, no tools of this repository.
SHIPPED := --workspace --exclude 'drover-lab*' --exclude drover-e2e --exclude xtask
help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:[^#]*## /\t/' | expand -t 12

demo: ## shows a relocation on three clusters; MEMBERS=sim|local|real, ONCE=1 to exit at its end
	@case $(MEMBERS) in sim) needs=demo ;; local|real) needs=$(MEMBERS) ;; *) echo "MEMBERS is sim, local or real" >&2; exit 2 ;; esac
	deploy/setup.sh $$needs
	. deploy/env.sh
	cargo build --locked --workspace --bin drover --bin drover-lab
	exec "$$CARGO_TARGET_DIR/debug/drover" demo --members $(MEMBERS) $(if $(ONCE),--once)

build: ## all programs, optimised, without link-time optimisation
	@deploy/setup.sh demo
	. deploy/env.sh
	cargo build --locked --release --workspace --bins
	echo "the programs are in $$CARGO_TARGET_DIR/release"

dist: ## the programs that are shipped, as small and fast as they get; slow to build
	@deploy/setup.sh demo
	. deploy/env.sh
	cargo build --locked --profile dist $(SHIPPED) --bins
	echo "the programs are in $$CARGO_TARGET_DIR/dist"

check: ## format, clippy and unit tests; before every commit
	@. deploy/env.sh
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo test --locked --workspace --lib

test: ## set-up, format, clippy and all tests, on real Kubernetes control planes too
	@exec deploy/test.sh

test-long: ## the same with the longer runs, which take hours; LANES="fuzz around whole hub" for some of it (deploy/lane.sh)
	@exec deploy/test.sh --long

bench: ## measures throughput, latency, memory and CPU of this build; NAMES="decisions plan" for some of it
	@deploy/setup.sh test
	. deploy/env.sh
	export DROVER_KUBE_BIN=$$(deploy/local-kube/build.sh kubernetes) DROVER_COMMIT=$$(git describe --always --dirty)
	cargo build --locked --release --workspace --bins
	exec "$$CARGO_TARGET_DIR/release/drover" bench $(NAMES)

experiments: ## repeats the relocation paper's figures; CSV and SVG go to OUT, or a new directory; MEMBERS=local times moves on real control planes
	@case $(MEMBERS) in sim) needs=demo ;; local) needs=local ;; *) echo "MEMBERS is sim or local" >&2; exit 2 ;; esac
	deploy/setup.sh $$needs
	. deploy/env.sh
	export DROVER_COMMIT=$$(git describe --always --dirty)
	cargo build --locked --release --workspace --bins
	out="$(OUT)"; out=$${out:-$$(mktemp -d)}
	run() { echo "== $$1"; "$$CARGO_TARGET_DIR/release/drover" experiment "$$@" --out "$$out/$$1"; }
	run occupancy --draws 200
	run rejection --draws 200
	run replay
	run redistribution --members $(MEMBERS)

docs: ## a site of all pages, with search; prints where it is (the first time builds mdBook)
	@deploy/book.sh $(OUT)

clients: ## typed clients in Python, TypeScript, Go and Rust, made from openapi/drover.json
	@deploy/setup.sh test
	clients/make.sh

learned-groups: ## trains the shipped policy `learned` of group placement again, from its seed; minutes on one core
	@. deploy/env.sh
	cargo build --locked --release --workspace --bins
	"$$CARGO_TARGET_DIR/release/drover" experiment groups --only-learned --no-large --seeds 1 --seed 4 \
	  --save-learned libs/scheduling/src/groups/learned/shipped.json

lint: ## format, clippy, licences, sources, known vulnerabilities (the first time builds cargo-deny)
	@. deploy/env.sh
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	deploy/deny.sh
	deploy/advisories.sh
