# `make help` lists the targets. All of them need Go and make; `make lint` and `make test RACE=1` also need a C compiler.

.DEFAULT_GOAL := help
.PHONY: help run demo upgrade test size api lint electionctl-test alerts-test page-test page-bench page-images sim fence charts image interop istiod istiod-inside conformance upgrade-test nightly bench bench-quick bench-server fuzz cover build tools clean

# Number of seeds that `make sim` plays.
SEEDS ?= 20000
# Number of random upgrades and random declarations that `make fence` installs.
UPGRADES ?= 500
# Number of objects in the cluster of `make bench-server`, and its limits of requests per second (-1: no limit).
NAMESPACES ?= 10000
INGRESSES ?= 2000
GATEWAYS ?= 1000
QPS ?= 40 -1
# Folder of etcd, kube-apiserver, kube-controller-manager and kubectl. Set it to use your own.
ifndef KUBEBUILDER_ASSETS
KUBEBUILDER_ASSETS := $(CURDIR)/bin
BUILD_TOOLS := tools
endif
export KUBEBUILDER_ASSETS

# One set of flags for lint, programs and tests, so that each package is compiled once. Without paths in the programs, the
# build cache also serves a second clone.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null)) -trimpath)
export CGO_ENABLED ?= 0

# Versions are pinned so that lint has the same result everywhere.
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.49.0
APIDIFF := golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
VALE := github.com/errata-ai/vale/v3/cmd/vale@v3.19.0
# Packages that run clusters wait more than they compute, so two cores run three of them.
PACKAGES_AT_ONCE ?= $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )))
# Compiler, tests, etcd and API servers collect garbage less often: a quarter less CPU time for more memory.
SPARING := GOGC=$${GOGC:-400} GOMEMLIMIT=$${GOMEMLIMIT:-2GiB}
# `make lint` runs vet, and a test binary needs no debug information.
ONCE := -vet=off -ldflags=-w
# The slowest packages start first, so that none of them runs alone at the end.
FIRST := ./tests/operate ./tests/faults/fence ./cmd/playground ./tests/upgrade/...
# With RACE=1 (CI) the race detector checks the packages whose code runs in the process of the test. The core and its simulation
# have no goroutines, and the remaining packages start programs that are not built with it.
RACE ?=
RACE_PACKAGES = $(filter-out %/internal/core %/internal/simulation %/internal/codec,$(shell go list ./pilot/... ./pkg/... ./internal/... ./tests/integration/...))
PLAIN_PACKAGES = $(filter-out $(RACE_PACKAGES),$(shell go list ./...))
SIM_PACKAGES := ./pilot/leaderelection/k8sleaderelection/internal/simulation
# The version of Helm is the version of its module.
HELM = $(shell awk '$$1 == "helm.sh/helm/v4" {print $$2}' tools/helm/go.mod)
# Version and platforms of `make image`.
VERSION ?= $(shell awk '$$1 == "appVersion:" {gsub(/"/, "", $$2); print $$2}' deploy/charts/pilot/Chart.yaml)
PLATFORMS ?= linux/$(shell go env GOARCH)
# Time that `make fuzz` spends on each target.
FUZZTIME ?= 20s

##@ See it

# With COORDINATED=1 a coordinator chooses the leaders among servers of two versions.
ifdef COORDINATED
PLAY := --coordinated
run demo: pilot-versions
endif

.PHONY: pilot-versions
pilot-versions:
	@for version in 1.1.0 1.2.0; do \
		bash tools/progress.sh "building pilot $$version into bin" go build -buildvcs=auto -ldflags "-w -X incumbent.dev/incumbent/pilot/bootstrap.releaseVersion=$$version" -o bin/pilot-$$version ./cmd/pilot || exit; \
	done

run: build $(BUILD_TOOLS) ## Start a local cluster with a control plane in two revisions; Ctrl-C stops it
	@exec bin/playground run $(PLAY) $(ARGS)

demo: build $(BUILD_TOOLS) ## Run scripted steps on such a cluster and print the result and duration of each (at most two minutes; COORDINATED=1: with a coordinator)
	@exec bin/playground demo $(PLAY) $(ARGS)

upgrade: build $(BUILD_TOOLS) ## Upgrade from stable to canary and back with the charts, under load, and check the audit log
	@exec bin/playground upgrade $(ARGS)

##@ Check it

test: $(BUILD_TOOLS) tests-compiled ## Run all tests, with a real API server (RACE=1: with the race detector where it applies)
	@$(MAKE) --no-print-directory --jobs=2 test-packages test-modules

# Elections lose their leaders if compilers use all cores for minutes, so the tests are compiled first.
.PHONY: tests-compiled test-packages test-modules
tests-compiled:
	@echo "compiling the tests (takes minutes with an empty cache) …"
	@for module in . adapters/controllerruntime electionctl examples/fencing tests/integration/alerts tests/integration/page; do \
		$(SPARING) go list -C $$module -export -test ./... >/dev/null || exit; \
	done
	@cd tools/helm && $(SPARING) go list -export -test ./... >/dev/null
ifneq ($(RACE),)
	@$(SPARING) CGO_ENABLED=1 go list -race -export -test $(RACE_PACKAGES) >/dev/null
endif

test-packages:
ifneq ($(RACE),)
	$(SPARING) go test $(ONCE) -p $(PACKAGES_AT_ONCE) -timeout 15m $(FIRST) $(PLAIN_PACKAGES)
	$(SPARING) CGO_ENABLED=1 go test -race $(ONCE) -p $(PACKAGES_AT_ONCE) -timeout 20m $(RACE_PACKAGES)
else
	$(SPARING) go test $(ONCE) -p $(PACKAGES_AT_ONCE) -timeout 15m $(FIRST) ./...
endif

test-modules:
	cd tools/helm && $(SPARING) go test $(ONCE) -timeout 15m ./...
	cd tools/image && $(SPARING) go test $(ONCE) -timeout 5m ./...
	cd adapters/controllerruntime && $(SPARING) go test $(ONCE) -timeout 10m ./...
	cd examples/fencing && $(SPARING) go test $(ONCE) -timeout 5m ./...
	cd electionctl && $(SPARING) go test $(ONCE) -timeout 5m ./...
	cd tests/integration/alerts && $(SPARING) go test $(ONCE) -timeout 10m ./...
	cd tests/integration/page && $(SPARING) go test $(ONCE) -timeout 10m ./...

page-test: ## Run only the tests of the elections page, in Chromium (apt-get install --no-install-recommends chromium)
	go test -count=1 ./pilot/page
	cd tests/integration/page && go test -count=1 -v -timeout 5m ./... $(ARGS)

alerts-test: $(BUILD_TOOLS) ## Run only the tests of alerts and dashboard, with Prometheus (apt-get install --no-install-recommends prometheus)
	cd tests/integration/alerts && go test -count=1 -v -timeout 5m ./... $(ARGS)

electionctl-test: $(BUILD_TOOLS) ## Run only the tests of electionctl (ARGS=-rewrite: update the golden files)
	cd electionctl && go test -count=1 -timeout 5m ./... -args $(ARGS)

lint: linters unused ## Check format, vet, golangci-lint, unused functions, language and links

.PHONY: linters unused
linters:
	@files=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	@files=$$(git ls-files '*.orig' '*.rej'); if [ -n "$$files" ]; then echo "left over from a merge:"; echo "$$files"; exit 1; fi
	go run $(GOLANGCI) run ./...
	cd examples/fencing && go vet ./...
	cd adapters/controllerruntime && LOG_LEVEL=error go run $(GOLANGCI) run -c ../../.golangci.yml ./...
	@# At level error, because some exclusions are used by the root module only.
	cd electionctl && LOG_LEVEL=error go run $(GOLANGCI) run -c ../.golangci.yml ./...
	cd tests/conformance && go vet ./...
	cd tests/integration/alerts && go vet ./... && go run $(STATICCHECK) ./...
	cd tests/integration/page && go vet ./... && go run $(STATICCHECK) ./...
	cd tools/helm && go vet ./...
	cd tools/image && go vet ./...
	CGO_ENABLED=1 go run $(VALE) --output=line $$(git ls-files '*.go' '*.md')
	go test ./tests/repo/language ./tests/repo/readme

unused:
	@# A workspace, so that one run reads the two modules and what they require.
	@mkdir -p .cache && rm -f .cache/go.work && cd .cache && go work init .. ../electionctl
	@dead=$$(GOWORK=$(CURDIR)/.cache/go.work go run $(DEADCODE) -test -filter '^incumbent\.dev/' ./... ./electionctl/...) || exit 1; \
	if [ -n "$$dead" ]; then echo "not called by a program or a test:"; echo "$$dead"; exit 1; fi

##@ Check more

sim: ## Simulate elections; every planted bug must be found (SEEDS=20000; a twentieth of them with the real loop, locks and coordinator)
	SIM_SEEDS=$(SEEDS) go test -count=1 -v -timeout 60m $(SIM_PACKAGES)
	SIM_SEEDS=$$(( $(SEEDS) / 20 )) go test -count=1 -v -timeout 60m -run 'Random' ./pilot/leaderelection
	SIM_SEEDS=$$(( $(SEEDS) / 20 )) go test -count=1 -v -timeout 30m -run 'Random' ./pilot/leaderelection/coordination

upgrade-test: $(BUILD_TOOLS) ## Upgrade with every fault, and flip the default revision 50 times (UPGRADE_SEED: the seed of the writer)
	UPGRADE=whole go test -count=1 -v -timeout 60m ./tests/upgrade/...

interop: $(BUILD_TOOLS) ## Elect together with the electors of istiod and client-go (compiles istiod, which takes minutes)
	cd tests/peers && go vet ./... && go run $(STATICCHECK) ./... && go test -count=1 -timeout 15m ./... $(ARGS)
	@bash .ci/inputs record interop

# The programs of `make istiod` and `make istiod-inside`.
ISTIOD := $(CURDIR)/.cache/istiod

istiod: $(BUILD_TOOLS) ## Run the real istiod next to incumbent: installation, restarts, crashes, 10 flips, status of Gateways (compiles istiod; half an hour)
	@mkdir -p $(ISTIOD)
	cd tests/peers && go build -ldflags=-w -o $(ISTIOD)/ istio.io/istio/pilot/cmd/pilot-discovery
	cd tests/peers && ISTIOD=$(ISTIOD)/pilot-discovery go test -count=1 -v -timeout 60m -run "TestScenarios|TestGatewayStatus" ./istiod $(ARGS)

istiod-inside: $(BUILD_TOOLS) ## Build istiod with incumbent's elections, run Istio's own tests of them, and compare flips with the stock istiod (half an hour)
	@mkdir -p $(ISTIOD)
	cd tests/peers && go build -ldflags=-w -o $(ISTIOD)/ istio.io/istio/pilot/cmd/pilot-discovery
	cd tests/peers && bash istiod/inside.sh $(ISTIOD)
	cd tests/peers && ISTIOD=$(ISTIOD)/pilot-discovery ISTIOD_INSIDE=$(ISTIOD)/istiod-inside go test -count=1 -v -timeout 60m -run TestInside ./istiod $(ARGS)
	cd tests/peers && bash istiod/inside.sh test $(ISTIOD)

conformance: $(BUILD_TOOLS) ## Run the tests of the Gateway API conformance suite that need no traffic (ARGS=-run=TestConformance/steady)
	cd tests/conformance && go vet ./... && go test -count=1 -v -timeout 15m ./... $(ARGS)
	@bash .ci/inputs record conformance

nightly: ## Run everything that the gate leaves out, and print one summary (hours)
	@bash .ci/nightly

fence: ## Install 100,000 random fences on a model of API servers (UPGRADES=500)
	FENCE_MODEL_UPGRADES=$$(( $(UPGRADES) * 200 )) go test -count=1 -timeout 60m -run 'TestModel_Upgrades' ./internal/fence/install

fuzz: ## Run each fuzz target for FUZZTIME
	@set -e; for package in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u); do \
		for target in $$(git grep -h '^func Fuzz' -- $$package'/*_test.go' | sed 's/func \(Fuzz[A-Za-z0-9_]*\).*/\1/'); do \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) ./$$package; \
		done; \
	done

cover: $(BUILD_TOOLS) ## Write .cache/cover.html: the lines that tests run
	@mkdir -p .cache
	go test -timeout 20m -coverpkg=./pilot/...,./pkg/... -coverprofile=.cache/cover.out ./...
	go tool cover -html=.cache/cover.out -o .cache/cover.html
	@go tool cover -func=.cache/cover.out | tail -n 1

size: ## Compare packages and size of the README's example with the same program on client-go (in docs/migration.md), and run client-go's tests
	go test -count=1 -v -run 'TestPackagesOfTheExample|TestClientGo_OwnTests' ./tests/repo/library -sizes

api: ## List incompatible changes of the public API since a tag or commit: make api BASE=v0.1.0
	@base=$$(git rev-parse --verify --quiet "$(BASE)^{commit}") || { echo "BASE=$(BASE) is not a tag or commit: make api BASE=v0.1.0"; exit 2; }; \
	d=$$(mktemp -d) && trap 'git worktree remove --force "$$d/base" 2>/dev/null; rm -rf "$$d"' EXIT && \
	git worktree add --quiet --detach "$$d/base" "$$base" && \
	{ (cd "$$d/base" && go run $(APIDIFF) -m -w "$$d/old" incumbent.dev/incumbent) 2>"$$d/errors" && \
	  go run $(APIDIFF) -m -incompatible "$$d/old" incumbent.dev/incumbent >"$$d/changes" 2>"$$d/errors" || { cat "$$d/errors"; exit 1; }; } && \
	if grep -v '^- ./\(tests\|internal\)/' "$$d/changes" | sort -u | grep .; then :; else echo "no incompatible change since $(BASE)"; fi

##@ Measure

bench: $(BUILD_TOOLS) ## Compare with the electors of istiod and client-go, and write docs/benchmarks.md (half an hour; ARGS=-resume, ARGS=-scenarios=crash)
	cd tests/peers && go run ./bench $(ARGS)

bench-quick: $(BUILD_TOOLS) ## The same with few rounds in five minutes; prints only
	cd tests/peers && go run ./bench -quick $(ARGS)

bench-server: $(BUILD_TOOLS) ## Measure pilot with many objects: first reconcile, handover, memory, per limit of QPS (a quarter of an hour; QPS=-1: two minutes)
	BENCH_NAMESPACES=$(NAMESPACES) BENCH_INGRESSES=$(INGRESSES) BENCH_GATEWAYS=$(GATEWAYS) BENCH_QPS='$(QPS)' \
		go test -run '^$$' -bench . -benchtime 1x -timeout 90m ./tests/integration/server

page-bench: ## Measure the elections page: time until a change is visible, 200 elections (a minute)
	cd tests/integration/page && go test -count=1 -run '^$$' -bench . -benchtime 1x -timeout 10m . && \
		go test -count=1 -run '^$$' -bench ChangeVisible -benchtime 40x -timeout 10m .

##@ Build it

build: ## Build the programs into bin
	@mkdir -p bin
	@bash tools/progress.sh "building pilot and the playground into bin" go build -v -buildvcs=auto -ldflags=-w -o bin/ ./cmd/... ./tests/cluster/dataplane
	@bash tools/progress.sh "building electionctl into bin" go -C electionctl build -v -buildvcs=auto -ldflags '-s -w' -o ../bin/ .
	@ln -sf electionctl bin/kubectl-election
	@cp electionctl/kubectl_complete-election bin/
	@bash tools/progress.sh "building helm $(HELM) into bin" go -C tools/helm build -v -buildvcs=false -ldflags '-s -w -X helm.sh/helm/v4/internal/version.version=$(HELM)' -o ../../bin/ .

page-images: ## Update the pictures of the elections page in docs/images
	cd tests/integration/page && go test -count=1 -run TestPictures . -pictures $(CURDIR)/docs/images

charts: $(BUILD_TOOLS) ## Generate the policies of the charts and deploy/kustomize
	cd tools/helm && go test -count=1 -run 'TestChart_Fence|TestKustomize|TestChart_MatchesServer' . -args -rewrite

image: ## Build an OCI image of static binaries for PLATFORMS into bin/image
	cd tools/image && go run . -root ../.. -out ../../bin/image -version "$(VERSION)" -platforms "$(PLATFORMS)"

tools: ## Build etcd, kube-apiserver, kube-controller-manager and kubectl into bin (takes minutes the first time)
	@bash tools/build.sh

clean: ## Remove build results
	rm -rf bin .cache

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
