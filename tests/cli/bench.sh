# SPDX-License-Identifier: MIT
# bench.sh - holdfast bench: what a lock costs on this server.

test_it_measures_and_says_what_limits() {
    expect_exit 0 holdfast bench --time 1s
    expect_out 'a look at a lock: one round trip +[0-9]+ +[0-9]+ +[0-9]+$'
    expect_out 'acquire and release, one caller +[0-9]+ +[0-9]+ +[0-9]+ +[1-9][0-9]*$'
    expect_out 'acquire and release, 8 threads +[0-9]+ +[0-9]+ +[0-9]+ +[1-9][0-9]*$'
    expect_out 'acquire and release, 64 without blocking +[1-9][0-9]*$'
    expect_out 'from a release until the waiter has it +[1-9][0-9]* '
    expect_out 'A round trip takes [0-9]+ us'
    expect_out 'limit'
    expect_err '1 s of load'
    # Nothing of it stays.
    expect_exit 0 holdfast ls -q
    expect_eq "$(grep -c holdfast-bench out)" 0
}

test_json_has_every_part() {
    expect_exit 0 holdfast bench --time 2s -o json
    expect_eq "$(jq -r '[.round_trip, .one_caller, .threads_8, .async_64, .handover]
        | map(.count > 0) | all' < out)" true
    expect_eq "$(jq -r '.limit | . == "client" or . == "server"' < out)" true
}

test_what_is_wrong_is_said() {
    expect_exit 64 holdfast bench x
    expect_err 'takes no names'
    expect_exit 64 holdfast bench --time 2m
    expect_err '500ms to 1m'
    expect_exit 64 holdfast bench --time 10ms
    HOLDFAST_URL=redis://127.0.0.1:1 expect_exit 69 holdfast bench --time 1s
}
