# SPDX-License-Identifier: MIT
# look.sh - status, ls, server: what an operator sees.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}

# hold [OPTION...] NAME: until its holder can be seen, which takes a moment: most locks are too
# short for anybody to look.
hold() {
    "$HOLDFAST" run "$@" -- sleep 1000 &
    holder=$!
    wait_until 'holdfast ls | grep -q " $holder "'
}

test_status_of_a_held_lock() {
    hold --info 'ticket 17' a
    expect_exit 0 holdfast status a
    expect_out '^a: held \(mutex\)$'
    expect_out "^  host +$(uname -n)$"
    expect_out "^  pid +$holder$"
    expect_out '^  command +sleep$'
    expect_out '^  info +ticket 17$'
    expect_out '^  since +[0-9.]+(ms|s) ago$'
    expect_out '^  fence +[0-9]+$'
    expect_out '^  ttl left +(30.0|2[0-9]\.[0-9])s$'
    kill $holder
}

test_status_of_free_and_several() {
    hold a
    expect_exit 0 holdfast status b a
    expect_eq "$(sed -n 1p out)" 'b: free'
    expect_eq "$(sed -n 2p out)" 'a: held (mutex)'
    kill $holder
}

test_status_json() {
    hold --info 'ticket "17"' a
    expect_exit 0 holdfast status a b -o json
    expect_eq "$(wc -l < out)" 1
    jq -e --argjson pid $holder 'length == 2 and .[0].held and .[0].kind == "mutex" and
        .[0].holders[0].pid == $pid and .[0].holders[0].info == "ticket \"17\"" and
        .[0].holders[0].fence > 1600000000000000 and .[0].ttl_ms > 0 and .[0].waiters == [] and
        (.[1] | .name == "b" and .held == false and .ttl_ms == null and .holders == [])' \
        < out > /dev/null
    expect_exit 0 holdfast status a b -o jsonl
    expect_eq "$(wc -l < out)" 2
    jq -es 'map(.name) == ["a", "b"]' < out > /dev/null
    kill $holder
}

test_owner_id_is_no_capability() {
    expect_exit 0 holdfast acquire a
    owner=$(sed 's/owner=\([^ ]*\) .*/\1/' out)
    for form in table json; do
        expect_exit 0 holdfast status -o $form a
        if grep -qF "$owner" out; then fail "the whole owner id is shown"; fi
        expect_exit 0 holdfast ls -o $form
        if grep -qF "$owner" out; then fail "the whole owner id is shown"; fi
    done
}

test_ls() {
    expect_exit 0 holdfast ls
    expect_no_out
    hold b2
    expect_exit 0 holdfast acquire a1 --owner me
    expect_exit 0 holdfast ls
    expect_out '^NAME +KIND +HOLDER +HOST +PID +SINCE +TTL +FENCE +WAITERS +STATE +INFO$'
    expect_eq "$(awk 'NR > 1 { print $1 }' out | tr '\n' ' ')" 'a1 b2 '
    expect_out "^b2 +mutex +sleep +$(uname -n) +$holder "
    expect_exit 0 holdfast ls 'a*'
    expect_eq "$(wc -l < out)" 2
    expect_exit 0 holdfast ls --waiters
    expect_exit 0 holdfast ls -o json
    jq -e 'map(.name) == ["a1", "b2"]' < out > /dev/null
    expect_exit 0 holdfast ls -o jsonl
    jq -es 'map(.name) == ["a1", "b2"]' < out > /dev/null
    expect_exit 0 holdfast ls -o json 'nosuch*'
    expect_out_is '[]'
    kill $holder
}

test_ls_watch() {
    expect_exit 0 holdfast acquire a
    "$HOLDFAST" ls --watch -o json > out &
    pid=$!
    wait_until '[ "$(wc -l < out)" -ge 2 ]'
    kill $pid
    status=0
    wait $pid || status=$?
    expect_eq $status 143
    jq -es 'length >= 2 and all(.[]; length == 1)' < out > /dev/null
}

test_P10_names_are_bytes() {
    expect_exit 0 holdfast server start
    evil=$(printf 'a\033[2Jb\nc\377\302\233d')
    expect_exit 0 holdfast acquire "$evil" --owner me
    for args in "ls" "ls -o json" "ls -o jsonl"; do
        # shellcheck disable=SC2086
        expect_exit 0 holdfast $args
        if LC_ALL=C grep -q "$(printf '[\033\377\233]')" out; then fail "raw bytes in $args"; fi
    done
    expect_exit 0 holdfast ls
    expect_eq "$(wc -l < out)" 2
    expect_out '^a\\x1b\[2Jb\\x0ac\\xff\\xc2\\x9bd '
    expect_exit 0 holdfast ls -o json
    jq -e '.[0].name_hex == "611b5b324a620a63ffc29b64"' < out > /dev/null
    expect_exit 0 holdfast status "$evil"
    expect_out '^a\\x1b'
    expect_exit 75 holdfast run -n "$evil" -- true
    expect_err '^holdfast: a\\x1b'
    expect_exit 0 holdfast release "$evil" --owner me
    # A name that is UTF-8 needs no other form, control bytes or not.
    expect_exit 0 holdfast acquire "$(printf 'gr\303\266\303\237e\001')" --owner me
    expect_exit 0 holdfast ls -o json
    jq -e '.[0].name == "größe\u0001" and (.[0] | has("name_hex") | not)' < out > /dev/null
}

# One long name must not make every line of a terminal that wide; a program gets all of it.
test_ls_is_cut_on_a_terminal_only() {
    expect_exit 0 holdfast server start
    long=$(printf '%01024d' 0)
    expect_exit 0 holdfast acquire "$long" --owner me
    expect_exit 0 holdfast acquire "$(printf 'gr\303\266\303\237e%0200d' 0)" --owner me
    expect_exit 0 holdfast acquire short --owner me
    expect_exit 0 holdfast ls
    expect_out "^$long "
    for columns in 90 120 160; do
        script -qefc "stty columns $columns; $HOLDFAST ls" typescript < /dev/null > screen 2>&1
        tr -d '\r' < screen > out
        expect_out '^short '
        expect_out '^000*\.\.\.  '
        expect_out '^größe00*\.\.\.  '
        widest=$(LC_ALL=C.UTF-8 awk '{ if (length > w) w = length } END { print w }' out)
        [ "$widest" -le "$columns" ] || { cat out; fail "$widest columns of $columns"; }
        script -qefc "stty columns $columns; $HOLDFAST ls -o json" typescript < /dev/null |
            grep -q "\"$long\""
    done
}

test_foreign_and_wrong_type() {
    expect_exit 0 holdfast server start
    cli set lock:f some-token PX 60000 > /dev/null
    cli rpush lock:w x > /dev/null
    expect_exit 0 holdfast ls
    expect_out '^f +foreign '
    expect_exit 0 holdfast status f w
    expect_out '^f: held \(foreign\)$'
    expect_out '^w: .*wrong type'
    expect_exit 75 holdfast run -n f -- true
    expect_exit 78 holdfast run -n w -- true
    expect_exit 0 holdfast status f w -o json
    jq -e '.[0].kind == "foreign" and .[1].kind == "wrong type"' < out > /dev/null
}

# ---- the embedded server ----

test_server() {
    expect_exit 69 holdfast server status
    expect_out '^not running'
    expect_exit 0 holdfast server start
    expect_out '^running, pid [0-9]+, (redis|valkey) [0-9.]+, up '
    expect_exit 0 holdfast server start
    expect_exit 0 holdfast server status
    expect_exit 0 holdfast server status -o json
    jq -e --arg d "$dir/hf" '.running and .pid > 0 and .dir == $d and
        (.socket | startswith($d))' < out > /dev/null
    expect_exit 0 holdfast server stop
    expect_exit 69 holdfast server status
    expect_exit 69 holdfast server status -o json
    jq -e '.running == false and .pid == null' < out > /dev/null
    expect_exit 0 holdfast server stop
    expect_exit 69 holdfast server status -q
    expect_no_out
}

# Whatever their prefix, and whatever other keys of ours there are.
test_server_stop_refuses_while_locks_of_another_prefix_are_held() {
    expect_exit 0 holdfast --prefix app: acquire a --owner me
    expect_exit 0 holdfast --prefix app: run b -- true
    expect_exit 75 holdfast server stop
    expect_err '1 lock is held: not stopped'
    expect_exit 0 holdfast --prefix app: release a --owner me
    expect_exit 0 holdfast server stop
}

test_server_stop_refuses_while_locks_are_held() {
    expect_exit 0 holdfast acquire a
    expect_exit 75 holdfast server stop
    expect_err '1 lock is held: not stopped'
    expect_exit 0 holdfast acquire b
    expect_exit 75 holdfast server stop
    expect_err '2 locks are held'
    expect_exit 0 holdfast server status
    expect_exit 0 holdfast server stop --force
    expect_exit 69 holdfast server status
    # Its append-only file kept them.
    expect_exit 75 holdfast run -n a -- true
}
