# SPDX-License-Identifier: MIT
# exporter.sh - holdfast exporter: what Prometheus gets, its form, and that it is bounded.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

hold() { # hold NAME: until its holder can be seen
    "$HOLDFAST" run "$@" -- sleep 1000 &
    holder=$!
    wait_until 'holdfast ls | grep -q " $holder "'
}

# The text format: HELP, TYPE, then its samples; each metric once; labels quoted; numbers.
check_format() { # check_format FILE
    awk '
        function bad(why) { print "# " FILENAME ":" NR ": " why ": " $0; failed = 1 }
        /^# HELP / { if ($3 in helped) bad("told twice"); helped[$3]; next }
        /^# TYPE / {
            if (!($3 in helped)) bad("TYPE without HELP")
            if ($4 != "gauge" && $4 != "counter" && $4 != "histogram") bad("no such type")
            now = $3
            next
        }
        {
            if (!match($0, /^[a-z_:][a-z0-9_:]*/)) bad("no name")
            if (substr($0, 1, RLENGTH) != now) bad("not under its TYPE")
            rest = substr($0, RLENGTH + 1)
            if (rest ~ /^\{/ && !match(rest, /^\{[a-z_]+="([^"\\]|\\["\\n])*"\}/)) bad("labels")
            else if (rest ~ /^\{/) rest = substr(rest, RLENGTH + 1)
            if (rest !~ /^ -?[0-9][0-9.e+-]*$/) bad("no number")
            if ($0 in seen) bad("the same twice")
            seen[$0]
        }
        END { exit failed }
    ' "$1" || fail "not the format of Prometheus"
}

value() { # value NAME: of the sample in out
    awk -v name="$1" '$1 == name { print $2 }' out
}

test_once() {
    hold a
    expect_exit 0 holdfast exporter --once
    check_format out
    expect_eq "$(value holdfast_up)" 1
    expect_eq "$(value holdfast_locks_held)" 1
    expect_eq "$(value holdfast_waiters)" 0
    expect_eq "$(value 'holdfast_lock_holders{lock="a"}')" 1
    value 'holdfast_lock_ttl_seconds{lock="a"}' | grep -Eq '^(30|[12][0-9](\.[0-9]+)?)$'
    "$HOLDFAST" run a -- true &
    waiter=$!
    wait_until 'holdfast exporter --once | grep -q "^holdfast_waiters 1$"'
    wait_until 'holdfast exporter --once | grep -Eq "^holdfast_oldest_wait_seconds [0-9.]*[1-9]"'
    expect_exit 0 holdfast exporter --once
    expect_eq "$(value 'holdfast_lock_waiters{lock="a"}')" 1
    kill $holder
    wait $waiter
    expect_exit 0 holdfast exporter --once
    check_format out
    expect_eq "$(value holdfast_locks_held)" 0
}

test_labels_are_bounded_and_the_rest_is_summed() {
    for n in 1 2 3 4 5; do
        expect_exit 0 holdfast acquire "cold$n"
    done
    hold hot
    "$HOLDFAST" run hot -- true &
    wait_until 'holdfast exporter --once | grep -q "^holdfast_waiters 1$"'
    expect_exit 0 holdfast exporter --once --max-locks 2
    check_format out
    expect_eq "$(grep -c '^holdfast_lock_holders{' out)" 2
    expect_eq "$(value 'holdfast_lock_waiters{lock="hot"}')" 1
    expect_eq "$(value holdfast_locks_held)" 6
    expect_eq "$(value holdfast_unlabelled_locks)" 4
    expect_eq "$(value holdfast_unlabelled_holders)" 4
    expect_exit 0 holdfast exporter --once 'cold*'
    expect_eq "$(value holdfast_locks_held)" 5
    kill $holder
}

test_any_name_is_a_label() {
    for name in 'a"b' 'a\b' "$(printf 'new\nline')" "$(printf '\303\244')" "$(printf 'bad\377')"; do
        expect_exit 0 holdfast acquire "$name"
    done
    expect_exit 0 holdfast exporter --once
    check_format out
    expect_eq "$(grep -c '^holdfast_lock_holders{' out)" 5
    grep -qF 'lock="a\"b"' out
    iconv -f UTF-8 -t UTF-8 out > /dev/null
}

# serve [OPTION...]: in the background; $at is where.
serve() {
    "$HOLDFAST" exporter --listen 127.0.0.1:0 "$@" > ./at 2> serve.err &
    exporter=$!
    wait_until '[ -s at ]'
    at=$(cat at)
}

test_it_is_served() {
    hold a
    serve
    expr "$at" : 'http://127\.0\.0\.1:[0-9]*/metrics$' > /dev/null
    run curl -sSi "$at"
    expect_out '^HTTP/1.1 200 '
    expect_out '^Content-Type: text/plain; version=0.0.4'
    run curl -sS "$at"
    check_format out
    expect_eq "$(value holdfast_up)" 1
    expect_eq "$(value 'holdfast_lock_holders{lock="a"}')" 1
    run curl -sS -o /dev/null -w '%{http_code}' "${at%metrics}nosuch"
    expect_out_is 404
    run curl -sS -o /dev/null -w '%{http_code}' -X POST -d x "$at"
    expect_out_is 405
    run curl -sS -o /dev/null -w '%{http_code}' -H 'Host: elsewhere.example' "$at"
    expect_out_is 403
    kill $holder $exporter
    wait $exporter || fail "it did not end well: $?"
}

test_a_server_that_is_gone_is_told() {
    start_server
    HOLDFAST_URL="$SERVER_URL?timeout=500ms"
    serve
    run curl -sS "$at"
    expect_eq "$(value holdfast_up)" 1
    kill -9 "$SERVER_PID"
    sleep 0.6
    run curl -sS "$at"
    check_format out
    expect_eq "$(value holdfast_up)" 0
    expect_eq "$(grep -c '^holdfast_locks' out)" 0
    expect_exit 69 holdfast exporter --once
    kill $exporter
}

test_beyond_loopback_it_needs_a_token() {
    expect_exit 64 holdfast exporter --listen 0.0.0.0:0
    expect_err 'can be reached from other machines'
    expect_exit 64 holdfast exporter
    expect_exit 64 holdfast exporter --listen nosuch
    expect_exit 64 holdfast exporter --listen 127.0.0.1:0 --once
    expect_exit 64 holdfast exporter --once a b
    expect_exit 64 holdfast exporter --once --max-locks 10001
    (umask 077; echo 0123456789abcdef > token)
    serve --token-file token
    run curl -sS -o /dev/null -w '%{http_code}' "$at"
    expect_out_is 401
    run curl -sS -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer 0123456789abcdef' "$at"
    expect_out_is 200
    kill $exporter
}

# What the alerts and the dashboard ask for is what the exporter tells.
test_alerts_and_dashboard_name_what_there_is() {
    hold a
    expect_exit 0 holdfast exporter --once
    sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' out | sort > told
    jq -e '.panels | length > 5 and all(.title != "" and (.targets | length > 0))' \
        "$root/share/grafana/holdfast.json" > /dev/null
    jq -r '.. | .expr? // empty' "$root/share/grafana/holdfast.json" > asked
    sed -n 's/^ *expr: //p' "$root/share/prometheus/holdfast.rules.yml" >> asked
    grep -o 'holdfast_[a-z_]*' asked | sort -u > names
    [ "$(wc -l < names)" -gt 8 ]
    comm -23 names told > missing
    [ ! -s missing ] || fail "nobody tells: $(tr '\n' ' ' < missing)"
    while read -r metric; do
        grep -qF "\`$metric" "$root/docs/metrics.md" ||
            fail "docs/metrics.md says nothing of $metric"
    done < told
    kill $holder
}

test_prometheus_accepts_them() {
    command -v promtool > /dev/null || left_out "promtool is not here (Debian: prometheus)"
    hold 'a"b'
    expect_exit 0 promtool check rules "$root/share/prometheus/holdfast.rules.yml"
    holdfast exporter --once > metrics
    promtool check metrics < metrics
    kill $holder
}
