# SPDX-License-Identifier: MIT
# common.sh - another client's lock and ours on one key: each excludes the other.
#
# A neighbour is a small program, the worker, in that client's language:
#
#   WORKER... try|hold|count SOCKET KEY ROUNDS FILE
#
#   try     take the lock if it is free, give it back, exit 0; exit 3 when it is not
#   hold    take it, make FILE.held, keep it until FILE.go is there
#   count   so many times: take it, add 1 to the number in FILE, give it back
#
# What count does under the lock proves exclusion: FILE.in is made, and must not be there yet; the
# number is read, 2 ms later written; a line goes to FILE.log, which tells how they took turns.
# shellcheck disable=SC2016 # conditions are evaluated later

ours() { # ours OPTION... -- CMD...: under the same key, whatever its prefix
    "$HOLDFAST" --url "$SERVER_URL" --prefix "${key%interop}" run "$@"
}

# Spread over their rounds: else those who stand in our queue hand the lock to one another, and
# others get it when they are all done.
our_rounds() { # our_rounds ROUNDS FILE
    i=0
    while [ $i -lt "$1" ]; do
        tries=0
        until [ "$(grep -c theirs "$2.log" 2> /dev/null)" -ge $((2 * i)) ] || [ $tries -ge 200 ]; do
            tries=$((tries + 1))
            sleep 0.01
        done
        # shellcheck disable=SC2086 # options are words
        ours -w 50s $our_options interop -- sh "$root/tests/interop/section.sh" "$2" || return 1
        i=$((i + 1))
    done
}

# both_exclude WORKER...: start_server has been called; $key is the key.
both_exclude() {
    our_options=${our_options:-}
    socket=$dir/server/sock
    # Free: both get it.
    expect_exit 0 "$@" try "$socket" "$key" 0 x
    # shellcheck disable=SC2086
    expect_exit 0 ours -n $our_options interop -- true
    expect_eq "$(ask EXISTS "$key")" 0
    # Theirs: we do not get it.
    "$@" hold "$socket" "$key" 0 "$dir/theirs" &
    holder=$!
    wait_until '[ -e "$dir/theirs.held" ]'
    [ "$(ask PTTL "$key")" -gt 0 ] || fail "their lock has no ttl"
    value=$(ask GET "$key" | od -c)
    # shellcheck disable=SC2086
    expect_exit 75 ours -n $our_options interop -- true
    # shellcheck disable=SC2086
    expect_exit 75 ours -w 4s $our_options interop -- true
    expect_eq "$(ask GET "$key" | od -c)" "$value"
    # We wait, and get it when they give it back.
    # shellcheck disable=SC2086
    ours -w 30s $our_options interop -- touch "$dir/after" &
    waiter=$!
    wait_until '[ "$(ask ZCARD "{$key}:q")" = 1 ]'
    [ ! -e "$dir/after" ] || fail "we did not wait"
    : > "$dir/theirs.go"
    wait $holder || fail "their release failed"
    wait $waiter
    [ -e "$dir/after" ] || fail "we did not get it"
    # Ours: they do not get it.
    # shellcheck disable=SC2086
    ours $our_options interop -- \
        sh -c ": > '$dir/ours.held'; until [ -e '$dir/ours.go' ]; do sleep 0.02; done" &
    holder=$!
    wait_until '[ -e "$dir/ours.held" ]'
    value=$(ask GET "$key")
    expect_exit 3 "$@" try "$socket" "$key" 0 x
    expect_eq "$(ask GET "$key")" "$value"
    : > "$dir/ours.go"
    wait $holder || fail "our release failed"
    expect_exit 0 "$@" try "$socket" "$key" 0 x
    contend "$@"
}

# Two of theirs ($theirs, if set) and two of ours, as fast as they can.
contend() {
    rounds=${rounds:-6} theirs=${theirs:-2}
    echo 0 > "$dir/number"
    our_rounds "$rounds" "$dir/number" > "$dir/our.1" 2>&1 &
    a=$!
    our_rounds "$rounds" "$dir/number" > "$dir/our.2" 2>&1 &
    b=$!
    pids="$a $b"
    i=0
    while [ $i -lt "$theirs" ]; do
        i=$((i + 1))
        "$@" count "$socket" "$key" "$((2 * rounds))" "$dir/number" > "$dir/their.$i" 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do
        wait "$pid" || { cat "$dir"/our.? "$dir"/their.?; fail "a worker failed"; }
    done
    expect_eq "$(cat "$dir/number")" $((2 * rounds + 2 * rounds * theirs))
    expect_eq "$(grep -c ours "$dir/number.log")" $((2 * rounds))
    expect_eq "$(grep -c theirs "$dir/number.log")" $((2 * rounds * theirs))
    echo "# they took $(uniq "$dir/number.log" | wc -l) turns"
    expect_eq "$(ask EXISTS "$key")" 0
}
