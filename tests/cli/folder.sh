# SPDX-License-Identifier: MIT
# folder.sh - the folder of the embedded server is removed, renamed or hidden while a lock is held:
# there is no second holder, and who comes is told.
# shellcheck disable=SC2016 # conditions are evaluated later

# hold: the lock a is held, as $pid, until there is a file go.
hold() {
    mkdir place
    HOLDFAST_URL=embedded:$dir/place/hf
    export HOLDFAST_URL
    rm -f up go
    "$HOLDFAST" run --ttl 4s --grace 2s a -- \
        sh -c ': > up; while [ ! -e go ]; do sleep 0.02; done' > first.out 2> first.err &
    pid=$!
    wait_until '[ -e up ]'
    server=$(cat place/hf/server.pid)
}
# let_go: it ends, and had the lock to the end.
let_go() {
    sleep 5 # longer than its ttl: it is renewed
    kill -0 "$pid" || fail "the holder ended: $(cat first.err)"
    : > go
    status=0
    wait "$pid" || status=$?
    expect_eq "$status" 0
    expect_eq "$(cat first.err)" ''
}
end_server() {
    kill "$server"
    wait_until '! kill -0 "$server" 2> /dev/null'
}

test_a_folder_that_is_removed_under_a_holder() {
    hold
    rm -rf place/hf
    expect_exit 69 holdfast run -n a -- touch second
    expect_err "was removed.*kill $server"
    expect_exit 69 holdfast run -w 300ms a -- touch second
    [ ! -e second ] || fail "two holders"
    let_go
    # As the message says.
    end_server
    expect_exit 0 holdfast run -n a -- true
    server=$(cat place/hf/server.pid)
    end_server
}

test_a_folder_that_is_renamed_under_a_holder() {
    hold
    mv place/hf place/gone
    expect_exit 75 holdfast run -n a -- touch second
    [ ! -e second ] || fail "two holders"
    let_go
    expect_exit 0 holdfast run -n a -- true
    end_server
}

# As PrivateTmp= and containers do.
test_a_folder_that_a_process_does_not_see() {
    unshare -m true 2> /dev/null || skip "no mount namespaces for this user"
    hold
    expect_exit 75 unshare -m sh -c \
        'mount -t tmpfs none "$1/place" && "$HOLDFAST" run -n a -- touch "$1/second"' - "$dir"
    [ ! -e second ] || fail "two holders"
    let_go
    end_server
}
