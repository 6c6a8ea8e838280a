# One gate for people and for CI. `make check` is everything; each step is a target of its own.
# Licences, bans and file shapes are policy too: deny.toml, and tests of the testkit crate.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:

NEXTEST := 0.9.143
DENY := 0.20.2
# Where a missing tool is installed; one of the right version on PATH is used as it is.
TOOLS ?= $(CURDIR)/.tools
export PATH := $(TOOLS)/bin:$(PATH)
CARGO := cargo
BUILT := $${CARGO_TARGET_DIR:-target}/debug

.PHONY: check build fmt lint docs policy doctest planted test matrix tools servers clean

## The whole gate. The tests come last, so that their summary closes the output.
check: tools fmt lint docs policy doctest planted matrix test

build:
	$(CARGO) build --locked --release --bin clockwise

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p clockwise-client --no-default-features --all-targets -- -D warnings
	$(CARGO) clippy --locked -p clockwise --no-default-features -- -D warnings

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

policy: tools
	cargo-deny --locked check --hide-inclusion-graph licenses bans sources

doctest:
	$(CARGO) test --locked --workspace --doc --quiet

## Two bugs, others with every commit, in a copy of the tree: a check has to notice each.
planted:
	$(CARGO) run --locked --quiet -p clockwise-sim --bin clockwise-sim -- planted --patches --some 2

test: tools servers
	cargo-nextest nextest run --locked --workspace

## Faults on real processes: that deleted values are noticed, and two cells of the matrix, others with every commit.
## What the tests were built with is what it runs; nothing is built for it alone.
matrix: tools servers
	@cargo-nextest nextest run --locked --workspace --no-run
	$(BUILT)/clockwise-sim matrix --spoiled
	$(BUILT)/clockwise-sim matrix --some 2 --runs 1 --minutes 5

## Tests start these servers themselves and fail, never skip, without them.
servers:
	@for server in redis-server memcached etcd etcdctl memccapable; do \
	  command -v $$server >/dev/null || { \
	    echo "$$server is missing: apt-get install redis-server memcached etcd-server etcd-client libmemcached-tools" >&2; exit 1; }; \
	done

tools:
	@have() { "cargo-$$1" $$3 --version 2>/dev/null | head -n 1 | grep -qF " $$2"; }; \
	have nextest $(NEXTEST) nextest || $(CARGO) install --locked --root "$(TOOLS)" cargo-nextest@$(NEXTEST); \
	have deny $(DENY) "" || $(CARGO) install --locked --root "$(TOOLS)" cargo-deny@$(DENY)

clean:
	$(CARGO) clean
