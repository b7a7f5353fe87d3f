#!/bin/sh
# SPDX-License-Identifier: MIT
# stall.sh - how long a stall does `holdfast run` survive, measured in graces?
#
#   bench/stall.sh [GRACE_MS...]          the table for each grace (1000 3000)
#   HOLDFAST=build/holdfast JOBS=6        the program; jobs in each cell
#   STALLS="30 40 50"                     in hundredths of the grace
#
# Each cell: so many idle jobs, started at different moments; then all of them, or the server, stand
# still (SIGSTOP) for that part of the grace. What it prints is how many were ended for it, and how:
# exit statuses 79 (lost, with a message) and others. Nobody else wants the locks.
set -eu
HOLDFAST=${HOLDFAST:-build/holdfast}
JOBS=${JOBS:-6}
STALLS=${STALLS:-"30 40 50 60 70 80 90"}
SERVER=${HF_TEST_SERVER:-$(command -v redis-server || command -v valkey-server)}
dir=$(mktemp -d "${TMPDIR:-/tmp}/hfstall.XXXXXX")
trap 'rm -rf "$dir"' EXIT

seconds() { # seconds MS
    printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000))
}

# One cell, in a folder and with a server of its own: writes "ENDED NOT79" to the file result.
cell() { # cell WHAT GRACE_MS PERCENT FOLDER
    mkdir "$4"
    "$SERVER" --port 0 --unixsocket "$4/s" --dir "$4" --save '' --appendonly no \
        --logfile "$4/log" > /dev/null &
    server=$!
    until "$HOLDFAST" status --url "unix://$4/s" x > /dev/null 2>&1; do sleep 0.05; done
    pids='' n=0
    while [ $n -lt "$JOBS" ]; do
        n=$((n + 1))
        "$HOLDFAST" run --url "unix://$4/s" --grace "$2ms" "job$n" -- \
            sh -c "echo > $4/up$n; exec sleep 600" 2> "$4/err$n" &
        pids="$pids $!"
        sleep "$(seconds $(($2 / JOBS / 2 + 7 * n)))"
    done
    n=0
    while [ $n -lt "$JOBS" ]; do
        n=$((n + 1))
        tries=500
        until [ -e "$4/up$n" ]; do
            tries=$((tries - 1))
            [ $tries -gt 0 ] || { cat "$4/err$n" >&2; break; }
            sleep 0.02
        done
    done
    sleep "$(seconds "$2")"
    stopped=$pids
    [ "$1" = own ] || stopped=$server
    # shellcheck disable=SC2086 # a list of words
    kill -STOP $stopped
    sleep "$(seconds $(($2 * $3 / 100)))"
    # shellcheck disable=SC2086
    kill -CONT $stopped
    sleep "$(seconds $(($2 + 1500)))"
    ended=0 wordless=0
    for pid in $pids; do
        status=0
        if kill -0 "$pid" 2> /dev/null && ! grep -q '^State:.*Z' "/proc/$pid/status"; then
            kill "$pid"
            wait "$pid" || true
            continue
        fi
        wait "$pid" || status=$?
        ended=$((ended + 1))
        [ "$status" = 79 ] || wordless=$((wordless + 1))
    done
    kill "$server"
    wait "$server" || true
    echo "$ended $wordless" > "$4/result"
}

row() { # row WHAT GRACE_MS
    for p in $STALLS; do
        cell "$1" "$2" "$p" "$dir/$1.$2.$p" &
    done
    wait
    printf '| %s | %s |' "$1" "$(seconds "$2") s"
    for p in $STALLS; do
        read -r ended wordless < "$dir/$1.$2.$p/result"
        printf ' %s%s |' "$ended" "$([ "$wordless" = 0 ] || echo " ($wordless not 79)")"
    done
    echo
}

[ $# -gt 0 ] || set -- 1000 3000
printf 'ended, of %s jobs; stall as a part of the grace\n\n| stalls | grace |' "$JOBS"
for p in $STALLS; do printf ' 0.%s |' "$p"; done
printf '\n|---|---|'
for p in $STALLS; do printf -- '---|'; done
echo
for grace; do
    row own "$grace"
    row server "$grace"
done
