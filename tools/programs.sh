#!/usr/bin/env bash
# programs.sh [VERSION...]: builds the programs of the project and Helm into bin, or pilot with each VERSION into bin/pilot-VERSION.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bin

built() { bash tools/progress.sh "building $1 into bin" go "${@:2}"; }

for version in "$@"; do
	built "pilot $version" build -buildvcs=auto -ldflags "-w -X incumbent.dev/incumbent/pilot/bootstrap.releaseVersion=$version" -o "bin/pilot-$version" ./cmd/pilot
done
[ $# -eq 0 ] || exit 0
built "pilot and the playground" build -v -buildvcs=auto -ldflags=-w -o bin/ ./cmd/... ./tests/cluster/dataplane
built electionctl -C electionctl build -v -buildvcs=auto -ldflags '-s -w' -o ../bin/ .
ln -sf electionctl bin/kubectl-election
cp electionctl/kubectl_complete-election bin/
# The version of Helm is the version of its module.
helm=$(awk '$1 == "helm.sh/helm/v4" {print $2}' tools/go.mod)
built "helm $helm" -C tools build -v -buildvcs=false -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$helm" -o ../bin/ ./helm
