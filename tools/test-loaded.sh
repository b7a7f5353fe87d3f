#!/bin/sh
# SPDX-License-Identifier: MIT
# test-loaded.sh - run tests on a machine that has too much to do, several times, and say which of
# them failed, how often, and with which seeds.
#
#   ROUNDS=10 LOOPS=4 test-loaded.sh build/asan/tests/live/mutex tests/cli/run.sh ...
#
# LOOPS processes that only compute run beside tools/run-tests.sh, for ROUNDS rounds. With CORES=0
# all of it has that core alone. What each round printed is left in build/loaded. Exit 1 when a
# test failed.
#
# The loops have a session of their own, as another user's work has. Where the kernel groups
# processes by session (sched_autogroup_enabled), a server that wakes up for a moment then waits
# behind all of them, which is harder for a lock than loops in the session of the tests.
set -eu

# It ends by itself when whoever started it has.
busy_loop() {
    while kill -0 "$1" 2> /dev/null; do
        n=0
        while [ $n -lt 200000 ]; do
            n=$((n + 1))
        done
    done
}

if [ "${1:-}" = --loops ]; then
    i=0
    while [ $i -lt "$2" ]; do
        busy_loop "$3" &
        i=$((i + 1))
    done
    wait
    exit 0
fi

on=${CORES:+taskset -c $CORES}
logs=build/loaded
mkdir -p "$logs"
rm -f "$logs"/round.*
loops=
end_loops() {
    [ -z "$loops" ] || kill -- "-$loops" 2> /dev/null || true
    loops=
}
trap end_loops EXIT
trap 'exit 1' INT TERM HUP

if [ "${LOOPS:=4}" -gt 0 ]; then
    $on setsid sh "$0" --loops "$LOOPS" $$ &
    loops=$!
fi

round=1
bad=0
while [ $round -le "${ROUNDS:=10}" ]; do
    start=$(date +%s)
    $on tools/run-tests.sh "$@" > "$logs/round.$round" 2>&1 || bad=$((bad + 1))
    printf 'round %d: %s, %d s\n' $round "$(tail -n 1 "$logs/round.$round")" \
        $(($(date +%s) - start))
    round=$((round + 1))
done
end_loops

# Every `not ok` line with the program that printed it, counted, with its seeds.
awk -v rounds="$ROUNDS" -v bad="$bad" '
    /^== / { program = $2 }
    /^failed:/ { program = "" } # the sum says them again
    /^not ok / && program {
        name = $0
        sub(/^not ok ([0-9]+ )?- /, "", name)
        seed = name ~ /SEED=/ ? name : ""
        sub(/.*SEED=/, "", seed)
        sub(/[^0-9].*/, "", seed)
        sub(/ \([0-9]+ ms.*/, "", name)
        key = program " " name
        if (!count[key]++)
            order[++n] = key
        seeds[key] = seeds[key] " " seed
    }
    END {
        for (i = 1; i <= n; i++)
            printf "%3d of %d  %s  %s\n", count[order[i]], rounds, order[i], seeds[order[i]]
        if (!bad)
            printf "nothing failed in %d rounds\n", rounds
        else
            printf "%d of %d rounds failed; the logs are in build/loaded\n", bad, rounds
        exit bad > 0
    }' "$logs"/round.*
