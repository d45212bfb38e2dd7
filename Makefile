# `make help` lists the targets. All of them need Go and make; `make lint` and `make test RACE=1` also need a C compiler.

.DEFAULT_GOAL := help
.PHONY: help run demo upgrade pilot-versions test tests-compiled test-packages test-modules lint linters unused sim explore fence fuzz upgrade-test \
	interop istiod istiod-inside conformance nightly api size bench bench-quick bench-slow bench-server build charts image release page-images tools clean

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
# Compiler, tests, etcd and API servers collect garbage less often: a quarter less CPU time for more memory. A test binary needs no
# vet, which `make lint` runs, and no debug information. Packages that run clusters wait more than they compute, so two cores run three.
SPARING := GOGC=$${GOGC:-400} GOMEMLIMIT=$${GOMEMLIMIT:-2GiB}
TEST := $(SPARING) go test -vet=off -ldflags=-w
AT_ONCE := -p $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) * 3 + 1) / 2 )))
# The slowest packages start first, so that none of them runs alone at the end.
FIRST := ./tests/operate ./tests/faults/fence ./cmd/playground ./tests/upgrade/...
# The race detector checks the packages whose code runs in the process of the test. The core has no goroutines, those
# of its simulation share a table of numbers, and the remaining packages start programs that are not built with it.
RACE_PACKAGES = $(filter-out %/internal/core %/internal/simulation,$(shell go list ./pilot/... ./pkg/... ./internal/... ./tests/integration/...))
PLAIN_PACKAGES = $(filter-out $(RACE_PACKAGES),$(shell go list ./...))
# With COORDINATED=1 a coordinator chooses the leaders among servers of two versions.
PLAY := $(if $(COORDINATED),--coordinated)
VERSION ?= $(shell awk '$$1 == "appVersion:" {gsub(/"/, "", $$2); print $$2}' deploy/charts/pilot/Chart.yaml)
PLATFORMS ?= linux/$(shell go env GOARCH)
# The folder of the programs of `make istiod` and `make istiod-inside`.
ISTIOD := $(CURDIR)/.cache/istiod

##@ See it

run demo: build $(BUILD_TOOLS) $(if $(COORDINATED),pilot-versions)
	@exec bin/playground $@ $(PLAY) $(ARGS)
run: ## Start a local cluster with a control plane in two revisions; Ctrl-C stops it
demo: ## Run scripted steps on such a cluster, and print the result and duration of each (at most two minutes; COORDINATED=1: with a coordinator)
upgrade: build $(BUILD_TOOLS) ## Upgrade from stable to canary and back with the charts, under load, and check the audit log
	@exec bin/playground upgrade $(ARGS)

##@ Check it

test: $(BUILD_TOOLS) tests-compiled ## Run all tests, with a real API server (RACE=1: with the race detector where it applies)
	@$(MAKE) --no-print-directory --jobs=2 test-packages test-modules
tests-compiled: # Elections lose their leaders if compilers use all cores for minutes, so the tests are compiled first.
	@echo "compiling the tests (takes minutes with an empty cache) …"
	@for module in . adapters/controllerruntime electionctl examples/fencing; do $(SPARING) go list -C $$module -export -test ./... >/dev/null || exit; done
	@$(SPARING) go list -C tools -export -test ./helm ./release >/dev/null && $(SPARING) go list -C tests/extra -export -test ./alerts ./gitops ./page >/dev/null
	@$(if $(RACE),$(SPARING) CGO_ENABLED=1 go list -race -export -test $(RACE_PACKAGES) >/dev/null)
test-packages:
	$(TEST) $(AT_ONCE) -timeout 15m $(FIRST) $(if $(RACE),$(PLAIN_PACKAGES),./...)
	$(if $(RACE),CGO_ENABLED=1 $(TEST) -race $(AT_ONCE) -timeout 20m $(RACE_PACKAGES))
test-modules:
	cd tools && $(TEST) -p 1 -timeout 15m ./helm ./release
	cd adapters/controllerruntime && $(TEST) -timeout 10m ./...
	cd examples/fencing && $(TEST) -timeout 5m ./...
	cd electionctl && $(TEST) -timeout 5m ./...
	cd tests/extra && $(TEST) -p 1 -timeout 10m ./alerts ./gitops ./page
lint: linters unused ## Check format, vet, golangci-lint, unused functions, language and links
linters unused:
	@bash tools/lint.sh $@

##@ Check more

sim: ## Simulate elections; every planted bug must be found (SEEDS=20000; a twentieth of them with the real loop, locks and coordinator)
	SIM_SEEDS=$(or $(SEEDS),20000) go test -count=1 -v -timeout 60m ./pilot/leaderelection/k8sleaderelection/internal/simulation
	SIM_SEEDS=$$(( $(or $(SEEDS),20000) / 20 )) go test -count=1 -v -timeout 60m -run 'Random' ./pilot/leaderelection ./pilot/leaderelection/coordination
explore: ## Play every schedule of small worlds, for at most 20 minutes on two cores; every planted bug must be found (STATES=1000000 at most with each set of faults)
	EXPLORE_STATES=$(or $(STATES),1000000) go test -count=1 -v -timeout 120m -run TestExplore ./pilot/leaderelection/k8sleaderelection/internal/simulation
fence: ## Install 100,000 random fences on a model of API servers (UPGRADES=500)
	FENCE_MODEL_UPGRADES=$$(( $(or $(UPGRADES),500) * 200 )) go test -count=1 -timeout 60m -run 'TestModel_Upgrades' ./internal/fence/install
fuzz: ## Run each fuzz target for FUZZTIME (20s)
	@bash tools/fuzz.sh $(FUZZTIME)
upgrade-test: $(BUILD_TOOLS) ## Upgrade with every fault, and flip the default revision 50 times (UPGRADE_SEED: the seed of the writer)
	UPGRADE=whole go test -count=1 -v -timeout 60m ./tests/upgrade/...
interop: $(BUILD_TOOLS) ## Elect together with the electors of istiod and client-go (compiles istiod, which takes minutes)
	@bash tools/lint.sh peers
	cd tests/peers && go test -count=1 -timeout 15m ./... $(ARGS)
.cache/istiod/pilot-discovery: tests/peers/go.mod
	cd tests/peers && go build -ldflags=-w -o $(ISTIOD)/ istio.io/istio/pilot/cmd/pilot-discovery
istiod: $(BUILD_TOOLS) .cache/istiod/pilot-discovery ## Run the real istiod next to incumbent: installation, restarts, crashes, 10 flips, status of Gateways (compiles istiod; half an hour)
	cd tests/peers && ISTIOD=$(ISTIOD)/pilot-discovery go test -count=1 -v -timeout 60m -run 'TestScenarios|TestGatewayStatus' ./istiod $(ARGS)
istiod-inside: $(BUILD_TOOLS) .cache/istiod/pilot-discovery ## Build istiod with incumbent's elections, run Istio's own tests of them, and compare flips with the stock istiod (half an hour)
	cd tests/peers && bash istiod/inside.sh $(ISTIOD)
	cd tests/peers && ISTIOD=$(ISTIOD)/pilot-discovery ISTIOD_INSIDE=$(ISTIOD)/istiod-inside go test -count=1 -v -timeout 60m -run TestInside ./istiod $(ARGS)
	cd tests/peers && bash istiod/inside.sh test $(ISTIOD)
conformance: $(BUILD_TOOLS) ## Run the tests of the Gateway API conformance suite that need no traffic (ARGS=-run=TestConformance/steady)
	cd tests/extra && go test -count=1 -v -timeout 15m ./conformance $(ARGS)
nightly: ## Run everything that the gate leaves out, and print one summary (hours)
	@bash .ci/nightly
api: ## List incompatible changes of the public API since a tag or commit: make api BASE=v0.1.0
	@bash tools/apidiff.sh "$(BASE)"
size: ## Compare packages and size of the README's example with the same program on client-go (in docs/migration.md), and run client-go's tests
	go test -count=1 -v -run 'TestPackagesOfTheExample|TestClientGo_OwnTests' ./tests/repo/library -sizes

##@ Measure

bench: $(BUILD_TOOLS) ## Compare with the electors of istiod and client-go, and write docs/benchmarks.md (forty minutes; ARGS=-resume, ARGS=-scenarios=crash)
	cd tests/peers && go run ./bench $(ARGS)
bench-quick: $(BUILD_TOOLS) ## The same with few rounds in seven minutes; prints only
	cd tests/peers && go run ./bench -quick $(ARGS)
bench-slow: $(BUILD_TOOLS) ## Compare with client-go while answers are late and connections dead; prints a table after two minutes
	cd tests/peers && go run ./slow $(ARGS)
bench-server: $(BUILD_TOOLS) ## Measure pilot with many objects: first reconcile, handover, memory, per limit of QPS (a quarter of an hour; QPS=-1: two minutes)
	BENCH_NAMESPACES=$(or $(NAMESPACES),10000) BENCH_INGRESSES=$(or $(INGRESSES),2000) BENCH_GATEWAYS=$(or $(GATEWAYS),1000) BENCH_QPS='$(or $(QPS),40 -1)' \
		go test -run '^$$' -bench . -benchtime 1x -timeout 90m ./tests/integration/server

##@ Build it

build: ## Build the programs into bin
	@bash tools/programs.sh
pilot-versions:
	@bash tools/programs.sh 1.1.0 1.2.0
charts: $(BUILD_TOOLS) ## Generate the policies of the charts and deploy/kustomize
	cd tools && go test -count=1 -run 'TestChart_Access|TestChart_Fence|TestKustomize|TestChart_MatchesServer' ./helm -args -rewrite
image: ## Build an OCI image of static binaries for PLATFORMS into bin/image (VERSION: that of the chart)
	cd tools && go run ./release image -root .. -out ../bin/image -version "$(VERSION)" -platforms "$(PLATFORMS)"
release: ## Write the files of a release into dist, from a commit: make release VERSION=0.1.0 (a quarter of an hour)
	cd tools && go run ./release -root .. -out ../dist -version "$(VERSION)"
page-images: $(BUILD_TOOLS) ## Update the pictures of the elections page in docs/images, with Chromium
	cd tests/extra && go test -count=1 -run TestPictures ./page -pictures $(CURDIR)/docs/images
tools: ## Build etcd, kube-apiserver, kube-controller-manager and kubectl into bin (takes minutes the first time)
	@bash tools/build.sh
clean: ## Remove build results
	rm -rf bin dist .cache
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+( [a-z]+)*:.*## / {sub(/ .*/, "", $$1); printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
