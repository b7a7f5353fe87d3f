#!/bin/sh
# SPDX-License-Identifier: MIT
# show.sh - locks at work: what `make run` shows. It uses real processes, on a private server that
# is removed afterwards.
set -eu

# ---- a worker that holds the lock: this is what `holdfast run` runs --------------------------

say() { # say WHO WHAT: with the seconds since the beginning
    awk -v t0="$SHOW_START" -v t="$(date +%s%N)" -v who="$1" -v what="$2" \
        'BEGIN { printf "  %6.2f s  %-4s %s\n", (t - t0) / 1e9, who, what }'
}

if [ "${1:-}" = --work ]; then # --work WHO SECONDS
    say "$2" "HOLDS the lock, fencing number $HOLDFAST_FENCE"
    echo $$ > "$SHOW_DIR/$2.holds"
    sleep "$3"
    say "$2" "is done"
    exit 0
fi

# ---- set-up -----------------------------------------------------------------------------

SHOW_DIR=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-show.XXXXXX")
SHOW_START=$(date +%s%N)
HOLDFAST_URL=embedded:$SHOW_DIR/server
export SHOW_DIR SHOW_START HOLDFAST_URL
workers=
finish() {
    for pid in $workers; do
        kill "$pid" 2> /dev/null || true
    done
    holdfast -q server stop --force > /dev/null 2>&1 || true
    rm -rf "$SHOW_DIR"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

worker() { # worker WHO SECONDS [OPTION...]: in the background, its holdfast is $!
    who=$1 seconds=$2
    shift 2
    say "$who" "wants the lock"
    holdfast run -q --info "$who" "$@" printer -- sh "$0" --work "$who" "$seconds" &
    workers="$workers $!"
}

until_holds() { # until_holds WHO
    tries=0
    until [ -s "$SHOW_DIR/$1.holds" ]; do
        tries=$((tries + 1))
        [ $tries -lt 500 ] || { echo "show.sh: $1 did not get the lock" >&2; exit 1; }
        sleep 0.02
    done
}

until_waiting() { # until_waiting N: N workers are in the queue
    tries=0
    until holdfast ls | awk -v n="$1" '
        NR == 1 { while ($++column != "WAITERS" && column < NF); }
        NR > 1 && $column == n { found = 1 }
        END { exit !found }'; do
        tries=$((tries + 1))
        [ $tries -lt 500 ] || { echo "show.sh: nobody is in the queue" >&2; exit 1; }
        sleep 0.02
    done
}

until_known() { # until_known WHO: others can see who waits
    tries=0
    until holdfast status printer | grep -q "($1)" || [ $tries -ge 100 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
}

alive() { # alive PID: and not just a zombie
    [ -e "/proc/$1/status" ] && ! grep -q '^State:.*Z' "/proc/$1/status" 2> /dev/null
}

# ---- the show ------------------------------------------------------------------------------

echo "Four workers want one lock, \"printer\". Each is a separate process:"
echo "holdfast run printer -- COMMAND"
echo
worker ann 2
until_holds ann
number=0
for who in bob cid dan; do
    worker $who 0.3
    number=$((number + 1))
    until_waiting $number
done
until_known dan
echo
echo "Who holds it, and who is next? holdfast status printer"
holdfast status printer | sed 's/^/    /'
echo
# shellcheck disable=SC2086 # a list of pids
wait $workers
workers=

echo
echo "First come, first served: each worker was woken when its turn came, and no other was woken."
echo "Each fencing number is larger than the one before: a resource can refuse a late holder."
echo
echo "Now the holder is killed with -9. Its lease (ttl) is 60 seconds, its grace 1 second:"
echo
worker eve 60 --ttl 60s --grace 1s
eve=$!
until_holds eve
command=$(cat "$SHOW_DIR/eve.holds")
worker fay 0.3
until_waiting 1
say '' "kill -9 of eve's holdfast"
kill -9 "$eve"
wait "$eve" 2> /dev/null || true
while alive "$command"; do
    sleep 0.02
done
say eve "is dead, and so is the command that it ran"
until_holds fay
# shellcheck disable=SC2086
wait $workers 2> /dev/null || true
workers=

echo
cat << 'END'
A small process beside eve's holdfast saw it die. It killed the command and, when nothing of it was
left, released the lock. If that process had died too, the server would have seen that eve's
connection was closed, and the next waiter would have got the lock after the grace, not after the
ttl. Its number is larger again. A holder is never replaced just for being slow or silent.
END
echo
cat << 'END'
Now you:   build/holdfast run nightly -- sleep 10     (and in another terminal: build/holdfast ls)
Then:      docs/tutorial.md, ten minutes to a cron job on a fleet
The rest:  man ./man/holdfast.1
END
