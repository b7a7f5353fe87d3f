#!/bin/sh
# SPDX-License-Identifier: MIT
# models.sh - prove the SPIN models of models/, and that each of their guards is needed.
#
#   models.sh [MODEL]                    all, or one of: break deadlock election fence meeting
#                                        message presence queue quorum renewal sentinel
#                                        transaction
#
# Each model must hold with all guards, searched to the end, and must fail when any one of its
# guards is taken away. Two run at a time (JOBS), in a folder of their own that is removed.
set -eu

guards_of() {
    case $1 in
        deadlock)
            echo TWICE SAME QUEUED HOLDS LAST AGAIN PERMITS AHEAD
            ;;
        break)
            echo LEASE_STAYS BY_FENCE MARK_LASTS KEEP_REFUSES STOP_FIRST RELEASE_OWN HINT_ASKS \
                FROM_SENDING
            ;;
        election)
            echo UNDER_LOCK LATER_STAYS TAKE_OWN READ_TERM ONE_STEP WRITE_FIRST FOLLOWS RINGS \
                LISTEN_STEP LEASE_TIMER
            ;;
        fence)
            echo SEED_AHEAD FLOOR_CHECK REIGN_RAISE REIGN_AHEAD NEVER_LOWER ONE_RAISE
            ;;
        meeting)
            echo ONCE NAMED PRESENT QUIT_BREAKS QUIT_ASKS QUIT_COUNTED TOMB
            ;;
        message)
            echo NONCE FIRST_COUNTS NEW_NONCE PLAUSIBLE CONFIRM KEEPER_ASKS KEEPS_PLACE ASTRAY \
                ASTRAY_QUEUED ASTRAY_NONCE ASTRAY_KEY ASTRAY_NUMBER ASTRAY_HELD FROM_GRANT \
                UNTIL_FREED FORGET_LEFT
            ;;
        presence)
            echo HOLDERS_GRACE BELIEF_ENDS FROM_SENDING RETURN_VERIFIES OWNER_CLEARS SAME_SERVER \
                REIGN REIGN_REPLID LOOKS_STAMP SELF_CHECK CHECK_AGAIN OWN_CLOCK SAME_MARK
            ;;
        queue)
            echo TOMB_CANCEL TOMB_RELEASE GHOST_CANCEL BACKUP_LOOKS LOOK_IN_ORDER REJOIN \
                OLD_TICKET CANCEL_PASSES GRANT_LAPSES CONFIRM_FIRST FROM_SENDING BELIEF_ENDS \
                NEWER_ONLY CLAIM_COLLECTS NEWCOMER_QUEUES DROP_DEAD
            ;;
        renewal)
            echo NEVER_CREATES RENEWS_OWN RELEASES_OWN NEW_TOKEN STOP_FIRST LATE_ANSWER \
                FROM_SENDING NO_IS_NO
            ;;
        sentinel)
            echo ACKS KEEP_ACKS FROM_SENDING CONFIRMED YOUNG VERIFY
            ;;
        transaction)
            echo WATCH_LOCK WATCH_TOMBS WATCH_FIRST CANCEL_DOUBT
            ;;
        quorum)
            echo WRITE_BACK COUNT_HEARD NEVER_LOWER OWN_CLOCK QUARANTINE SAME_NUMBER
            ;;
    esac
}

# One line for each search: MODEL holds|fails OPTIONS OF SPIN | what it shows
plan() {
    for model; do
        echo "$model holds - | $model holds"
        for guard in $(guards_of "$model"); do
            echo "$model fails -DWITHOUT=$guard | $model fails without $guard"
        done
    done
}

# search MODEL holds|fails OPTIONS: in the present folder; exit 0 if so, else say why not.
search() {
    cp "$root/models/$1.pml" .
    options=$(echo "$3" | sed 's/^-$//; s/,/ /g')
    # The proof takes seconds and is worth some of the optimizer's time; a refutation is found at
    # once, in a table so small (2^18 slots, grown as chains) that to clear it costs nothing. To
    # compile it takes longest: a second, or a tenth of that with tcc.
    case $2 in
        holds) compile="${CC:-gcc} -O1" slots=-w24 ;;
        *) compile="${CC:-gcc} -O0" slots=-w18 ;;
    esac
    [ "$2" = holds ] || ! command -v tcc > /dev/null || compile=tcc
    # shellcheck disable=SC2086 # options are words
    spin $options -a "$1.pml" > out 2>&1 || { cat out; return 1; }
    # shellcheck disable=SC2086 # a compiler may have words before it
    $compile -w -DSAFETY -o pan pan.c > out 2>&1 || { cat out; return 1; }
    ./pan -m10000 "$slots" > out 2>&1 || true
    case $2 in
        holds)
            grep -q 'errors: 0$' out &&
                ! grep -Eqi 'not completed|max search depth|truncated|out of memory|not stored' out
            ;;
        fails) grep -q 'errors: 1$' out && grep -q 'assertion violated' out ;;
    esac || { cat out; return 1; }
}

root=$(cd "$(dirname "$0")/.." && pwd)
if [ "${1:-}" = --one ]; then # --one DIR LINE-OF-THE-PLAN
    number=${3%% *}
    mkdir "$2/$number"
    cd "$2/$number"
    rest=${3#* }
    # shellcheck disable=SC2086 # the first three are words
    set -- ${rest%%|*}
    if search "$@" > why; then echo "ok $number - ${rest#*| }"; else
        echo "not ok $number - ${rest#*| }"
        sed 's/^/# /' why
    fi > ../"$number.result"
    rm -f pan pan.* out
    exit 0
fi

all="break deadlock election fence meeting message presence queue quorum renewal sentinel"
all="$all transaction"
# shellcheck disable=SC2086 # words
[ $# -gt 0 ] || set -- $all
case " $all " in
    *" $1 "*) ;;
    *)
        echo "usage: models.sh [MODEL]: one of $all" >&2
        exit 2
        ;;
esac
dir=$(mktemp -d "${TMPDIR:-/tmp}/hfmodels.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' INT TERM HUP

plan "$@" | awk '{ print NR, $0 }' > "$dir/plan"
count=$(awk 'END { print NR }' "$dir/plan")
echo "1..$count"
if ! command -v spin > /dev/null; then
    awk '{ sub(/^[^|]*\| /, ""); print "ok " NR " - " $0 " # SKIP no spin here" }' "$dir/plan"
    echo "# passed 0 failed 0 skipped $count"
    exit 0
fi
tr '\n' '\0' < "$dir/plan" | xargs -0 -P "${JOBS:-2}" -n 1 "$0" --one "$dir"
number=0
while [ "$number" -lt "$count" ]; do
    number=$((number + 1))
    cat "$dir/$number.result" 2> /dev/null || echo "not ok $number - ended early"
done > "$dir/results"
cat "$dir/results"
passed=$(grep -c '^ok ' "$dir/results") || true
echo "# passed $passed failed $((count - passed)) skipped 0"
[ "$passed" = "$count" ]
