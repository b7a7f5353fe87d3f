# SPDX-License-Identifier: MIT
# tool.sh - the tool under valgrind: no invalid access, and nothing read that was not set.
#
# By `make test-valgrind`, with the build that users have. What it starts by exec is not looked at.
# Leaks are the matter of tests/cli, whose build finds them: here a thread that still runs when the
# tool ends looks like one. All is slow, so nothing here depends on time.

# memcheck STATUS[|STATUS] ARG...: holdfast ARG..., which must exit so and leave valgrind nothing to
# say.
memcheck() {
    want=$1
    shift
    run valgrind -q --error-exitcode=99 --leak-check=no --log-file="$dir/valgrind.%p" \
        "$HOLDFAST" "$@"
    cat "$dir"/valgrind.* > "$dir/said" 2> /dev/null || true
    rm -f "$dir"/valgrind.*
    [ ! -s "$dir/said" ] || { sed 's/^/# /' "$dir/said"; fail "valgrind: holdfast $*"; }
    case "|$want|" in
        *"|$status|"*) ;;
        *) show; fail "exit status $status, want $want: holdfast $*" ;;
    esac
}

test_what_asks_no_server() {
    memcheck 0 --version
    memcheck 0 help
    memcheck 0 help run
    memcheck 64 run --ttll 5s a -- true
    memcheck 64 run --ttl x a -- true
    memcheck 64 nothing
}

test_holding_a_lock_while_a_command_runs() {
    memcheck 0 run a -- true
    memcheck 3 run -v --ttl 5s --grace 1s --info text a,b -- sh -c 'exit 3'
    memcheck 0 run -s a -c 'echo shared'
    memcheck 0 run --slots 3 --permits 2 --history 5 s -- true
    memcheck 80 run --max-run 1s a -- sleep 100
    memcheck 0 once --ttl 1m o -- echo value
    memcheck 0 once --ttl 1m o -- echo value
}

test_a_lock_that_outlives_the_call() {
    memcheck 0 acquire --owner me --ttl 1m a
    memcheck 75 acquire -n -o json a
    memcheck '75|69' run -w 1s a -- true # too slow to hear from the server in time
    memcheck 0 check a --owner me
    memcheck 0 extend a --owner me --ttl 2m
    memcheck 0 held a
    memcheck 0 release a --owner me
    memcheck 82 check a --owner me
    memcheck 1 held a
    memcheck 0 acquire --sh --ttl 1m b
    memcheck 0 acquire --json --ttl 1m c
}

test_looking() {
    "$HOLDFAST" run --history 5 --info text x -- true
    "$HOLDFAST" acquire --owner me --ttl 1m a > /dev/null
    for form in table json jsonl; do
        memcheck 0 status a,b -o "$form"
        memcheck 0 ls --waiters -o "$form"
        memcheck 0 history x -o "$form"
        memcheck 0 why a -o "$form"
    done
    memcheck 0 ls --sort age --stale
    memcheck 0 graph
    memcheck 0 graph --svg
    memcheck 0 exporter --once
    memcheck '0|78' doctor # too slow to be seen as a session in time
    memcheck '0|78' doctor -o json
    memcheck 0 server status
}

test_the_other_primitives() {
    memcheck 0 latch l --set 2
    memcheck 0 latch l --down 2
    memcheck 0 latch l --wait
    memcheck 0 barrier b --count 1
    memcheck 0 sequence q --count 5 --block 2
    memcheck 0 elect e --value v -- true
}

test_a_server_that_is_not_there() {
    memcheck 69 status a --url "unix://$dir/nobody"
    memcheck 69 run -n a --url "unix://$dir/nobody" -- true
    memcheck 78 status a --url 'redis://u:p@bad host/'
}
