# SPDX-License-Identifier: MIT
# web.sh - for tests of holdfast web: one that serves, and requests by curl.
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
