#!/usr/bin/env bash
# lint.sh linters|unused|peers: the two parts of `make lint`, which CI runs concurrently. `peers` checks tests/peers, which compiles istiod. Versions are pinned so that lint has the same result everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C

golangci=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2
deadcode=golang.org/x/tools/cmd/deadcode@v0.49.0
vale=github.com/errata-ai/vale/v3/cmd/vale@v3.19.0

# fail_if_any prints a title and lines, and fails if there are lines.
fail_if_any() {
	if [ -n "$2" ]; then
		printf '%s:\n%s\n' "$1" "$2"
		exit 1
	fi
}

# checked runs vet, and staticcheck with its own configuration.
checked() {
	(cd "$1" && go vet ./... && go run "$staticcheck" ./...)
}

linters() {
	found=$(git ls-files --cached --others --exclude-standard '*.go' | xargs gofmt -l)
	fail_if_any "gofmt would change" "$found"
	fail_if_any "left over from a merge" "$(git ls-files '*.orig' '*.rej')"
	go run "$golangci" run ./...
	# At level error, because some exclusions are used by the root module only.
	for module in adapters/controllerruntime electionctl; do
		(cd "$module" && LOG_LEVEL=error go run "$golangci" run -c "$OLDPWD/.golangci.yml" ./...)
	done
	checked tests/extra
	go -C examples/fencing vet ./...
	go -C tools vet ./helm ./release
	git ls-files '*.go' '*.md' | CGO_ENABLED=1 xargs go run "$vale" --output=line
	go test ./tests/repo/language ./tests/repo/readme
}

unused() {
	# A workspace, so that one run reads the two modules and what they require.
	mkdir -p .cache && rm -f .cache/go.work && (cd .cache && go work init .. ../electionctl)
	found=$(GOWORK=$PWD/.cache/go.work go run "$deadcode" -test -filter '^incumbent\.dev/' ./... ./electionctl/...)
	fail_if_any "not called by a program or a test" "$found"
}

case $1 in
linters) linters ;;
unused) unused ;;
peers) checked tests/peers ;;
*) exit 2 ;;
esac
