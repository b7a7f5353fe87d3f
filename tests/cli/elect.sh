# SPDX-License-Identifier: MIT
# elect.sh - holdfast elect and holdfast leader.
# shellcheck disable=SC2016 # conditions are evaluated later

embedded_cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}

# candidate LABEL [OPTION...]: campaigns in the background; its CMD appends "LABEL TERM" to ran.
candidate() {
    label=$1
    shift
    "$HOLDFAST" elect --value "$label" "$@" job -- sh -c "
        echo $label \$HOLDFAST_FENCE >> ran
        trap 'echo $label stopped >> ran; exit 5' TERM
        while :; do sleep 0.02; done" > "$label.out" 2> "$label.err" &
    eval "$label=\$!"
}

ran() { # ran TEXT: a line of it is exactly, or begins with, TEXT
    grep -q "^$1\( \|\$\)" ran 2> /dev/null
}

test_cmd_runs_while_leader_and_its_status_is_ours() {
    expect_exit 7 holdfast elect --value me a -- sh -c '
        "'"$HOLDFAST"'" leader a -o json
        echo "$HOLDFAST_NAME $HOLDFAST_FENCE $HOLDFAST_TTL_MS"
        [ -n "$HOLDFAST_OWNER" ]
        exit 7'
    head -n 1 out |
        jq -e '.leads and .value == "me" and .pid > 0 and .program == "sh"' > /dev/null ||
        fail "not the leader: $(cat out)"
    expect_out '^a [0-9]{16} 30000$'
    expect_eq "$(head -n 1 out | jq .term)" "$(sed -n '2s/a \([0-9]*\) .*/\1/p' out)"
    # It has resigned: nothing is left.
    expect_eq "$(embedded_cli EXISTS lock:a '{lock:a}:v')" 0
    expect_exit 75 holdfast leader a
    expect_err 'nobody leads a'
    expect_no_out
    expect_exit 127 holdfast elect a -- no-such-program
}

test_leader_prints_the_value() {
    candidate one
    wait_until 'ran one'
    expect_exit 0 holdfast leader job
    expect_out_is one
    expect_exit 0 holdfast leader job -v
    expect_out '^one term=[0-9]{16} owner=[0-9a-f]{8} host=[^ ]+ pid=[0-9]+ program=sh ttl='
    expect_exit 0 holdfast leader job -o json
    expect_eq "$(jq -r '.value + " " + (.pid | tostring)' < out)" "one $one"
    kill "$one"
    wait "$one" || true
    # Without a value: host and process.
    "$HOLDFAST" elect job -- sh -c ': > runs; sleep 1000' &
    pid=$!
    wait_until '[ -e runs ]'
    expect_exit 0 holdfast leader job
    expect_out_is "$(hostname):$pid"
    kill $pid
}

test_one_runs_and_the_next_follows_when_it_ends() {
    candidate one
    wait_until 'ran one'
    candidate two
    wait_until '[ "$(embedded_cli ZCARD "{lock:job}:q")" = 1 ]'
    kill -TERM "$one" # passed on to CMD
    status=0
    wait "$one" || status=$?
    expect_eq "$status" 5
    wait_until 'ran two'
    expect_eq "$(sed -n 2p ran)" "one stopped"
    sed -n 's/^[a-z]* \([0-9]\)/\1/p' ran > terms
    sort -nc terms || fail "terms do not rise"
    expect_exit 0 holdfast leader job
    expect_out_is two
}

test_a_killed_leader_has_a_successor_within_seconds() {
    candidate one --ttl 60s --grace 1s
    wait_until 'ran one'
    candidate two --ttl 60s --grace 1s
    wait_until '[ "$(embedded_cli ZCARD "{lock:job}:q")" = 1 ]'
    kill_all_of "$one"
    wait_until 'ran two' 20
}

test_who_loses_its_term_stops_cmd_and_campaigns_again() {
    candidate one --ttl 6s
    wait_until 'ran one'
    first=$(cat ran)
    embedded_cli DEL lock:job > /dev/null
    wait_until '[ "$(grep -c "^one [0-9]" ran)" = 2 ]'
    expect_eq "$(sed -n 2p ran)" "one stopped"
    [ "$(sed -n '3s/one //p' ran)" -gt "${first#one }" ] || fail "terms do not rise: $(cat ran)"
    grep -q 'lock job lost' one.err
    grep -q 'campaigning again' one.err
    expect_exit 0 holdfast leader job
    expect_out_is one
    kill "$one"
    wait "$one" || true
    expect_eq "$(embedded_cli EXISTS lock:job '{lock:job}:v')" 0
}

test_it_goes_on_when_the_server_comes_back() {
    start_server
    export HOLDFAST_URL="$SERVER_URL"
    candidate one --ttl 4s
    wait_until 'ran one'
    kill -STOP "$SERVER_PID"
    wait_until 'ran "one stopped"' 20
    kill -CONT "$SERVER_PID"
    wait_until '[ "$(grep -c "^one [0-9]" ran)" = 2 ]' 20
    kill "$one"
}

test_a_cmd_that_exits_79_by_itself_is_not_a_lost_term() {
    expect_exit 79 holdfast elect a -- sh -c 'echo x >> times; exit 79'
    expect_eq "$(cat times)" x
}

test_a_signal_ends_a_candidate_that_waits() {
    candidate one
    wait_until 'ran one'
    for sig in 15 2; do
        env --default-signal=INT "$HOLDFAST" elect job -- true 2> waits.err &
        pid=$!
        wait_until '[ "$(embedded_cli ZCARD "{lock:job}:q")" = 1 ]'
        kill -$sig $pid
        status=0
        wait $pid || status=$?
        expect_eq "$status" $((128 + sig))
        expect_eq "$(embedded_cli ZCARD '{lock:job}:q')" 0
    done
}

test_watch_prints_a_line_at_each_change() {
    holdfast server start > /dev/null
    "$HOLDFAST" leader job --watch > seen &
    watcher=$!
    "$HOLDFAST" leader job --watch -o jsonl > seen.json &
    wait_until '[ "$(cat seen)" = - ]'
    candidate one
    wait_until 'grep -q "^[0-9]\{16\} one$" seen'
    kill "$one"
    wait_until '[ "$(tail -n 1 seen)" = - ]'
    candidate two
    wait_until 'grep -q "^[0-9]\{16\} two$" seen'
    # Who was elected just now may be seen before it has said its value (EL4): a line without one.
    expect_eq "$(sed '/^[0-9]*$/d; s/^[0-9]* //' seen | tr '\n' ' ')" "- one - two "
    told='select(.value or (.leads | not))'
    wait_until '[ "$(jq -c "$told" seen.json 2> /dev/null | wc -l)" = 4 ]'
    expect_eq "$(jq -r "$told | .value // \"-\"" seen.json | tr '\n' ' ')" "- one - two "
    expect_eq "$(jq -r "$told | select(.leads) | .pid" seen.json | tr '\n' ' ')" "$one $two "
    kill $watcher
    status=0
    wait $watcher || status=$?
    expect_eq "$status" 143
}

test_values_are_harmless_to_look_at() {
    "$HOLDFAST" elect --value "$(printf 'a\033[31m\nb')" job -- sh -c ': > runs; sleep 1000' &
    wait_until '[ -e runs ]'
    expect_exit 0 holdfast leader job
    expect_out_is "$(printf 'a\033[31m\nb')" # as it is, for programs
    expect_exit 0 holdfast leader job -v
    expect_eq "$(wc -l < out)" 1
    if grep -q "$(printf '\033')" out; then fail "control bytes"; fi
    expect_exit 0 holdfast leader job -o json
    expect_eq "$(jq -r .value < out)" "$(printf 'a\033[31m\nb')"
}

test_what_is_wrong_is_said() {
    expect_exit 64 holdfast elect
    expect_exit 64 holdfast elect a
    expect_err 'command to run is missing'
    expect_exit 64 holdfast elect --on-lost ignore a -- true
    expect_err 'two leaders'
    expect_exit 64 holdfast elect -n a -- true
    expect_exit 64 holdfast leader
    expect_err "the election's name is missing"
    expect_exit 64 holdfast leader a b
    [ ! -e hf ] || fail "a server was started for a usage error"
    holdfast server start > /dev/null
    embedded_cli LPUSH lock:a x > /dev/null
    expect_exit 78 holdfast leader a
    expect_exit 78 holdfast elect a -- true
}
