# SPDX-License-Identifier: MIT
# many.sh - P1 and P4 with many processes at once.

test_P1_P4_forty_processes_increment_a_file() {
    echo 0 > count
    : > fences
    # shellcheck disable=SC2016
    step='n=$(cat count); echo "$HOLDFAST_FENCE" >> fences; sleep 0.01; echo $((n + 1)) > count'
    pids=
    for _ in $(seq 40); do
        "$HOLDFAST" run counter -- sh -c "$step" &
        pids="$pids $!"
    done
    for p in $pids; do
        wait "$p"
    done
    expect_eq "$(cat count)" 40
    expect_eq "$(wc -l < fences)" 40
    # In the order in which they were written, each larger than the one before.
    sort -n -u -c fences
}
