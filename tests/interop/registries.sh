# SPDX-License-Identifier: MIT
# registries.sh - locks of other clients on the same key: those that install.sh got from their own
# registries. Those of Debian are in tests/cli/neighbours.sh.

# shellcheck source=/dev/null
[ -z "${root:-}" ] || . "$root/tests/interop/common.sh"

neighbour() { # neighbour FILE WORKER...: FILE is there if it could be installed
    [ -e "$root/build/interop/$1" ] ||
        skip "it could not be installed: see tests/interop/install.sh"
    shift
    start_server
    key=${key:-lock:interop}
    INTEROP_MODULES=$root/build/interop/node/node_modules
    export INTEROP_MODULES
    both_exclude "$@"
}

node_client() { # node_client CLIENT
    neighbour node/node_modules/.package-lock.json "$(command -v node)" \
        "$root/tests/interop/node/worker.js" "$1"
}

test_redlock_4() {
    node_client redlock4
}

test_redlock_5() {
    node_client redlock5
}

test_redis_semaphore_under_its_own_prefix() {
    key=mutex:interop
    node_client redis-semaphore
}

test_redsync() {
    neighbour go-worker "$root/build/interop/go-worker" redsync
}

test_bsm_redislock() {
    neighbour go-worker "$root/build/interop/go-worker" redislock
}

test_rslock() {
    neighbour rust/debug/rust-worker "$root/build/interop/rust/debug/rust-worker" rslock
}

test_redis_py_of_its_own_registry() {
    neighbour python/installed "$root/build/interop/python/bin/python3" \
        "$root/tests/interop/worker.py" redis-py
}
