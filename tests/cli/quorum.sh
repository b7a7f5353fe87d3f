# SPDX-License-Identifier: MIT
# quorum.sh - the tool on several independent servers.
# shellcheck disable=SC2016 # conditions are evaluated later

# start_members N [ARG...]: N servers on free ports of 127.0.0.1, in $members; $HOLDFAST_URL names
# all.
start_members() {
    count=$1
    shift
    members='' HOLDFAST_URL=redis+quorum://
    while [ "$count" -gt 0 ]; do
        port=$(shuf -i 20000-60000 -n 1)
        mkdir -p "$dir/m$port"
        # The server dies with this shell, however this shell ends.
        setpriv --pdeathsig KILL "$(server_program)" --port "$port" --bind 127.0.0.1 \
            --dir "$dir/m$port" --logfile log --save '' --appendonly yes "$@" > /dev/null &
        eval "pid_$port=$!"
        eval "pid=\$pid_$port"
        # Another program may have the port: then ours has ended.
        wait_until 'cli "$port" PING > /dev/null 2>&1 || ! kill -0 "$pid" 2> /dev/null'
        kill -0 "$pid" 2> /dev/null || continue
        members="$members $port"
        HOLDFAST_URL=$HOLDFAST_URL${members:+$([ "$members" = " $port" ] || echo ,)}127.0.0.1:$port
        count=$((count - 1))
    done
    export HOLDFAST_URL
}
cli() { # cli PORT COMMAND...
    port_=$1
    shift
    "$(command -v redis-cli || command -v valkey-cli)" -p "$port_" "$@"
}
kill_member() {
    eval "kill -9 \$pid_$1"
    wait_until "! cli $1 PING > /dev/null 2>&1"
}
member() { # member I: its port
    echo "$members" | cut -d ' ' -f $(($1 + 1))
}

test_run_and_status() {
    start_members 3
    expect_exit 0 holdfast run job -- \
        sh -c 'holdfast() { "$HOLDFAST" "$@"; }; holdfast status job; echo "$HOLDFAST_FENCE"'
    expect_out 'job'
    expect_out '^[0-9]{16}$'
    expect_exit 75 holdfast run --ttl 5s job -- sh -c '"$HOLDFAST" run -n job -- true'
    expect_err 'job.* is held by'
    expect_exit 7 holdfast run job -- sh -c 'exit 7'
    wait_until '[ "$(for p in $members; do cli $p EXISTS lock:job; done | sort -u)" = 0 ]'
}

test_a_dead_minority_is_not_noticed() {
    start_members 3
    kill_member "$(member 1)"
    expect_exit 0 holdfast run job -- true
    # One line, not one for each server or each attempt; none with -q.
    expect_err "^holdfast: 1 of 3 servers does not vote, .*; 127.0.0.1:$(member 1): Connection ref"
    expect_eq "$(wc -l < err)" 1
    expect_exit 0 holdfast run -q job -- true
    expect_no_err
    expect_exit 0 holdfast acquire job --ttl 20s
    expect_exit 75 holdfast run -n job -- true
    expect_exit 0 holdfast ls
    expect_out 'job'
}

test_no_majority_is_69() {
    start_members 3
    kill_member "$(member 1)"
    kill_member "$(member 3)"
    expect_exit 69 holdfast run -n job -- true
    expect_err '1 of 3 servers answers, 2 are needed'
    expect_err "127.0.0.1:$(member 3)"
    [ "$(cli "$(member 2)" EXISTS lock:job)" = 0 ] || fail "something was taken on the living one"
}

test_acquire_check_extend_release() {
    start_members 3
    expect_exit 0 holdfast acquire job --ttl 20s --owner me
    expect_exit 0 holdfast check job --owner me
    expect_exit 0 holdfast extend job --owner me --ttl 30s
    expect_exit 82 holdfast release job --owner you
    expect_exit 0 holdfast release job --owner me
    expect_exit 82 holdfast check job --owner me
}

test_lost_majority_stops_the_command() {
    start_members 3
    holdfast run --ttl 3s job -- sleep 30 > out 2> err &
    pid=$!
    wait_until '[ "$(cli "$(member 1)" EXISTS lock:job)" = 1 ]'
    kill_member "$(member 2)"
    kill_member "$(member 3)"
    status=0
    wait "$pid" || status=$?
    expect_eq "$status" 79
}

# refused WHY COMMAND...: exit status 78, with the reason.
refused() {
    why=$1
    shift
    expect_exit 78 holdfast "$@"
    expect_err "not on a quorum: .*$why"
}

test_what_needs_one_server_says_so() {
    start_members 3
    permits='permits counted by majorities can be given out twice'
    counts='a count kept by majorities can be counted twice'
    refused "$permits" run -s job -- true
    refused "$permits" run --slots 2 job -- true
    refused "$permits" run -n --slots 2 job -- true
    refused "$permits" acquire -s job --ttl 5s
    refused "$permits" resize s --slots 3
    refused "$counts" latch --set 3 l
    refused "$counts" latch --down l
    refused "$counts" latch --wait l
    refused "$counts" latch l
    refused "$counts" barrier b --count 2
    refused 'the value of a leader has no single place' elect e -- true
    refused 'the value of a leader has no single place' leader e
    refused 'a value has no single place: once needs one server' once --ttl 60 page -- touch ran
    [ ! -e ran ] || fail "once ran its command"
    refused 'numbers given by majorities can repeat' sequence ids
    for p in $members; do
        expect_eq "$(cli "$p" KEYS '*' | grep -v '^lock:holdfast:\(fence\|reign\)$')" ''
    done
    # How it is asked for matters as well.
    expect_exit 78 holdfast run --protocol transaction job -- true
    expect_err 'a quorum needs scripts'
    expect_exit 78 holdfast run --replicas 1 job -- true
    expect_err 'replicas= and fsync= are not for a quorum'
    expect_exit 78 holdfast --url "$HOLDFAST_URL?fsync=1" run job -- true
    expect_err 'replicas= and fsync= are not for a quorum'
    expect_exit 78 holdfast doctor --repair-fence
    expect_err 'each server has a fencing counter of its own'
}

# set_user LINE: the user of docs/acl.md, on each; from now on everybody logs in as it.
set_user() {
    for p in $members; do
        # shellcheck disable=SC2086 # words
        expect_eq "$(set -f; cli "$p" $1)" OK
    done
    HOLDFAST_URL=$(echo "$HOLDFAST_URL" | sed 's|://|://holdfast@|')
    export HOLDFAST_URL HOLDFAST_PASSWORD=secret
}
# How often clients and scripts have called a command, on all of them.
calls() {
    for p in $members; do
        cli "$p" INFO commandstats | sed -n "s/^cmdstat_$1:calls=\([0-9]*\),.*/\1/p"
    done | awk '{ n += $1 } END { print n + 0 }'
}

test_the_user_of_acl_md_can_do_everything() {
    start_members 3
    set_user "$(sed -n '/^```acl$/,/^```$/p' "$root/docs/acl.md" | sed '1d;$d; s/PASSWORD/secret/')"
    expect_exit 0 holdfast run job -- true
    expect_exit 0 holdfast run --ttl 4s job -- sleep 4.5
    expect_exit 0 holdfast run a,b -- true
    expect_exit 0 holdfast acquire job --ttl 20s --owner me
    expect_exit 0 holdfast extend job --owner me --ttl 30s
    expect_exit 0 holdfast check job --owner me
    expect_exit 75 holdfast run -n job -- true
    expect_exit 75 holdfast run -w 2 job -- true
    expect_exit 0 holdfast status job
    expect_exit 0 holdfast ls
    # Who waits stands in line and listens, and is told by the release.
    "$HOLDFAST" run job -- true 2> warned &
    pid=$!
    wait_until '[ "$(cli "$(member 1)" ZCARD "{lock:job}:w")" = 1 ] &&
        [ "$(calls subscribe)" -ge 3 ]'
    wait_until '[ "$(for p in $members; do cli $p PUBSUB CHANNELS; done | wc -l)" = 3 ]'
    sleep 0.6 # it has stood since it listens
    expect_eq "$(calls publish)" 0
    expect_exit 0 holdfast release job --owner me
    wait "$pid"
    expect_eq "$(cat warned)" ''
    [ "$(calls publish)" -ge 2 ] || fail "nobody was told of the release"
    expect_exit 0 holdfast acquire job --ttl 20s --owner me
    expect_exit 0 holdfast release --all --owner me
    for p in $members; do
        expect_eq "$(cli "$p" ACL LOG | head -n 1)" ''
    done
    expect_exit 0 holdfast doctor
}

test_a_user_that_may_not_subscribe_waits_by_polling() {
    start_members 3
    set_user "$(sed -n '/^```acl$/,/^```$/p' "$root/docs/acl.md" |
        sed '1d;$d; s/PASSWORD/secret/; s/+subscribe//')"
    expect_exit 0 holdfast acquire job --ttl 20s --owner me
    "$HOLDFAST" run job -- true 2> warned &
    pid=$!
    wait_until 'grep -q "no hints from 127.0.0.1:.*waiting is by polling" warned'
    expect_exit 0 holdfast release job --owner me
    wait "$pid"
    expect_eq "$(calls publish)" 0
}

test_one_member_with_another_password_does_not_vote() {
    start_members 3
    for p in $members; do
        cli "$p" CONFIG SET requirepass \
            "$([ "$p" = "$(member 2)" ] && echo other || echo secret)" > /dev/null
    done
    export HOLDFAST_PASSWORD=secret
    expect_exit 0 holdfast run job -- true
    expect_exit 78 holdfast doctor
    expect_out 'ok +quorum +2 of 3 servers answer'
    export HOLDFAST_PASSWORD=other
    expect_exit 77 holdfast run job -- true
    expect_err '1 of 3 servers answers, 2 are needed'
    expect_exit 77 holdfast doctor
    expect_out 'fault +rights +1 of 3 servers let us in, 2 are needed'
}

test_doctor_looks_at_each() {
    start_members 3
    expect_exit 0 holdfast doctor
    for i in 1 2 3; do
        expect_out "^127.0.0.1:$(member $i)\$"
    done
    expect_out 'ok +quorum +3 of 3 servers answer, 2 are needed'
    expect_out 'ok +session +a lock was granted by a majority'
    kill_member "$(member 1)"
    expect_exit 78 holdfast doctor
    expect_out 'risk +reach .*refused'
    expect_out 'ok +quorum +2 of 3 servers answer'
    kill_member "$(member 2)"
    expect_exit 69 holdfast doctor
    expect_out 'fault +reach +1 of 3 servers answers, 2 are needed'
}

test_doctor_knows_the_quarantine() {
    start_members 2 --appendonly no
    expect_exit 69 holdfast doctor
    expect_out 'note +persistence .*does not vote before the quarantine is over'
    expect_out 'risk +quorum +2 server\(s\): when one is gone there is no majority'
    expect_out 'fault +reach .*started lately and keep nothing'
    export HOLDFAST_URL="$HOLDFAST_URL?quarantine=0"
    expect_exit 78 holdfast doctor
    expect_out 'risk +persistence .*a restart forgets locks'
}

# Messages have an end, and a way out.
test_a_fresh_fleet_says_how_long_why_and_what_to_do() {
    start_members 5 --appendonly no
    expect_exit 69 holdfast run -n job -- true
    expect_eq "$(wc -l < err)" 1
    expect_err '^holdfast: job: 5 of 5 servers started lately and keep nothing on disk'
    expect_err 'do not vote for another [1-9][0-9]? s, .*wait, or set appendonly yes there \(.*\)$'
    # While it waits, too: nobody holds it, and it is not "free now".
    status=0
    timeout 6 "$HOLDFAST" run -v job -- true > out 2> err || status=$?
    expect_eq $status 124
    expect_err 'started lately and keep nothing on disk.* \(trying again\)$'
    expect_eq "$(grep -c 'do not vote' err)" 1
    expect_err 'waiting for job: 0 of 5 servers may vote; others started lately and keep '
    if grep -q 'free now' err; then show; fail "it is not free"; fi
}

test_many_servers_with_one_reason_are_one_sentence() {
    start_members 5
    for i in 1 2 3 4; do kill_member "$(member $i)"; done
    expect_exit 69 holdfast run -n job -- true
    expect_eq "$(wc -l < err)" 1
    list=$(for i in 1 2 3 4; do printf '%s127.0.0.1:%s' "${list:+, }" "$(member $i)"; list=x; done)
    expect_err "^holdfast: job: 1 of 5 servers answers, 3 are needed; $list: Connection refused"
    expect_err 'there\?$'
}

# start_again_empty PORT: on an emptied folder.
start_again_empty() {
    rm -rf "$dir/m$1"
    mkdir "$dir/m$1"
    setpriv --pdeathsig KILL "$(server_program)" --port "$1" --bind 127.0.0.1 --dir "$dir/m$1" \
        --logfile log --save '' --appendonly yes > /dev/null &
    eval "pid_$1=$!"
    wait_until "cli $1 PING > /dev/null 2>&1"
    expect_eq "$(cli "$1" DBSIZE)" 0
}

# A container without a volume: appendonly yes, and the data is gone all the same.
test_a_server_that_lost_its_data_does_not_help_a_second_holder() {
    start_members 3
    expect_exit 0 holdfast run first -- true
    for p in $members; do # they have had their data for long
        reign=$(cli "$p" GET lock:holdfast:reign)
        expect_eq "$(cli "$p" SET lock:holdfast:reign "${reign% *} 1700000000000000")" OK
    done
    kill -STOP "$(eval "echo \$pid_$(member 3)")" # it misses the grant
    expect_exit 0 holdfast acquire -q job --ttl 30s --owner me
    kill -CONT "$(eval "echo \$pid_$(member 3)")"
    cli "$(member 3)" DEL lock:job '{lock:job}:own' > /dev/null # had it come late
    kill_member "$(member 2)"
    start_again_empty "$(member 2)"
    expect_exit 75 holdfast run -n job -- true
    expect_err 'job is held by '
    expect_err "127.0.0.1:$(member 2) started lately without the data that others have, though ap"
    kill_member "$(member 1)"
    expect_exit 69 holdfast run -n job -- true
    expect_err "1 of 3 servers \(127.0.0.1:$(member 2)\) started lately without the data .* no"
    expect_err 'vote for another [1-6][0-9]? s, .*; wait, and see that the data folder there'
    expect_exit 69 holdfast doctor
    expect_out 'risk +persistence +it started lately without the data that others have'
    expect_out 'outlives a restart'
}
