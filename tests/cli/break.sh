# SPDX-License-Identifier: MIT
# break.sh - break and ask: an operator gets a lock free, and its holder knows why.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}
waits='echo $HOLDFAST_FENCE > fence; : > up; while :; do sleep 0.05; done'

# start OPTION...: holdfast run with them in the background, as $pid, under the number $fence. Its
# messages go to "told". It can be seen when this returns.
start() {
    "$HOLDFAST" run "$@" > held.out 2> told &
    pid=$!
    wait_until '[ -e up ]'
    fence=$(cat fence)
    wait_until 'holdfast ls | grep -q " $pid "'
}
# ended STATUS
ended() {
    status=0
    wait $pid || status=$?
    [ "$status" = "$1" ] || { cat told; fail "exit status $status, want $1"; }
}

test_the_number_is_needed() {
    expect_exit 64 holdfast break a
    expect_err '^holdfast: break: --fence is missing: .* holdfast status NAME shows$'
    expect_exit 64 holdfast break
    expect_err "the lock's name is missing"
    expect_exit 64 holdfast break a --fence 0
    expect_exit 64 holdfast break a --fence 7 -n -w 1s
    expect_exit 64 holdfast break a --fence 7 --value v --now
    expect_exit 64 holdfast break a --value v
    expect_exit 64 holdfast break a --fence 7 --reason "$(printf '%0301d' 0)"
    expect_exit 64 holdfast break a,b --fence 7
    expect_exit 64 holdfast ask
    expect_exit 64 holdfast ask a -m "$(printf '%0301d' 0)"
    expect_exit 64 holdfast run --on-ask nosuch a -- true
    expect_err "neither a signal"
}

test_a_living_holder_lets_go_and_says_why() {
    start --ttl 1m a -- sh -c "$waits"
    "$HOLDFAST" run a -- sh -c ': > next' &
    next=$!
    wait_until '[ "$(cli zcard "{lock:a}:q")" = 1 ]'
    expect_exit 0 holdfast break a --fence $fence --reason 'the database moves'
    expect_out "^broken: process $pid on $(uname -n) \\(sh\\) let go after [0-9.]+m?s\$"
    ended 79
    grep -Eq "^holdfast: lock a lost: broken by [^ ]+@$(uname -n): the database moves\$" told ||
        { cat told; fail "it was not told why"; }
    wait $next
    [ -e next ]
}

test_a_command_that_takes_its_time_is_waited_for() {
    start --ttl 1m --kill-after 20s a -- sh -c "trap 'sleep 1; : > cleaned; exit' TERM; $waits"
    expect_exit 75 holdfast break a --fence $fence -n
    expect_out '^marked: process .*; it is free in [0-9.ms]+ at the latest$'
    expect_exit 75 holdfast run -n a -- true
    expect_exit 0 holdfast break a --fence $fence
    [ -e cleaned ] || fail "the lock passed before CMD had ended"
    expect_exit 0 holdfast run -n a -- true
    ended 79
}

test_a_frozen_holder_loses_it_with_its_lease() {
    start --ttl 5s --grace 2s a -- sh -c "$waits"
    kill -STOP $pid
    expect_exit 75 holdfast break a --fence $fence -n -o json
    jq -e '.name == "a" and .result == "marked" and .free_in_ms > 0 and .told == false' \
        < out > /dev/null
    expect_exit 0 holdfast break a --fence $fence -w 1m
    expect_out '^broken: process .* did not answer, and its lease ended after '
    kill -CONT $pid
    ended 79
}

test_a_dead_holder_loses_it_after_its_grace() {
    sleep 1000 &
    eval "$(holdfast acquire --hold-pid $! --ttl 10m --grace 500ms a --sh)"
    wait_until 'holdfast status a -o json | jq -e ".[0].holders[0].pid" > keeper'
    kill -9 "$(cat keeper)" # nobody gives it back
    expect_exit 0 holdfast break a --fence $HOLDFAST_FENCE -w 1m
    expect_out '^broken: process .* was gone, and the lock was handed on after '
    expect_exit 0 holdfast run -n a -- true
}

test_at_once_says_what_it_risks() {
    start --ttl 10m a -- sh -c "$waits"
    kill -STOP $pid
    expect_exit 0 holdfast break a --fence $fence --now --reason 'no time'
    expect_out '^broken at once: process .* was not waited for$'
    expect_err '^holdfast: a: --now: process .* may still believe'
    expect_exit 0 holdfast run -n a -- true
    kill -CONT $pid
    ended 79
    grep -q 'broken by .*: no time$' told
}

test_nothing_happens_to_others() {
    start --ttl 1m a -- sh -c "$waits"
    expect_exit 82 holdfast break a --fence 1
    expect_err "not held under the number 1 but under $fence: nothing was done"
    expect_exit 0 holdfast break nobody --fence 1
    expect_out '^free: nobody holds it any more$'
    expect_exit 0 holdfast held a
    cli set lock:theirs value px 60000 > /dev/null
    expect_exit 78 holdfast break theirs --fence 1
    expect_exit 78 holdfast break theirs --now --value other
    expect_exit 0 holdfast break theirs --now --value value
    expect_exit 1 holdfast held theirs
    cli set lock:l latch.1.1:1600000000000001:0 px 60000 > /dev/null
    expect_exit 78 holdfast break l --fence 1600000000000001
    kill $pid
}

test_a_lock_of_a_script_is_not_extended_any_more() {
    eval "$(holdfast acquire a --ttl 1m --sh)"
    expect_exit 75 holdfast break a --fence $HOLDFAST_FENCE -n --reason enough
    expect_exit 82 holdfast extend a --owner $HOLDFAST_OWNER --ttl 2m
    expect_err 'broken by .*: enough; stop the work'
    expect_exit 82 holdfast check a --owner $HOLDFAST_OWNER
    expect_exit 0 holdfast release a --owner $HOLDFAST_OWNER
    expect_exit 1 holdfast held a
}

test_text_of_others_moves_no_cursor() {
    start --ttl 1m a -- sh -c "$waits"
    expect_exit 0 holdfast break a --fence $fence --reason "$(printf 'x\033[2J\nholdfast: lie')"
    ended 79
    if grep -q "$(printf '\033')" told; then fail "an escape was passed on"; fi
    expect_eq "$(wc -l < told)" 1
}

test_ask_is_a_line() {
    expect_exit 1 holdfast ask a
    expect_err 'nobody holds "a"'
    start -v --ttl 1m a -- sh -c "$waits"
    expect_exit 0 holdfast ask a -m 'are you done?'
    expect_out "^asked: process $pid on $(uname -n) \\(sh\\) has been told\$"
    wait_until 'grep -q "lock a is asked for by .*@.*: are you done?$" told'
    expect_exit 0 holdfast ask a --fence $fence -o json
    jq -e '.name == "a" and .asked == 1 and .heard == 1' < out > /dev/null
    expect_exit 82 holdfast ask a --fence 1
    expect_exit 0 holdfast held a
    kill $pid
}

test_ask_without_a_terminal_is_silent() {
    start --ttl 1m a -- sh -c "$waits"
    expect_exit 0 holdfast ask a
    sleep 0.3
    expect_eq "$(wc -c < told)" 0
    kill $pid
}

test_ask_as_a_signal() {
    start --on-ask USR1 --ttl 1m a -- sh -c "trap ': > got; exit 7' USR1; $waits"
    expect_exit 0 holdfast ask a
    ended 7
    [ -e got ]
}

test_ask_that_releases() {
    start --on-ask release --ttl 1m a -- sh -c "$waits"
    expect_exit 0 holdfast ask a -m please
    ended 79
    grep -q '^holdfast: lock a is asked for by .*: please: stopping CMD (--on-ask release)$' told
    expect_exit 0 holdfast run -n a -- true
}

test_an_election_is_broken_like_a_lock() {
    "$HOLDFAST" elect --ttl 1m e -- sh -c 'echo $HOLDFAST_FENCE >> terms; sleep 1000' 2> told &
    pid=$!
    wait_until '[ -s terms ]'
    expect_exit 0 holdfast break e --fence "$(head -1 terms)" -w 30s
    wait_until '[ "$(wc -l < terms)" -ge 2 ]'
    [ "$(tail -1 terms)" -gt "$(head -1 terms)" ]
    kill $pid
}
