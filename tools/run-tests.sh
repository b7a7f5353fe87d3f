#!/bin/sh
# SPDX-License-Identifier: MIT
# run-tests.sh - run test programs and scripts, seven at a time, and sum them up.
#
#   run-tests.sh build/asan/tests/unit/buf tests/cli/run.sh ...
#
# Each prints `ok`/`not ok` lines and closes with "# passed P failed F skipped S"; one that does
# not get that far counts as a failure, and so does one that was never begun. Output appears one
# program at a time, in one piece. The last line is always `holdfast: N passed, N failed, N
# skipped`. Exit 1 on a failure, when nothing ran, and on a skip when $CI is set; what was left out
# for want of optional software is named. JOBS sets how many run at once: more than there are cores,
# since tests mostly wait. Those that compute run one after the other beside the rest, so that a
# core is left for what is timed.
set -eu

if [ "${1:-}" = --one ]; then
    out=$2/$(echo "$3" | tr / _)
    start=$(date +%s)
    program=${3%@*}
    [ "$program" = "$3" ] || export T_PART="${3##*@}"
    case $program in
        tools/models.sh) JOBS=1 "$program" ;;
        *.sh) sh tests/harness/lib.sh "$program" ;;
        */tests/fuzz/*) "$program" "tests/fuzz/corpus/${program##*/}" ;;
        *) "$program" ;;
    esac > "$out" 2>&1 < /dev/null && status=0 || status=$?
    totals=$(sed -n 's/^# passed [0-9]* failed \([0-9]*\) skipped [0-9]*$/\1/p' "$out")
    if [ -z "$totals" ]; then
        printf 'not ok - %s ended early with status %s\n# passed 0 failed 1 skipped 0\n' \
            "$3" "$status" >> "$out"
    elif [ "$totals" = 0 ] && [ "$status" != 0 ]; then
        printf 'not ok - %s: status %s though no test failed\n# passed 0 failed 1 skipped 0\n' \
            "$3" "$status" >> "$out"
    fi
    {
        flock 9
        # line 2 of times: minutes and seconds of all children, the user's and the system's
        times > "$2/.times"
        cpu=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) {
            split($i, t, /[ms]/); s += 60 * t[1] + t[2] } printf "%d", s }' "$2/.times")
        printf '== %s (%d s, %d s of processor)\n' "$3" $(($(date +%s) - start)) "$cpu"
        cat "$out"
    } 9> "$2/lock"
    exit 0
fi

# The tests' own calls of make must not look for the job server of the make that runs us.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
# TSan would wait a second for stray threads at the end of every test.
TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:atexit_sleep_ms=50}
export TSAN_OPTIONS
dir=$(mktemp -d "${TMPDIR:-/tmp}/hfrun.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP

# In how many parts a program runs, side by side: those that take longest are cut, so that none of
# them ends alone. They also come first, then large sources: those take longer, roughly.
parts_of() {
    case $1 in
        */asan/tests/live/oom) echo 4 ;;
        */asan/tests/live/sentinel | */asan/tests/live/cluster_faults | */asan/tests/live/net | \
            */asan/tests/live/results | */asan/tests/live/cluster_moves | \
            */asan/tests/live/quorum_faults | */asan/tests/live/presence) echo 3 ;;
        */asan/tests/live/quorum_masks | */asan/tests/live/hostile_minute | \
            */asan/tests/live/cluster | */asan/tests/live/cluster_doctor | \
            */asan/tests/live/cluster_hostile | */asan/tests/live/cluster_silent | \
            */asan/tests/live/queue | \
            */asan/tests/live/transaction | */asan/tests/live/lease) echo 2 ;;
        tests/cli/wait.sh | tests/cli/pages.sh | tests/cli/acquire.sh | tests/cli/away.sh | \
            tests/cli/stall.sh | tests/cli/quorum.sh) echo 3 ;;
        *) echo 1 ;;
    esac
}
longest_first() {
    for p; do
        source=${p#build/}
        source=${source#asan/}
        source=${source#tsan/}
        [ ! -f "$source.c" ] || source=$source.c
        parts=$(parts_of "$p")
        size=$(wc -c < "$source" || echo 0)
        if [ "$parts" = 1 ]; then
            printf '%s %s\n' "$size" "$p"
            continue
        fi
        part=1
        while [ $part -le "$parts" ]; do
            printf '%s %s@%d/%d\n' $((size + 1000000)) "$p" $part "$parts"
            part=$((part + 1))
        done
    done | sort -rn | cut -d ' ' -f 2-
}
# run_at_once HOW-MANY: those on stdin. Whoever did not get to its end is found by missing, which
# knows more than the status: xargs begins no more when one of them was killed.
run_at_once() {
    xargs -r -P "$1" -n 1 "$0" --one "$dir" || true
}
# Those of which no sum is known: killed with all they would have said, never begun, or the disk is
# full.
missing() {
    while read -r p; do
        grep -Eqs "$sum" "$dir/$(echo "$p" | tr / _)" || printf \
            'not ok - %s did not get to its end: nothing is known of it\n%s\n' "$p" \
            '# passed 0 failed 1 skipped 0'
    done < "$dir/.all"
}
sum='^# passed [0-9]+ failed [0-9]+ skipped [0-9]+$'
computes='^tools/models\.sh$|^tests/install/|/unit/keys$|/tests/sim/'
longest_first "$@" > "$dir/.all"
if [ "${JOBS:=7}" -gt 1 ]; then
    grep -E "$computes" "$dir/.all" | run_at_once 1 &
    grep -Ev "$computes" "$dir/.all" | run_at_once $((JOBS - 1))
    wait
else
    run_at_once 1 < "$dir/.all"
fi

server=${HF_TEST_SERVER:-$(command -v redis-server || command -v valkey-server || echo none)}
versions="$(${CC:-gcc} --version | sed 1q); $("$server" --version 2>&1 | cut -d' ' -f1-3)"
{
    cat "$dir"/* /dev/null 2> /dev/null || true
    missing
} | awk -v ci="${CI:-}" -v versions="$versions" -v sum="$sum" '
    /^not ok / { bad = bad "\n  " $0 }
    /^ok .* # left out: / { out = out "\n  " $0 }
    $0 ~ sum { p += $3; f += $5; s += $7 }
    END {
        if (out) print "left out:" out
        if (bad) print "failed:" bad
        print "versions: " versions
        printf "holdfast: %d passed, %d failed, %d skipped\n", p, f, s
        exit (f || p + f + s == 0 || (ci != "" && s)) ? 1 : 0
    }'
