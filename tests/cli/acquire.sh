# SPDX-License-Identifier: MIT
# acquire.sh - acquire, extend, check, release: locks by owner id.

cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}
gone() {
    ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2> /dev/null
}

test_cycle() {
    expect_exit 0 holdfast acquire a --ttl 20s
    expect_out '^owner=[^ ]+ fence=[0-9]+$'
    owner=$(sed 's/owner=\([^ ]*\) .*/\1/' out)
    expect_exit 0 holdfast check a --owner "$owner"
    expect_out '^held ttl=[0-9]+ms$'
    expect_exit 0 holdfast check -q a --owner "$owner"
    expect_no_out
    expect_exit 75 holdfast acquire -n a
    expect_exit 75 holdfast run -n a -- true
    expect_exit 0 holdfast extend a --owner "$owner" --ttl 1000s
    [ "$(cli pttl lock:a)" -gt 900000 ]
    expect_exit 64 holdfast extend a --owner "$owner" --ttl 5s # never shortens
    expect_err '^holdfast: the lease of "a" lasts for another 9[0-9]* ms, longer than the 5000 '
    expect_err 'nothing was changed$'
    expect_exit 64 holdfast extend a --owner "$owner" --ttl 5s -o json
    expect_no_out
    [ "$(cli pttl lock:a)" -gt 900000 ]
    expect_exit 0 holdfast release a --owner "$owner"
    expect_exit 82 holdfast release a --owner "$owner"
    expect_exit 82 holdfast extend a --owner "$owner" --ttl 5s
    expect_exit 82 holdfast check a --owner "$owner"
    expect_exit 0 holdfast acquire -n a
}

# The transcript of the requirement documents: acquire('lock', 10086, 'moto') and so on.
test_owner_chosen_by_the_caller() {
    expect_exit 0 holdfast acquire lock -n --ttl 10086 --owner moto
    expect_out '^owner=moto fence='
    expect_eq "$(cli get lock:lock)" moto
    expect_exit 75 holdfast acquire lock -n --ttl 123 --owner nokia
    expect_exit 82 holdfast release lock --owner nokia
    expect_eq "$(cli get lock:lock)" moto
    expect_exit 0 holdfast release lock --owner moto
    expect_eq "$(cli exists lock:lock)" 0
}

test_left_to_its_ttl() {
    expect_exit 0 holdfast acquire a --ttl 4s
    expect_exit 75 holdfast run -n a -- true
    expect_exit 0 holdfast run -w 60 a -- true
}

test_waits_like_run() {
    expect_exit 0 holdfast acquire a --ttl 600ms
    expect_exit 0 holdfast acquire a -w 20
    expect_exit 75 holdfast acquire a -w 1500ms
    expect_err 'not obtained within 1.5s'
    expect_exit 3 holdfast acquire a -n -E 3
    expect_exit 0 holdfast acquire a -n --skip-ok
    expect_no_out
    expect_no_err
}

test_wait_ended_by_a_signal() {
    expect_exit 0 holdfast acquire a --ttl 10m
    "$HOLDFAST" acquire a > out 2> err &
    pid=$!
    wait_until '[ "$(cli zcard "{lock:a}:q")" = 1 ]'
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    expect_eq $status 143
    expect_no_out
}

test_json() {
    expect_exit 0 holdfast acquire a --ttl 9s --json --owner 'me "and" you'
    jq -e '.name == "a" and .owner == "me \"and\" you" and
        (.fence | type) == "number" and .ttl_ms == 9000' < out > /dev/null
    expect_exit 0 holdfast acquire b -o jsonl
    jq -e '.name == "b"' < out > /dev/null
    expect_exit 0 holdfast check a --owner 'me "and" you' -o json
    jq -e '.held and .ttl_ms > 0' < out > /dev/null
    expect_exit 82 holdfast check a --owner other -o json
    jq -e '.held == false and .ttl_ms == null' < out > /dev/null
    expect_exit 0 holdfast extend a --owner 'me "and" you' --ttl 20s -o json
    jq -e '.extended and .ttl_ms == 20000' < out > /dev/null
    expect_exit 0 holdfast release a --owner 'me "and" you' -o json
    jq -e '.released == 1' < out > /dev/null
}

test_sh_survives_eval() {
    name="it's \$(touch boom) \`touch boom\`
line"
    expect_exit 0 holdfast acquire --sh "$name" --ttl 9s --owner "o'wner"
    eval "$(cat out)"
    expect_eq "$HOLDFAST_NAME" "$name"
    expect_eq "$HOLDFAST_OWNER" "o'wner"
    expect_eq "$HOLDFAST_TTL_MS" 9000
    [ "$HOLDFAST_FENCE" -gt 0 ]
    [ ! -e boom ]
    # shellcheck disable=SC2016
    expect_eq "$(sh -c 'echo $HOLDFAST_TTL_MS')" 9000
    expect_exit 0 holdfast release "$HOLDFAST_NAME" --owner "$HOLDFAST_OWNER"
}

# ---- eval "$(holdfast acquire --sh)" never goes on without the lock ----

shells() {
    for sh in dash bash zsh ksh mksh 'busybox sh'; do
        # shellcheck disable=SC2086 # a word or two
        ! command -v ${sh% *} > /dev/null || echo "$sh"
    done
}

# script STATUS ARG...: every shell ends with STATUS at the eval, with and without set -e, also in a
# function, and before anything else is printed.
script() {
    want=$1
    shift
    cat > plain.sh << EOF
eval "\$('$HOLDFAST' $*)"
echo went on
EOF
    cat > function.sh << EOF
f() {
    eval "\$('$HOLDFAST' $*)"
    echo went on
}
f || echo went on
EOF
    { echo set -e; cat plain.sh; } > errexit.sh
    shells > list
    [ -s list ]
    while read -r sh; do
        for s in plain.sh function.sh errexit.sh; do
            # shellcheck disable=SC2086 # a word or two
            expect_exit "$want" $sh $s
            expect_no_out
            [ "$want" = 0 ] || expect_err '^holdfast: '
        done
    done < list
}

test_sh_failed_ends_the_script() {
    expect_exit 0 holdfast acquire busy --ttl 10m
    script 75 acquire -n --sh busy
    script 75 acquire -w 700ms --sh busy
    script 3 acquire -n -E 3 busy --sh
    script 75 acquire -n --sh --hold-pid $$ busy
    script 69 --url "unix://$dir/nobody.sock" acquire -n a --sh
    script 69 --url "unix://$dir/nobody.sock" acquire -w 100ms a --sh --hold-pid $$
    script 78 --url ftp://somewhere acquire a --sh
}

test_sh_usage_error_ends_the_script() {
    script 64 acquire --sh
    script 64 acquire --sh --nosuch a
    script 64 acquire --nosuch --sh a
    script 64 acquire a --ttl x --sh
    script 64 acquire --sh --json a
    script 64 acqiure a --sh
    script 64 --nosuch acquire a --sh
}

test_sh_skipped_ends_the_script_with_0() {
    expect_exit 0 holdfast acquire busy --ttl 10m
    script 0 acquire -n --skip-ok --sh busy
    script 0 acquire -q -n -E 0 --sh busy
    script 0 acquire -n --skip-ok --sh --hold-pid $$ busy
}

test_sh_ended_by_a_signal_ends_the_script() {
    expect_exit 0 holdfast acquire busy --ttl 10m
    "$HOLDFAST" acquire busy --sh > line 2> err &
    pid=$!
    wait_until '[ "$(cli zcard "{lock:busy}:q")" = 1 ]'
    kill -TERM $pid
    wait $pid || true
    expect_exit 143 sh -c 'eval "$(cat line)"; echo went on'
    expect_no_out
}

test_sh_got_the_lock_goes_on() {
    shells > list
    while read -r sh; do
        # shellcheck disable=SC2086,SC2016 # a word or two; for the inner shell
        expect_exit 0 $sh -c 'eval "$("$HOLDFAST" acquire -n --sh --hold-pid $$ a)"
            "$HOLDFAST" release a --owner "$HOLDFAST_OWNER" && echo "went on"'
        expect_out_is 'went on'
    done < list
}

test_sh_failed_keeps_an_interactive_shell_open() {
    expect_exit 0 holdfast acquire busy --ttl 10m
    cat > sourced << 'EOF'
eval "$("$HOLDFAST" acquire -n --sh busy)"
echo sourced went on
EOF
    cat > typed << 'EOF'
eval "$("$HOLDFAST" acquire -n --sh busy)"
echo status $?
eval "$("$HOLDFAST" acquire -n --skip-ok --sh busy)"
echo skipped $?
EOF
    cat > returns << 'EOF'
f() { eval "$("$HOLDFAST" acquire -n --sh busy)"; echo f went on; }
f
echo f $?
. ./sourced
echo sourced $?
EOF
    # stdin is no terminal: -i is what makes it interactive.
    for sh in dash 'bash --norc --noprofile'; do
        # shellcheck disable=SC2086 # several words
        $sh -i < typed > out 2> err
        expect_out '^status 75$'
        expect_out '^skipped 75$'
    done
    bash --norc --noprofile -i < returns > out 2> err
    expect_out_is 'f 75
sourced 75'
}

# What the manual and README.md show: the status is looked at first, so that a program that is not
# there, or was killed, ends the script too.
test_sh_idiom_of_the_manual() {
    expect_exit 0 holdfast acquire busy --ttl 10m
    for program in "$HOLDFAST" nosuchprogram; do
        want=75
        [ "$program" != nosuchprogram ] || want=127
        cat > idiom.sh << EOF
lock=\$($program acquire -n --sh busy) || exit
eval "\$lock"
echo went on
EOF
        expect_exit $want sh idiom.sh
        expect_no_out
    done
    for page in README.md man/holdfast.1; do
        grep -q '^lock=$(holdfast acquire .* --sh) || exit$' "$root/$page" || fail "not in $page"
        if grep -F 'eval "$(holdfast' "$root/$page"; then fail "in $page"; fi
    done
}

test_sh_only_acquire_prints_the_line() {
    expect_exit 64 holdfast run a -- sh -c 'exit 64' --sh
    expect_no_out
    expect_exit 64 holdfast run --nosuch a -- echo --sh
    expect_no_out
    expect_exit 64 holdfast acquire --nosuch a
    expect_no_out
    expect_exit 0 holdfast acquire --sh --help
    if grep -q 'case \$-' out; then fail "a line for eval in the help"; fi
}

test_release_all() {
    for n in a b c; do
        expect_exit 0 holdfast acquire $n --owner me
    done
    expect_exit 0 holdfast acquire d --owner other
    expect_exit 0 holdfast release --all --owner me
    expect_out_is 'released 3'
    expect_exit 0 holdfast release --all --owner me
    expect_out_is 'released 0'
    expect_exit 0 holdfast check d --owner other
    expect_exit 0 holdfast release --all --owner other -o json
    jq -e '.released == 1' < out > /dev/null
}

test_lock_nobody_heard_of_is_released() {
    status=0
    "$HOLDFAST" acquire a > /dev/full 2> err || status=$?
    expect_eq $status 74
    expect_exit 0 holdfast run -n a -- true
    sleep 1000 &
    status=0
    "$HOLDFAST" acquire a --hold-pid $! > /dev/full 2> err || status=$?
    expect_eq $status 74
    wait_until 'holdfast run -n a -- true 2> /dev/null'
    kill $!
}

# ---- --hold-pid ----

test_hold_pid_renews_until_the_process_ends() {
    sleep 1000 &
    job=$!
    expect_exit 0 holdfast acquire a --ttl 4s --hold-pid $job
    expect_out '^owner=[^ ]+ fence=[0-9]+$'
    sleep 5
    expect_exit 75 holdfast run -n a -- true
    expect_err 'sleep \(for pid '
    kill $job
    wait $job || true
    wait_until 'holdfast run -n a -- true 2> /dev/null' 5
}

test_hold_pid_lets_command_substitution_end() {
    before=$(date +%s%N)
    out=$(holdfast acquire a --hold-pid $$ --sh 2>&1)
    took=$((($(date +%s%N) - before) / 1000000))
    eval "$out"
    at_most 5000 $took "it took"
    expect_exit 0 holdfast check a --owner "$HOLDFAST_OWNER"
    expect_exit 0 holdfast release a --owner "$HOLDFAST_OWNER"
}

test_hold_pid_busy_and_waiting() {
    expect_exit 0 holdfast acquire a --ttl 4s
    expect_exit 75 holdfast acquire a -n --hold-pid $$
    expect_err 'a is held by'
    expect_exit 0 holdfast acquire a -w 60 --hold-pid $$
    expect_out '^owner='
}

test_hold_pid_of_no_process() {
    sleep 0 &
    job=$!
    wait $job
    expect_exit 64 holdfast acquire a --hold-pid $job
    expect_err "there is no process $job"
    expect_exit 0 holdfast run -n a -- true
}

test_hold_pid_is_plain_decimal() {
    for pid in 010 0$$ 00 0x$$ +$$ " $$" "$$ " $$x -1 '' 99999999999; do
        expect_exit 64 holdfast acquire a --on-lost ignore "--hold-pid=$pid"
        expect_err 'hold-pid'
    done
    expect_exit 0 holdfast run -n a -- true
}

# What must not be ended when a lock is lost; nor is it should this test fail.
test_hold_pid_of_init_or_of_the_kernel() {
    expect_exit 64 holdfast acquire a --on-lost ignore --hold-pid 1
    expect_err 'process 1 is the init'
    # In a container there may be none of them to be seen.
    thread=$(awk '{ sub(/.*\) /, ""); split($0, w)
        if (int(w[7] / 2097152) % 2) { split(FILENAME, p, "/"); print p[3]; exit } }' \
        /proc/[0-9]*/stat 2> /dev/null) || true # a process may end while it is read
    if [ -n "$thread" ]; then
        expect_exit 64 holdfast acquire a --on-lost ignore --hold-pid "$thread"
        expect_err "$thread is a thread of the kernel"
    fi
    expect_exit 0 holdfast run -n a -- true
}

test_hold_pid_release_ends_the_keeper_and_nothing_else() {
    sleep 1000 &
    job=$!
    expect_exit 0 holdfast acquire a --ttl 4s --hold-pid $job --owner me
    expect_exit 0 holdfast release a --owner me
    sleep 1.2
    if gone $job; then fail "the process was signalled"; fi
    expect_exit 0 holdfast run -n a -- true
    kill $job
}

test_P5_hold_pid_loss_ends_the_process() {
    sleep 1000 &
    job=$!
    expect_exit 0 holdfast acquire a --ttl 3s --hold-pid $job
    cli del lock:a > /dev/null
    status=0
    wait $job || status=$?
    expect_eq $status 143
    (
        trap '' TERM
        exec sleep 1000
    ) &
    job=$!
    expect_exit 0 holdfast acquire a --ttl 3s --hold-pid $job
    cli del lock:a > /dev/null
    status=0
    wait $job || status=$?
    expect_eq $status 137
}

# Nobody stands behind the keeper: it is its own kill that must come before others may take over,
# however much time there was for the process to end by itself.
test_P5_hold_pid_kill_after_is_cut_by_the_grace() {
    (
        trap '' TERM
        exec sleep 1000
    ) &
    job=$!
    expect_exit 0 holdfast acquire a --ttl 3h --grace 2s --kill-after 1h --hold-pid $job
    server=$(cli info server | tr -d '\r' | sed -n 's/^process_id://p')
    kill -STOP "$server"
    wait_until 'gone $job'
    kill -CONT "$server"
    status=0
    wait $job || status=$?
    expect_eq $status 137
}

test_hold_pid_on_lost_ignore() {
    sleep 1000 &
    job=$!
    expect_exit 0 holdfast acquire a --ttl 2s --on-lost ignore --hold-pid $job
    cli del lock:a > /dev/null
    sleep 2.5
    if gone $job; then fail "the process was signalled"; fi
    kill $job
}

# The keeper goes to the root folder, and starts the embedded server again from there.
test_hold_pid_finds_the_server_program_that_was_named_from_here() {
    ln -s "${HOLDFAST_SERVER:-$(server_program)}" redis-server
    export HOLDFAST_SERVER=./redis-server
    sleep 1000 &
    job=$!
    expect_exit 0 holdfast acquire a --ttl 1m --hold-pid $job
    wait_until '[ -s hf/server.pid ]'
    old=$(cat hf/server.pid)
    kill -9 "$old"
    # Nobody else asks: the keeper alone starts it.
    wait_until '[ "$(cat hf/server.pid)" != "$old" ]' 20
    wait_until '[ "$(cli exists lock:a 2> /dev/null)" = 1 ]'
    if gone $job; then fail "the process was signalled"; fi
    kill $job
}

test_hold_pid_max_run_and_hold_min() {
    sleep 1000 &
    job=$!
    expect_exit 0 holdfast acquire a --max-run 300ms --hold-min 5s --hold-pid $job
    status=0
    wait $job || status=$?
    expect_eq $status 143
    expect_exit 75 holdfast run -n a -- true
    expect_exit 0 holdfast run -w 20 a -- true
}

test_hold_pid_wait_ended_by_a_signal_leaves_nothing() {
    expect_exit 0 holdfast acquire a --ttl 100s
    owner=$(sed 's/owner=\([^ ]*\) .*/\1/' out)
    "$HOLDFAST" acquire a --hold-pid $$ > out 2> err &
    pid=$!
    # Before it stands there, it would die of the signal, with the same status.
    wait_until '[ "$(cli zcard "{lock:a}:q")" = 1 ]'
    kill -TERM $pid
    status=0
    wait $pid || status=$?
    expect_eq $status 143
    expect_no_out
    expect_eq "$(cli zcard '{lock:a}:q')" 0
    expect_exit 0 holdfast release a --owner "$owner"
    expect_exit 0 holdfast run -n a -- true
}

test_keeper_keeps_no_descriptor_of_ours() {
    mkfifo pipe
    sleep 1000 &
    job=$!
    (
        exec 9> pipe
        holdfast acquire a --hold-pid $job > /dev/null
    ) &
    # Its end of file comes although the keeper lives.
    timeout 10 cat pipe
    expect_exit 75 holdfast run -n a -- true
    kill $job
}
