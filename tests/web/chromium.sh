# SPDX-License-Identifier: MIT
# chromium.sh - the page of holdfast web in a headless Chromium (make test-web). The screenshots are
# in build/web afterwards.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

# shellcheck source=/dev/null
. "$root/tests/harness/forge.sh"

bg() {
    "$@" > /dev/null 2>&1 &
}
# scene: some locks, held and waited for, with names and records that would like to be markup.
scene() {
    bg "$HOLDFAST" run --info 'release 42' deploy -- sleep 1000
    bg "$HOLDFAST" run nightly -- sleep 1000
    bg "$HOLDFAST" run --slots 3 encoder -- sleep 1000
    bg "$HOLDFAST" run '<b>bold</b> "quoted" & odd' -- sleep 1000
    wait_until '[ "$("$HOLDFAST" ls -o jsonl | wc -l)" = 4 ]'
    bg "$HOLDFAST" run --info '<script>alert(1)</script>' deploy -- sleep 1000
    wait_until '"$HOLDFAST" status deploy | grep -q alert'
    bg "$HOLDFAST" run --info second deploy -- sleep 1000
    bg "$HOLDFAST" run '<b>bold</b> "quoted" & odd' -- sleep 1000
    bg sh -c 'while :; do "$HOLDFAST" run counter -- sleep 0.3; done'
    bg sh -c 'while :; do "$HOLDFAST" run counter -- sleep 0.3; done'
}
serve() { # serve [OPTION...]: $web is its URL
    command -v chromium > /dev/null || skip "chromium is missing: apt-get install chromium"
    "$HOLDFAST" web --listen 127.0.0.1:0 "$@" > url 2> web.err &
    web_pid=$!
    wait_until '[ -s url ]'
    web=$(cat url)
}
page() { # page WHAT
    mkdir -p "$root/build/web"
    run /usr/bin/python3 "$root/tests/web/page.py" "$(command -v chromium)" "$dir/profile" \
        "$root/build/web" "$1" "$web"
    [ "$status" = 0 ] || { show; fail "the page: $1"; }
}

test_the_page() {
    scene
    serve --allow-break
    page all
    kill $web_pid
    wait $web_pid
}

test_a_lock_server_that_is_gone() {
    start_server
    HOLDFAST_URL="$SERVER_URL?timeout=1s" serve
    kill -9 $SERVER_PID
    page away
}

test_a_deadlock() {
    forge_deadlock
    serve
    page deadlock
}
