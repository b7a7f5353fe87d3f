# SPDX-License-Identifier: MIT
# sequence.sh - holdfast sequence: increasing ids, one on each line.

test_ids_count_up_without_gaps_when_each_is_asked_for() {
    for id in 1 2 3; do
        expect_exit 0 holdfast sequence orders
        expect_out_is "$id"
    done
    expect_exit 0 holdfast sequence orders --count 5
    expect_eq "$(tr '\n' ' ' < out)" "4 5 6 7 8 "
    expect_exit 0 holdfast sequence other
    expect_out_is 1
}

test_a_block_that_is_not_used_is_a_gap() {
    expect_exit 0 holdfast sequence --block 100 a
    expect_out_is 1
    expect_exit 0 holdfast sequence a
    expect_out_is 101
}

test_start_counts_once() {
    expect_exit 0 holdfast sequence a --start 1000 --count 2
    expect_eq "$(tr '\n' ' ' < out)" "1000 1001 "
    expect_exit 0 holdfast sequence a --start 5000
    expect_out_is 1002
}

test_from_time_is_the_servers_time_in_microseconds() {
    before=$(date +%s)
    expect_exit 0 holdfast sequence a --from-time
    [ "$(cat out)" -ge "${before}000000" ] || fail "not from the time: $(cat out)"
    first=$(cat out)
    expect_exit 0 holdfast sequence a --from-time
    [ "$(cat out)" -gt "$first" ] || fail "it went back"
}

test_json() {
    expect_exit 0 holdfast sequence a --count 3 -o json
    expect_out_is '{"name":"a","ids":[1,2,3]}'
    expect_exit 0 holdfast sequence a --count 2 -o jsonl
    expect_eq "$(jq -r .id < out | tr '\n' ' ')" "4 5 "
}

test_many_at_once_get_different_ids() {
    holdfast server start > /dev/null
    i=0
    while [ $i -lt 8 ]; do
        "$HOLDFAST" sequence a --count 2500 > "ids.$i" &
        i=$((i + 1))
    done
    wait
    cat ids.* > all
    expect_eq "$(sort -n all | uniq | wc -l)" 20000
    for f in ids.*; do
        sort -nc "$f" || fail "$f does not rise"
    done
}

test_what_is_wrong_is_said() {
    expect_exit 64 holdfast sequence
    expect_err "the sequence's name is missing"
    expect_exit 64 holdfast sequence a b
    for bad in 0 -1 x 1.5 ''; do
        expect_exit 64 holdfast sequence a --count "$bad"
        expect_err 'number from 1 on'
    done
    expect_exit 64 holdfast sequence a --block 1000001
    expect_exit 64 holdfast sequence a --start 9007199254740992
    expect_err 'ids end at 9007199254740991'
    expect_exit 64 holdfast sequence holdfast:x
    start_server
    ask SET lock:holdfast:seq:a nonsense > /dev/null
    expect_exit 78 holdfast --url "$SERVER_URL" sequence a
    expect_err 'not a counter; nothing was changed'
    expect_no_out
    expect_eq "$(ask GET lock:holdfast:seq:a)" nonsense
    ask SET lock:holdfast:seq:a 9007199254740991 > /dev/null
    expect_exit 78 holdfast --url "$SERVER_URL" sequence a
    expect_err 'ids end at'
}
