# SPDX-License-Identifier: MIT
# deadlock.sh - commands under locks that wait for one another: one ends with 81, the others go on.
# shellcheck disable=SC2016,SC2034,SC2154 # $HOLDFAST is for the shells that the tests start

export HOLDFAST
# under A B: a command under A that waits, when the other one has its own, for B.
under() {
    "$HOLDFAST" run "$1" -- sh -c ': > has.$0; until [ -e has.$1 ]; do sleep 0.02; done
        "$HOLDFAST" run $1 -- echo got $1' "$1" "$2"
}

test_two_that_wait_for_each_other() {
    under a b > out.a 2> err.a &
    first=$!
    under b a > out.b 2> err.b &
    second=$!
    status_a=0 status_b=0
    wait "$first" || status_a=$?
    wait "$second" || status_b=$?
    case "$status_a $status_b" in
        '0 81') loser=b winner=a ;;
        '81 0') loser=a winner=b ;;
        *) fail "they ended with $status_a and $status_b" ;;
    esac
    [ ! -s "err.$winner" ] || fail "$(cat "err.$winner")"
    grep -q '^got' "out.$winner"
    # Both, by program, pid and host, and what each has.
    sh="sh \(pid [0-9]+ on $(uname -n)\)"
    grep -Eq "a deadlock: this process waits for \"$winner\", held by $sh, which waits for" \
        "err.$loser"
    grep -Eq "which waits for \"$loser\", held by $sh, under which it runs; " "err.$loser"
}

test_what_the_own_parent_holds_is_answered_at_once() {
    begin=$(ms)
    expect_exit 81 "$HOLDFAST" run a -- "$HOLDFAST" run a -- true
    expect_err 'waits for "a", held by holdfast \(pid '
    expect_err ', under which it runs'
    # Several levels, and several names.
    expect_exit 81 "$HOLDFAST" run 'a,x y' -- "$HOLDFAST" run b -- "$HOLDFAST" run c -- \
        "$HOLDFAST" run 'x y' -- true
    expect_err 'waits for "x y", held by'
    within 8000 "$begin" "that took"
}

test_other_ways_to_take_what_the_parent_holds() {
    expect_exit 75 "$HOLDFAST" run a -- "$HOLDFAST" run -n a -- true
    expect_exit 81 "$HOLDFAST" run a -- "$HOLDFAST" acquire a
    expect_exit 81 "$HOLDFAST" run --owner me a -- "$HOLDFAST" run a -- true
    expect_exit 81 "$HOLDFAST" elect a -- "$HOLDFAST" elect a -- true
    # A writer under a reader, and a semaphore of one.
    expect_exit 81 "$HOLDFAST" run -s a -- "$HOLDFAST" run a -- true
    expect_exit 81 "$HOLDFAST" run --slots 1 s -- "$HOLDFAST" run --slots 1 s -- true
}

test_what_can_be_shared_is_shared() {
    expect_exit 0 "$HOLDFAST" run -s a -- "$HOLDFAST" run -s a -- echo both
    expect_out_is both
    expect_exit 0 "$HOLDFAST" run --slots 2 s -- "$HOLDFAST" run --slots 2 s -- echo both
}

test_what_the_parent_does_not_hold_any_more_is_waited_for() {
    # The number is of an earlier grant.
    HOLDFAST_HELD=$("$HOLDFAST" run a -- sh -c 'echo "$HOLDFAST_HELD"')
    case $HOLDFAST_HELD in
        [0-9]*/lock:a) ;;
        *) fail "HOLDFAST_HELD is $HOLDFAST_HELD" ;;
    esac
    export HOLDFAST_HELD
    env -u HOLDFAST_HELD "$HOLDFAST" run a -- sh -c ': > held; sleep 2' &
    wait_until '[ -e held ]'
    expect_exit 0 "$HOLDFAST" run -w 20 a -- true
    wait
}

test_it_can_be_switched_off() {
    case $HOLDFAST_URL in
        *\?*) url="$HOLDFAST_URL&deadlock=off" ;;
        *) url="$HOLDFAST_URL?deadlock=off" ;;
    esac
    expect_exit 75 "$HOLDFAST" run a -- "$HOLDFAST" run --url "$url" -w 1.5 a -- true
    expect_exit 75 "$HOLDFAST" run a -- env -u HOLDFAST_HELD "$HOLDFAST" run -w 1.5 a -- true
}

test_the_environment_tells_no_owner_id() {
    expect_exit 0 "$HOLDFAST" run 'a b' -- sh -c '"$HOLDFAST" run c -- env'
    held=$(sed -n 's/^HOLDFAST_HELD=//p' "$dir/out")
    echo "$held" | grep -Eq '^[0-9]{16}/lock:c [0-9]{16}/lock:a%20b$' || fail "$held"
    # Nonsense in it is left out.
    for text in x 1/ /a 1/%4 1/%zz "$(printf '%09000d' 1)/a" '1/a 2/b  3/'; do
        expect_exit 0 env HOLDFAST_HELD="$text" "$HOLDFAST" run a -- true
    done
}
