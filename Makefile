# make help lists the targets. The tools are pinned in go.mod.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help browser clients deploy dist image soak search steady test-valkey test test-all check format vet staticcheck race fuzz ci redis compiler bench bench-peers bench-quick vulnerabilities chaos

# How long each fuzz test runs: make fuzz FUZZTIME=5m
FUZZTIME ?= 2s

# Without this, tests on a real Redis are skipped if redis-server is missing.
export USERDB_REQUIRE_REDIS := 1

# The compiler and the tests spend a sixth of their processor time less if garbage is collected less
# often. The limit applies to each process, and does not end it.
export GOGC := 400
export GOMEMLIMIT := 1500MiB

# Prints a line at least every twenty seconds, even while something compiles.
PROGRESS := go run ./internal/ci/progress

help:
	@echo 'make test    the tests, on a real Redis too, without the slowest ones; installs redis-server if it is missing'
	@echo 'make test-all  every test, also on the file, on Sentinels and of the benchmarks, with longer searches'
	@echo 'make check   the main part of what CI runs: format, vet, staticcheck, make test-all, tests for races, short fuzzing'
	@echo 'make search  the searches for a bad order of commands with two preemptions more than in make test, for ten minutes'
	@echo 'make soak    every package TIMES=$(TIMES) times, then long searches, walks and faults on a cluster, and the service for an hour; SOAK=10 walks ten times as far and serves for ten hours'
	@echo 'make steady  all tests three times beside four busy loops'
	@echo 'make chaos   six processes on a store that a nemesis breaks, for MINUTES=$(MINUTES); KIND=$(KIND), one, sentinel or file; SEED=N repeats a run'
	@echo 'make fuzz    every fuzz test for FUZZTIME ($(FUZZTIME)) each'
	@echo 'make vulnerabilities  fails if the code calls something with a known vulnerability; asks vuln.go.dev'
	@echo 'make bench   every measurement beside the bare client, into bench/results.md and .json, and charts into docs/img; bench-quick in two minutes'
	@echo 'make bench-peers  the service beside PocketBase and Better Auth, into files in bench/peers; about an hour; needs npm'
	@echo 'make browser the examples and the console, driven by Chromium and checked by axe-core, if there are Chromium, Node and npm'
	@echo 'make clients the service, used by a generated client in TypeScript and by the example in Node, and an OpenID provider in Node, if there are Node and npm'
	@echo 'make deploy  what is in deploy/: the image, nginx before two processes, the systemd unit, the compose file, an archive of make dist'
	@echo 'make dist    static binaries for Linux, macOS and Windows with completion, man pages and checksums, in dist/'
	@echo 'make image   the image localhost/userdb, by buildah, podman or docker'
	@echo 'make ci      make check and make vulnerabilities on a machine that has nothing but Go, Git, Make and Bash'

# The tests spend much of their time waiting, so more of them run at a time than there are cores. The
# packages that take longest begin first, so that none of them runs alone at the end.
PACKAGES := ./userdb_test ./internal/store/cluster ./maintain/... ./cmd/userdb ./serve/... ./web ./...
test: redis
	$(PROGRESS) go test -short -p 4 -parallel 4 -timeout 20m $(PACKAGES)

# The searches for a bad order of commands try more orders here than in make test. make check vets
# all packages, so go test need not vet them again.
test-all: redis
	USERDB_STATES=25000 USERDB_PREEMPTIONS=3 USERDB_LOGIN_PREEMPTIONS=2 \
		$(PROGRESS) go test -vet=off -p 4 -parallel 4 -timeout 45m $(PACKAGES)
	$(PROGRESS) bash -c 'cd bench && go test .'
	$(PROGRESS) bash -c 'cd bench/peers && go test .'

check: format vet staticcheck test-all race fuzz

format:
	@echo 'go tool gofumpt -l .'
	@files=$$(go tool gofumpt -l .); if [ -n "$$files" ]; then \
		echo "these files are not formatted; run: go tool gofumpt -w ."; echo "$$files"; exit 1; fi

# bench and bench/peers are modules of their own, which nothing else builds. PocketBase itself, in
# bench/peers/pocketbase, takes minutes to build, so only make bench-peers does that.
vet:
	$(PROGRESS) go vet ./...
	cd bench && go vet ./...
	$(PROGRESS) go vet -C bench/peers .

staticcheck:
	$(PROGRESS) go tool staticcheck ./...

# The race detector needs a C compiler and slows tests down several times. So it runs only tests in
# which goroutines share something: all tests of the packages that start goroutines and, in other
# packages, the tests that MEET matches, which have many callers or interrupt work in progress. With
# -short, they run on fewer kinds of store; the kinds differ only in their innermost code.
MEET := Batch|ManyCallers|ManyReaders|Cache|OneWins|OneUpdateWins|NoUpdateIsLost|Swap|Exchange|Storm|ContextThat|Hanging|Crash|ListWhile
MEET := $(MEET)|Parallel|Races|Overtaken|Meanwhile|FullQueue|WaitEnds|Closed|OnTheWire|FullFeedQueue|AmongWriters|OwnClient|WhileWriting
MEET := $(MEET)|Interrupt|Timeout|Terminal|Progress|ImportOrder|ImportSyncs|ImportResume|HandOver|SettleWaits|Counting|LostReplies
race:
	CGO_ENABLED=1 $(PROGRESS) go test -vet=off -short -race -timeout 20m ./serve ./internal/ci/progress ./internal/connect ./internal/embedded \
		./internal/hashpool ./internal/redistest ./internal/store/redisx ./internal/store/single ./serve/console ./userdb ./userdb/metrics ./userdb/trace ./userdbtest
	CGO_ENABLED=1 $(PROGRESS) go test -vet=off -short -race -p 3 -parallel 4 -timeout 20m -run '$(MEET)' \
		./userdb_test ./internal/store/cluster ./internal/store/throttle ./maintain/... ./cmd/...

# The examples and the console, driven by Chromium. What cannot be installed is skipped, with a
# message.
browser:
	.ci/install chromium || echo 'no pages are driven by a browser'
	.ci/install npm && (cd test/browser && npm ci --no-audit --no-fund) && (cd examples/node && npm ci --no-audit --no-fund) || \
		echo 'pages are not checked by axe-core, and the example in Node is not tested'
	cd test/browser && go vet ./... && go test -timeout 40m -v ./...

# The service as programs in other languages use it. If Node cannot be installed, this is skipped
# with a message, unless USERDB_REQUIRE_NODE is set.
clients: redis
	if .ci/install npm && (cd test/clients && npm ci --no-audit --no-fund) && (cd examples/node && npm ci --no-audit --no-fund); then \
		USERDB_REQUIRE_NODE=1 $(PROGRESS) go test -count=1 -timeout 10m ./test/clients; \
	else \
		echo 'the service is not used from Node'; test -z "$${USERDB_REQUIRE_NODE:-}"; \
	fi

# The files of deploy/, used as docs/deploy.md says. What cannot be installed is skipped, with a
# message.
deploy: redis
	.ci/install buildah || echo 'the image is not built'
	.ci/install nginx || echo 'nginx is not tried'
	USERDB_DEPLOY=1 $(PROGRESS) go test -count=1 -timeout 20m -v ./deploy

dist:
	deploy/dist.sh

image:
	deploy/image.sh

# Compares the library with the bare client and with peers. bench is a module of its own, so that
# the library does not depend on the peers. Rows that are worse than in the baseline are listed at
# the end.
bench: redis
	cd bench && go run . -out results -charts ../docs/img -baseline baseline.json

# Compares the service with PocketBase and with Better Auth, each in a process of its own. Only the
# module bench/peers depends on them.
bench-peers: redis
	cd bench/peers && go run . -out results
	.ci/install npm && cd bench/peers/better-auth && npm ci --no-audit --no-fund
	cd bench/peers && go run . -peer better-auth -accounts 10000,100000 -only ^redis/ -out results-better-auth
	cd bench/peers && go run . -chart ../../docs/img/speed-products.svg results.json results-better-auth.json

bench-quick:
	@cd bench && go run . -quick

fuzz:
	@$(PROGRESS) .ci/fuzz $(FUZZTIME)

# The searches of make test with two more preemptions. If there are too many orders to try all of
# them, it tries more than make test does.
search:
	USERDB_STATES=2000000 USERDB_PREEMPTIONS=3 USERDB_LOGIN_PREEMPTIONS=3 \
		$(PROGRESS) go test -timeout 20m -run 'Interleavings|Refusals' ./internal/store/cluster ./userdb_test

# Searches and random walks of the cluster protocol, tests that the replies to concurrent callers
# are linearizable, and faults, for as long as you like: make soak SOAK=10. A search of five million
# states needs some 5 GB; with more memory, use make soak STATES=50000000. At the end the service is
# under mixed load for an hour, and neither its memory nor its records in Redis may grow.
SOAK ?= 1
STATES ?= 5000000
TIMES ?= 20
soak: redis
	$(PROGRESS) go test -p 2 -count=$(TIMES) -timeout 0 ./...
	USERDB_SOAK=1 USERDB_STATES=$(STATES) USERDB_PREEMPTIONS=3 USERDB_PAUSES=8 USERDB_WALKS=$$(( 300000 * $(SOAK) )) USERDB_SEED=$$RANDOM \
		USERDB_LOGIN_PREEMPTIONS=4 USERDB_LOGIN_ORDERS=$$(( 3000 * $(SOAK) )) \
		USERDB_LINEAR_ROUNDS=$$(( 200 * $(SOAK) )) USERDB_CONTENTIONS=7 \
		$(PROGRESS) go test -p 1 -count=1 -timeout 0 -v -run 'Interleavings|Refusals|Walks|MatchesModel|Linearizable|MasterDies|Reshards|Failover|Contention' \
		./internal/store/cluster ./internal/store/throttle ./userdb_test
	USERDB_SERVE_MINUTES=$$(( 60 * $(SOAK) )) $(PROGRESS) go test -count=1 -timeout 0 -v -run '^TestStaysFlat$$' ./serve

# A test that fails only here depends on how the machine schedules it.
steady: redis
	@for i in 1 2 3 4; do (while :; do :; done) & loops+=" $$!"; done; trap 'kill $$loops' EXIT; \
		$(PROGRESS) go test -p 2 -count=3 -timeout 60m ./...

# Processes use a store while masters and the processes themselves are killed and stopped, replies
# are lost and slots move: see test/chaos/doc_test.go. The store is a cluster, one server, or a
# master with its replica and Sentinels; KIND=file is the embedded store on a disk that is full or
# slow at times. Without SEED it chooses a seed and prints it.
MINUTES ?= 3
KIND ?= cluster
SEED ?=
chaos: redis
	@minutes='$(MINUTES)'; USERDB_CHAOS_MINUTES=$$minutes USERDB_CHAOS_SEED='$(SEED)' USERDB_CHAOS_KIND='$(KIND)' \
		$(PROGRESS) go test -v -count=1 -timeout $$(( $${minutes%.*} + 15 ))m -run '^TestChaos(Lists)?$$' \
		$(if $(filter file,$(KIND)),./internal/embedded,./test/chaos)

# The tests of the store on Valkey, if it is installed.
test-valkey:
	USERDB_REDIS_SERVER=valkey-server $(PROGRESS) go test -count=1 ./internal/redistest ./internal/store/... ./userdb_test ./maintain/...

ci: redis compiler check vulnerabilities

# Fails if the code calls something with a known vulnerability. If the database cannot be reached,
# it prints one line and succeeds.
vulnerabilities:
	@$(PROGRESS) .ci/vulnerabilities

redis:
	.ci/install redis-server

compiler:
	.ci/install cc
