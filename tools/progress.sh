#!/usr/bin/env bash
# progress.sh WHAT COMMAND...: runs `go build -v`. It prints WHAT immediately, and the numbers of
# downloaded modules and compiled packages every few seconds, so that a slow build is visible. It
# prints no progress for packages that are up to date. Other lines, such as errors, are passed through.
set -euo pipefail

what=$1
shift
every=${PROGRESS_EVERY:-3}
began=$SECONDS
echo "$what …"
seen=$(mktemp)
trap 'rm -f "$seen"' EXIT

(
	# The loop ends when its parent has ended, even after SIGKILL. Its sleep must not keep the pipes open.
	while sleep "$every" >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
		downloads=$(grep -c '^go: downloading ' "$seen") || true
		packages=$(grep -vc '^go: downloading ' "$seen") || true
		echo "  $downloads modules downloaded, $packages packages compiled after $((SECONDS - began)) s"
	done
) &
reporter=$!

code=0
"$@" 2>&1 | while IFS= read -r line; do
	case $line in
	"go: downloading "*) printf '%s\n' "$line" >>"$seen" ;;
	*" "* | "#"*) printf '%s\n' "$line" ;;
	*) printf '%s\n' "$line" >>"$seen" ;;
	esac
done || code=$?
kill $reporter 2>/dev/null || true
wait $reporter 2>/dev/null || true
exit $code
