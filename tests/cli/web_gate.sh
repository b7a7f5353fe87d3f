# SPDX-License-Identifier: MIT
# web_gate.sh - whom holdfast web answers: addresses, names, tokens, breaking.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

# shellcheck source=/dev/null
. "$root/tests/harness/web.sh"

test_where_it_listens() {
    for bad in x 127.0.0.1 127.0.0.1: :8010 127.0.0.1:99999 127.0.0.1:8x example.org:80 '[::1:80' ''
    do
        expect_exit 64 holdfast web --listen "$bad"
        expect_err 'is not an address and a port'
    done
    expect_exit 64 holdfast web
    expect_err 'where to listen is missing'
    expect_exit 64 holdfast web --listen 0 a
    expect_exit 64 holdfast web --listen 0 --every 1ms
    for beyond in 0.0.0.0:0 '[::]:0' 192.0.2.1:0; do
        expect_exit 64 holdfast web --listen $beyond
        expect_err 'can be reached from other machines: that needs --token-file'
        # What is made up is no token that somebody chose for other machines.
        expect_exit 64 holdfast web --listen $beyond --allow-break
    done
    [ ! -e hf ] || fail "a server was started for a usage error"
}

test_the_token_file() {
    echo $secret > t
    chmod 644 t
    expect_exit 78 holdfast web --listen 0 --token-file t
    expect_err 'others may read or write it: chmod 600'
    chmod 600 t
    for bad in short 'has a blank in the middle of it' '' "$(printf '%0200d' 0)"; do
        echo "$bad" > t
        expect_exit 78 holdfast web --listen 0 --token-file t
        expect_err 'cannot use the token file'
    done
    expect_exit 78 holdfast web --listen 0 --token-file nosuch
    mkfifo pipe
    expect_exit 78 timeout 10 "$HOLDFAST" web --listen 0 --token-file pipe
}

test_names_of_others_for_this_server() {
    serve --host locks.example.org
    port=${web##*:}
    for good in 127.0.0.1 "127.0.0.1:$port" localhost "LOCALHOST:$port" '[::1]' "$(hostname)" \
        locks.example.org "Locks.Example.Org:$port" 10.0.0.1; do
        expect_status 200 / -H "Host: $good"
    done
    for bad in evil.example "evil.example:$port" localhost.evil.example 127.0.0.1.evil.example \
        'localhost:x' 'xlocalhost' '' "$(printf '%0300d' 0)"; do
        for path in / /app.js /api/state /api/events; do
            expect_status 403 $path -H "Host: $bad"
        done
    done
    expect_status 403 /api/state -H 'Origin: http://evil.example'
    expect_status 403 /api/state -H 'Origin: null'
    expect_status 200 /api/state -H "Origin: $web"
}

test_a_token_is_needed_for_everything_but_the_page() {
    echo $secret > t
    chmod 600 t
    serve --token-file t
    if grep -q secret url; then fail "it is printed"; fi
    expect_status 200 /
    for path in /api/state /api/events /nosuch; do
        expect_status 401 $path
        grep -qi '^WWW-Authenticate: Bearer' head
        for wrong in "Bearer wrong" "Bearer ${secret%t}x" "Bearer ${secret}x" \
            "Bearer ${secret%t}" "Bearer " "Basic $secret" "$secret" "Bearer"; do
            expect_status 401 $path -H "Authorization: $wrong"
        done
    done
    expect_status 401 /api/break -X POST -d '{}'
    expect_status 200 /api/state -H "Authorization: Bearer $secret"
    expect_status 403 /api/break -X POST -d '{}' -H "Authorization: Bearer $secret"
    grep -q -- '--allow-break' body
    tr '\0' '\n' < /proc/$web_pid/cmdline > args
    if grep -q $secret args; then fail "others can read the token"; fi
}

test_breaking_needs_the_switch_the_token_and_the_number() {
    held victim
    fence=$("$HOLDFAST" status victim -o jsonl | jq .holders[0].fence)
    serve
    expect_status 403 /api/break -X POST -d "{\"name\":\"victim\",\"fence\":$fence}"
    kill $web_pid
    serve --allow-break
    [ ${#token} = 32 ] || fail "no token was made up"
    expect_status 401 /api/break -X POST -d "{\"name\":\"victim\",\"fence\":$fence}"
    for bad in '{}' '' '[' '{"name":"victim"}' '{"fence":5}' '{"name":"","fence":5}' \
        '{"name":"victim","fence":"5"}' '{"name":"victim","fence":-5}' \
        '{"name_hex":"zz","fence":5}' '{"name_hex":"616","fence":5}' '[1]' '"x"'; do
        expect_status 400 /api/break -X POST -d "$bad" -H "Authorization: Bearer $token"
    done
    # A page of somebody else, even with the token.
    expect_status 403 /api/break -X POST -d "{\"name\":\"victim\",\"fence\":$fence}" \
        -H "Authorization: Bearer $token" -H 'Origin: http://evil.example'
    expect_status 409 /api/break -X POST -d "{\"name\":\"victim\",\"fence\":$((fence + 1))}" \
        -H "Authorization: Bearer $token"
    expect_eq "$("$HOLDFAST" status victim -o jsonl | jq .holders[0].fence)" "$fence"
    get /api/break -X POST -d "{\"name\":\"victim\",\"fence\":$fence}" \
        -H "Authorization: Bearer $token"
    expect_eq "$status" 200
    expect_exit 1 holdfast held victim
}
