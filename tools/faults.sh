#!/bin/sh
# SPDX-License-Identifier: MIT
# faults.sh - run the whole matrix of faults, and leave its table in build/faults.
#
#   ROW=kill TOPO=SQ SEED=7 tools/faults.sh build/asan/tests/faults/*
#
# HOURS=n: again and again, with other seeds, until that time has passed. JOBS: how many programs
# run at once; 2. Exit 1 if a row does not hold, when none was run, and when a program did not get
# to its end in every round; if $CI is set, also if a row was skipped.
set -eu

HF_FAULTS=whole
HF_FAULTS_ROW=${ROW:-}
HF_FAULTS_TOPO=${TOPO:-}
HF_FAULTS_OUT=$PWD/build/faults
export HF_FAULTS HF_FAULTS_ROW HF_FAULTS_TOPO HF_FAULTS_OUT
mkdir -p "$HF_FAULTS_OUT"
rm -f "$HF_FAULTS_OUT"/table.* "$HF_FAULTS_OUT"/*.log "$HF_FAULTS_OUT"/*.log.now
began=$(date +%s)

server=${HF_TEST_SERVER:-$(command -v redis-server || command -v valkey-server || echo none)}
head='row                    t  inj  grants  I1  I2   I3  I4  I5  I6  I7 overl.  lost spur. stale'
head="$head fail.  late   x50 ms   x99 ms   max ms    s"

round() { # round SEED PROGRAM...
    SEED=$1
    export SEED
    shift
    # shellcheck disable=SC2016 # for the shell that xargs starts
    printf '%s\n' "$@" | xargs -P "${JOBS:-2}" -I{} sh -c '
        log=$HF_FAULTS_OUT/$(basename "$1").log status=0
        "$1" > "$log.now" 2>&1 < /dev/null || status=$?
        said="^not ok"
        [ "$status" != 0 ] || said="^# passed [0-9]"
        grep -q "$said" "$log.now" ||
            echo "not ok - $1 ended early with status $status, seed $SEED" >> "$log.now"
        grep -E "^(not ok|ok .*# SKIP)" "$log.now" || true
        cat "$log.now" >> "$log"
        rm "$log.now"' faults {} || true
    rounds=$((rounds + 1))
}

seed=${SEED:-$(date +%s)} rounds=0
while :; do
    echo "seed $seed"
    round "$seed" "$@"
    [ $(($(date +%s) - began)) -lt $((${HOURS:-0} * 3600)) ] || break
    seed=$((seed + 1))
done

touch "$HF_FAULTS_OUT/table.txt" "$HF_FAULTS_OUT/table.json"
{
    echo "$(date -u +%Y-%m-%d), $("$server" --version | cut -d' ' -f1-3), $(uname -sr)," \
        "$(nproc) cores, last seed $seed, $(($(date +%s) - began)) s"
    echo "$head"
    sort "$HF_FAULTS_OUT/table.txt"
} > "$HF_FAULTS_OUT/faults.txt"
{
    echo '['
    sed '$!s/$/,/' "$HF_FAULTS_OUT/table.json"
    echo ']'
} > "$HF_FAULTS_OUT/faults.json"
cat "$HF_FAULTS_OUT/faults.txt"
failed=$(cat "$HF_FAULTS_OUT"/*.log | grep -c '^not ok' || true)
skipped=$(cat "$HF_FAULTS_OUT"/*.log | grep -c '^ok .*# SKIP' || true)
ended=$(cat "$HF_FAULTS_OUT"/*.log | grep -c '^# passed [0-9]' || true)
cells=$(wc -l < "$HF_FAULTS_OUT/table.txt")
[ "$ended" = $(($# * rounds)) ] ||
    echo "faults: $ended of $(($# * rounds)) programs got to their end, in $rounds rounds" >&2
[ "$cells" -gt 0 ] || echo "faults: no row of this name: ${ROW:-any}, on ${TOPO:-any}" >&2
echo "faults: $cells cells, $failed failed, $skipped skipped"
[ "$ended" = $(($# * rounds)) ] && [ "$cells" -gt 0 ] && [ "$failed" = 0 ] &&
    { [ -z "${CI:-}" ] || [ "$skipped" = 0 ]; }
