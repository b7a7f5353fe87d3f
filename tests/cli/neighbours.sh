# SPDX-License-Identifier: MIT
# neighbours.sh - locks of other clients on the same key: those that Debian has. The others are in
# tests/interop/registries.sh, for `make interop`.
# shellcheck disable=SC2016,SC2034,SC2086 # evaluated later; variables are common.sh's; words

# shellcheck source=/dev/null
[ -z "${root:-}" ] || . "$root/tests/interop/common.sh"

need_php() {
    php -r 'exit(extension_loaded("redis") ? 0 : 1);' 2> /dev/null || skip "no php with redis here"
}

php_way() { # php_way WAY
    need_php
    start_server
    key=lock:interop
    both_exclude php "$root/tests/interop/worker.php" "$1"
}

test_redis_py_lock() {
    /usr/bin/python3 -c 'import redis' 2> /dev/null || skip "no python3-redis here"
    start_server
    key=lock:interop
    both_exclude /usr/bin/python3 "$root/tests/interop/worker.py" redis-py
}

test_phpredis_setnx_with_a_unique_id() {
    php_way setnx
}

test_phpredis_watch_and_multi() {
    php_way transaction
}

test_phpredis_lua() {
    php_way script
}

# One of them: between its SETNX and its EXPIRE another of its kind takes the lock over. Ours do
# not, and never have a lock without a ttl.
test_phpredis_lock_class() {
    theirs=1
    php_way class
}

# What docs/neighbours.md leads to: the same values on both sides.
test_phpredis_timestamp_and_getset_with_the_protocol_timestamp() {
    need_php
    start_server
    key=lock:interop
    worker="php $root/tests/interop/worker.php timestamp"
    for i in 1 2; do # their turn, our turn
        $worker hold "$dir/server/sock" $key 0 "$dir/theirs$i" &
        holder=$!
        wait_until '[ -e "$dir/theirs$i.held" ]'
        expect_exit 75 ours -n --protocol timestamp interop -- true
        expect_exit 75 ours -w 1500ms --protocol timestamp interop -- true
        : > "$dir/theirs$i.go"
        wait $holder
        expect_exit 3 ours -w 20s --protocol timestamp interop -- \
            $worker try "$dir/server/sock" $key 0 x
        expect_exit 0 $worker try "$dir/server/sock" $key 0 x
    done
}

# It takes over what it takes for an expired time, so our value must be a time too.
test_phpredis_timestamp_and_getset_with_an_owner_id_that_is_a_time() {
    our_options="--owner $(($(date +%s) + 100000))"
    php_way timestamp
}

# As Redisson keeps its locks: a hash, field client:thread, value the count.
test_redisson_hash_is_told_and_left_alone() {
    start_server
    key=lock:interop
    ask HSET $key 285475da-9152-4c83-822a-67ee2f116a79:52 1 > /dev/null
    ask PEXPIRE $key 30000 > /dev/null
    before=$(ask DUMP $key | od -c)
    expect_exit 78 ours -n interop -- true
    expect_err 'not a lock|no lock|another'
    expect_exit 78 ours -w 20s interop -- true
    expect_exit 0 holdfast --url "$SERVER_URL" status interop
    expect_out 'wrong type'
    expect_exit 82 holdfast --url "$SERVER_URL" release interop --owner 285475da
    expect_eq "$(ask DUMP $key | od -c)" "$before"
    [ "$(ask PTTL $key)" -gt 0 ] || fail "its ttl is gone"
    # And the other way round: its script finds a string, and fails.
    ask DEL $key > /dev/null
    ours interop -- sh -c ': > held; until [ -e go ]; do sleep 0.02; done' &
    holder=$!
    wait_until '[ -e held ]'
    ask EVAL "if redis.call('exists', KEYS[1]) == 0
        or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[1], 1) return nil end
        return redis.call('pttl', KEYS[1])" \
        1 $key me > answer 2>&1 || true
    grep -q WRONGTYPE answer || { cat answer; fail "not refused"; }
    : > go
    wait $holder
}
