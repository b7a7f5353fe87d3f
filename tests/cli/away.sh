# SPDX-License-Identifier: MIT
# away.sh - the server is away: frozen, gone, or not there yet. The tool ends in time, waits as it
# was told to, and says what is true.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

away() { # away frozen|gone: the server of start_server
    if [ "$1" = frozen ]; then
        kill -STOP $SERVER_PID
        grep -q '^State:.*T' /proc/$SERVER_PID/status || wait_until \
            'grep -q "^State:.*T" /proc/$SERVER_PID/status'
    else
        kill -9 $SERVER_PID
        wait $SERVER_PID 2> /dev/null || true
        rm -f server/sock
    fi
}
# again [ARG...]: a fresh server at the same place.
again() {
    [ -z "${SERVER_PID:-}" ] || kill -9 $SERVER_PID 2> /dev/null || true
    rm -rf server
    start_server "$@"
    HOLDFAST_URL=$SERVER_URL
    export HOLDFAST_URL
}
# begin CMD...: in the background as $pid.
begin() {
    rm -f up ended
    : > out
    : > err
    "$HOLDFAST" "$@" > out 2> err &
    pid=$!
}
# over STATUS: it has ended with it.
over() {
    status=0
    wait $pid || status=$?
    [ "$status" = "$1" ] || { show; fail "exit status $status, want $1"; }
}
work='echo $$ > child; : > up; while [ ! -e go ]; do sleep 0.02; done; date +%s%3N > ended'
forever='trap "date +%s%3N > ended; exit 1" TERM; : > up; while :; do sleep 0.02; done'

# ---- after CMD -------------------------------------------------------------------------------

# lingers STATUS LIMIT FAULT OPTION...: CMD ends by itself while the server is away.
lingers() {
    want=$1 limit=$2 fault=$3
    shift 3
    again
    rm -f go
    begin "$@" -- sh -c "$work"
    wait_until '[ -e up ]'
    away $fault
    : > go
    over "$want"
    within "$limit" "$(cat ended)" "$* ($fault) ended"
}

test_a_second_at_most_after_the_command() {
    for fault in frozen gone; do
        lingers 0 2000 $fault run a
        expect_err '^holdfast: a: its release was not confirmed, and it is free in 30.0s at the '
        expect_err "the server does not answer \($SERVER_URL\)"
        expect_eq "$(wc -l < err)" 1
    done
    lingers 0 2000 frozen run -s a
    lingers 0 2000 frozen run a,b,c
    expect_err '^holdfast: a and others: their release was not confirmed'
    lingers 0 2000 frozen run --hold-min 1m a
    expect_err 'free in 1m00s at the latest|free in 59\..s at the latest'
    lingers 0 2000 frozen once a --ttl 1m
    expect_err 'the output may not have been cached; a: its release'
    lingers 0 2000 frozen elect a
}

# The server is new, and has to be told what a release is; by the time it asks, nobody of us is
# there any more, but the guardian.
test_what_was_not_released_in_time_is_given_back_later() {
    for command in run "once --lease 10m" elect; do
        lingers 0 2000 frozen $command --ttl 10m a
        expect_err 'release was not confirmed'
        kill -CONT $SERVER_PID
        wait_until '[ "$(ask exists lock:a)" = 0 ]'
    done
}

# So it is when the release has failed before our time is over,
test_what_was_tried_in_vain_is_given_back_later() {
    again
    rm -f go
    HOLDFAST_URL="$SERVER_URL?timeout=300ms" begin run --ttl 10m a -- sh -c "$work"
    wait_until '[ -e up ]'
    away frozen
    : > go
    over 0
    kill -CONT $SERVER_PID
    wait_until '[ "$(ask exists lock:a)" = 0 ]'
}

# when the server is started again with its data,
test_what_a_dead_server_still_has_is_given_back_later() {
    again --appendonly yes
    rm -f go
    begin run --ttl 10m a -- sh -c "$work"
    wait_until '[ -e up ]'
    away gone
    : > go
    over 0
    expect_err 'release was not confirmed'
    start_server --appendonly yes
    expect_eq "$(ask exists lock:holdfast:fence)" 1 # its data
    wait_until '[ "$(ask exists lock:a)" = 0 ]'
}

# and when it was not CMD that wanted to end.
test_what_was_asked_for_is_given_back_later() {
    again
    rm -f go
    begin run --ttl 10m --on-ask release a -- sh -c \
        'trap "date +%s%3N > ended; while [ ! -e go ]; do sleep 0.02; done; exit 1" TERM
         : > up; while :; do sleep 0.02; done'
    wait_until '[ -e up ]'
    expect_exit 0 holdfast ask a
    begun=$pid
    wait_until '[ -s ended ]'
    away frozen
    : > go
    status=0
    wait $begun || status=$?
    expect_eq $status 79
    kill -CONT $SERVER_PID
    wait_until '[ "$(ask exists lock:a)" = 0 ]'
}

# lost FAULT OPTION...: the lock is lost because nobody answers.
lost() {
    fault=$1
    shift
    again
    begin run "$@" -- sh -c "$forever"
    wait_until '[ -e up ]'
    away $fault
    over 79
    # On a slow machine its end came before it could write down when.
    [ ! -s ended ] || within 1500 "$(cat ended)" "lost ($fault) and ended"
    expect_err '^holdfast: lock a lost: '
    if grep -q 'release' err; then show; fail "a lost lock was released"; fi
}

test_a_lost_lock_is_not_released() {
    for fault in frozen gone; do
        lost $fault --grace 1s a
        lost $fault --ttl 2s a
        lost $fault --grace 0 --ttl 2s a
    done
}

test_a_signal_ends_the_way_out() {
    again
    rm -f go
    begin run a -- sh -c "$work"
    wait_until '[ -e up ]'
    away frozen
    : > go
    wait_until '[ -s ended ]'
    child=$(cat child) # a signal that comes before its end is passed on to it
    wait_until '! grep -q "^State:.[^ZX]" /proc/$child/status 2> /dev/null'
    kill $pid
    over 0 # what CMD said
    within 1500 "$(cat ended)" "ended"
    expect_err 'release was not confirmed'
}

test_a_signal_twice_still_releases_where_the_server_answers() {
    again
    begin run a -- sh -c "$forever"
    wait_until '[ -e up ]'
    # Both at once, as some supervisors do: to the process and to its group.
    kill $pid
    kill $pid
    over 1
    expect_eq "$(ask exists lock:a)" 0
    expect_eq "$(grep -c release err)" 0
}

# ---- while waiting ---------------------------------------------------------------------------

# interrupted FAULT SIGNALS LIMIT CMD...: it waits, the server goes, a signal comes.
interrupted() {
    fault=$1 sigs=$2 limit=$3
    shift 3
    again
    holdfast acquire a --ttl 1h > /dev/null
    begin "$@"
    wait_until '[ "$(ask client list | grep -c sub=1)" -ge 1 ]'
    away $fault
    t=$(ms)
    for s in $sigs; do
        kill -$s $pid 2> /dev/null || [ $s != "$sigs" ] # the second may come too late
        sleep 0.05
    done
    over $((128 + $(kill -l ${sigs%% *} 2> /dev/null || echo 15)))
    within $limit $t "$* ($fault) ended by $sigs"
}

test_a_signal_ends_a_wait_in_half_a_second() {
    for fault in frozen gone; do
        interrupted $fault TERM 1500 run a -- true
        interrupted $fault TERM 1500 elect a -- true
        interrupted $fault TERM 1500 latch l --wait
        interrupted $fault TERM 1500 barrier b --count 2
    done
    interrupted frozen TERM 1500 once a --ttl 1m -- true
    interrupted frozen TERM 1500 acquire a
    interrupted frozen TERM 1500 leader x --watch
    interrupted frozen 'TERM TERM TERM' 1300 run a -- true
}

# $pid has a connection, or tries to get one: it is past its own beginning. The server is frozen.
asked_for() {
    wait_until 'ls -l /proc/$pid/fd 2> /dev/null | grep -q socket:'
    sleep 0.1
}

test_a_signal_ends_it_before_anything_was_asked() {
    again
    away frozen
    for c in 'run a -- true' 'elect a -- true' 'acquire a' 'latch l --wait' 'barrier b --count 2' \
        'once a --ttl 1m -- true' 'status a'; do
        begin $c
        asked_for # it has begun to ask
        t=$(ms)
        kill $pid
        over 143
        within 500 $t "$c ended"
    done
}

keepers() { # those of this test, as $keeper
    keeper=
    for p in $(pgrep -x holdfast-keeper); do
        if grep -q "$dir" "/proc/$p/environ" 2> /dev/null; then keeper=$p; fi
    done
    [ -n "$keeper" ]
}

# Another process asks for it, and hears of the signal by the end of our connection.
test_a_signal_ends_acquire_hold_pid_before_anything_was_asked() {
    sleep 1000 &
    job=$!
    again
    for fault in frozen gone; do
        away $fault
        begin acquire a --hold-pid $job
        wait_until keepers
        wait_until 'ls -l /proc/$keeper/fd 2> /dev/null | grep -q socket: || [ $fault = gone ]'
        sleep 0.2
        t=$(ms)
        kill $pid
        over 143
        within 1500 $t "acquire --hold-pid ($fault) ended"
        wait_until '! keepers'
    done
    kill $job
}

# A keeper that is stopped is not waited for.
test_a_signal_ends_acquire_whatever_its_keeper_does() {
    again
    away frozen
    sleep 1000 &
    job=$!
    begin acquire a --hold-pid $job
    wait_until keepers
    kill -STOP $keeper
    t=$(ms)
    kill $pid
    over 143
    within 2500 $t "acquire --hold-pid ended"
    kill -CONT $keeper
    wait_until '! keepers'
    kill $job
}

test_acquire_sh_ends_the_script_also_by_a_signal() {
    again
    away frozen
    begin acquire a --sh
    asked_for
    kill $pid
    over 143
    expect_out 'exit 143'
}

# ---- -w, -n and neither ----------------------------------------------------------------------

test_w_bounds_everything() {
    again
    away frozen
    for c in 'run -w 1 a -- true' 'acquire -w 1 a' 'latch -w 1 l' 'barrier -w 1 b --count 2' \
        'once -w 1 --ttl 1m a -- true'; do
        t=$(ms)
        expect_exit 69 holdfast $c
        within 2500 $t "$c ended"
        [ "$took" -ge 900 ] || fail "$c did not wait"
    done
}

# queued LIMIT STATUS CMD...: the server goes while it is waited for.
queued() {
    limit=$1 want=$2
    shift 2
    again
    holdfast acquire a --ttl 1h > /dev/null
    t=$(ms)
    begin "$@"
    wait_until '[ "$(ask client list | grep -c sub=1)" -ge 1 ]'
    away frozen
    over $want
    within $limit $t "$* ended"
}

test_w_bounds_a_wait_that_the_server_leaves() {
    queued 3000 69 run -w 1500ms a -- true
    expect_err '^holdfast: a not obtained within 1.5s: .*answer'
    queued 3000 69 latch -w 1500ms l
    queued 3000 69 barrier -w 1500ms b --count 2
}

test_n_fails_fast() {
    for c in 'run -n a -- true' 'acquire -n a' 'latch -n l'; do
        t=$(ms)
        HOLDFAST_URL=unix://$dir/nobody expect_exit 69 holdfast $c
        within 500 $t "$c ended"
        expect_eq "$(wc -l < err)" 1
    done
}

# comes STATUS CMD...: there is no server yet; it comes.
comes() {
    want=$1
    shift
    [ -z "${SERVER_PID:-}" ] || kill -9 $SERVER_PID
    rm -rf server
    HOLDFAST_URL=unix://$dir/server/sock
    export HOLDFAST_URL
    begin "$@"
    wait_until 'grep -q "cannot connect to .* (trying again)" err'
    sleep 0.5
    kill -0 $pid || { show; fail "$* has not waited"; }
    start_server
    over $want
    expect_err '^holdfast: the server answers again: unix://'
    expect_eq "$(wc -l < err)" 2 # once each
}

test_a_server_that_is_not_there_yet_is_waited_for() {
    comes 0 run a -- true
    comes 0 run -w 30 a -- true
    comes 0 elect a -- true
    comes 0 once a --ttl 1m -- true
    comes 0 acquire a
    comes 0 barrier b --count 1
}

test_quiet_says_nothing_of_it() {
    HOLDFAST_URL=unix://$dir/nobody expect_exit 69 holdfast run -q -w 300ms a -- true
    expect_eq "$(wc -l < err)" 1
    expect_err 'cannot connect'
}

test_the_embedded_server_is_not_waited_for() {
    HOLDFAST_SERVER=$dir/no-such-program expect_exit 69 timeout 5 "$HOLDFAST" run a -- true
    expect_err 'no-such-program'
}

test_a_server_that_leaves_and_comes_back_is_told_once() {
    again --appendonly yes
    holdfast acquire a --ttl 6s > /dev/null
    begin run a -- echo RUNS
    wait_until '[ "$(ask client list | grep -c sub=1)" -ge 1 ]'
    kill -9 $SERVER_PID
    wait_until 'grep -q "^holdfast: a: no answer from the server (unix:.*): still waiting" err' 20
    rm -f server/sock
    start_server --appendonly yes
    over 0
    expect_err "^holdfast: a: the server answers again$"
    expect_eq "$(wc -l < err)" 2
    expect_out RUNS
}
