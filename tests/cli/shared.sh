# SPDX-License-Identifier: MIT
# shared.sh - run and acquire with -s, --slots and several names; what status and ls show of them.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}
# hold TAG [OPTION...] NAME: in the background; the file TAG says that it is held. $! is its pid.
hold() {
    tag=$1
    shift
    "$HOLDFAST" run "$@" -- sh -c ": > $tag; exec sleep 1000" &
    wait_until "[ -e $tag ]"
}
queued() { # queued NAME COUNT
    wait_until "[ \"\$(cli zcard '{lock:$1}:q')\" = $2 ]"
}

# ---- readers and writers ----

test_shared_holders_run_together_and_an_exclusive_one_alone() {
    hold r1 -s a
    one=$!
    hold r2 -s a
    two=$!
    expect_exit 75 holdfast run -n a -- true
    expect_err 'a is held by .* and 1 more'
    expect_exit 0 holdfast run -n -s a -- true
    kill $one $two
    wait $one $two || true
    expect_exit 0 holdfast run -n -x a -- true
    hold w a
    expect_exit 75 holdfast run -n -s a -- true
}

test_a_waiting_writer_stops_later_readers() {
    hold r1 -s a
    reader=$!
    holdfast run a -- sh -c 'echo writer >> order' &
    queued a 1
    expect_exit 75 holdfast run -n -s a -- true
    holdfast run -s a -- sh -c 'echo reader >> order' &
    queued a 2
    kill $reader
    wait_until '[ "$(cat order 2> /dev/null | wc -l)" = 2 ]'
    expect_eq "$(tr '\n' ' ' < order)" 'writer reader '
}

# ---- semaphores ----

test_slots_run_as_many_at_once() {
    hold s1 --slots 2 a
    first=$!
    hold s2 --slots 2 a
    expect_exit 75 holdfast run -n --slots 2 a -- true
    expect_exit 64 holdfast run -n --slots 3 a -- true
    expect_err 'semaphore of 2.*3 was asked for'
    expect_exit 75 holdfast run -n a -- true
    kill $first
    wait $first || true
    expect_exit 0 holdfast run -w 5 --slots 2 a -- true
}

test_permits_are_counted_and_resize_is_for_all() {
    hold s1 --slots 4 --permits 3 a
    expect_exit 75 holdfast run -n --slots 4 --permits 2 a -- true
    expect_exit 0 holdfast resize -v a --slots 5
    expect_err 'a: 4 slots before, 5 now'
    expect_exit 0 holdfast run -n --slots 4 --permits 2 a -- true
    expect_exit 0 holdfast resize a --slots 1
    expect_exit 75 holdfast run -n --slots 4 a -- true
    hold w b
    expect_exit 75 holdfast resize b --slots 2
    expect_err 'not a semaphore'
}

test_a_permit_for_a_shell_is_released_by_its_owner_id() {
    eval "$(holdfast acquire --sh --slots 1 --ttl 60 a)"
    expect_exit 75 holdfast acquire -n --slots 1 a
    expect_exit 0 holdfast check a --owner "$HOLDFAST_OWNER"
    expect_exit 0 holdfast extend a --owner "$HOLDFAST_OWNER" --ttl 90
    expect_exit 0 holdfast release a --owner "$HOLDFAST_OWNER"
    expect_exit 82 holdfast release a --owner "$HOLDFAST_OWNER"
    expect_exit 0 holdfast acquire -n --slots 1 a
}

test_modes_that_make_no_sense_are_refused() {
    for options in '-s -x' '-s --slots 2' '--permits 2' '--slots 0' '--slots 2000000' \
        '--slots 2 --permits 3' '--slots x' '-s --owner me' '--slots 2 --owner me'; do
        expect_exit 64 holdfast run $options a -- true
        expect_no_out
    done
    expect_exit 64 holdfast resize a
    expect_exit 64 holdfast resize --slots 2
    expect_exit 64 holdfast resize a b --slots 2
}

test_fifty_jobs_never_run_more_than_three_at_once() {
    i=0
    while [ $i -lt 50 ]; do
        holdfast run --slots 3 jobs -- sh -c '
            : > in.$$; set -- in.*; echo $# >> seen; sleep 0.02; rm in.$$' &
        i=$((i + 1))
    done
    wait
    expect_eq "$(wc -l < seen)" 50
    expect_eq "$(sort -n seen | tail -n 1)" 3
}

# ---- several names ----

test_several_names_are_taken_all_or_none() {
    hold w b
    holder=$!
    expect_exit 75 holdfast run -n a,b,c -- true
    expect_err 'b is held by'
    expect_eq "$(cli exists lock:a lock:c)" 0
    holdfast run c,b,a -- sh -c 'echo $HOLDFAST_FENCE > fences' &
    queued b 1
    expect_eq "$(cli exists lock:a lock:c)" 0 # nothing is held while it waits
    expect_exit 0 holdfast run -n a,c -- true
    kill $holder
    wait_until '[ -s fences ]'
    expect_eq "$(tr ',' '\n' < fences | grep -c .)" 3
    expect_exit 0 holdfast run -n -s a,b,c -- true
}

# Every one runs, and alone: what waits in a circle is found as a deadlock, and ends with 81.
test_names_in_any_order_never_wait_in_a_circle() {
    pids=
    for i in 1 2 3 4 5 6 7 8; do
        for names in a,b,c c,a b,c,a; do
            holdfast run -w 100 $names -- 2> err.$i.$names \
                sh -ec 'mkdir in; sleep 0.01; rmdir in; echo $HOLDFAST_NAME >> ran' &
            pids="$pids $!"
        done
    done
    for pid in $pids; do
        wait $pid || fail "one ended with $?: $(cat err.*)"
    done
    expect_eq "$(sort ran | uniq -c | tr -s ' \n' ' ')" ' 8 a,b,c 8 b,c,a 8 c,a '
    expect_eq "$(cli exists lock:a lock:b lock:c)" 0
}

# ---- what others see ----

test_status_and_ls_show_every_holder() {
    hold r1 --info one -s docs
    hold r2 --info two -s docs
    hold s1 --slots 5 --permits 2 pool
    holdfast run docs -- true &
    queued docs 1
    wait_until 'holdfast status docs | grep -q two'
    wait_until 'holdfast ls | grep -Eq "^pool +semaphore 2/5 +sh "' # its details come after it
    expect_exit 0 holdfast status docs pool
    expect_out '^docs: held by 2 \(shared\)'
    expect_out 'info +one'
    expect_out 'waiters +1'
    expect_out '^pool: 2 of 5 taken \(semaphore\)'
    expect_out 'permits +2'
    expect_exit 0 holdfast ls
    expect_out '^docs +shared +sh \+1 '
    expect_out '^pool +semaphore 2/5 +sh '
    expect_exit 0 holdfast ls -o json
    expect_eq "$(jq -r '.[] | select(.name=="pool") |
        .kind, .slots, .used, .holders[0].permits' out | tr '\n' ' ')" 'semaphore 5 2 2 '
    expect_eq "$(jq -r '.[] | select(.name=="docs") | .holders_total, .waiters_total' out |
        tr '\n' ' ')" '2 1 '
}

test_status_and_ls_show_latches_barriers_and_leaders() {
    holdfast latch l --set 3
    holdfast latch l --down
    "$HOLDFAST" barrier b --count 3 &
    "$HOLDFAST" elect --value here e -- sleep 1000 &
    wait_until '[ "$(holdfast status b | head -n 1)" = "b: 1 of 3 are there (barrier)" ]'
    expect_exit 0 holdfast status l
    expect_out '^l: 2 of 3 left \(latch\)'
    wait_until 'holdfast ls | grep -q "^e  *election  *sleep"'
    expect_exit 0 holdfast ls
    expect_out '^l +latch 2/3 '
    expect_out '^b +barrier 1/3 '
    expect_exit 78 holdfast run -n l -- true
    expect_err 'l.*it is a latch'
    expect_exit 78 holdfast run -w 5 b -- true
    expect_err 'b.*it is a barrier'
    expect_exit 78 holdfast run -n -s b -- true
    expect_exit 78 holdfast run -n --slots 2 l -- true
    expect_exit 78 holdfast latch e --set 2
}
