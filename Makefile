# make help lists the targets. Everything here needs Go and make; `race` needs a C compiler too.

.DEFAULT_GOAL := help
.PHONY: help run demo upgrade upgrade-test test race size api lint electionctl-test alerts-test page-test page-bench page-images coordination-bench sim play mutants connections fence charts dashboard image interop conformance bench bench-quick bench-ours bench-server fuzz cover build tools clean

# How many seeds `make sim` plays.
SEEDS ?= 20000
# How many connections `make connections` kills, and how many seeds `make play` plays.
RUNS ?= 100
# How many random upgrades and random declarations `make fence` installs.
UPGRADES ?= 500
DECLARATIONS ?= 300
# What `make mutants` plants faults in, and how many of them; empty and 0: all.
ROOM ?=
MUTANTS_N ?= 0
# How much there is in the cluster of `make bench-server`, and the limits of requests a second; -1: none.
NAMESPACES ?= 10000
INGRESSES ?= 2000
GATEWAYS ?= 1000
QPS ?= 40 -1
# By how much deeper it explores every state than `make test` does.
# Where etcd, kube-apiserver, kube-controller-manager and kubectl lie. Set it to use your own.
ifndef KUBEBUILDER_ASSETS
KUBEBUILDER_ASSETS := $(CURDIR)/bin
BUILD_TOOLS := tools
endif
export KUBEBUILDER_ASSETS

# Pinned, so that lint says the same everywhere.
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.49.0
APIDIFF := golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
# Packages that run clusters wait more than they compute: two cores have time for three.
PACKAGES_AT_ONCE ?= $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )))
# The compiler, the tests, etcd and API servers collect garbage less often: a quarter less CPU for more memory.
SPARING := GOGC=$${GOGC:-400} GOMEMLIMIT=$${GOMEMLIMIT:-2GiB}
# lint vets everything, and nobody debugs a binary that is run once.
ONCE := -vet=off -ldflags=-w
# They take longest: begun last, they would be alone at the end.
FIRST := ./tests/faults/fence ./cmd/playground ./tests/integration/elections ./tests/upgrade
RACE_PACKAGES ?= $(FIRST) ./...
SIM_PACKAGES := ./pilot/leaderelection/k8sleaderelection/internal/simulation
# How many seeds it plays through real loops, locks and watches, and the planted bugs with them.
PLAY_SEEDS ?= 2000
# The version of Helm, as its module's.
HELM = $(shell awk '$$1 == "helm.sh/helm/v4" {print $$2}' tools/helm/go.mod)
# What `make image` makes, and for which machines.
VERSION ?= $(shell awk '$$1 == "appVersion:" {gsub(/"/, "", $$2); print $$2}' deploy/charts/pilot/Chart.yaml)
PLATFORMS ?= linux/$(shell go env GOARCH)
# How long `make fuzz` spends on each target.
FUZZTIME ?= 20s

##@ See it

# With COORDINATED=1 a coordinator chooses who leads, among servers of two versions.
ifdef COORDINATED
PLAY := --coordinated --pilot bin/pilot-1.2.0 --older bin/pilot-1.1.0
run demo: pilot-versions
endif

.PHONY: pilot-versions
pilot-versions:
	@for version in 1.1.0 1.2.0; do \
		bash tools/progress.sh "building pilot $$version into bin" go build -buildvcs=auto -ldflags "-X incumbent.dev/incumbent/pilot/bootstrap.releaseVersion=$$version" -o bin/pilot-$$version ./cmd/pilot || exit; \
	done

run: build $(BUILD_TOOLS) ## Start a cluster here with a control plane in two revisions; Ctrl-C ends it (ARGS=--kubeconfig=FILE: use that cluster)
	@exec bin/playground run $(PLAY) $(ARGS)

demo: build $(BUILD_TOOLS) ## The same, scripted: each step says what happened and how long it took (two minutes at most; COORDINATED=1: with a coordinator)
	@exec bin/playground demo $(PLAY) $(ARGS)

upgrade: build $(BUILD_TOOLS) ## An upgrade from stable to canary and back by the charts, under load, told step by step, and the audit log's verdict
	@exec bin/playground upgrade $(ARGS)

##@ Check it

test: $(BUILD_TOOLS) tests-compiled ## All tests, on a real API server, with 2,000 simulated seeds
	@$(MAKE) --no-print-directory --jobs=2 test-packages test-modules

# Elections beside compilers that keep all cores for minutes lose their leaders, as they should.
.PHONY: tests-compiled test-packages test-modules
tests-compiled:
	@echo "compiling the tests (minutes, where nothing is cached) …"
	@for module in . electionctl examples/fencing tests/integration/alerts tests/integration/page; do \
		$(SPARING) go -C $$module list -export -test ./... >/dev/null || exit; \
	done
	@cd tools/helm && $(SPARING) CGO_ENABLED=0 go list -trimpath -export -test ./... >/dev/null

test-packages:
	$(SPARING) go test $(ONCE) -p $(PACKAGES_AT_ONCE) -timeout 15m $(FIRST) ./...

test-modules:
	cd tools && go test -timeout 5m ./lifeline/... ./dashboard/...
	cd tools/helm && CGO_ENABLED=0 go test -trimpath -timeout 15m ./...
	cd tools/image && CGO_ENABLED=0 go test -trimpath -timeout 5m ./...
	cd examples/fencing && go test -timeout 5m ./...
	cd electionctl && go test -timeout 5m ./...
	cd tests/integration/alerts && go test -timeout 10m ./...
	cd tests/integration/page && go test -timeout 10m ./...

page-test: $(BUILD_TOOLS) ## Of these, the ones of the elections page, in Chromium (apt-get install --no-install-recommends chromium)
	go test -count=1 ./pilot/debug
	cd tests/integration/page && go test -count=1 -v -timeout 5m ./... $(ARGS)

page-bench: $(BUILD_TOOLS) ## The elections page: a flip until it is seen, frames with 200 elections, what 100 open pages cost the leader (two minutes)
	cd tests/integration/page && go test -count=1 -run '^$$' -bench . -benchtime 1x -timeout 10m . && \
		go test -count=1 -run '^$$' -bench FlipVisible -benchtime 40x -timeout 10m .

coordination-bench: $(BUILD_TOOLS) ## How fast a coordinated election passes, beside client-go's candidates under the same API server (three minutes)
	go test -count=1 -run '^$$' -bench HandoverByKubernetes -benchtime 10x -timeout 15m ./pilot/leaderelection/coordination

page-images: build $(BUILD_TOOLS) ## Take the pictures of the elections page anew, from the demo (docs/images, two minutes)
	cd tests/integration/page && go run ./pictures -out ../../docs/images $(ARGS)

alerts-test: $(BUILD_TOOLS) ## Of these, the ones of alerts and dashboard, by Debian's prometheus (apt-get install --no-install-recommends prometheus)
	cd tools && go test -count=1 ./dashboard/...
	cd tests/integration/alerts && go test -count=1 -v -timeout 5m ./... $(ARGS)

electionctl-test: $(BUILD_TOOLS) ## Of these, the ones of what people type (ARGS=-rewrite: write anew what is printed)
	cd electionctl && go test -count=1 -timeout 5m ./... -args $(ARGS)

race: $(BUILD_TOOLS) ## The same under the race detector, a package at a time for each core, with fewer simulated seeds
	$(SPARING) SIM_SEEDS=$${SIM_SEEDS:-100} CGO_ENABLED=1 go test -race -p $$(getconf _NPROCESSORS_ONLN) -timeout 25m $(RACE_PACKAGES)

size: ## Packages and stripped size of README's example, beside the same program with client-go alone
	go test -count=1 -v -run TestPackagesOfTheExample ./tests/repo/library -sizes

lint: ## gofmt, golangci-lint, functions that nobody calls, and that no test sleeps
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	go run $(GOLANGCI) run ./...
	cd examples/fencing && go vet ./...
	@# Not its warnings: of exclusions that are the root module's.
	cd electionctl && LOG_LEVEL=error go run $(GOLANGCI) run -c ../.golangci.yml ./...
	@dead=$$(cd electionctl && go run $(DEADCODE) -test ./...) || exit 1; \
	if [ -n "$$dead" ]; then echo "neither electionctl nor a test calls:"; echo "$$dead"; exit 1; fi
	cd tests/conformance && go vet ./...
	cd tests/integration/alerts && go vet ./... && go run $(STATICCHECK) ./...
	cd tests/integration/page && go vet ./... && go run $(STATICCHECK) ./...
	cd tools && go vet ./dashboard && go run $(STATICCHECK) ./dashboard
	cd tools/helm && go vet ./...
	cd tools/image && go vet ./...
	@dead=$$(go run $(DEADCODE) -test ./...) || exit 1; \
	if [ -n "$$dead" ]; then echo "neither a program nor a test calls:"; echo "$$dead"; exit 1; fi
	go run ./tests/repo/lint

api: ## What callers of another version would have to change: make api BASE=v0.1.0, or any commit (tests/repo/api has what never changes)
	@base=$$(git rev-parse --verify --quiet "$(BASE)^{commit}") || { echo "BASE=$(BASE) is no tag or commit: make api BASE=v0.1.0"; exit 2; }; \
	d=$$(mktemp -d) && trap 'git worktree remove --force "$$d/base" 2>/dev/null; rm -rf "$$d"' EXIT && \
	git worktree add --quiet --detach "$$d/base" "$$base" && \
	{ (cd "$$d/base" && go run $(APIDIFF) -m -w "$$d/old" incumbent.dev/incumbent) 2>"$$d/said" && \
	  go run $(APIDIFF) -m -incompatible "$$d/old" incumbent.dev/incumbent >"$$d/changes" 2>"$$d/said" || { cat "$$d/said"; exit 1; }; } && \
	if grep -v '^- ./tests/' "$$d/changes" | sort -u | grep .; then :; else echo "nothing: what compiles with $(BASE) still does"; fi

sim: ## Simulate elections: make sim SEEDS=20000; every planted bug must be caught on the way
	SIM_SEEDS=$(SEEDS) go test -count=1 -v -timeout 60m $(SIM_PACKAGES)
	SIM_SEEDS=$(PLAY_SEEDS) go test -count=1 -v -timeout 60m -run 'ElectionsAtRandom' ./pilot/leaderelection
	SIM_SEEDS=$(SEEDS) go test -count=1 -v -timeout 30m -run 'TestPlanAtRandom' ./pilot/leaderelection/coordination
	ORACLE_SETS=500 go test -count=1 -v -timeout 10m -run 'TestTheAPIServersControllerChoosesTheSame' ./pilot/leaderelection/coordination

play: $(BUILD_TOOLS) ## Elections at random on a real API server, RUNS seeds of them (five seconds a seed; PLAY_FIRST=17 RUNS=1 plays that one again)
	PLAY_SEEDS=$(RUNS) go test -count=1 -v -timeout 60m ./tests/integration/play

connections: $(BUILD_TOOLS) ## How many terms dead connections cost, RUNS of them (two minutes for 100)
	DEAD_CONNECTIONS=$(RUNS) go test -count=1 -v -timeout 20m -run 'TestTermsLostByDeadConnections' ./tests/faults/connections

fence: $(BUILD_TOOLS) ## Install UPGRADES random upgrades and DECLARATIONS random declarations of fences on a real API server, and 200 times as many upgrades on a model
	FENCE_MODEL_UPGRADES=$$(( $(UPGRADES) * 200 )) go test -count=1 -v -timeout 60m -run 'TestUpgradesOnAModel' ./internal/fence/install
	FENCE_UPGRADES=$(UPGRADES) FENCE_DECLARATIONS=$(DECLARATIONS) go test -count=1 -v -timeout 60m -run 'TestFenceRandomUpgrades|TestFenceOfRandomDeclarations' ./tests/faults/fence

mutants: $(BUILD_TOOLS) ## Plant small faults in the code and list those that no test notices: make mutants ROOM=core MUTANTS_N=200 (ARGS=-again)
	go run ./tests/mutants -rooms='$(ROOM)' -n='$(MUTANTS_N)' $(if $(MUTANTS_SEED),-seed='$(MUTANTS_SEED)') $(ARGS)

upgrade-test: $(BUILD_TOOLS) ## The upgrade with all that can go wrong on the way, and 50 flips (UPGRADE_SEED: the writer's)
	UPGRADE=whole go test -count=1 -v -timeout 60m ./tests/upgrade/...
	cd tests/peers && UPGRADE=whole go test -count=1 -v -timeout 30m ./upgrade

interop: $(BUILD_TOOLS) ## Elect together with istiod's and client-go's electors, the real ones (compiling them takes minutes)
	cd tests/peers && go vet ./... && go run $(STATICCHECK) ./... && go test -count=1 -timeout 15m ./... $(ARGS)

conformance: $(BUILD_TOOLS) ## Run those tests of the Gateway API's conformance suite that send no traffic, by name (ARGS=-run=TestByName/steady)
	cd tests/conformance && go vet ./... && go test -count=1 -v -timeout 15m ./... $(ARGS)

bench: $(BUILD_TOOLS) ## Measure us beside istiod's and client-go's electors, half an hour, and write docs/benchmarks.md (ARGS=-resume, ARGS=-scenarios=crash)
	cd tests/peers && go run ./bench $(ARGS)

bench-quick: $(BUILD_TOOLS) ## The same with few rounds in five minutes, printed only
	cd tests/peers && go run ./bench -quick $(ARGS)

bench-ours: $(BUILD_TOOLS) ## Go benchmarks of ours alone: handovers, recovery, requests and the fence, on a real API server
	go test -run '^$$' -bench . -timeout 60m ./tests/integration/elections ./tests/faults/fence

bench-server: $(BUILD_TOOLS) ## pilot as a process, with NAMESPACES, INGRESSES and GATEWAYS: first reconcile, take-over, memory, at each limit of QPS (a quarter of an hour; QPS=-1: two minutes)
	BENCH_NAMESPACES=$(NAMESPACES) BENCH_INGRESSES=$(INGRESSES) BENCH_GATEWAYS=$(GATEWAYS) BENCH_QPS='$(QPS)' \
		go test -run '^$$' -bench . -benchtime 1x -timeout 90m ./tests/integration/server

fuzz: ## Feed each fuzz target for FUZZTIME
	@set -e; for package in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u); do \
		for target in $$(git grep -h '^func Fuzz' -- $$package'/*_test.go' | sed 's/func \(Fuzz[A-Za-z0-9_]*\).*/\1/'); do \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) ./$$package; \
		done; \
	done

cover: $(BUILD_TOOLS) ## Which lines the tests reach: cover.html in .cache
	@mkdir -p .cache
	go test -timeout 20m -coverpkg=./pilot/...,./pkg/... -coverprofile=.cache/cover.out ./...
	go tool cover -html=.cache/cover.out -o .cache/cover.html
	@go tool cover -func=.cache/cover.out | tail -n 1

##@ Build it

build: ## Build the programs into bin
	@mkdir -p bin
	@bash tools/progress.sh "building pilot and the playground into bin" go build -v -buildvcs=auto -o bin/ ./cmd/... ./cmd/playground ./tests/cluster/dataplane
	@bash tools/progress.sh "building electionctl into bin" go -C electionctl build -v -buildvcs=auto -ldflags '-s -w' -o ../bin/ .
	@ln -sf electionctl bin/kubectl-election
	@cp electionctl/kubectl_complete-election bin/
	@bash tools/progress.sh "building helm $(HELM) into bin" env CGO_ENABLED=0 go -C tools/helm build -v -trimpath -buildvcs=false -ldflags '-s -w -X helm.sh/helm/v4/internal/version.version=$(HELM)' -o ../../bin/ .

charts: $(BUILD_TOOLS) ## Write anew what deploy holds of the packages: the charts' policies and deploy/kustomize
	cd tools/helm && CGO_ENABLED=0 go test -trimpath -count=1 -run 'TestFenceOfTheChart|TestKustomize' . -args -rewrite

dashboard: ## Write anew the dashboard of the chart pilot, from tools/dashboard
	cd tools && go run ./dashboard -out ../deploy/charts/pilot/files/dashboard.json

image: ## Put static binaries for PLATFORMS on an empty base, as an OCI layout in bin/image
	cd tools/image && go run . -root ../.. -out ../../bin/image -version "$(VERSION)" -platforms "$(PLATFORMS)"

tools: ## Build etcd, kube-apiserver, kube-controller-manager and kubectl into bin (long the first time)
	@bash tools/build.sh

clean: ## Remove what was built
	rm -rf bin .cache

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
