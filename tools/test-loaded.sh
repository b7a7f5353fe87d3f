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

if [ "${1:-}" = --loop ]; then
    busy_loop "$2"
    exit 0
fi

on=${CORES:+taskset -c $CORES}
logs=build/loaded
mkdir -p "$logs"
rm -f "$logs"/round.*
pids=
end_loops() {
    # shellcheck disable=SC2086 # a list of words
    [ -z "$pids" ] || kill $pids 2> /dev/null || true
    pids=
}
trap end_loops EXIT
trap 'exit 1' INT TERM HUP

i=0
while [ $i -lt "${LOOPS:=4}" ]; do
    $on sh "$0" --loop $$ &
    pids="$pids $!"
    i=$((i + 1))
done

round=1
while [ $round -le "${ROUNDS:=10}" ]; do
    start=$(date +%s)
    $on tools/run-tests.sh "$@" > "$logs/round.$round" 2>&1 || true
    printf 'round %d: %s, %d s\n' $round "$(tail -n 1 "$logs/round.$round")" \
        $(($(date +%s) - start))
    round=$((round + 1))
done
end_loops

# Every `not ok` line with the program that printed it, counted, with its seeds.
awk -v rounds="$ROUNDS" '
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
        if (!n)
            printf "nothing failed in %d rounds\n", rounds
        exit n > 0
    }' "$logs"/round.*
