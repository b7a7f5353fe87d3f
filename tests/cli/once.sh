# SPDX-License-Identifier: MIT
# once.sh - `holdfast once`: output that one caller at a time computes.
# shellcheck disable=SC2016,SC2094 # conditions are evaluated later; words that are names of files

embedded_cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}
waiters() { # waiters NAME: how many stand in the queue
    embedded_cli ZCARD "{lock:$1}:q" 2> /dev/null || echo 0
}

test_the_output_is_cached_with_its_bytes_for_its_ttl() {
    printf 'a\0b\n\377 no line end' > want
    expect_exit 0 holdfast once v --ttl 1 -- sh -c 'cat want; echo x >> ran'
    expect_no_err
    cmp "$dir/out" want || fail "other bytes"
    expect_exit 0 holdfast once v --ttl 60 -- sh -c 'echo never; echo x >> ran'
    cmp "$dir/out" want || fail "other bytes from the cache"
    expect_eq "$(wc -l < ran)" 1
    wait_until '[ "$(embedded_cli EXISTS "{lock:v}:c")" = 0 ]'
    expect_exit 0 holdfast once v --ttl 60 -- echo anew
    expect_out_is anew
    expect_eq "$(embedded_cli EXISTS lock:v)" 0
}

test_options_may_stand_before_the_name_and_empty_output_is_output() {
    expect_exit 0 holdfast once --ttl 60 v -- sh -c 'echo x >> ran'
    expect_exit 0 holdfast once v --ttl=60 -q -- sh -c 'echo x >> ran'
    expect_no_out
    expect_eq "$(wc -l < ran)" 1
    # What looks like an option behind -- is CMD's.
    expect_exit 0 holdfast once w --ttl 60 -- printf '%s' --refresh
    expect_out_is --refresh
}

test_fifty_callers_at_the_same_moment_run_it_once() {
    holdfast server start > /dev/null
    i=0
    while [ $i -lt 50 ]; do
        "$HOLDFAST" once v --ttl 60 -- \
            sh -c 'echo $$ >> ran; until [ -e go ]; do sleep 0.05; done; echo made by $$' \
            > "got.$i" 2>&1 &
        i=$((i + 1))
    done
    wait_until '[ "$(waiters v)" = 49 ]' 40
    : > go
    wait
    expect_eq "$(wc -l < ran)" 1
    expect_eq "$(cat got.* | sort | uniq -c | sed 's/^ *//')" "50 made by $(cat ran)"
}

test_a_failure_keeps_its_status_and_output_and_is_not_cached() {
    expect_exit 3 holdfast once v --ttl 60 -- sh -c 'echo half; echo oops >&2; exit 3'
    expect_out_is half
    expect_err '^oops$'
    expect_exit 143 holdfast once v --ttl 60 -- sh -c 'kill -TERM $$'
    expect_exit 127 holdfast once v --ttl 60 -- /no/such/program
    expect_exit 126 holdfast once v --ttl 60 -- /dev/null
    expect_eq "$(embedded_cli EXISTS "{lock:v}:c" lock:v)" 0
    expect_exit 0 holdfast once v --ttl 60 -- echo well
    expect_out_is well
}

test_a_failure_passes_the_turn_on_to_the_next() {
    "$HOLDFAST" once v --ttl 60 -- sh -c ': > begun; until [ -e go ]; do sleep 0.02; done; exit 9' &
    first=$!
    wait_until '[ -e begun ]'
    "$HOLDFAST" once v --ttl 60 -- sh -c 'echo x >> ran; echo second' > second &
    "$HOLDFAST" once v --ttl 60 -- sh -c 'echo x >> ran; echo third' > third &
    wait_until '[ "$(waiters v)" = 2 ]'
    : > go
    status=0
    wait $first || status=$?
    expect_eq "$status" 9
    wait
    expect_eq "$(wc -l < ran)" 1
    cmp second third
}

test_kill_9_ends_the_computation_and_passes_the_turn_on() {
    "$HOLDFAST" once v --ttl 60 --grace 2s -- sh -c 'echo $$ > begun; exec sleep 1000' &
    first=$!
    wait_until '[ -s begun ]'
    "$HOLDFAST" once v --ttl 60 -- echo second > second &
    next=$!
    wait_until '[ "$(waiters v)" = 1 ]'
    kill -9 $first
    wait $next
    expect_eq "$(cat second)" second
    wait_until '! kill -0 "$(cat begun)" 2> /dev/null'
}

test_a_lost_lock_stops_the_command_and_nothing_is_cached() {
    "$HOLDFAST" once v --ttl 60 --lease 2s -- sh -c 'echo half; : > begun; exec sleep 1000' \
        > got 2> said &
    first=$!
    wait_until '[ -e begun ]'
    embedded_cli DEL lock:v > /dev/null
    status=0
    wait $first || status=$?
    expect_eq "$status" 79
    grep -q lost said
    expect_eq "$(cat got)" half
    expect_eq "$(embedded_cli EXISTS "{lock:v}:c")" 0
}

test_what_a_late_computation_made_replaces_nothing() {
    "$HOLDFAST" once v --ttl 60 --on-lost ignore -- \
        sh -c ': > begun; until [ -e go ]; do sleep 0.02; done; echo late' > late 2> said &
    first=$!
    wait_until '[ -e begun ]'
    embedded_cli DEL lock:v > /dev/null
    expect_exit 0 holdfast once v --ttl 60 -- echo newer
    : > go
    wait $first
    grep -q 'not cached' said || { cat said; fail "no message"; }
    expect_eq "$(cat late)" late
    expect_exit 0 holdfast once v --ttl 60 -- echo never
    expect_out_is newer
}

test_stale_gives_the_old_output_while_another_computes() {
    expect_exit 0 holdfast once v --ttl 200ms --stale 60 -- echo old
    wait_until '[ "$(embedded_cli HGET "{lock:v}:c" fresh)" -lt "$(date +%s%3N)" ]'
    "$HOLDFAST" once v --ttl 60 --stale 60 -- \
        sh -c ': > begun; until [ -e go ]; do sleep 0.02; done; echo new' > first &
    wait_until '[ -e begun ]'
    expect_exit 0 holdfast once v --ttl 60 --stale 60 -- echo never
    expect_out_is old
    expect_no_err
    # Who did not ask for it waits; who does not want to wait is told.
    expect_exit 75 holdfast once v --ttl 60 -n -- echo never
    "$HOLDFAST" once v --ttl 60 --stale 1ms -- echo never > third &
    wait_until '[ "$(waiters v)" = 1 ]'
    : > go
    wait
    expect_eq "$(cat first third)" "new
new"
}

test_refresh_runs_it_anew() {
    expect_exit 0 holdfast once v --ttl 60 -- echo one
    expect_exit 0 holdfast once v --ttl 60 --refresh -- echo two
    expect_out_is two
    expect_exit 0 holdfast once v --ttl 60 -- echo three
    expect_out_is two
}

test_larger_output_is_passed_on_and_not_cached() {
    expect_exit 0 holdfast once v --ttl 60 --max-size 5 -- echo 12345
    expect_out_is 12345
    expect_err 'larger than --max-size \(5 bytes\): passed on, not cached'
    expect_exit 0 holdfast once v --ttl 60 --max-size 6 -- echo 12345
    expect_no_err
    # The largest that is allowed, and one byte more; all of it comes through.
    head -c 1048576 /dev/urandom > big
    expect_exit 0 holdfast once big --ttl 60 -- cat big
    cmp "$dir/out" big
    expect_no_err
    expect_exit 0 holdfast once big --ttl 60 -- echo never
    cmp "$dir/out" big
    echo >> big
    expect_exit 0 holdfast once bigger --ttl 60 -- cat big
    cmp "$dir/out" big
    expect_err 'not cached'
    head -c 20000000 /dev/zero > huge
    expect_exit 0 holdfast once huge --ttl 60 -- cat huge
    cmp "$dir/out" huge
}

test_the_command_gets_stdin_and_is_told_about_the_lock() {
    echo input |
        "$HOLDFAST" once v --ttl 60 -- sh -c 'cat; echo $HOLDFAST_NAME $HOLDFAST_FENCE' > got
    grep -Eq '^v [0-9]{16}$' got
    grep -q '^input$' got
}

test_what_it_leaves_behind_does_not_hold_it_up() {
    expect_exit 0 timeout 20 "$HOLDFAST" once v --ttl 60 -- sh -c 'sleep 1000 & echo done'
    expect_out_is 'done'
    expect_eq "$(embedded_cli HGET "{lock:v}:c" v)" 'done'
}

test_a_reader_that_goes_away_does_not_cost_the_others_the_value() {
    { "$HOLDFAST" once v --ttl 60 -- sh -c 'seq 100000' 2> said || echo $? > status; } |
        head -n 1 > first
    expect_eq "$(cat first)" 1
    expect_eq "$(cat status)" 74
    grep -q 'cannot write the output' said
    expect_exit 0 holdfast once v --ttl 60 -- echo never
    expect_eq "$(tail -n 1 "$dir/out")" 100000
}

test_a_reader_that_stands_still_can_be_ended_by_a_signal() {
    mkfifo pipe
    # shellcheck disable=SC2217 # that it does not read is the point
    sleep 1000 < pipe &
    reader=$!
    # Full: nothing more goes into it.
    dd if=/dev/zero of=pipe oflag=nonblock bs=4096 count=1000 2> /dev/null || true
    "$HOLDFAST" once v --ttl 60 -- sh -c ': > begun; head -c 300000 /dev/zero; : > wrote' > pipe &
    pid=$!
    wait_until '[ -e begun ]'
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    expect_eq "$status" 143
    [ ! -e wrote ] || fail "the pipes are larger than thought"
    # CMD is done, its output is not through.
    "$HOLDFAST" once w --ttl 60 -- sh -c 'head -c 66000 /dev/zero; : > wrote' > pipe &
    pid=$!
    wait_until '[ -e wrote ]'
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    expect_eq "$status" 143
    kill $reader
}

# What is cached is printed when the lock is free again: nobody waits for somebody else's reader.
test_a_reader_that_stands_still_keeps_nobody_from_what_is_cached() {
    mkfifo pipe
    # shellcheck disable=SC2217 # that it does not read is the point
    sleep 1000 < pipe &
    reader=$!
    "$HOLDFAST" once v --ttl 60 -- \
        sh -c ': > begun; until [ -e go ]; do sleep 0.02; done; head -c 300000 /dev/zero' > first &
    wait_until '[ -e begun ]'
    "$HOLDFAST" once v --ttl 60 -- echo never > pipe &
    stuck=$!
    wait_until '[ "$(waiters v)" = 1 ]'
    "$HOLDFAST" once v --ttl 60 -- echo never > third &
    third=$!
    wait_until '[ "$(waiters v)" = 2 ]'
    : > go
    wait_until '! kill -0 $third 2> /dev/null' 20
    wait $third
    cmp first third
    kill -0 $stuck || fail "the pipe is larger than thought"
    kill -TERM $stuck
    status=0
    wait $stuck || status=$?
    expect_eq "$status" 143
    # Nor is it kept from its end when nobody else computes.
    "$HOLDFAST" once v --ttl 60 -- echo never > pipe &
    stuck=$!
    wait_until 'grep -q -e pipe_ -e "^0" /proc/$stuck/wchan' # it writes, if the kernel tells
    kill -TERM $stuck
    status=0
    wait $stuck || status=$?
    expect_eq "$status" 143
    kill $reader
}

test_a_reader_that_has_gone_is_told_of_what_is_cached_too() {
    expect_exit 0 holdfast once v --ttl 60 -- head -c 300000 /dev/zero
    status=0
    { "$HOLDFAST" once v --ttl 60 -- echo never 2> err || echo $? > ended; } | head -c 1 > /dev/null
    expect_eq "$(cat ended)" 74
    expect_err 'cannot write the output'
}

test_what_a_process_left_behind_writes_for_ever_is_not_waited_for() {
    expect_exit 0 timeout 60 "$HOLDFAST" once v --ttl 60 -- sh -c 'yes & echo $! > yes; exit 0'
    kill "$(cat yes)" 2> /dev/null || true # its pipe has no reader any more
    expect_eq "$(embedded_cli EXISTS lock:v)" 0
}

test_signals_reach_the_command_and_the_wait() {
    "$HOLDFAST" once v --ttl 60 -- sh -c 'trap "echo caught; exit 7" TERM
        : > begun; while :; do sleep 0.05; done' > got &
    pid=$!
    wait_until '[ -e begun ]'
    "$HOLDFAST" once v --ttl 60 -- echo never > waited &
    waiter=$!
    wait_until '[ "$(waiters v)" = 1 ]'
    kill -TERM $waiter
    status=0
    wait $waiter || status=$?
    expect_eq "$status" 143
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    expect_eq "$status" 7
    expect_eq "$(cat got)" caught
    [ ! -s waited ] || fail "it ran"
}

test_limits_of_time() {
    expect_exit 80 holdfast once v --ttl 60 --max-run 200ms -- sleep 1000
    "$HOLDFAST" once v --ttl 60 -- sh -c ': > begun; until [ -e go ]; do sleep 0.02; done' &
    wait_until '[ -e begun ]'
    expect_exit 75 holdfast once v --ttl 60 -w 1500ms -- echo never
    expect_err 'not obtained within'
    expect_exit 9 holdfast once v --ttl 60 -n -E 9 -- echo never
    : > go
    wait
}

test_usage() {
    expect_exit 64 holdfast once
    expect_exit 64 holdfast once v
    expect_exit 64 holdfast once v --ttl 5
    expect_err 'the command to run is missing: NAME -- CMD'
    expect_exit 64 holdfast once v --ttl 5 --
    expect_exit 0 holdfast once w --ttl 5 echo hello # as with run
    expect_out_is hello
    expect_exit 64 holdfast once v -- echo
    expect_err '--ttl is missing'
    expect_exit 64 holdfast once v --ttl 0 -- echo
    for size in x 2M -1 1.5M 99999999999999 1Mb; do
        expect_exit 64 holdfast once v --ttl 5 "--max-size=$size" -- echo
    done
    expect_exit 64 holdfast once v --ttl 5 --owner me -- echo
    expect_exit 64 holdfast once v --ttl 5 --lease 10ms -- echo
    expect_err '--lease must be'
    expect_exit 64 holdfast once v --ttl 5 --lease 1s --kill-after 1s -- echo
    expect_err '--lease 1'
    expect_exit 69 holdfast --url "unix://$dir/nobody" once -n v --ttl 5 -- echo
}

test_data_of_another_kind_is_told_and_left_alone() {
    holdfast server start > /dev/null
    embedded_cli SET '{lock:v}:c' mine > /dev/null
    expect_exit 78 holdfast once v --ttl 5 -- echo never
    expect_no_out
    expect_eq "$(embedded_cli GET '{lock:v}:c')" mine
}
