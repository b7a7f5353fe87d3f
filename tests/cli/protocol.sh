# SPDX-License-Identifier: MIT
# protocol.sh - --protocol and ?protocol=: transactions and timestamps from the command line.
# shellcheck disable=SC2016 # expanded by the inner shell

owner_of() { # the owner in the output of acquire
    sed -n 's/^owner=\([^ ]*\) .*/\1/p' "$dir/out"
}

# Document 002, to the letter: true, false, false, true.
test_document_002_by_transactions() {
    expect_exit 0 holdfast acquire --protocol transaction -n --owner moto --ttl 10086 lock
    expect_exit 75 holdfast acquire --protocol transaction -n --owner nokia --ttl 123 lock
    expect_exit 82 holdfast release --protocol transaction lock --owner nokia
    expect_exit 0 holdfast check --protocol transaction lock --owner moto
    expect_exit 0 holdfast release --protocol transaction lock --owner moto
    expect_exit 82 holdfast release --protocol transaction lock --owner moto
}

test_timestamps_by_their_random_owner() {
    expect_exit 0 holdfast acquire --protocol timestamp -n --ttl 60 lock
    moto=$(owner_of)
    expect_exit 75 holdfast acquire --protocol timestamp -n --ttl 60 lock
    nokia=$(echo "$moto" | tr 0123456789abcdef 123456789abcdef0)
    expect_exit 82 holdfast release --protocol timestamp lock --owner "$nokia"
    expect_exit 0 holdfast check --protocol timestamp lock --owner "$moto"
    expect_exit 0 holdfast extend --protocol timestamp lock --owner "$moto" --ttl 90
    expect_exit 0 holdfast status --protocol timestamp lock
    expect_out '^lock: held \(timestamp\)'
    expect_exit 0 holdfast ls
    expect_out '^lock +timestamp'
    expect_exit 0 holdfast release --protocol timestamp lock --owner "$moto"
    expect_exit 82 holdfast release --protocol timestamp lock --owner "$moto"
}

test_run_by_each_protocol_and_by_url() {
    start_server
    for p in script transaction timestamp; do
        expect_exit 7 holdfast --url "$SERVER_URL" run --protocol $p a -- sh -c 'exit 7'
        expect_exit 7 holdfast --url "$SERVER_URL?protocol=$p" run a -- sh -c 'exit 7'
        # The command sees the lock held, and others wait for it.
        expect_exit 0 holdfast --url "$SERVER_URL?protocol=$p" run a -- \
            sh -c '[ -n "$HOLDFAST_FENCE" ] && ! "$0" --url "$1" run -n a -- true' "$HOLDFAST" \
            "$SERVER_URL?protocol=$p"
        expect_eq "$(ask EXISTS lock:a)" 0
    done
    # The option wins over the URL.
    expect_exit 0 holdfast --url "$SERVER_URL?protocol=timestamp" run --protocol transaction \
        --slots 2 a -- true
    expect_exit 78 holdfast --url "$SERVER_URL?protocol=timestamp" run --slots 2 a -- true
    expect_err 'semaphore is not possible with the protocol timestamp'
}

test_waiting_and_a_killed_holder() {
    for p in transaction timestamp; do
        # Killed with all that it started: nothing but the ttl frees the lock.
        setsid "$HOLDFAST" run --protocol $p --ttl 4s --kill-after 200ms "$p" -- sleep 1000 &
        holder=$!
        wait_until "holdfast status --protocol $p $p | grep -q held"
        expect_exit 75 holdfast run -n --protocol $p "$p" -- true
        kill_all_of $holder
        expect_exit 0 holdfast run -w 20 --protocol $p "$p" -- true
    done
}

test_several_names_and_readers_by_transactions() {
    expect_exit 0 holdfast run --protocol transaction a,b,c -- \
        sh -c '! "$0" run -n --protocol script c -- true' "$HOLDFAST"
    expect_exit 0 holdfast run --protocol transaction -s r -- \
        "$HOLDFAST" run --protocol script -n -s r -- true
    expect_exit 75 holdfast run --protocol transaction -s r -- \
        "$HOLDFAST" run --protocol transaction -n r -- true
    expect_exit 78 holdfast run --protocol timestamp a,b -- true
    expect_err 'several locks at once'
}

test_a_grace_is_refused() {
    expect_exit 78 holdfast run --protocol transaction --grace 2s a -- true
    expect_err 'a grace, and with it takeover, is not possible with the protocol transaction'
    expect_exit 0 holdfast run --protocol transaction --grace 0 a -- true
}

test_hold_pid_by_transactions() {
    sleep 1000 &
    pid=$!
    expect_exit 0 holdfast acquire --protocol transaction --ttl 4s --hold-pid $pid a
    sleep 4.5
    expect_exit 75 holdfast run -n a -- true
    kill $pid
    expect_exit 0 holdfast run -w 20 a -- true
}

# Without EVAL the tool works by itself, and says so once for each call.
test_a_server_without_scripts() {
    start_server --rename-command EVAL '' --rename-command EVALSHA ''
    HOLDFAST_URL=$SERVER_URL
    expect_exit 0 holdfast run a -- true
    expect_err '^holdfast: the server runs no scripts for us, so locks are taken by transactions'
    expect_eq "$(wc -l < "$dir/err")" 1
    expect_exit 0 holdfast run --protocol transaction a -- true
    expect_no_err
    expect_exit 69 holdfast run --protocol script a -- true
    expect_err 'unknown command'
    expect_exit 0 holdfast acquire --owner me --ttl 20 b
    expect_exit 0 holdfast release --all --owner me
    expect_out 1
    expect_exit 78 holdfast latch --set 3 x
    expect_err 'a latch is not possible with the protocol transaction'
}

test_a_user_without_scripting() {
    start_server
    ask ACL SETUSER nos on '>secret' '~*' '&*' +@all -@scripting > /dev/null
    HOLDFAST_URL=$(echo "$SERVER_URL" | sed 's|unix://|unix://nos@|') HOLDFAST_PASSWORD=secret
    export HOLDFAST_URL HOLDFAST_PASSWORD
    expect_exit 0 holdfast run a -- true
    expect_err 'runs no scripts for us'
    expect_exit 77 holdfast run --protocol script a -- true
    expect_err 'NOPERM'
    expect_exit 0 holdfast run --slots 2 a -- true
}

test_bad_values() {
    expect_exit 64 holdfast run --protocol nosuch a -- true
    expect_err "'nosuch' is not one of script\|transaction\|timestamp"
    start_server
    expect_exit 78 holdfast --url "$SERVER_URL?protocol=nosuch" run a -- true
    expect_exit 78 holdfast --url "$SERVER_URL?skew=5s" run a -- true
    expect_err 'skew is for protocol=timestamp only'
    expect_exit 0 holdfast --url "$SERVER_URL?protocol=timestamp&skew=5s" run a -- true
    expect_exit 64 holdfast --url "$SERVER_URL?protocol=timestamp&skew=20s" run a -- true
    expect_err 'a skew of 20000 ms'
}

test_what_is_no_timestamp_is_told() {
    start_server
    ask SET lock:a 5f3c PX 60000 > /dev/null
    expect_exit 78 holdfast --url "$SERVER_URL" run -n --protocol timestamp a -- true
    expect_err 'held by something that is not a timestamp'
    expect_eq "$(ask GET lock:a)" 5f3c
}
