# SPDX-License-Identifier: MIT
# why.sh - why a lock cannot be had; listing many; JSON as docs/schema says.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}

hold() { # hold [OPTION...] NAME: until its holder can be seen
    "$HOLDFAST" run "$@" -- sleep 1000 &
    holder=$!
    wait_until 'holdfast ls | grep -q " $holder "'
}

# cause NAME WORD: why says so, in both forms
cause() {
    expect_exit 0 holdfast why "$1"
    expect_out "^  cause    $2\$"
    expect_exit 0 holdfast why "$1" -o json
    jq -e --arg c "$2" '.schema == "holdfast.why/1" and .cause == $c and (.text | length) > 0' \
        < out > /dev/null
}

test_why() {
    expect_exit 0 holdfast server start
    cause free free
    hold --info 'ticket 17' a
    cause a held
    expect_exit 0 holdfast why a
    expect_out "^a: held by .* for .* \(ticket 17\), renewed .* ago, pid $holder, sleep$"
    expect_out '^  to do    '
    expect_exit 0 holdfast acquire left
    cause left left
    expect_exit 0 holdfast why left
    expect_out '^left: left behind by .*: nobody renews it, free in '
    expect_out '^  free at  [0-9-]+ [0-9:]+, at the latest$'
    expect_exit 0 holdfast why left -o json
    jq -e '.free_ms > 0 and (.free_at | fromdateiso8601) > 1700000000 and .lock.held' \
        < out > /dev/null
    cli set lock:f other px 60000 > /dev/null
    cause f foreign
    cli set lock:e other > /dev/null
    cause e no-ttl
    cli rpush lock:l x > /dev/null
    cause l not-a-lock
    cli config set maxmemory 1 > /dev/null
    cause free out-of-memory
    cli config set maxmemory 0 > /dev/null
    kill $holder
}

# Stopped, it keeps its session; killed with its guardian, it does not.
test_why_a_holder_is_silent_or_gone() {
    hold --ttl 24s --grace 2s a # silent after half of it
    kill -STOP $holder
    wait_until 'holdfast why a | grep -q "^  cause    silent$"' 30
    expect_exit 0 holdfast ls --stale
    expect_out '^a .* silent '
    expect_exit 0 holdfast status a
    expect_out '^  state    silent: its holder .* is silent: not renewed for '
    kill_all_of $holder
    hold --ttl 60s --grace 2s b
    kill_all_of $holder
    wait_until 'holdfast why b | grep -q "^  cause    absent$"'
    expect_exit 0 holdfast why b
    expect_out ' is gone: free in .*, or 2.0s after somebody begins to wait'
    expect_exit 0 holdfast status b
    expect_out '^  session  gone$'
}

test_why_a_server_is_away() {
    export HOLDFAST_URL="unix://$dir/nobody.sock"
    cause a away
    expect_exit 0 holdfast why a -o json
    jq -e '.lock == null and .free_ms == null and .cycle == []' < out > /dev/null
    # What is no answer stays an error.
    expect_exit 78 holdfast --url nosuch://x why a
    expect_exit 64 holdfast why
    expect_exit 64 holdfast why a b
    expect_exit 64 holdfast why a,b
}

test_why_shows_no_bytes_of_others() {
    expect_exit 0 holdfast server start
    cli set lock:x "$(printf 'a\033[2J\r\nb\302\233c')" px 60000 > /dev/null
    for args in "why x" "why x -o json" "status x" "ls" "ls -o jsonl"; do
        expect_exit 0 holdfast $args
        if LC_ALL=C grep -q "$(printf '[\033\r\233]')" out; then fail "raw bytes in $args"; fi
    done
    expect_exit 0 holdfast why x
    expect_out 'another program \("a\\x1b\[2J\\x0d\\x0ab'
}

# ---- ls ----

test_ls_sorts_and_selects() {
    expect_exit 0 holdfast server start
    expect_exit 0 holdfast acquire b --ttl 20s
    hold --ttl 40s c
    expect_exit 0 holdfast acquire a --ttl 60s
    "$HOLDFAST" run b -- true 2> /dev/null &
    waiter=$!
    wait_until '[ "$(cli zcard "{lock:b}:q")" = 1 ]'
    names() {
        expect_exit 0 holdfast ls --no-header "$@"
        expect_eq "$(awk '{ print $1 }' out | tr '\n' ' ')" "$list"
        expect_exit 0 holdfast ls -o json "$@"
        expect_eq "$(jq -r '.[].name' < out | tr '\n' ' ')" "$list"
    }
    list='a b c ' names
    list='a b c ' names --sort name
    list='b c a ' names --sort ttl
    list='b c a ' names --sort age
    list='b a c ' names --sort waiters
    list='a b ' names --stale
    list='a b c ' names --mine
    list='b a ' names --stale --sort ttl
    cli set lock:f other px 60000 > /dev/null
    list='a b c ' names --mine
    expect_exit 64 holdfast ls --sort size
    expect_err 'name.age.waiters.ttl'
    kill $holder $waiter
}

test_ls_fits_80_columns() {
    hold --info 'a rather long text about what it is for' some-name-of-ordinary-length
    script -qefc "stty columns 80; $HOLDFAST ls" typescript < /dev/null > screen 2>&1
    tr -d '\r' < screen > out
    expect_out '^NAME .*STATE +INFO$'
    widest=$(awk '{ if (length > w) w = length } END { print w }' out)
    [ "$widest" -le 80 ] || { cat out; fail "$widest columns"; }
    kill $holder
}

test_status_shows_elections_and_semaphores() {
    "$HOLDFAST" elect e --value 'v\1' -- sleep 1000 &
    pid=$!
    wait_until 'holdfast status e | grep -q "^e: held (election)$"'
    expect_exit 0 holdfast status e
    expect_out '^  value    v\\\\1$'
    expect_out '^  lease    30.0s, renewed .* ago$'
    expect_exit 0 holdfast ls
    expect_out '^e +election .* value=v\\\\1$'
    expect_exit 0 holdfast status e -o json
    jq -e '.[0].value == "v\\1" and .[0].holders[0].since_unix_ms > 1700000000000' < out > /dev/null
    kill $pid
    expect_exit 0 holdfast resize s --slots 7
    expect_exit 0 holdfast status s
    expect_out '^s: free$'
    expect_out '^  slots    7, set by resize$'
}

test_the_kind_of_a_wait_is_shown() {
    hold -s r
    "$HOLDFAST" run r -- true 2> /dev/null &
    wait_until '[ "$(cli zcard "{lock:r}:q")" = 1 ]'
    "$HOLDFAST" run -s r -- true 2> /dev/null &
    wait_until '[ "$(cli zcard "{lock:r}:q")" = 2 ]'
    expect_exit 0 holdfast status r
    expect_out '^  1\. .*, to write$'
    expect_out '^  2\. .*, to read$'
    "$HOLDFAST" run --slots 2 --permits 2 s -- sleep 1000 &
    wait_until 'holdfast status s | grep -q "2 of 2 taken"'
    "$HOLDFAST" run --slots 2 --permits 2 s -- true 2> /dev/null &
    wait_until '[ "$(cli zcard "{lock:s}:q")" = 1 ]'
    expect_exit 0 holdfast status s
    expect_out '^  1\. .*, for 2 permits$'
}

# ---- JSON ----

# Everything that is printed is what docs/schema/holdfast.json says.
test_json_is_as_the_schema_says() {
    python=$(command -v /usr/bin/python3 || command -v python3) || skip "no python3 here"
    valid() { # valid VALUES STATUS ARG...
        n=$1 code=$2
        shift 2
        expect_exit "$code" holdfast "$@"
        "$python" "$root/tests/harness/schema.py" "$root/docs/schema/holdfast.json" "$n" < out ||
            { show; fail "not as the schema says: $*"; }
    }
    expect_exit 0 holdfast server start
    hold --info 'ticket "17"' a
    "$HOLDFAST" run --slots 3 --permits 2 sem -- sleep 1000 &
    "$HOLDFAST" run -s reader -- sleep 1000 &
    "$HOLDFAST" elect e -- sleep 1000 &
    wait_until '[ "$(holdfast ls --no-header | wc -l)" = 4 ]'
    "$HOLDFAST" run a -- true 2> /dev/null &
    "$HOLDFAST" run -s a -- true 2> /dev/null &
    wait_until '[ "$(cli zcard "{lock:a}:q")" = 2 ]'
    expect_exit 0 holdfast acquire left
    expect_exit 0 holdfast acquire own --owner "$(printf 'me\377')"
    expect_exit 0 holdfast acquire "$(printf 'n\377')"
    expect_exit 0 holdfast latch latch --set 3
    expect_exit 0 holdfast resize idle --slots 7
    cli set lock:foreign other px 60000 > /dev/null
    cli set lock:endless other > /dev/null
    cli set lock:stamp 1794734822.5 px 60000 > /dev/null
    cli rpush lock:list x > /dev/null
    valid 12 0 ls -o jsonl
    valid 1 0 ls -o json
    valid 1 0 ls -o json 'nosuch*'
    valid 3 0 status -o jsonl a idle free
    for name in a sem reader e left own foreign endless stamp list latch idle free; do
        valid 1 0 why -o json $name
    done
    valid 1 0 --url "unix://$dir/nobody.sock" why -o json a
    valid 1 0 held -o json a
    valid 1 1 held -o json free
    valid 1 75 run -n -o json a -- true
    valid 1 75 run -w 1s -o jsonl a -- true
    valid 1 75 acquire -n --json a
}

# ---- many ----

fill() { # fill N: as many locks, of a thousand sessions
    from=0
    while [ $from -lt $1 ]; do
        ask eval "for i = 1, 5000 do
            local n = i + $from
            redis.call('SET', 'lock:n' .. n,
                string.format('%032x.%d:1794734822569451:3000', n % 1000, n), 'PX', 6000000)
        end" 0 > /dev/null
        from=$((from + 5000))
    done
}

# ls of so many: prints as it goes, and no step of it takes the server more than a millisecond. A
# machine that is busy stops the server now and then in the middle of one: 1 of 100 may be late, and
# 10 of 100 where there are not enough cores.
list_many() { # list_many N
    start_server
    fill $1
    ask config set slowlog-max-len 100000 > /dev/null
    ask config set slowlog-log-slower-than 1000 > /dev/null
    export HOLDFAST_URL="$SERVER_URL"
    for form in jsonl table; do
        expect_exit 0 holdfast ls -o $form --no-header
        expect_eq "$(wc -l < out)" $1
        slow=$(ask slowlog len)
        [ "$slow" -le $((2 * $1 / 100 * $(patience))) ] \
            || fail "$slow steps took more than a millisecond"
        ask slowlog reset > /dev/null
    done
}

test_ls_of_many_keeps_nobody_waiting() {
    list_many 5000
    # The first lines are there long before the last ones: whoever has seen enough ends it.
    commands() {
        ask info stats | sed -n 's/^total_commands_processed:\([0-9]*\).*/\1/p'
    }
    before=$(commands)
    status=0
    { "$HOLDFAST" ls -o jsonl || true; } 2> /dev/null | head -n 1 > first
    jq -e '.name == "n1"' < first > /dev/null
    [ $(($(commands) - before)) -lt 5000 ] || fail "it went on without a reader"
}

test_soak_ls_of_100000_in_little_memory() {
    [ -n "${HF_SOAK:-}" ] || left_out "takes a minute: HF_SOAK=1"
    [ -x "$root/build/holdfast" ] || left_out "needs a build without a sanitizer: make all"
    HOLDFAST=$root/build/holdfast
    list_many 100000
    for form in jsonl json table; do
        /usr/bin/python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$HOLDFAST" ls -o $form > kb
        [ "$(cat kb)" -lt 50000 ] || fail "ls -o $form used $(cat kb) kB"
    done
}
