#!/usr/bin/env bash
# apidiff.sh BASE: lists incompatible changes of the public API since a tag or commit.
set -euo pipefail
cd "$(dirname "$0")/.."

apidiff=golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e
base=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "BASE=$1 is not a tag or commit: make api BASE=v0.1.0"; exit 2; }
folder=$(mktemp -d)
trap 'git worktree remove --force "$folder/base" 2>/dev/null; rm -rf "$folder"' EXIT
git worktree add --quiet --detach "$folder/base" "$base"
{
	(cd "$folder/base" && go run "$apidiff" -m -w "$folder/old" incumbent.dev/incumbent) 2>"$folder/errors" &&
		go run "$apidiff" -m -incompatible "$folder/old" incumbent.dev/incumbent >"$folder/changes" 2>"$folder/errors"
} || { cat "$folder/errors"; exit 1; }
grep -v '^- ./\(tests\|internal\)/' "$folder/changes" | sort -u | grep . || echo "no incompatible change since $1"
