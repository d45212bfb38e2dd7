#!/usr/bin/env bash
# progress.sh WHAT COMMAND...: runs a `go build -v`, says at once what is built, and every few
# seconds how far it is, so that nobody wonders whether it hangs. What is up to date says nothing
# more. Lines of the command that name no package or download, such as errors, are passed on.
set -euo pipefail

what=$1
shift
every=${PROGRESS_EVERY:-3}
began=$SECONDS
echo "$what …"
seen=$(mktemp)
trap 'rm -f "$seen"' EXIT

(
	# It ends with its parent, whatever happens to that, and its sleep holds nobody's pipe open.
	while sleep "$every" >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
		downloads=$(grep -c '^go: downloading ' "$seen") || true
		packages=$(grep -vc '^go: downloading ' "$seen") || true
		echo "  $downloads modules downloaded, $packages packages compiled after $((SECONDS - began)) s"
	done
) &
teller=$!

code=0
"$@" 2>&1 | while IFS= read -r line; do
	case $line in
	"go: downloading "*) printf '%s\n' "$line" >>"$seen" ;;
	*" "* | "#"*) printf '%s\n' "$line" ;;
	*) printf '%s\n' "$line" >>"$seen" ;;
	esac
done || code=$?
kill $teller 2>/dev/null || true
wait $teller 2>/dev/null || true
exit $code
