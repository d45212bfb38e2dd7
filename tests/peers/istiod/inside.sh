#!/usr/bin/env bash
# inside.sh FOLDER: copies Istio's module to FOLDER/istio, replaces its election file by shim/leaderelection.go, and builds
# FOLDER/istiod-inside.
# inside.sh test FOLDER: runs Istio's own tests of the elections and of pilot/pkg/bootstrap in that copy.
# Run it in tests/peers.
set -euo pipefail
export GOWORK=off # the linters leave a workspace in a folder above the copy

if [ "$1" = test ]; then
	cd "$2/istio"
	# The tests use leases of one second. incumbent needs four, and a follower notices lost permissions after half of them.
	sed -i -e 's/ttl:            time.Second,/ttl:            4 * time.Second,/' \
		-e 's/retry.Timeout(time.Second))/retry.Timeout(10*time.Second))/' pilot/pkg/leaderelection/leaderelection_test.go
	# Istio's fake client counts a list up and a watch down, and waits for 0. An election watches its lock without a list.
	sed -i 's/informerWatchesPending.Load() == 0/informerWatchesPending.Load() <= 0/' pkg/kube/client.go
	# These tests read samples/certs, which Istio's module does not contain.
	skip='TestCheckCABundleCompleteness|TestRemoteCerts|TestRemoteTLSCerts|TestPemBundleHasSubsetRelation|TestReloadcacerts'
	exec go test -mod=mod -trimpath -count=1 -timeout 5m -v -run 'Test[A-Z][A-Za-z]*$' -skip "$skip" ./pilot/pkg/leaderelection ./pilot/pkg/bootstrap
fi

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
