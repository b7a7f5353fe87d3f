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
    expect_out '"grade":"risk","where":"unix://[^"]*","topic":"persistence","text":"[^"]*","advice":"set appendonly yes"'
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

test_77_rights() {
    start_server --requirepass secret --appendonly yes
    expect_exit 77 holdfast --url "$SERVER_URL" doctor
    expect_out 'fault +rights .*NOAUTH'
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

test_78_a_promise_at_risk() {
    start_server --appendonly yes --maxmemory 100mb --maxmemory-policy volatile-lru
    expect_exit 78 holdfast --url "$SERVER_URL" doctor
    expect_out 'risk +memory .*volatile-lru'
    expect_out '-> set maxmemory-policy noeviction'
    expect_out '^0 fault\(s\), 1 risk\(s\)$'
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

test_the_password_does_not_show() {
    start_server --requirepass s3cret-word --appendonly yes
    expect_exit 0 holdfast --url "unix://:s3cret-word@$dir/server/sock" doctor -v
    ! grep -q s3cret-word out err || fail "the password shows"
}
