# SPDX-License-Identifier: MIT
# terminal.sh - job control on a real terminal, made by script(1).
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

gone() {
    ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2> /dev/null
}
# Not a loop of the shell: one that is about to start a command by vfork(2) cannot be stopped until
# that has begun, and that may be stopped before.
forever='exec sleep 600'
stopped() {
    grep -q '^State:.*T' "/proc/$1/status"
}
# on_terminal CMD: in the background as $session; `type` writes to its keyboard.
on_terminal() {
    mkfifo keys
    # A background process of a script ignores SIGINT, and so would all that it starts.
    env --default-signal=INT,QUIT script -qefc "$1" typescript < keys > screen 2>&1 &
    session=$!
    exec 5> keys
}
keys() {
    # shellcheck disable=SC2059 # escapes are wanted
    printf "$1" >&5
}
ends() { # ends STATUS
    status=0
    wait $session || status=$?
    [ "$status" = "$1" ] || { cat screen; fail "exit status $status, want $1"; }
}
shell='bash --norc --noprofile -i'
# shell_has_heard: that its job has stopped. A shell that has not takes it for running, and fg does
# not continue it.
shell_has_heard() {
    wait_until 'keys "jobs\n"; sleep 0.1; grep -q Stopped screen'
}

test_stdin_from_the_terminal() {
    on_terminal "$HOLDFAST run a -- sh -c 'echo ready; read -r x; echo got=\$x; exit 3'"
    wait_until 'grep -q ready screen'
    keys 'hello\n'
    ends 3
    grep -q 'got=hello' screen
}

test_ctrl_c_reaches_the_command() {
    on_terminal "$HOLDFAST run a -- sh -c 'trap \"echo INT > got; exit 5\" INT
        : > up; while :; do sleep 0.05; done'"
    wait_until '[ -e up ]'
    keys '\003'
    ends 5
    [ -e got ]
    expect_exit 0 holdfast run -n a -- true
}

test_ctrl_c_ends_the_command() {
    # Not a shell: one that is about to start a command may not heed a signal until that has ended.
    on_terminal "$HOLDFAST run a -- tee up"
    wait_until '[ -e up ]'
    keys '\003'
    ends 130
    expect_exit 0 holdfast run -n a -- true
}

test_ctrl_c_ends_the_script_around_it() {
    cat > script.sh <<-END
	for i in 1 2 3; do
	    "$HOLDFAST" run a -- sh -c "echo \$i >> rounds; exec sleep 1000"
	done
	echo finished
	END
    for sh in bash sh; do
        rm -f rounds keys screen
        on_terminal "$sh script.sh"
        wait_until '[ -s rounds ]'
        keys '\003'
        wait $session || true
        expect_eq "$(cat rounds)" 1
        if grep -q finished screen; then fail "$sh went on"; fi
    done
}

test_ctrl_c_during_the_wait() {
    holdfast acquire a
    on_terminal "$HOLDFAST run a -- touch ran"
    wait_until 'grep -q "waiting for a: left behind by" screen'
    keys '\003'
    ends 130
    [ ! -e ran ]
}

test_ctrl_z_stops_both_and_fg_continues() {
    on_terminal "$shell"
    keys "$HOLDFAST run --grace 0 a -- sh -c 'echo \$PPID > parent; echo \$\$ > child; $forever'\n"
    wait_until '[ -s child ]'
    parent=$(cat parent) child=$(cat child)
    keys '\032'
    wait_until 'stopped $parent && stopped $child'
    shell_has_heard
    expect_exit 75 holdfast run -n a -- true
    keys 'fg\n'
    wait_until '! stopped $parent && ! stopped $child'
    keys '\003'
    wait_until 'gone $child'
    keys 'echo status=$?; exit\n'
    ends 0
    grep -q 'status=130' screen
}

# N17: more than two graces; somebody else waits for it all the time. A tenth of the grace is left
# to a process that wakes up, to catch up: it must be enough where much else runs.
away_for_two_graces() { # 1: it woke up too late, and has said so
    rm -f keys screen tick parent child beats second
    on_terminal "$shell"
    mkfifo tick # read with a time limit, it is a pause for which bash starts nothing
    keys "$HOLDFAST run --grace 5s a -- bash -c 'echo \$PPID > parent; echo \$\$ > child
        exec 3<> tick; while :; do read -t 0.1 -u 3 x; echo x >> beats; done'\n"
    wait_until '[ -s child ] && [ -s beats ]'
    parent=$(cat parent) child=$(cat child)
    # A zombie has ended: the first one waits for it after the release.
    "$HOLDFAST" run -w 60 a -- sh -c "grep -q '^State:.[^ZX]' /proc/$child/status && : > both
        : > second" 2> /dev/null &
    second=$!
    keys '\032'
    wait_until 'stopped $parent && stopped $child'
    sleep 11
    stopped $child || fail "CMD did not wait"
    [ ! -e second ] || fail "somebody else has got it"
    before=$(wc -l < beats)
    keys 'fg\n'
    wait_until 'gone $child || { ! stopped $parent && ! stopped $child; }'
    wait_until 'gone $child || [ "$(wc -l < beats)" -gt "$((before + 3))" ]'
    sleep 5.5 # a grace is proven again
    if gone $child; then
        cat screen
        grep -q 'stood still\|no processor time' screen || fail "the command was stopped"
        keys 'exit 0\n'
        ends 0
        wait $second
        [ ! -e both ] || fail "two had it"
        return 1
    fi
    if [ -e second ]; then cat screen; fail "somebody else has got it since"; fi
    keys '\003'
    wait_until 'gone $child'
    keys 'exit 0\n'
    ends 0
    wait $second || fail "the second one ended with $?"
    [ ! -e both ] || fail "two had it"
}

# Where a process gets no processor for that long when it wakes up, it must stop: not always.
test_ctrl_z_for_longer_than_the_grace_and_fg_goes_on() {
    away_for_two_graces || away_for_two_graces || away_for_two_graces ||
        fail "it has never gone on"
}

# Somebody continues CMD behind our back: without us it runs no longer than the grace.
test_ctrl_z_and_a_command_that_is_continued_without_us() {
    on_terminal "$shell"
    keys "$HOLDFAST run --grace 2s a -- sh -c 'echo \$PPID > parent; echo \$\$ > child; $forever'\n"
    wait_until '[ -s child ]'
    parent=$(cat parent) child=$(cat child)
    keys '\032'
    wait_until 'stopped $parent && stopped $child'
    sleep 1.5
    kill -CONT $child
    wait_until 'gone $child'
    stopped $parent || fail "it runs"
    keys 'fg\n'
    wait_until 'gone $parent'
    keys 'echo status=$?; exit\n'
    ends 0
    grep -q 'status=79' screen
    grep -q 'stood still for [0-9.]*s, too long for the grace of 2.0s' screen
}

test_suspended_beyond_its_lease_is_not_continued() {
    on_terminal "$shell"
    # A machine that stands still for two seconds does not end this before the key is pressed.
    keys "$HOLDFAST run --ttl 8s a -- sh -c 'echo \$PPID > parent; echo \$\$ > child; $forever'\n"
    wait_until '[ -s child ]'
    parent=$(cat parent) child=$(cat child)
    keys '\032'
    wait_until 'stopped $parent'
    # It is gone two seconds before the lock is free: what counts is when it was last seen alive.
    ask="$(command -v redis-cli || command -v valkey-cli) -s $dir/hf/redis.sock"
    left=8000
    wait_until 'now=$($ask pttl lock:a) && gone $child || { left=$now && false; }' 20
    [ "$(patience)" != 1 ] || [ "$left" -gt 1000 ] || fail "alive $left ms before the end"
    # Somebody else gets the lock, and what is suspended cannot come back to life beside it.
    expect_exit 0 holdfast run -w 60 a -- \
        sh -c "! kill -CONT $child 2> /dev/null || ! grep -q '^State:.[^ZX]' /proc/$child/status"
    keys 'fg\n'
    wait_until 'gone $parent'
    keys 'echo status=$?; exit\n'
    ends 0
    grep -q 'status=79' screen
    grep -q 'stood still for [0-9.]*m\{0,1\}s, too long for the lease of 8.0s' screen
}

test_background_job_reads_the_terminal_after_fg() {
    on_terminal "$shell"
    keys "$HOLDFAST run a -- sh -c 'echo \$PPID > parent; read -r x; echo \$x > got' &\n"
    wait_until '[ -s parent ]'
    parent=$(cat parent)
    wait_until 'stopped $parent'
    shell_has_heard
    keys 'fg\n'
    wait_until '! stopped $parent'
    keys 'hello\n'
    wait_until '[ -s got ]'
    expect_eq "$(cat got)" hello
    keys 'exit\n'
    ends 0
}

test_pipeline_leaves_the_terminal_to_the_others() {
    on_terminal "$shell"
    # The second command reads the keyboard while the first one runs.
    reader="sh -c 'read -r x < /dev/tty; echo \$x > got; cat'"
    keys "$HOLDFAST run a -- sh -c ': > up; exec sleep 1000' | $reader\n"
    wait_until '[ -e up ]'
    keys 'hello\n'
    wait_until '[ -s got ]'
    expect_eq "$(cat got)" hello
    # Ctrl-C still reaches the command.
    keys '\003'
    wait_until 'holdfast run -n a -- true 2> /dev/null'
    keys 'exit\n'
    wait $session || true
}

test_pipeline_command_gets_the_terminal_when_it_asks() {
    on_terminal "$shell"
    keys "$HOLDFAST run a -- sh -c ': > up; read -r x; echo \$x > got' | cat\n"
    wait_until '[ -e up ]'
    keys 'hello\n'
    wait_until '[ -s got ]'
    expect_eq "$(cat got)" hello
    keys 'exit\n'
    wait $session || true
}
