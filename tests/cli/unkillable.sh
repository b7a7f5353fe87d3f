# SPDX-License-Identifier: MIT
# unkillable.sh - CMD has started something that holdfast may not kill, such as a job under sudo:
# as long as that lives, nobody else gets the lock by our doing.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

# Root without the right to kill others stands for a user who runs sudo.
cannot_kill='setpriv --bounding-set=-kill --inh-caps=-kill'
as_other='setpriv --reuid=65534 --regid=65534 --clear-groups'
job="echo \$HOLDFAST_FENCE > fence; $as_other sleep 1000 & echo \$! > job.tmp; mv job.tmp job; wait"

need_root() {
    [ "$(id -u)" = 0 ] || left_out "only root can become another user"
}
gone() {
    ! grep -q '^State:.[^ZX]' "/proc/$1/status" 2> /dev/null
}
# start CMD...: in the background as $pid, with a job of another user as $job.
start() {
    rm -rf server job
    start_server
    HOLDFAST_URL=$SERVER_URL
    export HOLDFAST_URL
    : > err
    $cannot_kill "$HOLDFAST" "$@" > out 2> err &
    pid=$!
    wait_until '[ -e job ]'
    other=$(cat job)
    wait_until 'grep -q "^Uid:.65534.65534.65534" /proc/$other/status'
}
# over STATUS: it has ended with it.
over() {
    status=0
    wait $pid || status=$?
    [ "$status" = "$1" ] || { show; fail "exit status $status, want $1"; }
}
end_job() {
    if gone $other; then fail "the job has ended by itself"; fi
    kill -9 $other
}
# Nobody gets it, also when the grace and the lease that it had are over.
stays_held() {
    expect_exit 75 "$HOLDFAST" run -w 5 a -- true
    if gone $other; then fail "the job has ended by itself"; fi
}

test_the_lock_is_kept_until_what_cannot_be_killed_has_ended() {
    need_root
    start run --max-run 2s --kill-after 200ms --ttl 4s a -- sh -c "$job"
    wait_until 'grep -q "cannot be ended" err'
    expect_err '^holdfast: a: CMD or processes that it has started cannot be ended: the lock stays '
    stays_held
    kill -0 $pid
    end_job
    over 80
    expect_eq "$(ask exists lock:a)" 0
}

test_so_is_one_that_was_asked_for() {
    need_root
    start run --on-ask release --kill-after 200ms --ttl 4s a -- sh -c "$job"
    expect_exit 0 "$HOLDFAST" ask a
    wait_until 'grep -q "cannot be ended" err'
    stays_held
    end_job
    over 79
    expect_eq "$(ask exists lock:a)" 0
}

# guardian_gone: whatever it may give back is given back.
guardian_gone() {
    wait_until '! left_to_a_guardian' 20
}

test_a_signal_ends_us_and_leaves_the_lock_to_its_lease() {
    need_root
    for command in run "once --lease 10m"; do
        start $command --max-run 2s --kill-after 200ms --ttl 10m a -- sh -c "$job"
        wait_until 'grep -q "cannot be ended" err'
        kill -TERM $pid
        over 80
        guardian_gone
        stays_held
        [ "$(ask pttl lock:a)" -gt 500000 ] || fail "it has only $(ask pttl lock:a) ms"
        end_job
        kill -9 $SERVER_PID
    done
}

# CMD itself, and not only what it has started.
test_a_command_that_cannot_be_killed_keeps_its_lock_too() {
    need_root
    start run --max-run 2s --kill-after 200ms --ttl 10m a -- \
        sh -c "echo \$\$ > job.tmp; mv job.tmp job; exec $as_other sleep 1000"
    wait_until 'grep -q "cannot be ended" err'
    expect_err 'the lock stays held'
    kill -TERM $pid
    over 80
    guardian_gone
    stays_held
    end_job
}

# It does not campaign again beside that.
test_a_leader_that_lost_its_lock_leaves() {
    need_root
    start elect --kill-after 200ms --ttl 4s a -- sh -c "$job"
    ask del lock:a > /dev/null
    over 79
    expect_err 'cannot be ended, and are still there$'
    if grep -q again err; then show; fail "it campaigns again"; fi
    end_job
}

test_a_broken_lock_is_not_let_go_before() {
    need_root
    start run --kill-after 200ms --ttl 10m --grace 5s a -- sh -c "$job"
    "$HOLDFAST" break a --fence "$(cat fence)" > broken 2>&1 &
    over 79
    expect_err 'cannot be ended, and are still there'
    guardian_gone
    expect_eq "$(ask exists lock:a)" 1 # it passes after the grace, as that of a dead holder
    end_job
}

test_a_lost_lock_is_told_and_we_leave() {
    need_root
    start run --kill-after 200ms --ttl 4s a -- sh -c "$job"
    ask del lock:a > /dev/null
    over 79
    expect_err 'CMD or processes that it has started cannot be ended, and are still there$'
    end_job
}

# With hidepid= the processes of others are not in /proc, and only kill() tells that there are some.
test_what_proc_hides_is_not_taken_for_gone() {
    need_root
    start_server
    cat > inside << END
set -e
mount -t proc -o hidepid=2,gid=65532 proc /proc
setpriv --bounding-set=-kill,-sys_ptrace --inh-caps=-kill,-sys_ptrace \
    "$HOLDFAST" run --url $SERVER_URL --ttl 10m --grace 0 a -- sh -c '$job' 2> err &
pid=\$!
until [ -e job ] && grep -q "^Uid:.65534" /proc/\$(cat job)/status \
    && guard=\$(pgrep -x holdfast-guard); do sleep 0.02; done
setpriv --bounding-set=-sys_ptrace --inh-caps=-sys_ptrace \
    test ! -e /proc/\$(cat job) && : > hidden
kill -9 \$pid
while kill -0 \$guard 2> /dev/null; do sleep 0.02; done
kill -0 \$(cat job) && : > lives
END
    expect_exit 0 unshare --pid --fork --mount --propagation private sh inside
    [ -e hidden ] || fail "the job was not hidden"
    [ -e lives ] || fail "the job was not there any more"
    expect_eq "$(ask exists lock:a)" 1
}
