# SPDX-License-Identifier: MIT
# lib.sh - runs tests written in plain sh.
#
#   sh tests/harness/lib.sh FILE [TEXT]
#
# FILE defines functions test_NAME(); each runs in a process of its own, in an empty folder $dir
# that is removed afterwards, with a time limit ($TEST_SECONDS, 180). A test fails when a command
# fails (set -e) or an expect_ does not hold. Those whose name contains TEXT run.
#
# A test finds: $HOLDFAST the program under test; `holdfast` calls it; $HOLDFAST_URL names an
# embedded server of the test's own, ended with it; $root the top of the tree; $dir.
set -eu

# ---- for tests ----

fail() {
    echo "# $*"
    exit 1
}

skip() { # skip REASON
    echo "$*" > "$dir/.skip"
    exit 77
}

# left_out REASON: what it needs is optional, and not here. Does not count, and does not fail CI.
left_out() {
    echo "$*" > "$dir/.left_out"
    exit 78
}

holdfast() {
    "$HOLDFAST" "$@"
}

# run CMD...: its output goes to $dir/out and $dir/err, its exit status to $status.
run() {
    status=0
    "$@" > "$dir/out" 2> "$dir/err" < /dev/null || status=$?
}

# expect_exit STATUS CMD...: run it and compare.
expect_exit() {
    want=$1
    shift
    run "$@"
    # Who gives up waiting asks the server for the last time. On a machine that has too much to do
    # the answer may be late, and nobody knows: then again.
    for _ in 1 2; do
        [ "$want-$status" = 75-69 ] && [ "$(patience)" != 1 ] || break
        run "$@"
    done
    # There, too, whoever held the lock may have had to leave before its release was confirmed. Then
    # its guardian releases it, and when that is gone, the lock is free.
    if [ "$want-$status" = 0-75 ] && [ "$(patience)" != 1 ]; then
        tries=1000
        while left_to_a_guardian && [ $tries -gt 0 ]; do
            tries=$((tries - 1))
            sleep 0.02
        done
        run "$@"
    fi
    [ "$status" = "$want" ] || { show; fail "exit status $status, want $want: $*"; }
}

# What the last run printed, compared: by pattern (grep -E) or whole.
expect_out() {
    grep -Eq -e "$1" "$dir/out" || { show; fail "stdout does not match: $1"; }
}
expect_err() {
    grep -Eq -e "$1" "$dir/err" || { show; fail "stderr does not match: $1"; }
}
expect_no_out() {
    [ ! -s "$dir/out" ] || { show; fail "stdout is not empty"; }
}
expect_no_err() {
    [ ! -s "$dir/err" ] || { show; fail "stderr is not empty"; }
}
expect_out_is() {
    [ "$(cat "$dir/out")" = "$1" ] || { show; fail "stdout is not: $1"; }
}
expect_eq() { # expect_eq GOT WANT
    [ "$1" = "$2" ] || fail "got '$1', want '$2'"
}

show() {
    sed 's/^/# stdout: /' "$dir/out"
    sed 's/^/# stderr: /' "$dir/err"
}

# How often a limit of time counts: once where the machine has a core for everybody who wants to
# run, ten times where somebody has waited for one for a tenth of the last seconds, or where the
# system does not tell. So a limit is tight on a calm machine, and says nothing on any other.
patience() {
    busy=100
    if [ -r /proc/pressure/cpu ]; then
        read -r _ busy _ < /proc/pressure/cpu || busy=avg10=100
        busy=${busy#avg10=}
    fi
    if [ "${busy%.*}" -ge 10 ]; then echo 10; else echo 1; fi
}

ms() {
    echo $(($(date +%s%N) / 1000000))
}

# at_most MS TOOK WHAT: an upper limit of time. within MS SINCE WHAT: the same of what began then, a
# moment of ms; leaves $took.
at_most() {
    [ "$2" -le "$1" ] || [ "$2" -le $(($1 * $(patience))) ] || {
        show
        fail "$3: $2 ms, allowed are $1"
    }
}
within() {
    took=$(($(ms) - $2))
    at_most "$1" "$took" "$3"
}

# wait_until 'CONDITION' [SECONDS]: try it every 20 ms, for 10 s if not told otherwise; longer on a
# machine that has too much to do.
wait_until() {
    tries=$((${2:-10} * 50)) more=1
    until eval "$1"; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ] && [ "$more" = 1 ]; then
            more=$(patience)
            tries=$(((more - 1) * ${2:-10} * 50))
        fi
        [ "$tries" -gt 0 ] || fail "not within ${2:-10} s: $1"
        sleep 0.02
    done
}

# Whether a holdfast of this test has gone, and left its locks to its guardian.
left_to_a_guardian() {
    for guard in $(pgrep -x holdfast-guard); do
        parent=$(sed -n 's/^PPid:\t//p' "/proc/$guard/status" 2> /dev/null) || continue
        [ "$(cat "/proc/$parent/comm" 2> /dev/null)" != holdfast ] || continue
        if grep -q "$dir" "/proc/$guard/environ" 2> /dev/null; then return 0; fi
    done
    return 1
}

# kill_all_of PID: a holdfast run, and its guardian, which would give the lock back. It watches from
# its first moment, and takes its name a moment later.
kill_all_of() {
    wait_until "pgrep -P $1 holdfast-guard > guard"
    kill -9 "$(cat guard)" "$1"
}

# start_server [ARG...]: a server besides the embedded one, at $SERVER_URL, asked by `ask`.
start_server() {
    mkdir -p "$dir/server"
    # The server dies with this shell, however this shell ends.
    setpriv --pdeathsig KILL "$(server_program)" --port 0 --unixsocket "$dir/server/sock" \
        --dir "$dir/server" --logfile log --save '' --appendonly no "$@" > /dev/null &
    # shellcheck disable=SC2034 # for the test
    SERVER_PID=$! SERVER_URL=unix://$dir/server/sock
    wait_until 'ask PING > /dev/null 2>&1'
}
ask() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/server/sock" "$@"
}
server_program() {
    echo "${HF_TEST_SERVER:-$(command -v redis-server || command -v valkey-server)}"
}

# ---- the runner ----

# Processes that a test left behind work in its folder, or name it in their arguments or their
# environment ($HOLDFAST_URL). Nothing else can, so they are ended by pid. Looked for until none is
# found: a holdfast that has not ended yet starts its server anew. Two programs look at all
# processes, since a few for each of them would cost more than the test. Neither finds itself: the
# shell lists /proc before it starts them.
leftovers() { # leftovers DIR: their pids
    {
        grep -lsF -e "$1" /proc/[0-9]*/cmdline /proc/[0-9]*/environ || true
        find /proc/[0-9]*/cwd -prune \( -lname "$1" -o -lname "$1/*" -o -lname "$1 (deleted)" \) \
            2> /dev/null || true
    } | cut -d / -f 3 | sort -u
}

end_leftovers() {
    tries=100
    while found=$(leftovers "$1") && [ -n "$found" ] && [ "$tries" -gt 0 ]; do
        # shellcheck disable=SC2086 # a list of words
        kill -9 $found 2> /dev/null || true
        tries=$((tries - 1))
        sleep 0.01
    done
}

if [ "$1" = --one ]; then # --one FILE TEST DIR
    dir=$4
    root=$PWD
    # Tests put both into command lines as they are: in a folder with blanks they get other names.
    case $root$HOLDFAST in
        *' '*)
            mkdir "$dir/.names"
            ln -s "$root" "$dir/.names/root"
            ln -s "$HOLDFAST" "$dir/.names/holdfast"
            root=$dir/.names/root HOLDFAST=$dir/.names/holdfast
            ;;
    esac
    HOLDFAST_URL=embedded:$dir/hf
    HOLDFAST_CONFIG=/dev/null # not what this machine has
    export HOLDFAST_URL HOLDFAST_CONFIG
    unset HOLDFAST_PASSWORD HOLDFAST_HELD
    [ -z "${HF_TEST_SERVER:-}" ] || export HOLDFAST_SERVER="${HOLDFAST_SERVER:-$HF_TEST_SERVER}"
    # shellcheck source=/dev/null
    . "$root/$2"
    cd "$dir"
    : > out
    : > err
    "$3"
    exit 0
fi

file=$1
HOLDFAST=${HOLDFAST:-$PWD/build/holdfast}
export HOLDFAST
passed=0 failed=0 skipped=0 n=0
all=$(sed -n 's/^\(test_[A-Za-z0-9_]*\)().*/\1/p' "$file")
[ -n "$all" ] || { echo "# no tests in $file"; exit 1; } # a wrong name passes nothing
tests=$(echo "$all" | grep -F -e "${2:-}" || true)
if [ -n "${T_PART:-}" ]; then # 2/3: every third test, from the second on
    tests=$(echo "$tests" | awk -v part="${T_PART%/*}" -v parts="${T_PART#*/}" \
        '(NR - 1) % parts == part - 1')
    unset T_PART # not for what they start
fi
# shellcheck disable=SC2086 # a list of words
set -- $tests
echo "1..$#"
for t; do
    n=$((n + 1))
    dir=$(mktemp -d "${TMPDIR:-/tmp}/hft.XXXXXX")
    status=0
    start=$(date +%s%3N)
    timeout -k 5 "${TEST_SECONDS:-180}" sh -eu "$0" --one "$file" "$t" "$dir" 2>&1 || status=$?
    end_leftovers "$dir"
    took="($(($(date +%s%3N) - start)) ms)"
    # holdfast ends with 77 and 78, too, and a test with the status of what failed in it.
    [ "$status" != 77 ] || [ -e "$dir/.skip" ] || status='77, but nothing was skipped'
    [ "$status" != 78 ] || [ -e "$dir/.left_out" ] || status='78, but nothing was left out'
    case $status in
        0)
            echo "ok $n - ${t#test_} $took"
            passed=$((passed + 1))
            ;;
        77)
            echo "ok $n - ${t#test_} # SKIP $(cat "$dir/.skip")"
            skipped=$((skipped + 1))
            ;;
        78) echo "ok $n - ${t#test_} # left out: $(cat "$dir/.left_out")" ;;
        *)
            [ "$status" != 124 ] || echo "# not finished after ${TEST_SECONDS:-180} s"
            for log in "$dir"/*/log "$dir"/*/*.log; do
                [ ! -f "$log" ] || tail -n 40 "$log" | sed 's/^/# log: /'
            done
            echo "not ok $n - ${t#test_} (exit status $status)"
            failed=$((failed + 1))
            ;;
    esac
    rm -rf "$dir" || { end_leftovers "$dir"; rm -rf "$dir"; } # a server that was just starting
done
echo "# passed $passed failed $failed skipped $skipped"
[ "$failed" = 0 ]
