# SPDX-License-Identifier: MIT
# lost.sh - P5, no silent loss: CMD never runs on without its lock.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

gone() {
    ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2> /dev/null
}
cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}
waits='echo $$ > child; : > up; while :; do sleep 0.05; done'

# start OPTION...: holdfast run with them in the background, as $pid.
start() {
    "$HOLDFAST" run "$@" > out 2> err &
    pid=$!
    wait_until '[ -e up ]'
    child=$(cat child)
}
# ticks PID: the time that it has used the processor, in hundredths of a second.
ticks() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}
# ended STATUS LIMIT: within LIMIT ms since $since, and the whole group with it.
ended() {
    status=0
    wait $pid || status=$?
    took=$(($(ms) - since))
    [ "$status" = "$1" ] || { show; fail "exit status $status, want $1"; }
    gone "$child" || fail "the child lives"
    at_most "$2" $took "took"
}

test_P5_deleted_key_stops_the_command() {
    start --ttl 6s a -- sh -c "$waits"
    since=$(ms)
    cli del lock:a > /dev/null
    ended 79 3000
    expect_err '^holdfast: lock a lost: embedded:.* says that it is gone or has another owner'
}

test_P5_stolen_key_stops_the_command() {
    start --ttl 6s a -- sh -c "$waits"
    since=$(ms)
    cli set lock:a somebody-else > /dev/null
    ended 79 3000
    # P2: what is now another's was not touched.
    expect_eq "$(cli get lock:a)" somebody-else
}

test_P5_flushed_server_stops_the_command() {
    start --ttl 6s a -- sh -c "$waits"
    before=$(sed -n 's/^HOLDFAST_FENCE=//p' out)
    since=$(ms)
    cli flushall > /dev/null
    ended 79 3000
    after=$(holdfast run a -- sh -c 'echo $HOLDFAST_FENCE')
    [ "$after" -gt "${before:-0}" ]
}

test_P5_frozen_server_stops_the_command_by_our_own_clock() {
    start --ttl 3s a -- sh -c "$waits"
    server=$(cli info server | tr -d '\r' | sed -n 's/^process_id://p')
    since=$(ms)
    kill -STOP "$server"
    wait_until 'gone $child'
    took=$(($(ms) - since))
    kill -CONT "$server"
    at_most 3000 $took "took, and the lease has 3000 ms"
    ended 79 9000
    expect_err '^holdfast: lock a lost: no answer from embedded:.* for [0-9.]+s, and its grace of '
    expect_eq "$(wc -l < err)" 1 # and is not told a second time
}

# The kernel lets nobody open a file on which there is a lease: as long as that lasts, CMD is about
# to be started, and meanwhile no server answers. So little is left when holdfast looks for the
# first time.
test_P5_silent_server_while_the_command_is_being_started() {
    command -v python3 > /dev/null || left_out "python3 is not installed"
    cp "$(command -v sleep)" slow
    holdfast run a -- true # the server runs
    server=$(cli info server | tr -d '\r' | sed -n 's/^process_id://p')
    mkfifo end
    python3 -c 'import fcntl, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
f = open("slow", "r+b")
try:
    fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError:
    open("refused", "w").close()
open("ready", "w").close()
open("end").read()' &
    lease=$!
    wait_until '[ -e ready ]'
    if [ -e refused ]; then
        : > end
        left_out "no leases on files here"
    fi
    "$HOLDFAST" run --ttl 8s --grace 4s --kill-after 1700ms a -- ./slow 60 > out 2> err &
    pid=$!
    wait_until '[ "$(cli exists lock:a)" = 1 ]'
    kill -STOP "$server"
    sleep 2.9 # of its grace of 4 s, of which it wants to keep 1.9 s
    : > end
    wait $lease
    status=0
    wait $pid || status=$?
    kill -CONT "$server"
    [ "$status" = 79 ] || { show; fail "exit status $status, want 79"; }
    expect_err ' lost: |CMD was killed when its time ended'
}

test_P5_killed_server_that_comes_back_costs_nothing() {
    start --ttl 6s a -- sh -c "$waits"
    kill -9 "$(cli info server | tr -d '\r' | sed -n 's/^process_id://p')"
    # The next call starts it again, with its append-only file: the lock still is held.
    expect_exit 75 holdfast run -n a -- true
    sleep 4
    if gone $child; then fail "the child was stopped"; fi
    since=$(ms)
    kill $pid
    ended 143 5000
}

# Nobody knew of it before: the release tells, and why.
test_a_loss_that_only_the_release_finds_is_told() {
    expect_exit 0 holdfast run --ttl 1m a -- "$(command -v redis-cli || command -v valkey-cli)" \
        -s "$dir/hf/redis.sock" del lock:a
    expect_err '^holdfast: found at its release: the lock "a" was lost: embedded:.* says that it '
    expect_eq "$(wc -l < err)" 1
}

test_one_of_several_names_lost() {
    start --ttl 6s a,b,c -- sh -c "$waits"
    since=$(ms)
    cli del lock:b > /dev/null
    ended 79 3000
    expect_err '^holdfast: lock b lost: '
    expect_exit 0 holdfast run -n a,b,c -- true
}

test_P5_command_that_ignores_TERM_is_killed_inside_the_lease() {
    start --ttl 3s a -- sh -c "trap '' TERM; $waits"
    since=$(ms)
    cli del lock:a > /dev/null
    ended 79 3000
}

test_command_may_clean_up_after_TERM() {
    start --ttl 5s a -- sh -c "trap 'echo clean > cleaned; exit 0' TERM; $waits"
    since=$(ms)
    cli del lock:a > /dev/null
    ended 79 5000
    expect_eq "$(cat cleaned)" clean
}

# After TERM it only waits: what becomes of the other lock meanwhile must not keep it busy.
test_command_that_cleans_up_for_long_costs_no_processor_time() {
    start --ttl 60s --grace 0 --kill-after 25s a,b -- sh -c "trap ': > termed' TERM
        echo \$\$ > child; : > up; until [ -e go ]; do sleep 0.05; done"
    cli del lock:a > /dev/null
    wait_until '[ -e termed ]'
    cli del lock:b > /dev/null
    sleep 1.5 # its loss is found within a second or so
    before=$(ticks $pid)
    sleep 1.5
    used=$(($(ticks $pid) - before))
    : > go
    since=$(ms)
    ended 79 9000
    [ $used -le 30 ] || fail "$used ticks of the processor in 1.5 s"
}

test_whole_group_is_stopped() {
    start --ttl 3s a -- \
        sh -c "(trap '' TERM; while :; do sleep 1; done) & echo \$! > grandchild; $waits"
    since=$(ms)
    cli del lock:a > /dev/null
    ended 79 3000
    gone "$(cat grandchild)" || fail "the grandchild lives"
}

test_on_lost_kill() {
    start --ttl 3s --on-lost kill a -- sh -c "trap 'echo TERM > got' TERM; $waits"
    since=$(ms)
    cli del lock:a > /dev/null
    ended 79 3000
    [ ! -e got ]
}

test_on_lost_ignore() {
    start --ttl 1s --on-lost ignore a -- sh -c "trap 'exit 5' USR1; $waits"
    cli del lock:a > /dev/null
    wait_until 'grep -q "lock a lost" err'
    sleep 1
    if gone $child; then fail "the child was stopped"; fi
    since=$(ms)
    kill -USR1 $pid
    ended 5 5000
}

test_kill_9_of_holdfast_ends_child_and_grandchild() {
    start --ttl 60s --grace 2s a -- sh -c "sleep 1000 & echo \$! > grandchild; $waits"
    kill -9 $pid # its guardian lives on
    since=$(ms)
    wait_until 'gone $child && gone "$(cat grandchild)"'
    # P3: whoever waits gets it when the grace has passed, whatever the ttl.
    expect_exit 0 holdfast run -w 20 a -- true
    took=$(($(ms) - since))
    at_most 10000 $took "free after"
}

test_stopped_holdfast_does_not_leave_the_command_running() {
    start --ttl 4s a -- sh -c "$waits"
    kill -STOP $pid
    # P1: whoever gets the lock next does not find the old command at work.
    expect_exit 0 holdfast run -w 20 a -- \
        sh -c "! grep -q '^State:.[^ZX]' /proc/$child/status"
    since=$(ms)
    kill -CONT $pid
    ended 79 9000
}

test_stopped_holdfast_gives_up_after_its_grace() {
    # Nobody can take over while its connection stands, but it cannot know that.
    start --ttl 60s --grace 1s a -- sh -c "$waits"
    kill -STOP $pid
    since=$(ms)
    wait_until 'gone $child'
    took=$(($(ms) - since))
    at_most 1500 $took "the command ran on for"
    expect_exit 75 holdfast run -n a -- true
    since=$(ms)
    kill -CONT $pid
    ended 79 5000
}

test_briefly_stopped_holdfast_goes_on() {
    start --ttl 6s a -- sh -c "$waits"
    kill -STOP $pid
    sleep 0.5
    kill -CONT $pid
    sleep 0.5
    if gone $child; then fail "the child was stopped"; fi
    since=$(ms)
    kill $pid
    ended 143 5000
    expect_exit 0 holdfast run -n a -- true
}

test_released_by_somebody_with_the_owner_id() {
    start --ttl 6s --owner me a -- sh -c "$waits"
    since=$(ms)
    holdfast release a --owner me
    ended 79 3000
    expect_err 'lock a lost: .*released'
}

test_long_job_short_ttl() {
    # P1: renewed all the time, nobody else gets it.
    start --ttl 4s a -- sh -c "$waits"
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        expect_exit 75 holdfast run -n a -- true
        sleep 0.5
    done
    since=$(ms)
    kill $pid
    ended 143 5000
}
