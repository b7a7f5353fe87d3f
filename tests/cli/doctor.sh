# SPDX-License-Identifier: MIT
# doctor.sh - holdfast doctor: what it finds, what it advises, its exit status.
# shellcheck disable=SC2016 # conditions are evaluated later

test_the_embedded_server_is_well() {
    expect_exit 0 holdfast doctor
    expect_no_err
    expect_out '^embedded:'
    for topic in reach persistence memory clock fence role session; do
        expect_out "^  ok +$topic "
    done
    expect_out '^all is well$'
    expect_exit 0 holdfast doctor -q
    expect_no_out
    expect_exit 64 holdfast doctor name
}

test_it_leaves_nothing_behind() {
    start_server --appendonly yes
    expect_exit 0 holdfast --url "$SERVER_URL" doctor
    expect_eq "$(ask keys '*' | sort | tr '\n' ' ')" 'lock:holdfast:fence lock:holdfast:reign '
}

test_json() {
    start_server
    expect_exit 78 holdfast --url "$SERVER_URL" doctor -o json
    expect_eq "$(wc -l < out)" 1
    advice='"topic":"persistence","text":"[^"]*","advice":"set appendonly yes"'
    expect_out '"grade":"risk","where":"unix://[^"]*",'"$advice"
    expect_out '"risks":1,"faults":0'
    expect_exit 78 holdfast --url "$SERVER_URL" doctor -o jsonl
    [ "$(wc -l < out)" -ge 7 ]
    expect_eq "$(grep -vc '^{"grade":"[a-z]*","where":' out)" 0
}

test_69_unreachable() {
    expect_exit 69 holdfast --url "unix://$dir/nobody.sock" doctor
    expect_out 'fault +reach .*nobody.sock'
    expect_exit 69 holdfast --url redis+sentinel://127.0.0.1:1/m doctor
    expect_out '^sentinel 127.0.0.1:1$'
    expect_out 'risk +reach .*refused'
    expect_out 'when one is gone there is no majority'
    expect_out 'fault +reach +0 of 1 Sentinels answered'
    expect_exit 78 holdfast --url ftp://x doctor
    expect_err 'bad URL'
}

test_69_silent() {
    start_server
    kill -STOP "$SERVER_PID"
    begun=$(ms)
    expect_exit 69 holdfast --url "$SERVER_URL?timeout=1s" doctor
    expect_out 'fault +reach .*accepted the connection but does not answer'
    expect_out "$dir/server/sock"
    expect_eq "$(grep -c fault out)" 2 # it, and the verdict
    if grep -q 'logged in' out; then show; fail "nobody has answered"; fi
    within 4000 "$begun" "asked more than once"
}

test_78_a_url_that_leads_nowhere() {
    start_server
    expect_exit 78 holdfast --url "$SERVER_URL?db=9999" doctor
    expect_out 'fault +url .*fewer databases'
}

test_77_rights() {
    start_server --requirepass secret --appendonly yes
    expect_exit 77 holdfast --url "$SERVER_URL" doctor
    expect_out 'fault +rights .*NOAUTH'
    # One verdict, first, and no word of a login that did not happen or of rights that are there.
    expect_eq "$(head -n 1 out)" '1 fault, 0 risks'
    if grep -q 'logged in\|INFO' out; then show; fail "wrong verdicts"; fi
    ask -a secret acl setuser nolock on '>pw' '~other:*' '&*' +@all > /dev/null 2>&1
    expect_exit 77 holdfast --url "unix://nolock:pw@$dir/server/sock" doctor
    expect_out 'fault +rights '
    # Without a subscription it works, and less well.
    ask -a secret acl setuser deaf on '>pw' '~*' '&*' +@all -subscribe > /dev/null 2>&1
    expect_exit 78 holdfast --url "unix://deaf:pw@$dir/server/sock" doctor
    expect_out 'risk +rights .*no subscription'
    expect_out 'risk +session .*does not see our session'
    ask -a secret acl setuser blind on '>pw' '~*' '&*' +@all -info > /dev/null 2>&1
    expect_exit 78 holdfast --url "unix://blind:pw@$dir/server/sock" doctor
    expect_out 'risk +version .*INFO is not allowed'
}

test_S2_78_others_may_use_the_channels() {
    start_server --appendonly yes
    ask ACL SETUSER tenant on '>pw' '~other:*' '&*' -@all +publish > /dev/null
    ask ACL SETUSER ear on '>pw' '~other:*' '&*' -@all +subscribe > /dev/null
    ask ACL SETUSER away off '>pw' '~other:*' '&*' -@all +publish > /dev/null
    ask ACL SETUSER apart on '>pw' '~other:*' resetchannels '&other:*' +@all > /dev/null
    ask ACL SETUSER admin on '>pw' '~*' '&*' +@all > /dev/null
    expect_exit 78 holdfast --url "$SERVER_URL" doctor
    expect_out 'risk +rights .*may publish to lock:holdfast:s:\*.*: "tenant"$'
    expect_out '\?confirm=1'
    expect_out 'note +rights .*may subscribe to lock:holdfast:s:\*.*: "ear"$'
    ! grep -E 'away|apart|admin' out || fail "it told of somebody who may not, or need not"
    # Who may not ask is told nothing.
    ask ACL SETUSER jobs on '>pw' '~*' '&*' +@all -acl > /dev/null
    run holdfast --url "unix://jobs:pw@$dir/server/sock" doctor
    ! grep tenant out || fail "it told what it may not know"
}

test_78_a_promise_at_risk() {
    start_server --appendonly yes --maxmemory 100mb --maxmemory-policy volatile-lru
    expect_exit 78 holdfast --url "$SERVER_URL" doctor
    expect_out 'risk +memory .*volatile-lru'
    expect_out '-> set maxmemory-policy noeviction'
    expect_out '^0 faults, 1 risk$'
    ask config set maxmemory-policy noeviction > /dev/null
    expect_exit 0 holdfast --url "$SERVER_URL" doctor
    expect_exit 78 holdfast --url "$SERVER_URL" doctor --replicas 1
    expect_out 'fault +replicas +replicas=1 is asked for, and 0 are there'
    ask set lock:holdfast:fence 8900000000000000 > /dev/null
    expect_exit 78 holdfast --url "$SERVER_URL" doctor
    expect_out 'risk +fence .*ahead of the server'
}

test_repair_fence() {
    start_server --appendonly yes
    ask rpush lock:holdfast:fence what is this > /dev/null
    expect_exit 78 holdfast --url "$SERVER_URL" run -n a -- true
    expect_exit 78 holdfast --url "$SERVER_URL" doctor
    expect_out 'fault +fence .*lock:holdfast:fence holds something else'
    expect_out 'doctor --repair-fence'
    expect_exit 0 holdfast --url "$SERVER_URL" doctor --repair-fence
    expect_err 'put aside'
    expect_eq "$(ask lrange lock:holdfast:fence:broken 0 -1 | tr '\n' ' ')" 'what is this '
    expect_exit 0 holdfast --url "$SERVER_URL" acquire a
    now=$(date +%s)
    fence=$(ask get lock:holdfast:fence)
    [ "$fence" -gt "$((now * 1000000))" ] || fail "$fence is not ahead of the time"
    # Nothing is done to one that is usable.
    expect_exit 0 holdfast --url "$SERVER_URL" doctor --repair-fence
    expect_err 'nothing was done'
    expect_eq "$(ask exists lock:holdfast:fence:broken)" 1
}

# The last number has been given: the next one would be too large.
test_repair_a_fence_at_its_end() {
    start_server --appendonly yes
    expect_exit 0 holdfast --url "$SERVER_URL" run -n a -- true
    for protocol in script transaction; do
        ask set lock:holdfast:fence 9007199254739999 > /dev/null
        ask del lock:holdfast:reign > /dev/null
        expect_exit 0 holdfast --url "$SERVER_URL?protocol=$protocol" run -n a -- true
        expect_eq "$(ask get lock:holdfast:fence)" 9007199254740000
        ask del lock:holdfast:reign > /dev/null
        expect_exit 78 holdfast --url "$SERVER_URL?protocol=$protocol" run -n a -- true
        expect_exit 78 holdfast --url "$SERVER_URL?protocol=$protocol" doctor
        expect_out 'doctor --repair-fence'
        expect_exit 0 holdfast --url "$SERVER_URL" doctor --repair-fence
        expect_err 'put aside'
        expect_exit 0 holdfast --url "$SERVER_URL?protocol=$protocol" run -n a -- true
    done
}

test_the_password_does_not_show() {
    start_server --requirepass s3cret-word --appendonly yes
    expect_exit 0 holdfast --url "unix://:s3cret-word@$dir/server/sock" doctor -v
    ! grep -q s3cret-word out err || fail "the password shows"
}

# One node that has all slots, or none: its URL is $CLUSTER, and `node` asks it.
start_node() {
    started=
    while [ -z "$started" ]; do
        port=$(shuf -i 11000-20000 -n 1)
        mkdir -p "$dir/n$port"
        setpriv --pdeathsig KILL "$(server_program)" --port "$port" --bind 127.0.0.1 --save '' \
            --cluster-enabled yes --cluster-node-timeout 2000 --dir "$dir/n$port" --logfile log \
            --appendonly yes > /dev/null &
        pid=$!
        # Another program may have the port, or that of the bus: then ours has ended.
        wait_until 'node PING > /dev/null 2>&1 || ! kill -0 "$pid" 2> /dev/null'
        ! kill -0 "$pid" 2> /dev/null || started=1
    done
    CLUSTER=redis+cluster://127.0.0.1:$port
}
node() {
    "$(command -v redis-cli || command -v valkey-cli)" -p "$port" "$@"
}

test_a_cluster() {
    start_node
    expect_exit 69 holdfast --url "$CLUSTER" doctor
    expect_out 'fault +reach .*has no slots yet'
    node cluster addslots $(seq 0 16383) > /dev/null
    wait_until 'node cluster info | grep -q cluster_state:ok'
    expect_exit 78 holdfast --url "$CLUSTER" doctor
    expect_out "^127.0.0.1:$port\$"
    expect_out 'ok +cluster +it has 16384 of 16384 slots'
    expect_out 'ok +session +a lock was taken, seen by the server'
    expect_out '^cluster$'
    expect_out 'risk +cluster +1 master\(s\): when one is gone'
    expect_out 'risk +replicas +there is no replica to fail over to'
    expect_out 'ok +cluster +cluster-node-timeout 2000'
    expect_out '^0 faults, 2 risks$'
    expect_exit 78 holdfast --url "redis://127.0.0.1:$port" doctor
    expect_out 'fault +cluster +it is part of a cluster'
    expect_out '-> use redis\+cluster://'
    node acl setuser blind on '>pw' '~*' '&*' +@all '-cluster|slots' > /dev/null
    expect_exit 77 holdfast --url "redis+cluster://blind:pw@127.0.0.1:$port" doctor
    expect_out 'fault +rights .*docs/acl.md'
    start_server
    expect_exit 78 holdfast --url "unix://$dir/server/sock" doctor # no part of one
    ! grep -q 'cluster' out || fail "a single server is no cluster"
}

test_repair_fence_in_all_slots() {
    start_node
    node cluster addslots $(seq 0 16383) > /dev/null
    wait_until 'node cluster info | grep -q cluster_state:ok'
    for name in a b c; do
        expect_exit 0 holdfast --url "$CLUSTER" run -n $name -- true
    done
    expect_exit 78 holdfast --url "$CLUSTER" doctor --repair-fence
    expect_err 'nothing was done'
    for key in $(node keys 'lock:holdfast:{*}:fence' | head -n 2); do
        node set "$key" nonsense > /dev/null
    done
    expect_exit 78 holdfast --url "$CLUSTER" doctor
    expect_eq "$(grep -c 'fault *fence .* of slot [0-9]* holds something else' out)" 2
    expect_exit 78 holdfast --url "$CLUSTER" doctor --repair-fence
    expect_err '2 fencing counters were put aside'
    expect_out '^0 faults'
    expect_eq "$(node keys 'lock:holdfast:{*}:fence:broken' | wc -l)" 2
    for name in a b c; do
        expect_exit 0 holdfast --url "$CLUSTER" run -n $name -- true
    done
}
