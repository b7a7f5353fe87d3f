# SPDX-License-Identifier: MIT
# latch.sh - holdfast latch and holdfast barrier.
# shellcheck disable=SC2016,SC2034,SC2154 # conditions are evaluated later; from lib.sh

cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@" 2> /dev/null
}

# ---- latch ----

test_latch_counts_down_and_lets_through() {
    expect_exit 0 holdfast latch a --set 3
    expect_no_out
    expect_exit 0 holdfast latch a
    expect_out_is 3
    "$HOLDFAST" latch a --wait > waited 2>&1 &
    waiter=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:l")" = 1 ]'
    expect_exit 0 holdfast latch a --down
    expect_out_is 2
    kill -0 $waiter
    expect_exit 0 holdfast latch a --down 2
    expect_out_is 0
    wait $waiter
    [ ! -s waited ]
    expect_exit 0 holdfast latch -n a
    expect_exit 0 holdfast latch a -w 5
    expect_exit 0 holdfast latch a
    expect_out_is 0
}

test_latch_75_when_not_yet() {
    expect_exit 75 holdfast latch a
    expect_err 'there is no latch "a"'
    expect_exit 75 holdfast latch a --down
    expect_exit 75 holdfast latch -n a
    expect_err 'not set yet'
    expect_exit 0 holdfast latch a --set 2
    expect_exit 75 holdfast latch a -n
    expect_err '2 of 2 left'
    expect_exit 75 holdfast latch a -w 1200ms
    expect_err 'still counting down after 1200 ms'
    expect_exit 9 holdfast latch -E 9 -q -n a
    expect_no_err
}

test_latch_set_and_reset() {
    expect_exit 0 holdfast latch a --set 2 --ttl 1h
    [ "$(cli PTTL lock:a)" -le 3600000 ]
    expect_exit 75 holdfast latch a --set 5
    expect_err 'still counting down, 2 of 2 left'
    "$HOLDFAST" latch a --wait 2> broken &
    waiter=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:l")" = 1 ]'
    expect_exit 0 holdfast latch a --set 5 --force
    status=0
    wait $waiter || status=$?
    expect_eq $status 79
    grep -q 'was reset' broken
    expect_exit 0 holdfast latch a --down 5
    expect_exit 0 holdfast latch a --set 1
}

test_latch_json() {
    expect_exit 0 holdfast latch a --set 3 -o json
    expect_out_is '{"name":"a","left":3,"total":3}'
    expect_exit 0 holdfast latch a --down -o json
    expect_out_is '{"name":"a","left":2,"total":null}'
    expect_exit 0 holdfast latch a -o jsonl
    expect_out_is '{"name":"a","left":2,"total":3}'
    expect_exit 75 holdfast latch b -o json
    expect_out_is '{"name":"b","left":null,"total":null}'
    expect_exit 0 holdfast latch a --down 2 -q
    expect_no_out
    expect_exit 0 holdfast latch a --wait -o json
    expect_out_is '{"name":"a","left":0,"total":null}'
}

test_latch_usage() {
    expect_exit 64 holdfast latch
    expect_err "the latch's name is missing"
    expect_exit 64 holdfast latch a b
    expect_exit 64 holdfast latch a --set 0
    expect_err "'0' is not a number from 1 to 1000000"
    expect_exit 64 holdfast latch a --set 1000001
    expect_exit 64 holdfast latch a --down x
    expect_err "'x' is not a number"
    expect_exit 64 holdfast latch a --down --set 2
    expect_err 'cannot be used together'
    expect_exit 64 holdfast latch a --wait --down
    expect_exit 64 holdfast latch a --force
    expect_err '--force needs --set'
    expect_exit 64 holdfast latch a -n -w 2
    expect_exit 64 holdfast latch a --ttl 10ms --set 2
    expect_exit 64 holdfast latch holdfast:x --set 2
    expect_exit 69 holdfast --url "unix://$dir/nosuch.sock" latch a
}

test_a_signal_ends_the_wait() {
    expect_exit 0 holdfast latch a --set 2
    "$HOLDFAST" latch a --wait &
    waiter=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:l")" = 1 ]'
    kill -TERM $waiter
    status=0
    wait $waiter || status=$?
    expect_eq $status 143
    expect_eq "$(cli EXISTS "{lock:a}:l")" 0
}

test_78_what_is_no_latch_and_no_barrier() {
    holdfast acquire a --ttl 30s > /dev/null
    expect_exit 78 holdfast latch a --set 2
    expect_err '"a" is a lock that is held, not a latch'
    expect_exit 78 holdfast barrier a --count 2
    expect_err '"a" is a lock that is held, not a barrier'
    expect_exit 0 holdfast latch b --set 2
    expect_exit 78 holdfast barrier b --count 2
    expect_err '"b" is a latch, not a barrier'
    expect_exit 0 holdfast latch b
    expect_out_is 2
}

# ---- barrier ----

test_barrier_lets_all_go_together() {
    for i in 1 2; do
        "$HOLDFAST" barrier a --count 3 -w 30 > "out$i" &
        wait_until '[ "$(cli ZCARD "{lock:a}:h")" = '$i' ]'
    done
    expect_exit 0 holdfast barrier a --count 3
    wait
    cat out1 out2 out > all
    expect_eq "$(cut -d' ' -f1 all | tr '\n' ' ')" 'index=0 index=1 index=2 '
    expect_eq "$(cut -d' ' -f2 all | sort -u | wc -l)" 1
    expect_eq "$(cli EXISTS lock:a "{lock:a}:h" "{lock:a}:l")" 0
}

test_barrier_75_in_vain_and_79_broken() {
    expect_exit 75 holdfast barrier a --count 2 -n
    expect_err '0 of 2 are at the barrier "a"'
    "$HOLDFAST" barrier a --count 3 2> broken &
    waiter=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:h")" = 1 ]'
    expect_exit 75 holdfast barrier a --count 3 -w 1200ms
    expect_err '2 of 3 are at the barrier "a" after 1200 ms'
    status=0
    wait $waiter || status=$?
    expect_eq $status 79
    grep -q "broken: process [0-9]* on \"$(uname -n)\" did not want to wait any longer" broken
}

test_barrier_79_when_one_is_killed_or_interrupted() {
    "$HOLDFAST" barrier a --count 3 --grace 500ms &
    victim=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:h")" = 1 ]'
    "$HOLDFAST" barrier a --count 3 2> broken &
    waiter=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:h")" = 2 ]'
    kill -9 $victim
    status=0
    wait $waiter || status=$?
    expect_eq $status 79
    grep -q "process $victim on .* is gone" broken
    "$HOLDFAST" barrier a --count 2 2> broken &
    waiter=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:h")" = 1 ]'
    kill -TERM $waiter
    status=0
    wait $waiter || status=$?
    expect_eq $status 143
    wait_until '[ "$(cli EXISTS lock:a)" = 0 ]'
}

test_barrier_64_another_number() {
    "$HOLDFAST" barrier a --count 3 &
    waiter=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:h")" = 1 ]'
    expect_exit 64 holdfast barrier a --count 2
    expect_err 'for 3 parties, of which 1 wait: it cannot be for 2'
    kill -TERM $waiter
    wait $waiter || true
    expect_exit 64 holdfast barrier a
    expect_err '--count is missing'
    expect_exit 64 holdfast barrier --count 2
    expect_exit 64 holdfast barrier a b --count 2
    expect_exit 64 holdfast barrier a --count 0
    expect_exit 64 holdfast barrier a --count 1001
    expect_exit 64 holdfast barrier a --count 2 -n -w 1
}

test_barrier_leave_is_a_meeting_of_its_own() {
    "$HOLDFAST" barrier a --count 2 --leave > left &
    first=$!
    wait_until '[ "$(cli ZCARD "{lock:a}:oh")" = 1 ]'
    expect_exit 75 holdfast barrier a --count 2 -n
    expect_exit 0 holdfast barrier a --count 2 --leave -o json
    expect_out_is '{"name":"a","count":2,"index":null,"generation":null}'
    wait $first # with 0
    [ ! -s left ]
    expect_exit 0 holdfast barrier a --count 1 -o json
    expect_out '^\{"name":"a","count":1,"index":0,"generation":[0-9]+\}$'
}
