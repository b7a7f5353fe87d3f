# SPDX-License-Identifier: MIT
# forge.sh - a deadlock as the server would have it, without the clients: that of real ones does not
# last, since one of them gives up.

# forge LOCK SESSION FENCE WAITS-FOR WAITER: in the embedded server of the test, which runs.
forge() {
    now=$(cli TIME | sed 1q)
    cli SET "lock:$1" "$2.1:$3:5000" PX 60000
    cli ZADD "{lock:$1}:q" 7 "$5.2:5000:1000:nonce:"
    cli HSET "{lock:$1}:wf" "$2.1" "${now}999999 ${now}000 $2.2 lock:$4"
    cli HSET "lock:holdfast:session:$2" host web1 pid 4711 user ann program job info ''
}
cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}
# forge_deadlock: a and b, each held by a client that waits for the other.
forge_deadlock() {
    holdfast held nothing || true # the server runs
    s1=11111111111111111111111111111111 s2=22222222222222222222222222222222
    forge a $s1 1700000000000001 b $s2 > /dev/null
    forge b $s2 1700000000000002 a $s1 > /dev/null
}
