#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager and kubectl into bin/ of the
# repository, from their Go modules. Does nothing when they are up to date; run twice
# at once, the second waits for the first. Needs Go only.
set -euo pipefail
cd "$(dirname "$0")"

bin=$(cd .. && pwd)/bin
programs=(etcd kube-apiserver kube-controller-manager kubectl)
stamp=$bin/.tools-stamp

# The version that the programs tell is that of the modules.
kubernetes=$(awk '$1 == "k8s.io/kubernetes" && $2 ~ /^v1/ {print $2; exit}' go.mod)
minor=${kubernetes#v1.}
minor=${minor%%.*}
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags+=" -X $package.gitVersion=$kubernetes -X $package.gitMajor=1 -X $package.gitMinor=$minor"
	flags+=" -X $package.gitTreeState=clean -X $package.gitCommit=module-$kubernetes"
done

hash() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

# What the programs are made from: these sources, the modules' sums, the compiler.
wanted() {
	{
		go version
		go env GOOS GOARCH
		find . -type f ! -path './helm/*' ! -path './image/*' \( -name '*.go' -o -name 'go.*' -o -name '*.sh' \) ! -name '*_test.go' | LC_ALL=C sort | while read -r file; do
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
# Where there is no flock, two builds do the work twice, but do it right.
if command -v flock >/dev/null; then
	exec 9>"$bin/.tools-lock"
	if ! flock -n 9; then
		echo "tools: another build is at work, waiting for it"
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
rm -rf "$bin"/.tools-new.* # of a build that was killed
new=$(mktemp -d "$bin/.tools-new.XXXXXX")
trap 'rm -rf "$new"' EXIT
bash progress.sh "tools: building ${programs[*]} ($kubernetes) into bin" \
	go build -v -trimpath -buildvcs=false -ldflags "$flags" -o "$new/" "${packages[@]}"
for program in "${programs[@]}"; do
	mv -f "$new/$program" "$bin/$program" # a running one keeps its file
done
echo "$want" >"$stamp"
echo "tools: done in $((SECONDS - began)) s"
