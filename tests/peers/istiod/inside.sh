#!/usr/bin/env bash
# inside.sh FOLDER: copies Istio's module to FOLDER/istio, replaces its election file by shim/leaderelection.go, and builds
# FOLDER/istiod-inside (with incumbent's elections). Run it in tests/peers.
set -euo pipefail
folder=$(realpath "$1")
source=$(go list -m -f '{{.Dir}}' istio.io/istio)
root=$(realpath ../..)
copy=$folder/istio
rm -rf "$copy"
mkdir -p "$copy"
cp -r "$source/." "$copy"
chmod -R u+w "$copy"
cp istiod/shim/leaderelection.go "$copy/pilot/pkg/leaderelection/leaderelection.go"
cd "$copy"
go mod edit -require incumbent.dev/incumbent@v0.0.0 -replace "incumbent.dev/incumbent=$root"
CGO_ENABLED=0 go build -mod=mod -trimpath -ldflags=-w -o "$folder/istiod-inside" ./pilot/cmd/pilot-discovery
