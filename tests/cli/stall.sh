# SPDX-License-Identifier: MIT
# stall.sh - a machine or a server that stands still for a while is not a lost lock. The whole
# table, closer to the bounds, is printed by bench/stall.sh; here is time for a busy machine.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

gone() {
    ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2> /dev/null
}
stopped() {
    grep -q '^State:.*T' "/proc/$1/status"
}
waits='echo $$ > child; : > up; while :; do sleep 0.05; done'

# survives FUNCTION: a machine that stands still itself adds to what it does; so it has three tries.
survives() {
    for try in 1 2 3; do
        ("$1") &
        status=0
        wait $! || status=$?
        [ $status != 0 ] || return 0
        [ "$(patience)" != 1 ] || break
        echo "# the machine has too much to do: try $try"
    done
    fail "it did not survive"
}

# start OPTION...: holdfast run with them in the background, as $pid.
start() {
    rm -rf server up child
    start_server
    "$HOLDFAST" run --url "$SERVER_URL" "$@" > out 2> err &
    pid=$!
    wait_until '[ -e up ]'
    child=$(cat child)
    wait_until 'guardian=$(pgrep -P $pid holdfast-guard)' # it names itself
    sleep 1.1 # not at its best moment, just after the first proof
}
# stall SECONDS PID...
stall() {
    seconds=$1
    shift
    kill -STOP "$@"
    wait_until "stopped $1"
    sleep $seconds
    kill -CONT "$@"
}
# goes_on: a while later it still runs, and ends as if nothing had been.
goes_on() {
    sleep 2
    if gone $child; then
        wait $pid || echo "# exit status $?"
        show
        fail "the child was stopped"
    fi
    kill $pid
    status=0
    wait $pid || status=$?
    expect_eq $status 143
}

test_F2_grace_survives_six_tenths_of_it_without_us() {
    survives without_us
}
without_us() {
    start --grace 3s a -- sh -c "$waits"
    stall 1.8 $pid
    goes_on
}

test_F2_again_and_again() {
    survives again_and_again
}
again_and_again() {
    start --grace 2s a -- sh -c "$waits"
    for _ in 1 2 3 4 5 6; do
        stall 1.1 $pid
        sleep 0.3
    done
    goes_on
}

# As a frozen cgroup does.
test_F2_grace_survives_six_tenths_of_it_without_any_of_us() {
    survives without_any_of_us
}
without_any_of_us() {
    start --grace 3s a -- sh -c "$waits"
    stall 1.8 $pid $guardian $child
    goes_on
}

test_F2_grace_survives_six_tenths_of_it_without_the_server() {
    survives without_the_server
}
without_the_server() {
    start --grace 3s a -- sh -c "$waits"
    stall 1.8 $SERVER_PID
    goes_on
}

# P1, P5: one and a half graces are too long, whoever stood still; and when the next one comes, the
# work of the first is over.
not_both() { # not_both PID...
    "$HOLDFAST" run --url "$SERVER_URL" --grace 1s -w 30 a -- \
        sh -c "! grep -q '^State:.[^ZX]' /proc/$child/status" \
        > out2 2> err2 &
    second=$!
    stall 3 "$@"
    status=0
    wait $pid || status=$?
    expect_eq $status 79
    gone $child || fail "the child lives"
    [ -s err ] || fail "not a word"
    status=0
    wait $second || status=$?
    expect_eq $status 0
}

test_F2_too_long_without_us_never_makes_two() {
    start --ttl 8s --grace 2s a -- sh -c "$waits"
    not_both $pid
    expect_err 'this process stood still for [0-9.]+s'
}

test_F2_too_long_without_the_server_never_makes_two() {
    start --ttl 8s --grace 2s a -- sh -c "$waits"
    not_both $SERVER_PID
    expect_err "^holdfast: lock a lost: no answer from $SERVER_URL for [0-9.]+m?s, and its grace "
}

test_F2_killed_by_the_guardian_is_79_and_says_why() {
    start --grace 2s a -- sh -c "$waits"
    kill -STOP $pid
    since=$(ms)
    wait_until 'gone $child'
    [ $(($(ms) - since)) -ge 1200 ] || fail "after $(($(ms) - since)) ms"
    kill -CONT $pid
    status=0
    wait $pid || status=$?
    expect_eq $status 79
    expect_err '^holdfast: CMD was killed when its time ended: this process stood still for [0-9.]+'
    expect_err 's, too long for the grace of 2.0s$'
}

# Nobody can give the exit status of one that was killed; but somebody can say what happened.
test_F2_killed_holdfast_has_a_last_word() {
    start --grace 2s a -- sh -c "$waits"
    kill -9 $pid
    wait_until 'gone $child'
    wait_until 'gone $guardian'
    expect_err '^holdfast: holdfast itself was killed: CMD and all of its process group were killed'
}

# ---- killed, and the guardian gives the locks back ----

# P1, P3: at once, and not before the whole group is gone; the grace need not pass.
test_killed_holdfast_gives_its_locks_back() {
    start --ttl 60s --grace 30s a,b -- sh -c "sleep 1000 & echo \$! > grandchild; $waits"
    kill -9 $pid
    since=$(ms)
    expect_exit 0 holdfast run --url "$SERVER_URL" -w 20 a,b -- sh -c "
        for p in $child $(cat grandchild); do
            ! grep -q '^State:.[^ZX]' /proc/\$p/status || exit 1
        done"
    within 15000 "$since" "free after"
}

# The password is no longer in our environment then, and in nobody's command line.
test_killed_holdfast_gives_back_with_a_password() {
    start_server --requirepass geheim
    HOLDFAST_PASSWORD=geheim HOLDFAST_URL=$SERVER_URL "$HOLDFAST" run --ttl 60s --grace 30s \
        --prefix x: -- -a -- sh -c "$waits" > out 2> err &
    pid=$!
    wait_until '[ -e up ]'
    kill -9 $pid
    wait_until '[ "$(REDISCLI_AUTH=geheim ask exists x:-a)" = 0 ]'
}

# From where we were started: what the environment names may be relative to that.
test_killed_holdfast_gives_back_where_its_folder_is() {
    HOLDFAST_URL=embedded:rel "$HOLDFAST" run --ttl 60s --grace 30s a -- sh -c "$waits" 2> err &
    pid=$!
    wait_until '[ -e up ]'
    kill -9 $pid
    HOLDFAST_URL=embedded:$dir/rel expect_exit 0 holdfast run -w 20 a -- true
    [ ! -e /rel ] || fail "another server was started in /rel"
}

# An id of one's own may be held by another process by then; and what is to be kept is kept.
test_killed_holdfast_leaves_what_is_not_surely_its_own() {
    start --ttl 60s --grace 30s --owner me a -- sh -c "$waits"
    kill -9 $pid
    wait_until 'gone $guardian'
    expect_exit 75 holdfast run --url "$SERVER_URL" -n a -- true
    rm up
    "$HOLDFAST" run --url "$SERVER_URL" --ttl 60s --hold-min 50s b -- sh -c "$waits" 2> err &
    pid=$!
    wait_until '[ -e up ]'
    wait_until 'guardian=$(pgrep -P $pid holdfast-guard)'
    kill -9 $pid
    wait_until 'gone $guardian'
    expect_exit 75 holdfast run --url "$SERVER_URL" -n b -- true
}
