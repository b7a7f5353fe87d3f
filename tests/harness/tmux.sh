# SPDX-License-Identifier: MIT
# tmux.sh - for tests of holdfast top: a terminal by tmux, its keys and its screen.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

tm() {
    tmux -S "$dir/tmux" -f /dev/null "$@"
}
# on_screen WIDTH HEIGHT: a shell in a terminal of that size.
on_screen() {
    command -v tmux > /dev/null || skip "tmux is missing: apt-get install tmux"
    LC_ALL=C.UTF-8 tm new-session -d -x "$1" -y "$2" \
        "exec env -u TMUX PS1='ready> ' bash --norc --noprofile"
    wait_until 'shows "ready>"'
}
keys() {
    tm send-keys "$@"
}
screen() {
    tm capture-pane -p
}
shows() {
    screen | grep -Eq -e "$1"
}
top() { # top [ARG...]: started, and it has looked
    keys -l "stty -g > before; '$HOLDFAST' top $*; echo status=\$? > status; stty -g > after"
    keys Enter
    wait_until 'shows "hand-overs/s"'
}
# The terminal is as it was: its settings, its cursor, and not the other screen.
ended() { # ended STATUS
    wait_until '[ -s after ]'
    expect_eq "$(cat status)" "status=$1"
    cmp before after || fail "the terminal is not as it was"
    expect_eq "$(tm display-message -p '#{alternate_on} #{cursor_flag}')" '0 1'
    wait_until 'shows "ready>"'
}
# held NAME: by somebody else, until the test ends.
held() {
    name=$1
    "$HOLDFAST" run "$@" -- sleep 1000 > /dev/null 2>&1 &
    wait_until '"$HOLDFAST" held "$name"'
}
waiter() { # waiter NAME HOW-MANY-THEN
    "$HOLDFAST" run "$1" -- sleep 1000 > /dev/null 2>&1 &
    wait_until "[ \"\$(\"$HOLDFAST\" status $1 -o jsonl | jq .waiters_total)\" = $2 ]"
}
top_pid() {
    pgrep -P "$(tm display-message -p '#{pane_pid}')"
}
