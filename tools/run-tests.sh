#!/bin/sh
# SPDX-License-Identifier: MIT
# run-tests.sh - run test programs and scripts, five at a time, and sum them up.
#
#   run-tests.sh build/asan/tests/unit/buf tests/cli/run.sh ...
#
# Each prints `ok`/`not ok` lines and closes with "# passed P failed F skipped S"; one that does
# not get that far counts as a failure. Output appears one program at a time, in one piece. The
# last line is always `holdfast: N passed, N failed, N skipped`. Exit 1 on a failure, when
# nothing ran, and on a skip when $CI is set; what was left out for want of optional software is
# named. JOBS sets how many run at once: more than there are cores, since tests mostly wait. Those
# that compute run one after the other beside the rest, so that a core is left for what is timed.
set -eu

if [ "${1:-}" = --one ]; then
    out=$2/$(echo "$3" | tr / _)
    start=$(date +%s)
    case $3 in
        tools/models.sh) JOBS=1 "$3" ;;
        *.sh) sh tests/harness/lib.sh "$3" ;;
        */tests/fuzz/*) "$3" "tests/fuzz/corpus/${3##*/}" ;;
        *) "$3" ;;
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
        printf '== %s (%d s)\n' "$3" $(($(date +%s) - start))
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

# Large sources first: they take longest, roughly, and one of them started last would end alone.
large_first() {
    for p; do
        source=${p#build/}
        source=${source#asan/}
        source=${source#tsan/}
        [ ! -f "$source.c" ] || source=$source.c
        printf '%s %s\n' "$(wc -c < "$source" || echo 0)" "$p"
    done | sort -rn | cut -d ' ' -f 2-
}
run_at_once() { # run_at_once HOW-MANY: those on stdin
    xargs -r -P "$1" -n 1 "$0" --one "$dir" || true
}
computes='^tools/models\.sh$|^tests/install/|/unit/keys$|/tests/sim/'
large_first "$@" > "$dir/.all"
if [ "${JOBS:=5}" -gt 1 ]; then
    grep -E "$computes" "$dir/.all" | run_at_once 1 &
    grep -Ev "$computes" "$dir/.all" | run_at_once $((JOBS - 1))
    wait
else
    run_at_once 1 < "$dir/.all"
fi

server=${HF_TEST_SERVER:-$(command -v redis-server || command -v valkey-server || echo none)}
versions="$(${CC:-gcc} --version | sed 1q); $("$server" --version 2>&1 | cut -d' ' -f1-3)"
cat "$dir"/* /dev/null 2>/dev/null | awk -v ci="${CI:-}" -v versions="$versions" '
    /^not ok / { bad = bad "\n  " $0 }
    /^ok .* # left out: / { out = out "\n  " $0 }
    /^# passed [0-9]+ failed [0-9]+ skipped [0-9]+$/ { p += $3; f += $5; s += $7 }
    END {
        if (out) print "left out:" out
        if (bad) print "failed:" bad
        print "versions: " versions
        printf "holdfast: %d passed, %d failed, %d skipped\n", p, f, s
        exit (f || p + f + s == 0 || (ci != "" && s)) ? 1 : 0
    }'
