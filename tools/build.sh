#!/usr/bin/env bash
# build.sh [VERSION]
#
# Builds etcd, kube-apiserver, kube-controller-manager and kubectl from their Go modules into bin/ of the repository.
# With a VERSION such as 1.34.3 it builds the programs of that Kubernetes version into bin/kubernetes-VERSION.
# Does nothing if they are up to date. A second build waits for the first. Needs Go only.
set -euo pipefail
cd "$(dirname "$0")"

bin=$(cd .. && pwd)/bin
source=$PWD
programs=(etcd kube-apiserver kube-controller-manager kubectl)

# Another version: the same sources in a module that requires this version, and the modules that this version is released with.
if [ $# -gt 0 ]; then
	bin=$bin/kubernetes-$1
	source=$bin/source
	mkdir -p "$source"
	cp -r "${programs[@]}" "$source/"
	modfile=$(GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@v$1" | awk -F'"' '$2 == "GoMod" {print $4}')
	{
		printf 'module incumbent.dev/incumbent/tools\n\nrequire k8s.io/kubernetes v%s\n' "$1"
		awk '/^go |^godebug /' "$modfile"
		awk -v version="v0.${1#1.}" '$2 == "=>" && $3 ~ /staging/ {print "replace " $1 " => " $1 " " version}' "$modfile"
	} >"$source/go.mod"
	(cd "$source" && GOWORK=off GOFLAGS=-mod=mod go mod tidy >"$bin/tidy.log" 2>&1) || { cat "$bin/tidy.log" >&2; exit 1; }
fi
stamp=$bin/.tools-stamp

# The programs report the version of their module.
kubernetes=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v1/ {print $2; exit}' "$source/go.mod")
minor=${kubernetes#v1.}
minor=${minor%%.*}
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=1 -X $package.gitMinor=$minor"
	flags+=" -X $package.gitTreeState=clean -X $package.gitCommit=module-$kubernetes"
done

hash() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

# wanted prints a digest of the inputs: sources, sums of the modules, compiler.
wanted() {
	{
		go version
		go env GOOS GOARCH
		cat build.sh
		cd "$source"
		find "${programs[@]}" go.mod go.sum -type f | LC_ALL=C sort | while read -r file; do
			echo "$file"
			cat "$file"
		done
	} | hash
}

up_to_date() {
	[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$1" ] || return 1
	local program
	for program in "${programs[@]}"; do
		[ -x "$bin/$program" ] || return 1
	done
}

want=$(wanted)
if up_to_date "$want"; then
	exit 0
fi

mkdir -p "$bin"
# Without flock, two builds do the same work twice.
if command -v flock >/dev/null; then
	exec 9>"$bin/.tools-lock"
	if ! flock -n 9; then
		echo "tools: waiting for another build"
		until flock -w 3 9; do
			echo "tools: still waiting after $SECONDS s"
		done
		if up_to_date "$want"; then
			exit 0
		fi
	fi
fi

if [ ! -f "$stamp" ]; then
	echo "tools: the first build takes about 5 minutes on two cores, later ones seconds"
fi

began=$SECONDS
export CGO_ENABLED=0 GOWORK=off
packages=("${programs[@]/#/./}")
rm -rf "$bin"/.tools-new.* # left over from a build that was killed
new=$(mktemp -d "$bin/.tools-new.XXXXXX")
trap 'rm -rf "$new"' EXIT
bash progress.sh "tools: building ${programs[*]} ($kubernetes) into $(basename "$bin")" \
	go -C "$source" build -v -trimpath -buildvcs=false -ldflags "$flags" -o "$new/" "${packages[@]}"
for program in "${programs[@]}"; do
	mv -f "$new/$program" "$bin/$program" # a running program keeps its file
done
echo "$want" >"$stamp"
echo "tools: done in $((SECONDS - began)) s"
