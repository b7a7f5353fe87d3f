# SPDX-License-Identifier: MIT
# watch.sh - holdfast watch: lines and JSON lines of what happens, as it happens.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

# watch_to FILE [OPTION...]: in the background, until it hears everything.
watch_to() {
    file=$1
    shift
    "$HOLDFAST" watch "$@" > "$file" 2>&1 &
    watcher=$!
    wait_until 'grep -q watching "$file"'
}

test_a_run_is_told_as_lines() {
    watch_to w
    expect_exit 0 holdfast run --info nightly a -- sleep 0.6
    wait_until 'grep -q " released .* a " w'
    grep -Eq '^[0-9:]{8}\.[0-9]{3}  granted +a  .*fence [0-9]+, ttl ' w
    grep -Eq "  held +a  .*@$(uname -n) pid [0-9]+ sleep \(nightly\), fence [0-9]+" w
    grep -Eq '  released +a  .*held [0-9.]+(ms|s)' w
    kill $watcher
}

# It is on a channel on which others may publish.
test_no_word_of_others_controls_the_terminal() {
    watch_to w
    esc=$(printf '\033')
    "$(command -v redis-cli || command -v valkey-cli)" -s hf/redis.sock \
        PUBLISH lock:holdfast:s:events "0 ${esc}[1A${esc}[2K 1 o 1 h u p 6 lock:a x" > published
    [ "$(cat published)" -ge 1 ] || fail "nobody has heard it"
    expect_exit 0 holdfast run a -- sleep 0.6
    wait_until 'grep -q " released .* a " w'
    if grep -q "$esc" w; then fail "it was passed on"; fi
    kill $watcher
}

test_a_queue_and_a_hand_over_as_json_lines() {
    watch_to w -o jsonl
    "$HOLDFAST" run a -- sleep 1000 &
    holder=$!
    wait_until 'jq -es "any(.event == \"held\")" w > /dev/null'
    "$HOLDFAST" run a -- sleep 0.5 &
    waiter=$!
    wait_until 'jq -es "any(.event == \"queued\")" w > /dev/null'
    sleep 0.3
    kill $holder
    wait $waiter
    wait_until 'jq -es "map(select(.event == \"released\")) | length == 2" w > /dev/null'
    jq -es --argjson pid $waiter 'map(select(.event == "granted")) | length == 2 and
        (.[1] | .pid == $pid and .waited_ms >= 200 and .name == "a" and .fence > 0)' w > /dev/null
    jq -es 'all(has("time") and has("unix_ms") and has("merged") and has("text"))' w > /dev/null
    kill $watcher
}

test_an_expired_lease_and_a_dead_holder() {
    watch_to w -o jsonl
    expect_exit 0 holdfast acquire gone --ttl 300ms
    wait_until 'jq -es "any(.event == \"expired\" and .name == \"gone\")" w > /dev/null'
    "$HOLDFAST" run --grace 2s dead -- sleep 1000 &
    holder=$!
    wait_until 'jq -es "any(.event == \"held\" and .name == \"dead\")" w > /dev/null'
    kill_all_of $holder
    expect_exit 0 holdfast run -w 30s dead -- true
    wait_until 'jq -es --argjson pid $holder "any(.event == \"taken_over\" and .pid == \$pid)" \
        w > /dev/null' # the record of the dead names it
    kill $watcher
}

test_only_what_matches() {
    watch_to w 'job:*'
    expect_exit 0 holdfast run a -- sleep 0.3
    expect_exit 0 holdfast run job:1 -- sleep 0.3
    wait_until 'grep -q "released .* job:1 " w'
    if grep -q ' a ' w; then fail "told of a lock that does not match"; fi
    kill $watcher
    expect_exit 64 holdfast watch a b
    expect_exit 64 holdfast watch a,b
}

test_names_are_safe_to_look_at() {
    watch_to w
    expect_exit 0 holdfast run "$(printf 'x\033[31m')" -- sleep 0.3
    wait_until 'grep -q released w'
    if grep -q "$(printf '\033')" w; then fail "an escape sequence reached the terminal"; fi
    grep -qF 'x\x1b[31m' w
    kill $watcher
}

test_it_ends_when_nobody_reads() {
    expect_exit 0 holdfast run a -- true
    { "$HOLDFAST" watch || true; echo over > code; } | head -n 1 > /dev/null &
    wait_until 'ask_server CLIENT LIST | grep -q sub=2'
    expect_exit 0 holdfast run a -- sleep 0.3
    wait_until '[ -s code ]'
}

ask_server() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}

tracking() { # how many clients the server tells of changes
    ask_server INFO clients | sed -n 's/^tracking_clients:\([0-9]*\).*/\1/p'
}

test_nobody_pays_for_it_while_nobody_watches() {
    expect_exit 0 holdfast run a -- true
    expect_eq "$(tracking)" 0
    watch_to w
    expect_eq "$(tracking)" 1
    kill $watcher
    wait_until '[ "$(tracking)" = 0 ]'
    if ask_server --scan | grep -Ev 'holdfast:(fence|reign)$'; then
        fail "watching left a key behind"
    fi
}

test_a_quorum_is_refused() {
    expect_exit 69 holdfast --url 'redis+quorum://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3' watch
}

test_a_user_that_only_watches_needs_no_right_to_write() {
    start_server
    line=$(sed -n '/^```acl-watch$/{n;p}' "$root/docs/acl.md" | sed 's/PASSWORD/secret/')
    expect_eq "$(set -f; ask $line)" OK
    "$HOLDFAST" --url "$SERVER_URL" acquire --ttl 30s before > /dev/null
    HOLDFAST_URL=unix://holdfast-watch@$dir/server/sock HOLDFAST_PASSWORD=secret \
        "$HOLDFAST" watch > w 2>&1 &
    watcher=$!
    wait_until 'grep -q watching w'
    expect_exit 0 holdfast --url "$SERVER_URL" run a -- sleep 0.4
    wait_until 'grep -q "released .* a " w'
    expect_eq "$(ask ACL LOG | grep -c '^object$' || true)" 0
    kill $watcher
    ask ACL SETUSER holdfast-watch '-client|tracking' > /dev/null
    HOLDFAST_PASSWORD=secret
    export HOLDFAST_PASSWORD
    expect_exit 77 \
        "$HOLDFAST" --url "unix://holdfast-watch@$dir/server/sock" watch
}
