# SPDX-License-Identifier: MIT
# history.sh - holdfast history: last night's holders, how long, and how it ended.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

test_exit_statuses_are_remembered() {
    expect_exit 0 holdfast run --history 10 --info nightly a -- sleep 0.2
    expect_exit 3 holdfast run --history 10 a -- sh -c 'exit 3'
    expect_exit 143 holdfast run --history 10 a -- sh -c 'kill $$'
    expect_exit 0 holdfast history a
    expect_out '^ENDED +HOW +HELD +WAITED +HOLDER +PID +COMMAND +FENCE +NOTE$'
    expect_eq "$(wc -l < out)" 4
    expect_eq "$(awk 'NR > 1 { print $NF }' out | tr '\n' ' ')" '0 3 143 '
    held='([2-9][0-9]{2}ms|[0-9.]+s)'
    expect_out "^[0-9-]{10} [0-9:]{8}  released +$held .*@$(uname -n) +[0-9]+ +sleep +"
    expect_exit 0 holdfast history a -o json
    jq -e 'length == 3 and .[0].info == "nightly" and .[0].held_ms >= 200 and
        .[1].note == "exit 3" and all(.end == "released" and .fence > 0 and .pid > 0
        and .ended_unix_ms > 0 and .mode == "exclusive" and .name == "a")' < out > /dev/null
    expect_exit 0 holdfast history a -o jsonl -c 2
    jq -es 'map(.note) == ["exit 3", "exit 143"]' < out > /dev/null
}

test_it_is_asked_for_by_the_url_too() {
    HOLDFAST_URL="$HOLDFAST_URL?history=5"
    expect_exit 0 holdfast run a,b -- true
    expect_exit 0 holdfast history b
    expect_out 'released .* exit 0$'
    expect_exit 0 holdfast elect --help
    expect_out '--history N'
}

test_nothing_is_remembered_without_it() {
    expect_exit 0 holdfast run a -- true
    expect_exit 0 holdfast history a
    expect_no_out
    expect_err 'nothing is remembered of a: .*--history'
    expect_exit 0 holdfast history a -q
    expect_no_err
    expect_exit 0 holdfast history a -o json
    expect_out_is '[]'
}

test_since_a_time_in_which_nothing_ended() {
    expect_exit 0 holdfast run --history 5 a -- true
    sleep 0.3
    expect_exit 0 holdfast history a --since 100ms
    expect_err 'no hold of a has ended in the last 0.1s|no hold of a has ended in the last 100ms'
}

test_since() {
    expect_exit 0 holdfast run --history 5 a -- true
    expect_exit 0 holdfast history a --since 1h -o jsonl
    expect_eq "$(wc -l < out)" 1
    sleep 1.2
    expect_exit 0 holdfast history a --since 100ms -o jsonl
    expect_no_out
}

test_who_waited_and_who_died() {
    "$HOLDFAST" run --history 5 --grace 300ms a -- sleep 1000 &
    holder=$!
    wait_until 'holdfast ls | grep -q " $holder "'
    "$HOLDFAST" run --history 5 a -- true &
    waiter=$!
    wait_until 'holdfast status a | grep -Eq "waiters +1$"'
    kill_all_of $holder
    wait $waiter
    expect_exit 0 holdfast history a -o json
    jq -e --argjson dead $holder 'length == 2 and .[0].end == "taken over" and .[0].pid == $dead and
        .[0].why != "" and .[1].end == "released" and .[1].waited_ms >= 300' < out > /dev/null
}

test_a_lost_lock_says_why() {
    "$HOLDFAST" run --history 5 a -- sleep 1000 2> /dev/null &
    holder=$!
    wait_until 'holdfast ls | grep -q " $holder "'
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" DEL lock:a
    wait_until 'holdfast history a -q | grep -q " lost "'
    expect_exit 0 holdfast history a
    expect_out '^ +.*says that it is gone or has another owner$'
    wait $holder || true
}

test_usage() {
    expect_exit 64 holdfast history
    expect_exit 64 holdfast history a b
    expect_exit 64 holdfast history a,b
    expect_exit 64 holdfast history a -c 0
    expect_exit 64 holdfast run --history 0 a -- true
    expect_exit 78 holdfast run --history 100001 a -- true
    expect_exit 78 holdfast --url "$HOLDFAST_URL?history=x" ls
    expect_exit 78 holdfast --url "$HOLDFAST_URL?history=-1" ls
}
