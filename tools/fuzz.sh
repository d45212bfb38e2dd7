#!/usr/bin/env bash
# fuzz.sh [TIME]: runs each fuzz target of the root module for TIME (20s).
set -euo pipefail
cd "$(dirname "$0")/.."

git grep '^func Fuzz' -- '*_test.go' | sed 's|/[^/]*:func \(Fuzz[A-Za-z0-9_]*\).*| \1|' | while read -r package target; do
	go test -run '^$' -fuzz "^$target\$" -fuzztime "${1:-20s}" "./$package" </dev/null
done
