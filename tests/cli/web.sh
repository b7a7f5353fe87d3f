# SPDX-License-Identifier: MIT
# web.sh - holdfast web as programs see it: what it answers, and what reaches a browser.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

# shellcheck source=/dev/null
. "$root/tests/harness/web.sh"

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

test_the_state() {
    held deploy --info 'release 42'
    "$HOLDFAST" run --info second deploy -- sleep 1000 > /dev/null 2>&1 &
    wait_until '"$HOLDFAST" status deploy | grep -q second'
    serve
    expect_status 200 /api/state
    jq -e '.schema == "holdfast.state/1" and .looked and .error == null and .locks_total == 1
        and .waiting == 1 and (.partial | not) and .allow_break == false
        and (.locks[0] | .name == "deploy" and .kind == "mutex" and .held
            and .holders[0].info == "release 42" and .waiters[0].info == "second"
            and .holders[0].fence > 0 and .hold_ms >= 0 and .wait_ms >= 0)
        and (.graph.edges | length == 2) and (.drawing | startswith("<svg "))' body > /dev/null ||
        { cat body; fail "not as described"; }
    # Nobody looks any more: nor does it.
    calls() {
        "$(command -v redis-cli || command -v valkey-cli)" -s hf/redis.sock info commandstats |
            sed -n 's/^cmdstat_scan:calls=\([0-9]*\),.*/\1/p'
    }
    sleep 0.5
    before=$(calls)
    [ "$before" -gt 0 ] # it did look
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
    if grep -nE '<(script|img|b)|onerror=[^a]' drawing.svg; then fail "markup"; fi
    grep -q '&lt;script&gt;' drawing.svg
    /usr/bin/python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' drawing.svg
}

test_a_lock_server_that_is_gone_is_said() {
    start_server
    HOLDFAST_URL="$SERVER_URL?timeout=1s" serve
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
    # Those it has taken: the others may wait, or be turned away.
    wait_until '[ "$(ls -l /proc/$web_pid/fd | grep -c socket:)" -ge 30 ]'
    expect_status 200 /api/state
    kill -0 $web_pid
}

test_a_machine_without_the_library() {
    mkdir empty
    : > empty/libmicrohttpd.so.12
    LD_LIBRARY_PATH=$dir/empty expect_exit 71 holdfast web --listen 0
    expect_err 'web needs the library libmicrohttpd.so.12.*apt-get install libmicrohttpd12'
}
