# What a person types. The machine that gates a merge runs `make test` and nothing of its own (.ci/run).
#
#   make run                    a broker on ./data with development users
#   make test                   everything that gates a merge; changes nothing
#   make verify                 the same, and documentation, and many more seeds
#   make fix                    format and apply what clippy is sure of
#   make sim                    some seeds of every world of the simulator, ten minutes on two cores; FROM=n
#   make sim WORLD=broker       many seeds of one: store, raft-log, raft, consensus, membership, broker, upkeep, cluster, records or groups; SEEDS=n, FROM=n
#   make sim SEED=7             one seed, with everything that happens in it
#   make sim BUG=SkipSync       an old bug put back: must end with a failure
#   make bugs                   how many seeds each old bug takes to be found
#   make e2e                    real processes, killed and started again, and on hosts of their own cut off from each other
#   make drill-chaos            three brokers on hosts of their own, killed, stopped, cut off under load, and looked at afterwards
#   make drill-storage          the same with copies torn, removed and rotten, and a full volume: SEED=n, DRILL_SECONDS=n, RECORD=1
#   make fuzz                   long property runs over everything that decodes: CASES=n
#   make bench                  the storage engine against the machine: ARGS=...
#   make scale                  many ranges, topics and connections: what each costs; SCALE=10 for a tenth
#   make restart                three processes: how long one takes to serve after a kill; SEGMENTS=n
#   make metadata               three processes, one group: commands a second; SECONDS_EACH=n, VNODES=n
#   make scale-sim              a hundred nodes, 1,024 vnodes, 100,000 topics, simulated

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
WORLD ?=
SEEDS ?= 12000
FROM ?= 0
CASES ?= 100000
SCALE ?= 1
ARGS ?=
SEGMENTS ?= 10000

# One test runner where it is installed, the other where it is not; both run the same tests. The flag keeps a
# checked-in lock file honest.
ifeq ($(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes),yes)
TESTS := $(CARGO) nextest run --locked --no-fail-fast
else
TESTS := $(CARGO) test --locked --no-fail-fast --quiet
endif
SIM := $(CARGO) run --release --locked --quiet -p malachi-sim --

.PHONY: help run test verify fix sim bugs e2e drill-chaos drill-storage fuzz bench scale restart metadata scale-sim format lint unit seeds docs

help:
	@sed -n '3,/^$$/s/^# *//p' Makefile

run:
	$(CARGO) build --release --locked -p malachi-cli
	@echo
	@echo 'The broker starts on port 4040 and keeps its data in ./data. In another terminal:'
	@echo
	@echo '    $(TARGET)/release/malachi topic create events'
	@echo '    $(TARGET)/release/malachi produce events --file README.md'
	@echo '    $(TARGET)/release/malachi consume events'
	@echo
	@echo 'Ctrl-C stops it.'
	@echo
	@MALACHI_CONFIG_ENV=dev MALACHI_LOG_DATA_DIR=data/log MALACHI_RA_DATA_DIR=data/raft \
	    exec $(TARGET)/release/malachi server

test: format lint unit seeds

verify: test docs
	$(SIM) --world store --seeds $(SEEDS)
	$(SIM) --world raft-log --seeds $(SEEDS)
	$(SIM) --world raft --seeds $(SEEDS)
	$(SIM) --world consensus --seeds $(SEEDS)
	$(SIM) --world membership --seeds $(SEEDS)
	$(SIM) --world broker --seeds $(SEEDS)
	$(SIM) --world cluster --seeds $(SEEDS)
	$(SIM) --world records --seeds $(SEEDS) --seconds 1800
	$(SIM) --world groups --seeds $(SEEDS) --seconds 1800

fix:
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged
	$(CARGO) fmt --all

# A failure prints the line that replays it. Without a world, a seed or a bug: some of every world, the two lists beside
# each other. Whole clusters are slow, so they come last in theirs and get the time that is left.
sim:
ifeq ($(WORLD)$(SEED)$(BUG),)
	@$(CARGO) build --release --locked --quiet -p malachi-sim
	@some() { $(TARGET)/release/malachi-sim --from $(FROM) --world $$1 --seeds $$2 --seconds $$3; }; \
	    (some store 1200 80; some raft-log 400 30; some broker 400 130; some upkeep 150 60; some records 10000 280) & \
	    (some raft 300 60; some consensus 150 60; some membership 300 60; some cluster 150 150; some groups 10000 250) & \
	    wait -n; wait -n
else
	$(SIM) --world $(or $(WORLD),store) $(if $(SEED),--seed $(SEED),--from $(FROM) --seeds $(SEEDS)) $(if $(BUG),--bug $(BUG))
endif

# Every bug must be found, in a seed that passes without it; but for those whose comment says "by its story alone".
# Those of the broker whose comment begins "Between nodes:" are the cluster world's, with "Between copies:" the records
# world's, with "Upkeep:" the upkeep world's.
# Prints the table of docs/simulation.md; what a bug does is what its doc comment says.
bugs:
	@echo '| world | bug | what it does | seeds until found | noticed as |'; \
	echo '|---|---|---|---:|---|'; \
	in_world() { \
	    awk -v other=$$(case $$1 in cluster) echo nodes;; records) echo copies;; upkeep) echo upkeep;; esac) '/^pub enum Bug/ { on = 1 } /^}/ { on = 0 } !on { next } \
	        /^ *\/\/\/ / { sub(/^ *\/\/\/ /, ""); text = text (text ? " " : "") $$0 } \
	        /^ *[A-Z][A-Za-z]*,$$/ { gsub(/[ ,]/, ""); if (text !~ /by its story alone/ && (text ~ /^Between nodes:/ ? "nodes" : text ~ /^Between copies:/ ? "copies" : text ~ /^Repetitions:/ ? "repetitions" : text ~ /^Upkeep:/ ? "upkeep" : "") == other) print $$0 "\t" text; text = "" }' $$2 \
	    | while IFS=$$'\t' read -r bug text; do \
	        told=$$($(SIM) --world $$1 --seeds 30000 --bug $$bug) && { echo "$$bug was not found"; exit 1; }; \
	        seeds=$$(sed -n "s/^$$1: \([0-9]*\) seeds.*/\1/p" <<<"$$told"); \
	        id=$$(sed -n 's/^\([A-Z0-9-]*\) broken.*/\1/p' <<<"$$told"); \
	        $(SIM) --world $$1 --from $$((seeds - 1)) --seeds 1 >/dev/null \
	            || { echo "seed $$((seeds - 1)) fails without $$bug"; exit 1; }; \
	        echo "| $$1 | \`$$bug\` | $${text%.} | $$seeds | $$id |"; \
	    done; \
	}; \
	in_world store core/storage/src/planted.rs; \
	in_world raft core/raft/src/planted.rs; \
	in_world consensus core/consensus/src/planted.rs; \
	in_world membership core/membership/src/planted.rs; \
	in_world broker core/broker/src/planted.rs; \
	in_world upkeep core/broker/src/planted.rs; \
	in_world cluster core/broker/src/planted.rs; \
	in_world records core/broker/src/planted.rs

# Hosts are network namespaces; where they are not permitted, their tests are left out.
e2e:
	@if ip netns add malachi-probe 2>/dev/null; then ip netns del malachi-probe; export E2E_HOSTS=1; \
	    else echo 'Network namespaces are not permitted here: what happens between hosts is not tried.'; fi; \
	$(TESTS) -p malachi-cli --test "*"

# Need to be permitted network namespaces, and a file system of their own. The last line of a failure is what did not
# hold; RECORD=1 puts the outcome into docs/drills.md.
DRILL = E2E_HOSTS=1 DRILL_SEED=$(SEED) DRILL_SECONDS=$(DRILL_SECONDS) RECORD=$(RECORD) \
    $(CARGO) test --locked --quiet -p malachi-cli --test drills -- --nocapture nothing_acknowledged

drill-chaos:
	DRILL=chaos $(DRILL)

drill-storage:
	DRILL=storage $(DRILL)

fuzz:
	PROPTEST_CASES=$(CASES) $(CARGO) test --release --locked -p malachi-types -p malachi-wire -p malachi-storage -p malachi-raft -p malachi-consensus -p malachi-metadata -p malachi-peer

bench:
	$(CARGO) run --release --locked -p malachi-bench -- $(ARGS)

# The connections of both sides are open files.
scale:
	$(CARGO) build --release --locked -p malachi-cli
	ulimit -n 16384; SCALE=$(SCALE) $(CARGO) run --release --locked -p malachi-client --example scale -- $(TARGET)/release/malachi

restart:
	$(CARGO) build --release --locked -p malachi-cli
	ulimit -n 16384; SEGMENTS=$(SEGMENTS) $(CARGO) run --release --locked -p malachi-client --example restart -- $(TARGET)/release/malachi

# Read back from every node, before and after all were killed.
metadata:
	$(CARGO) build --release --locked -p malachi-cli
	$(CARGO) run --release --locked -p malachi-client --example metadata -- $(TARGET)/release/malachi

scale-sim:
	$(SIM) --world scale

# The parts of `make test`.

format:
	$(CARGO) fmt --all -- --check

# The second and third look at the crates as they are built without their default features: the client the
# simulator drives, and a command line without a broker in it.
lint:
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	$(CARGO) clippy --locked -p malachi-client --no-default-features -- -D warnings
	$(CARGO) clippy --locked -p malachi-cli --no-default-features -- -D warnings

unit:
	$(TESTS) --workspace

# With the simulator that the tests were built with: these few do not repay a release build. They are others than
# those the tests have tried.
seeds: unit
	$(TARGET)/debug/malachi-sim --world store --from 100000 --seeds 2000
	$(TARGET)/debug/malachi-sim --world raft-log --from 100000 --seeds 1000
	$(TARGET)/debug/malachi-sim --world raft --from 100000 --seeds 500
	$(TARGET)/debug/malachi-sim --world broker --from 100000 --seeds 500
	$(TARGET)/debug/malachi-sim --world upkeep --from 100000 --seeds 50
	$(TARGET)/debug/malachi-sim --world consensus --from 100000 --seeds 200
	$(TARGET)/debug/malachi-sim --world cluster --from 100000 --seeds 60
	$(TARGET)/debug/malachi-sim --world records --from 100000 --seeds 6 --seconds 90

docs:
	RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' $(CARGO) doc --locked --workspace --no-deps --document-private-items
