# SPDX-License-Identifier: MIT
# run.sh - holdfast run: CMD's status, surroundings and signals.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

gone() { # gone PID: not there, or a zombie that nobody has reaped yet
    ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2> /dev/null
}
cli() { # the embedded server, asked past the library
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}
# A command that says that it is up and then waits to be ended.
waits='echo $$ > child; : > up; while :; do sleep 0.05; done'
# A background process of a script ignores SIGINT and SIGQUIT, unless told otherwise.
background() {
    exec env --default-signal=INT,QUIT "$HOLDFAST" "$@"
}

test_status_is_that_of_the_command() {
    for c in 0 1 7 64 69 75 79 82 126 127 130 255; do
        expect_exit $c holdfast run a -- sh -c "exit $c"
        expect_no_err
    done
}

test_S6_a_try_puts_no_expiry_on_data_of_others() {
    expect_exit 0 holdfast run a -- true
    cli SET precious data > /dev/null
    expect_exit 75 holdfast --prefix '' run -n precious -- true
    expect_exit 75 holdfast --prefix '' run -n -s precious -- true
    expect_eq "$(cli PTTL precious)" -1
    HOLDFAST_URL="$HOLDFAST_URL?repair=off"
    expect_exit 75 holdfast --prefix '' run -w 0.4 precious -- true
    expect_eq "$(cli PTTL precious)" -1
}

# calls COMMAND: how often the server has run it.
calls() {
    cli INFO commandstats | sed -n "s/^cmdstat_$1:calls=\([0-9]*\),.*/\1/p"
}

# Of a run that took no longer than it must: the greeting; are we seen, take, give back. What takes
# 150 ms writes a record.
short_run() {
    cli CONFIG RESETSTAT > /dev/null
    holdfast run a -- true
    [ "$(calls eval) $(calls evalsha) $(calls subscribe)" = '1 3 1' ]
}

# What is not needed for it costs every cron job.
test_a_short_run_asks_no_more_than_it_needs() {
    expect_exit 0 holdfast run a -- true
    wait_until short_run
}

test_a_wait_has_few_threads() {
    "$HOLDFAST" run a -- sh -c "$waits" &
    holder=$!
    wait_until '[ -e up ]'
    "$HOLDFAST" run -q a -- true &
    waiter=$!
    wait_until 'holdfast status a | grep -q "^  waiters  *1"'
    expect_eq "$(cat /proc/$waiter/task/*/comm | grep -c '^hf-')" 3 # keeper, watchdog, inbox
    expect_eq "$(cat /proc/$waiter/task/*/comm | grep -vc '^hf-')" 2
    kill $holder
    wait $waiter
}

test_status_of_a_signal() {
    expect_exit 137 holdfast run a -- sh -c 'kill -9 $$'
    expect_exit 143 holdfast run a -- sh -c 'kill -TERM $$'
    expect_exit 129 holdfast run a -- sh -c 'kill -HUP $$'
}

test_not_found_and_cannot_run() {
    expect_exit 127 holdfast run a -- nosuchcommand
    expect_err 'cannot run nosuchcommand: No such file'
    expect_exit 127 holdfast run a -- ./nosuchfile
    : > plain
    expect_exit 126 holdfast run a -- ./plain
    expect_err 'Permission denied'
    expect_exit 126 holdfast run a -- "$dir"
    # Nothing was done, so nothing is kept, not even for --hold-min.
    expect_exit 127 holdfast run --hold-min 1h a -- nosuchcommand
    expect_exit 0 holdfast run -n a -- true
}

test_stdin_reaches_the_command() {
    expect_eq "$(echo hello | holdfast run a -- cat)" hello
    expect_eq "$(seq 100000 | holdfast run a -- tail -1)" 100000
}

test_environment() {
    expect_exit 0 holdfast run --ttl 7s a -- env
    expect_out '^HOLDFAST_NAME=a$'
    expect_out '^HOLDFAST_TTL_MS=7000$'
    expect_out '^HOLDFAST_FENCE=[0-9]{16}$'
    expect_out '^HOLDFAST_OWNER=.+'
    expect_exit 0 holdfast run --owner me a -- env
    expect_out '^HOLDFAST_OWNER=me$'
}

test_P4_fencing_numbers_rise() {
    last=0
    for _ in 1 2 3 4 5; do
        # shellcheck disable=SC2016 # for the inner shell
        n=$(holdfast run a -- sh -c 'echo $HOLDFAST_FENCE')
        [ "$n" -gt "$last" ] || fail "$n after $last"
        last=$n
    done
}

test_process_group_of_its_own() {
    expect_exit 0 holdfast run a -- sh -c 'read -r _ _ _ _ group _ < /proc/$$/stat; [ $group = $$ ]'
}

test_no_descriptor_of_ours() {
    ls /proc/self/fd > before
    expect_exit 0 holdfast run a,b,c -- ls /proc/self/fd
    cmp before out
}

# Signals 1 to 28: those from 32 on are the thread library's own.
dispositions() {
    grep -E '^Sig(Blk|Ign|Cgt)' "$1" | sed 's/[0-9a-f]*\([0-9a-f]\{7\}\)$/\1/'
}

test_mask_and_dispositions_as_before() {
    cat /proc/self/status > before
    expect_exit 0 holdfast run a -- cat /proc/self/status
    expect_eq "$(dispositions out)" "$(dispositions before)"
    (
        trap '' PIPE HUP USR1
        cat /proc/self/status > before
        expect_exit 0 holdfast run a -- cat /proc/self/status
        expect_eq "$(dispositions out)" "$(dispositions before)"
    )
}

test_closed_standard_descriptors() {
    status=0
    holdfast run a -- sh -c 'exit 4' 0<&- 1>&- 2>&- || status=$?
    expect_eq $status 4
}

forwarded() { # forwarded SIGNAL: the command decides what it does
    (background run a -- sh -c "trap 'echo got $1 > got; exit 9' $1; $waits") &
    pid=$!
    wait_until '[ -e up ]'
    kill -"$1" $pid
    status=0
    wait $pid || status=$?
    expect_eq "$status" 9
    expect_eq "$(cat got)" "got $1"
    expect_exit 0 holdfast run -n a -- true
}
test_forwards_TERM() { forwarded TERM; }
test_forwards_INT() { forwarded INT; }
test_forwards_HUP() { forwarded HUP; }
test_forwards_QUIT() { forwarded QUIT; }
test_forwards_USR1() { forwarded USR1; }
test_forwards_USR2() { forwarded USR2; }

test_signal_that_ends_the_command_and_its_children() {
    (background run a -- sh -c 'sleep 1000 & echo $! > grandchild; : > up; wait') &
    pid=$!
    wait_until '[ -e up ]'
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    expect_eq "$status" 143
    wait_until 'gone "$(cat grandchild)"'
    expect_exit 0 holdfast run -n a -- true
}

test_ignored_signal_stays_ignored() {
    (
        trap '' HUP
        exec "$HOLDFAST" run a -- sh -c "$waits"
    ) &
    pid=$!
    wait_until '[ -e up ]'
    kill -HUP $pid
    sleep 0.2
    if gone "$(cat child)"; then fail "ended by a signal that was ignored"; fi
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    expect_eq "$status" 143
}

test_pause_of_the_command_keeps_the_lock() {
    (background run --ttl 4s --grace 0 a -- sh -c "$waits") &
    pid=$!
    wait_until '[ -e up ]'
    child=$(cat child)
    kill -STOP -"$child"
    sleep 4.5 # longer than the ttl
    expect_exit 75 holdfast run -n a -- true
    kill -CONT -"$child"
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    expect_eq "$status" 143
}

# ---- waiting ----

hold() { # hold [OPTION...] NAME: in the background, until $holder is ended
    (background run "$@" -- sh -c ": > held; sleep 1000") &
    holder=$!
    wait_until '[ -e held ]'
}

test_busy_is_75_and_names_the_holder() {
    hold --info 'ticket 17' a
    # Who it is shows a moment later: most locks are too short for anybody to look.
    wait_until 'holdfast status a | grep -q "info .*ticket 17"'
    expect_exit 75 holdfast run -n a -- true
    expect_err "^holdfast: a is held by .*, pid $holder, sh \(ticket 17\), for .*, ttl "
    expect_exit 75 holdfast run -w 0 a -- true
    expect_exit 75 holdfast run -q -n a -- true
    expect_no_err
    kill $holder
}

test_busy_with_another_code() {
    hold a
    expect_exit 0 holdfast run -n -E 0 a -- true
    expect_exit 255 holdfast run -n -E 255 a -- true
    expect_exit 3 holdfast run -w 2 -E 3 a -- true
    # The code is for busy alone.
    expect_exit 127 holdfast run -n -E 3 b -- nosuchcommand
    kill $holder
}

test_skip_ok() {
    hold a
    expect_exit 0 holdfast run -n --skip-ok a -- touch ran
    expect_no_err
    expect_no_out
    [ ! -e ran ]
    expect_exit 0 holdfast run -v -n --skip-ok a -- touch ran
    expect_err 'skipped'
    expect_exit 0 holdfast run -n --skip-ok b -- touch ran
    [ -e ran ]
    kill $holder
}

test_wait_in_vain() {
    hold a
    before=$(date +%s%N)
    expect_exit 75 holdfast run -w 1500ms a -- true
    took=$((($(date +%s%N) - before) / 1000000))
    [ $took -ge 1500 ] || fail "waited only $took ms"
    expect_err 'a not obtained within 1.5s: held by'
    kill $holder
}

queued() { # queued COUNT: so many wait for a
    wait_until "[ \"\$(cli zcard '{lock:a}:q')\" = $1 ]"
}

test_wait_until_it_is_free() {
    hold a
    (background run -w 30 a -- touch ran) &
    waiter=$!
    (background run a -- touch ran2) &
    waiter2=$!
    queued 2
    [ ! -e ran ]
    [ ! -e ran2 ]
    kill $holder
    wait $waiter
    wait $waiter2
    [ -e ran ]
    [ -e ran2 ]
}

test_long_wait_is_told() {
    hold a
    expect_exit 75 holdfast run -v -w 1.5 a -- true
    expect_err '^holdfast: waiting for a: held by .*, you are 1st of 1'
    expect_exit 75 holdfast run -w 1.2 a -- true
    if grep -q waiting err; then fail "told without a terminal"; fi
    kill $holder
}

ended_wait() { # ended_wait SIGNAL STATUS: at once, and nothing is left
    hold a
    (background run a,b -- touch ran) &
    waiter=$!
    queued 1 # before, it would die of the signal, with the same status
    kill -"$1" $waiter
    before=$(date +%s%N)
    status=0
    wait $waiter || status=$?
    took=$((($(date +%s%N) - before) / 1000000))
    expect_eq "$status" "$2"
    at_most 3000 $took "took"
    [ ! -e ran ]
    expect_eq "$(cli zcard '{lock:a}:q')" 0
    expect_exit 0 holdfast run -n b -- true
    kill $holder
    wait $holder || true
    expect_exit 0 holdfast run -n a -- true
}
test_wait_ended_by_TERM() { ended_wait TERM 143; }
test_wait_ended_by_INT() { ended_wait INT 130; }
test_wait_ended_by_HUP() { ended_wait HUP 129; }

# ---- several names ----

test_several_names() {
    expect_exit 0 holdfast run c,a,b,a -- \
        sh -c 'echo $HOLDFAST_NAME; echo $HOLDFAST_FENCE; echo $HOLDFAST_OWNER'
    expect_eq "$(sed -n 1p out)" c,a,b,a
    # Taken in the order of the bytes, told in the order given.
    expect_eq "$(sed -n 2p out |
        awk -F, 'NF == 4 && $2 == $4 && $2 < $3 && $3 < $1 { print "right" }')" right
    expect_eq "$(sed -n 3p out |
        awk -F, 'NF == 4 && $2 == $4 && $1 != $2 && $2 != $3 { print "right" }')" right
}

test_several_names_all_or_nothing() {
    hold b
    expect_exit 75 holdfast run -n a,b,c -- touch ran
    expect_err '^holdfast: b is held by'
    expect_exit 75 holdfast run -w 1s c,b,a -- touch ran
    [ ! -e ran ]
    expect_exit 0 holdfast run -n a,c -- true
    kill $holder
    wait $holder || true
    expect_exit 0 holdfast run -n a,b,c -- true
}

test_several_names_are_all_held() {
    (background run a,b -- sh -c ": > held; sleep 1000") &
    holder=$!
    wait_until '[ -e held ]'
    expect_exit 75 holdfast run -n a -- true
    expect_exit 75 holdfast run -n b -- true
    kill $holder
}

# ---- time limits ----

test_max_run() {
    expect_exit 80 holdfast run --max-run 200ms a -- sleep 1000
    expect_err '^holdfast: a: CMD has run for 200ms \(--max-run\)'
    expect_exit 80 holdfast run --max-run 200ms a -- \
        sh -c 'trap "exit 0" TERM; while :; do sleep 0.05; done'
    expect_exit 0 holdfast run --max-run 1m a -- true
}

test_max_run_kills_what_does_not_end() {
    expect_exit 80 holdfast run --max-run 200ms --kill-after 200ms a -- \
        sh -c 'trap "" TERM; (trap "" TERM; sleep 1000) & echo $! > grandchild
            while :; do sleep 1; done'
    gone "$(cat grandchild)" || fail "the grandchild lives"
    expect_exit 0 holdfast run -n a -- true
}

test_max_run_waits_for_the_whole_group() {
    # CMD itself ends at once, what it started does not.
    expect_exit 80 holdfast run --max-run 200ms --kill-after 300ms a -- \
        sh -c '(trap "" TERM; : > up; while :; do sleep 1; done) & echo $! > grandchild; wait'
    gone "$(cat grandchild)" || fail "the grandchild lives"
}

test_hold_min() {
    before=$(date +%s%N)
    expect_exit 6 holdfast run --hold-min 6s a -- sh -c 'exit 6'
    took=$((($(date +%s%N) - before) / 1000000))
    expect_exit 75 holdfast run -n a -- true
    expect_exit 0 holdfast run -w 60 a -- true
    free=$((($(date +%s%N) - before) / 1000000))
    [ $took -lt 5900 ] || fail "did not exit at once: $took ms"
    [ $free -ge 5990 ] || fail "free after $free ms"
}

test_hold_min_over() {
    expect_exit 0 holdfast run --hold-min 100ms a -- sleep 0.2
    expect_exit 0 holdfast run -n a -- true
}

test_P9_nothing_is_left_behind() {
    expect_exit 0 holdfast run a,b,c -- true
    expect_eq "$(cli --scan --pattern 'lock:[abc]*')" ""
}

test_prefix() {
    hold --prefix other: a
    expect_eq "$(cli exists other:a)" 1
    expect_exit 0 holdfast run -n a -- true
    expect_exit 75 holdfast run -n --prefix other: a -- true
    kill $holder
}
