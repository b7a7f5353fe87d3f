#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh - run the benchmarks of one kind and show what they found; `make bench` calls it.
#
#   bench/run.sh aim       the table of ratios against the aims
#   bench/run.sh growth    what one unit costs at each size
#   PARTS="threads async"  only these programs
#   KEEP=1                 also as bench/results/latest.*, which git keeps
#
# Everything lands in bench/results/: DATE.json and DATE.svg (growth-DATE.json). Nothing fails
# because it is slow.
set -eu
kind=${1:?usage: run.sh aim|growth}
here=$(dirname "$0")
build=${BUILD:-$here/../build}
results=$here/results
case $kind in
    aim)
        parts=${PARTS:-"uncontended threads async contended waiters takeover held quorum tool"}
        stem=
        ;;
    growth)
        parts=${PARTS:-growth}
        stem=growth-
        ;;
    *)
        echo "run.sh: aim or growth, not '$kind'" >&2
        exit 2
        ;;
esac
mkdir -p "$results"
out=$build/bench/$kind.jsonl
log=$build/bench/$kind.log
rm -f "$out" "$log"
: > "$out"

cores=$(getconf _NPROCESSORS_ONLN)
load=$(cut -d ' ' -f 1 /proc/loadavg 2> /dev/null || echo 0)
if awk -v l="$load" -v n="$cores" 'BEGIN { exit !(l > n * 0.3) }'; then
    echo "Note: other work is going on here (load $load, $cores cores). Trust the ratios of one" >&2
    echo "line at most, not the times, and not p99 or max." >&2
fi

began=$(date +%s)
failed=
for part in $parts; do
    printf '%s ' "$part" >&2
    BENCH_OUT=$out "$build/bench/$part" "${kind}_" >> "$log" 2>&1 || failed="$failed $part"
done
seconds=$(($(date +%s) - began))
printf '(%s s)\n\n' "$seconds" >&2

# ---- what it was measured on ----
quoted() { # one line, without what JSON would have to escape
    tr -d '\\"' | tr '\t' ' ' | sed 1q
}
about() {
    server=$({ "${HF_TEST_SERVER:-redis-server}" --version || valkey-server --version; } \
        2> /dev/null |
        quoted)
    processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2> /dev/null | quoted)
    printf '"date":"%s",' "$(date -u +%Y-%m-%dT%H:%M:%SZ)"
    printf '"seconds":%s,"cores":%s,"load_before":%s,' "$seconds" "$cores" "${load:-0}"
    printf '"processor":"%s","system":"%s",' "$processor" "$(uname -srm | quoted)"
    printf '"server":"%s",' "$server"
    printf '"hiredis":"%s",' "$(pkg-config --modversion hiredis 2> /dev/null | quoted)"
    printf '"holdfast":"%s",' "$("$build/holdfast" --version 2> /dev/null | quoted)"
    printf '"commit":"%s"' "$(git -C "$here" rev-parse --short HEAD 2> /dev/null | quoted)"
}

json=$results/$stem$(date -u +%Y-%m-%d-%H%M%S).json
{
    printf '{%s,\n"lines":[\n' "$(about)"
    sed '$!s/$/,/' "$out"
    printf ']}\n'
} > "$json"
"$here/table.sh" "$out"
svg=
if [ "$kind" = aim ]; then
    svg=${json%.json}.svg
    "$here/plot.sh" "$out" "$svg" || svg=
fi
[ -z "${KEEP:-}" ] || cp "$json" "$results/${stem}latest.json"
[ -z "${KEEP:-}" ] || [ -z "$svg" ] || cp "$svg" "$results/latest.svg"
echo
echo "Written: $json${svg:+, $svg}"
if [ -n "$failed" ]; then
    echo "These did not end well:$failed. See $log:" >&2
    grep -A 5 '^not ok' "$log" >&2 || tail -n 5 "$log" >&2
    exit 1
fi
