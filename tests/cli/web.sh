# SPDX-License-Identifier: MIT
# web.sh - holdfast web as programs see it: who is answered, what, and what reaches a browser.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

serve() { # serve [OPTION...]: $web is where it listens, $token what it made up
    : > url
    "$HOLDFAST" web --listen 127.0.0.1:0 --every 200ms "$@" > url 2> web.err &
    web_pid=$!
    wait_until '[ -s url ]'
    web=$(sed 's,/#.*,,; s,/$,,' url)
    token=$(sed -n 's,.*#token=,,p' url)
}
get() { # get PATH [OPTION...]: to the files head and body; $status is that of HTTP
    path=$1
    shift
    status=$(curl -s --max-time 20 -D head -o body -w '%{http_code}' "$@" "$web$path")
}
expect_status() { # expect_status CODE PATH [OPTION...]
    want=$1
    shift
    get "$@"
    [ "$status" = "$want" ] || { cat head body; fail "HTTP $status, want $want: $*"; }
}
held() {
    "$HOLDFAST" run "$@" -- sleep 1000 > /dev/null 2>&1 &
    name=$1
    wait_until '"$HOLDFAST" held "$name"'
}
secret=0123456789abcdef.secret

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

test_it_ends_by_a_signal_even_while_somebody_looks() {
    for sig in TERM HUP; do
        serve
        curl -sN --max-time 30 "$web/api/events" > events &
        wait_until 'grep -q "^data: " events'
        kill -$sig $web_pid
        status=0
        wait $web_pid || status=$?
        expect_eq $status 0
        if curl -s --max-time 2 "$web/"; then fail "it still listens"; fi
    done
    if [ -s web.err ]; then cat web.err; fail "it said something"; fi
}

test_the_page_and_its_headers() {
    serve
    for file in / /app.css /app.js /icon.svg; do
        expect_status 200 $file
        for h in "Content-Security-Policy: default-src 'none'; script-src 'self'" \
            'X-Content-Type-Options: nosniff' 'X-Frame-Options: DENY' 'Cache-Control: no-store' \
            'Referrer-Policy: no-referrer'; do
            grep -qF "$h" head || { cat head; fail "$file: no $h"; }
        done
        if grep -qi '^access-control' head; then fail "pages of others may read it"; fi
        cp body "got$(echo $file | tr / -)"
        [ -s "got$(echo $file | tr / -)" ] || fail "$file is empty"
    done
    grep -q '<title>holdfast</title>' got-
    # Nothing from outside, and no markup that was made of text.
    if grep -nE '(src|href)="(https?:)?//' got-*; then fail "something from outside"; fi
    if grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(' got-app.js; then
        fail "text becomes markup"
    fi
    expect_status 404 /nosuch
    expect_status 404 /../etc/passwd --path-as-is
    expect_status 404 '/app.js/'
    expect_status 405 / -X DELETE
    expect_status 404 / -X POST
    expect_status 405 /api/break
    expect_status 200 / -I
    expect_status 400 /api/break -X POST --data-binary "@$HOLDFAST"
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

test_the_state() {
    held deploy --info 'release 42'
    "$HOLDFAST" run --info second deploy -- sleep 1000 > /dev/null 2>&1 &
    wait_until '"$HOLDFAST" status deploy | grep -q second'
    serve
    expect_status 200 /api/state
    jq -e '.schema == 1 and .looked and .error == null and .locks_total == 1 and .waiting == 1
        and .allow_break == false and (.locks[0] | .name == "deploy" and .kind == "mutex" and .held
            and .holders[0].info == "release 42" and .waiters[0].info == "second"
            and .holders[0].fence > 0 and .hold_ms >= 0 and .wait_ms >= 0)
        and (.graph.edges | length == 2) and (.drawing | startswith("<svg "))' body > /dev/null ||
        { cat body; fail "not as described"; }
    # Nobody looks any more: nor does it.
    calls() {
        "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" info commandstats |
            sed -n 's/^cmdstat_scan:calls=\([0-9]*\),.*/\1/p'
    }
    sleep 0.5
    before=$(calls)
    sleep 1
    expect_eq "$(calls)" "$before"
}

test_events_come_as_they_happen() {
    serve
    curl -sN --max-time 30 "$web/api/events" > events &
    wait_until 'grep -q "^data: .*\"locks_total\":0," events'
    grep -q '^event: state$' events
    held later
    wait_until 'grep -q "\"name\":\"later\"" events'
    # Each event is one line of JSON.
    sed -n 's/^data: //p' events | sed '$d' | jq -es 'length > 0' > /dev/null
}

test_foreign_text_is_escaped() {
    name=$(printf 'x"</svg><script>alert(1)</script>&\033[2J\nend')
    held "$name" --info '<img src=x onerror=alert(2)>'
    "$HOLDFAST" run --info "\"'><b>" "$name" -- sleep 1000 > /dev/null 2>&1 &
    bytes=$(printf 'b\377\376')
    held "$bytes"
    serve
    wait_until 'get /api/state; grep -q "onerror" body && grep -q "name_hex" body &&
        [ "$(jq .waiting body)" = 1 ]'
    if grep -q "$(printf '[\001-\011\013-\037]')" body; then fail "control bytes"; fi
    jq -e '.locks[] | select(.name_hex == "62fffe")' body > /dev/null
    jq -r .drawing body > drawing.svg
    if grep -nE '<(script|img|b)|onerror=[^a]' drawing.svg | grep -v '&lt;'; then fail "markup"; fi
    grep -q '&lt;script&gt;' drawing.svg
    /usr/bin/python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' drawing.svg
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
        for wrong in "Bearer wrong" "Bearer ${secret}x" "Bearer ${secret%t}" "Bearer " \
            "Basic $secret" "$secret" "Bearer"; do
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
    if "$HOLDFAST" help break > /dev/null 2>&1; then
        expect_eq "$status" 200
        expect_exit 1 holdfast held victim
    else
        expect_eq "$status" 409
        grep -q 'this build cannot break' body
    fi
}

test_a_lock_server_that_is_gone_is_said() {
    start_server
    HOLDFAST_URL=$SERVER_URL?timeout=1s serve
    expect_status 200 /api/state
    kill -9 $SERVER_PID
    wait_until 'get /api/state; [ "$(jq -r ".error != null" body 2> /dev/null)" = true ]' 30
    jq -e '.looked' body > /dev/null
}

# Someone who sends half a request, or many, does not keep others out for long.
test_many_connections() {
    serve
    i=0
    while [ $i -lt 40 ]; do
        curl -sN --max-time 8 "$web/api/events" > /dev/null 2>&1 &
        i=$((i + 1))
    done
    sleep 0.5
    expect_status 200 /api/state
    kill -0 $web_pid
}

test_a_machine_without_the_library() {
    mkdir empty
    : > empty/libmicrohttpd.so.12
    LD_LIBRARY_PATH=$dir/empty expect_exit 71 holdfast web --listen 0
    expect_err 'web needs the library libmicrohttpd.so.12.*apt-get install libmicrohttpd12'
}
