# SPDX-License-Identifier: MIT
# wait.sh - waiting one's turn: what a person sees meanwhile, who is next, who takes over.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}
# hold [OPTION...] NAME: in the background, as $holder.
hold() {
    "$HOLDFAST" run "$@" -- sh -c ': > held; exec sleep 1000' &
    holder=$!
    wait_until '[ -e held ]'
}
queue() { # queue NAME: how many wait
    cli zcard "{lock:$1}:q"
}
# queued NAME COUNT: so many wait now.
queued() {
    wait_until "[ \"\$(queue $1)\" = $2 ]"
}
# on_terminal COLUMNS CMD: in the background as $session, its screen in the file `screen`.
on_terminal() {
    rm -f keys
    mkfifo keys
    env --default-signal=INT,QUIT script -qefc "stty cols $1; $2" typescript < keys > screen 2>&1 &
    session=$!
    exec 5> keys
}
lines() { # the screen's bytes, one line for each carriage return
    tr '\r' '\n' < screen
}

# ---- the line on a terminal --------------------------------------------------------------

test_the_line_says_who_since_when_and_our_place() {
    hold --info 'ticket 17' a
    "$HOLDFAST" run a -- sleep 1000 2> /dev/null &
    queued a 1
    on_terminal 200 "$HOLDFAST run --info me a -- true"
    wait_until 'lines | grep -q "^holdfast: waiting for a: held by .*, you are 2nd of 2"' 15
    who="held by $(id -un)@$(uname -n | cut -d . -f 1)"
    where="you are 2nd of 2, renewed .* ago, pid $holder, sh"
    lines | grep -Eq "$who for [0-9.]+m?s \(ticket 17\), $where"
    # It is one line, written again and again.
    wait_until '[ "$(lines | grep -c "^holdfast: waiting for a: ")" -ge 3 ]' 15
    expect_eq "$(wc -l < screen)" 0
}

test_the_line_moves_up_and_is_gone_at_the_end() {
    hold a
    "$HOLDFAST" run a -- sleep 2 2> /dev/null &
    queued a 1
    on_terminal 80 "$HOLDFAST run a -- echo RUNS"
    wait_until 'lines | grep -q "you are 2nd of 2"' 15
    kill $holder
    wait_until 'lines | grep -q "you are 1st of 1"' 15
    wait $session
    # Wiped before the command's first byte.
    lines | tail -n 3 | grep -q RUNS
    expect_eq "$(lines | grep -A2 'you are 1st' | tail -n 2 | head -n 1 | tr -d ' ')" ''
}

test_the_line_is_cut_to_the_terminal() {
    hold --info "xxxxxxxxxxxxxxxxxxxx größe 大大大大大大" a
    on_terminal 60 "$HOLDFAST run a -- true"
    wait_until '[ "$(lines | grep -c "^holdfast: waiting for a: ")" -ge 2 ]' 15
    longest=$(lines | awk '{ if (length($0) > m) m = length($0) } END { print m }')
    [ "$longest" -le 59 ] || fail "a line of $longest columns on a terminal of 60"
    kill $holder
    wait $session
}

# Since when and what for stand in the first 80 columns, also with a name that is long.
test_since_and_info_fit_80_columns() {
    name=a-name-that-is-far-longer-than-names-are
    hold --info "nightly backup" $name
    on_terminal 80 "$HOLDFAST run $name -- true"
    wait_until 'lines | grep -Eq "^holdfast: waiting for a-name-that-i...: "' 15
    who="held by $(id -un | cut -c 1-8)[^ ]* for [0-9.]+m?s \(nightly"
    [ "$(id -un)@$(uname -n | cut -d . -f 1)" != "$(id -un)@" ]
    [ ${#name} -gt 24 ]
    lines | grep -Eq "$who" || { lines | head -n 5; fail "since and info are cut off"; }
    kill $holder
    wait $session
}

test_what_the_line_shows_cannot_move_the_cursor() {
    hold --info "$(printf 'a\033[2J\rb')" a
    on_terminal 200 "$HOLDFAST run a -- true"
    wait_until 'lines | grep -qF "(a\\x1b[2J\\x0db)"' 15
    if grep -q "$(printf '\033')" screen; then fail "an escape sequence"; fi
}

test_no_line_before_a_second() {
    hold a
    for _ in 1 2 3; do
        on_terminal 80 "$HOLDFAST run -w 500ms a -- true"
        status=0
        wait $session || status=$?
        # As in expect_exit: a busy machine may not have got an answer by then.
        [ $status = 69 ] && [ "$(patience)" != 1 ] || break
    done
    expect_eq $status 75
    if grep -q waiting screen; then fail "told too early"; fi
}

test_acquire_tells_too() {
    hold a
    on_terminal 200 "$HOLDFAST acquire --ttl 1s a"
    wait_until 'lines | grep -q "waiting for a: held by .*, you are 1st of 1"' 15
    kill $holder
    wait $session
    grep -q 'owner=' screen
}

test_in_the_background_the_terminal_is_left_alone() {
    hold a
    on_terminal 80 'bash --norc --noprofile -i'
    printf '%s run a -- true &\nsleep 2.5\n: > slept\nexit\n' "$HOLDFAST" >&5
    wait_until '[ -e slept ]' 15
    if lines | grep -q '^holdfast: waiting'; then fail "a line from the background"; fi
}

test_nothing_when_nobody_looks() {
    hold a
    expect_exit 75 holdfast run -w 2500ms a -- true
    if grep -q waiting err; then fail "told nobody"; fi
    expect_exit 75 holdfast run -q -w 1500ms a -- true
    expect_no_err
}

test_verbose_tells_changes_alone() {
    hold a
    "$HOLDFAST" run a -- sleep 600 2> /dev/null &
    next=$!
    queued a 1
    "$HOLDFAST" run -v a -- true 2> told &
    waiter=$!
    line="^holdfast: waiting for a: held by .* for [0-9.]+s, you are 2nd of 2, renewed .* ago, "
    line="${line}pid $holder, sh"
    wait_until 'grep -Eq "$line" told' 15
    sleep 1.5
    expect_eq "$(grep -c 'waiting for' told)" 1
    kill $holder
    wait_until 'grep -q "^holdfast: waiting for a: held by .*, you are 1st of 1, .*sleep" told'
    kill $next
    wait $waiter
    [ "$(grep -c 'waiting for' told)" -le 3 ]
    if grep -q "$(printf '\r')" told; then fail "a carriage return in a file"; fi
    grep -q '^holdfast: a taken, fence ' told
}

test_a_look_costs_one_inspection_a_second() {
    hold a
    "$HOLDFAST" run -v a -- true 2> /dev/null &
    queued a 1
    sleep 1.5
    since=$(ms)
    before=$(cli info commandstats | sed -n 's/^cmdstat_zcard:calls=\([0-9]*\).*/\1/p')
    sleep 3
    after=$(cli info commandstats | sed -n 's/^cmdstat_zcard:calls=\([0-9]*\).*/\1/p')
    # The waiter's own look at the queue counts it too, at most four times a second.
    took=$(($(ms) - since))
    [ $((after - before)) -ge 1 ] || fail "it did not look"
    [ $((after - before)) -le $((5 * took / 1000 + 3)) ] || fail "$((after - before)) in $took ms"
}

test_ctrl_c_while_the_server_is_frozen() {
    # A frozen server must not keep Ctrl-C waiting while the line is being asked for.
    hold --ttl 60s --grace 0 a
    on_terminal 80 "$HOLDFAST run a -- true"
    wait_until 'lines | grep -q "waiting for a"' 15
    server=$(cli info server | tr -d '\r' | sed -n 's/^process_id://p')
    kill -STOP "$server"
    sleep 1.5
    since=$(ms)
    printf '\003' >&5
    status=0
    wait $session || status=$?
    took=$(($(ms) - since))
    kill -CONT "$server"
    expect_eq $status 130
    at_most 11000 $took "took"
}

# ---- who waits, for others ---------------------------------------------------------------

test_status_and_ls_show_waiters_in_order() {
    hold a
    n=0
    for who in bob cid dan; do
        "$HOLDFAST" run --info $who a -- true 2> /dev/null &
        eval $who=$!
        n=$((n + 1))
        queued a $n
    done
    wait_until 'holdfast status a | grep -q dan'
    expect_exit 0 holdfast status a
    expect_out '^  waiters +3$'
    expect_eq "$(sed -n 's/^  \([0-9]\)\. .*(\([a-z]*\)), for [0-9.]*m*s$/\1\2/p' out |
        tr '\n' ' ')" '1bob 2cid 3dan '
    expect_out "^  2\. $(id -un)@$(uname -n), pid $cid, true \(cid\), for "
    expect_exit 0 holdfast ls
    expect_out '^a +mutex .* 3 +held +-$'
    expect_exit 0 holdfast ls --waiters
    expect_out '^  3\. .*\(dan\)'
    expect_exit 0 holdfast status -o json a
    jq -e '.[0].waiters_total == 3 and ([.[0].waiters[].info] == ["bob", "cid", "dan"]) and
        all(.[0].waiters[]; .pid > 0 and .age_ms > 0 and .fence == null)' < out > /dev/null
}

test_more_waiters_than_are_described() {
    hold a
    # They need not live to be counted: nobody has looked yet.
    n=0
    while [ $n -lt 130 ]; do
        n=$((n + 1))
        printf 'zadd {lock:a}:q %d %032x.1:0:1000::\n' $((1790000000000000 + n)) $n
    done | cli > /dev/null
    expect_exit 0 holdfast status a
    expect_out '^  waiters +130$'
    expect_out '^  100\. owner 00000000, gone$'
    expect_out '^  and 30 more$'
    expect_exit 0 holdfast ls
    expect_out ' 130 +held +-$'
    expect_exit 0 holdfast status -o json a
    jq -e '.[0].waiters_total == 130 and (.[0].waiters | length) == 100' < out > /dev/null
}

# ---- order and takeover ------------------------------------------------------------------

test_P6_served_in_the_order_of_arrival() {
    hold a
    for i in 1 2 3 4 5 6; do
        "$HOLDFAST" run a -- sh -c "echo $i >> order" &
        queued a $i
    done
    kill $holder
    wait_until '[ -e order ] && [ "$(wc -l < order)" = 6 ]'
    expect_eq "$(tr '\n' ' ' < order)" '1 2 3 4 5 6 '
}

test_P6_a_waiter_killed_or_interrupted_delays_nobody() {
    hold a
    for i in 1 2 3 4; do
        "$HOLDFAST" run a -- sh -c "echo $i >> order" &
        eval w$i=$!
        queued a $i
    done
    kill -9 $w1
    kill $w3
    queued a 3
    since=$(ms)
    kill $holder
    wait_until '[ -e order ] && [ "$(wc -l < order)" = 2 ]'
    took=$(($(ms) - since))
    expect_eq "$(tr '\n' ' ' < order)" '2 4 '
    at_most 3000 $took "took"
    # P9: nothing is left of the queue.
    wait_until '[ "$(cli exists "{lock:a}:q" "{lock:a}:absent" lock:a)" = 0 ]'
}

test_P3_killed_holder_is_replaced_after_its_grace() {
    hold --grace 1s --ttl 60s a
    first=$(cli get lock:a | cut -d: -f2)
    "$HOLDFAST" run a -- sh -c 'echo $HOLDFAST_FENCE > fence' &
    queued a 1
    since=$(ms)
    kill_all_of $holder
    wait_until '[ -s fence ]' 30
    took=$(($(ms) - since))
    [ $took -ge 900 ] || fail "taken over after $took ms already"
    at_most 5000 $took "taken over after"
    [ "$(cat fence)" -gt "$first" ]
}

test_grace_stands_in_the_value() {
    hold --grace 1500ms --ttl 60s a
    expect_eq "$(cli get lock:a | cut -d: -f3)" 1500
    kill $holder
    wait $holder || true
    rm held
    # Never more than half of the ttl; three seconds if nothing is said; 0 is 0.
    hold --grace 1m --ttl 20s b
    expect_eq "$(cli get lock:b | cut -d: -f3)" 10000
    rm held
    hold --ttl 60s c
    expect_eq "$(cli get lock:c | cut -d: -f3)" 3000
    rm held
    hold --grace 0 --ttl 60s d
    expect_eq "$(cli get lock:d | cut -d: -f3)" 0
}

test_grace_0_is_never_taken_over() {
    hold --grace 0 --ttl 4s a
    kill_all_of $holder
    since=$(ms)
    left=$(cli pttl lock:a)
    expect_exit 0 holdfast run -w 20 a -- true
    took=$(($(ms) - since))
    [ $took -ge $((left - 200)) ] || fail "taken over after $took ms, $left were left"
}

test_acquired_lock_outlives_its_process() {
    expect_exit 0 holdfast acquire --ttl 4s a
    expect_eq "$(cli get lock:a | cut -d: -f3)" 0
    since=$(ms)
    left=$(cli pttl lock:a)
    expect_exit 0 holdfast run -w 20 a -- true
    took=$(($(ms) - since))
    [ $took -ge $((left - 200)) ] || fail "taken over after $took ms, $left were left"
}

test_acquire_after_a_wait_has_its_whole_ttl() {
    "$HOLDFAST" run a -- sh -c ': > held; sleep 0.3' &
    wait_until '[ -e held ]'
    expect_exit 0 holdfast acquire --ttl 20s a
    left=$(cli pttl lock:a)
    [ "$left" -ge 15000 ] || fail "only $left ms"
    expect_eq "$(cli get lock:a | cut -d: -f3)" 0
}

test_hold_min_leaves_it_to_nobody_earlier() {
    expect_exit 0 holdfast run --hold-min 4s --ttl 60s a -- true
    expect_eq "$(cli get lock:a | cut -d: -f3)" 0
    since=$(ms)
    left=$(cli pttl lock:a)
    expect_exit 0 holdfast run -w 20 a -- true
    took=$(($(ms) - since))
    [ $took -ge $((left - 200)) ] || fail "taken over after $took ms, $left were left"
}

test_hold_pid_has_a_grace() {
    sleep 1000 &
    target=$!
    expect_exit 0 holdfast acquire --hold-pid $target --grace 1s --ttl 60s a
    expect_eq "$(cli get lock:a | cut -d: -f3)" 1000
    kill $target
    expect_exit 0 holdfast run -w 20 a -- true
}

# ---- the time that there is for stopping CMD ---------------------------------------------

waits='echo $$ > child; : > up; while :; do sleep 0.05; done'

test_P5_command_is_gone_before_another_can_take_over() {
    # We are stopped while the server closes our session: the guardian's clock is all there is.
    "$HOLDFAST" run --ttl 60s --grace 2s --kill-after 20s a -- sh -c "trap '' TERM; $waits" 2> err &
    pid=$!
    wait_until '[ -e up ]'
    "$HOLDFAST" run a -- sh -c '! grep -q "^State:.[^ZX]" /proc/$0/status ||
        echo both > both; : > second' "$(cat child)" &
    queued a 1
    kill -STOP $pid
    cli client kill type pubsub > /dev/null
    wait_until '[ -e second ]' 30
    [ ! -e both ] || fail "the command was still running"
    kill -CONT $pid
    status=0
    wait $pid || status=$?
    expect_eq $status 79
}

test_kill_after_is_shortened_to_fit_the_grace() {
    "$HOLDFAST" run -v --ttl 60s --grace 2s --kill-after 20s a -- true 2> err
    grep -q 'KILL follows TERM after 900ms and not later: the grace is 2.0s' err
    "$HOLDFAST" run -v --ttl 60s --grace 0 --kill-after 20s a -- true 2> err
    if grep -q 'KILL follows' err; then fail "shortened without need"; fi
}

test_in_doubt_and_safe_again_are_told() {
    "$HOLDFAST" run -v --ttl 60s --grace 4s a -- sh -c "trap 'exit 5' USR1; $waits" 2> err &
    pid=$!
    wait_until '[ -e up ]'
    sleep 1
    server=$(cli info server | tr -d '\r' | sed -n 's/^process_id://p')
    kill -STOP "$server"
    wait_until 'grep -q "^holdfast: in doubt: " err'
    kill -CONT "$server"
    wait_until 'grep -q "^holdfast: safe again: " err'
    kill -USR1 $pid
    status=0
    wait $pid || status=$?
    expect_eq $status 5
    if grep -q lost err; then fail "lost"; fi
}

test_lock_just_handed_over_is_not_taken_for_lost() {
    # A lock that was handed over has a short lease first: not to be taken for one that runs out.
    for _ in 1 2 3; do
        rm -f held
        "$HOLDFAST" run a -- sh -c ': > held; sleep 0.2' &
        wait_until '[ -e held ]'
        expect_exit 0 holdfast run a -- sleep 1.2
        expect_no_err
    done
}
