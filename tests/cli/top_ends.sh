# SPDX-License-Identifier: MIT
# top_ends.sh - holdfast top in tmux: what must not spoil the terminal, servers that go away, breaks
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

# shellcheck source=/dev/null
. "$root/tests/harness/tmux.sh"

test_resize_down_to_very_little() {
    held a
    on_screen 80 24
    top
    for size in '200 50' '40 10' '20 5' '8 2' '1 1' '80 24'; do
        # shellcheck disable=SC2086 # two words
        set -- $size
        tm resize-window -x "$1" -y "$2"
        wait_until '[ "$(tm display-message -p "#{pane_width}")" = '"$1"' ]'
        sleep 0.2
        keys Enter
        keys Escape
    done
    wait_until 'shows "hand-overs/s"'
    wait_until 'shows "^ a +"'
    tm resize-window -x 150 -y 30
    wait_until 'shows "KIND"'
    keys q
    ended 0
}

test_ctrl_c_and_signals_give_the_terminal_back() {
    held a
    on_screen 80 24
    for sig in 2 15 1 3; do
        rm -f before after status
        top
        if [ $sig = 2 ]; then
            keys C-c
        else
            kill -$sig "$(top_pid)"
        fi
        ended $((128 + sig))
        keys clear Enter
        wait_until '! shows hand-overs'
    done
}

test_ctrl_z_and_fg() {
    held a
    on_screen 80 24
    top
    pid=$(top_pid)
    keys C-z
    wait_until 'grep -q "^State:.*T" /proc/$pid/status'
    wait_until 'shows "Stopped"'
    expect_eq "$(tm display-message -p '#{alternate_on} #{cursor_flag}')" '0 1'
    tm resize-window -x 100 -y 30
    keys 'fg > /dev/null' Enter
    wait_until 'shows "^ a +" && shows "q quit"'
    expect_eq "$(screen | wc -l)" 30
    keys q
    wait_until '[ -s after ]'
    cmp before after || fail "the terminal is not as it was"
}

test_a_server_that_goes_away_is_told_and_comes_back() {
    start_server
    HOLDFAST_URL="$SERVER_URL?timeout=2s"
    export HOLDFAST_URL
    held a
    on_screen 80 24
    top
    wait_until 'shows "^ a +"'
    kill -9 $SERVER_PID
    wait_until 'shows "no answer for"' 30
    keys s # keys are heeded meanwhile
    wait_until 'shows "sort: longest wait"'
    start_server
    wait_until 'shows "locks, " && ! shows "no answer for"' 30
    keys q
    ended 0
}

test_a_server_that_is_silent_does_not_keep_us() {
    start_server
    HOLDFAST_URL="$SERVER_URL?timeout=2s"
    export HOLDFAST_URL
    on_screen 80 24
    top
    kill -STOP $SERVER_PID
    sleep 1.2 # a look is under way
    keys q
    ended 0
}

test_break_needs_a_yes() {
    held victim
    waiter victim 1
    on_screen 100 24
    top
    wait_until 'shows "^ victim"'
    fence=$("$HOLDFAST" status victim -o jsonl | jq .holders[0].fence)
    keys b
    wait_until 'shows "^break victim\\?"'
    keys n Enter
    wait_until 'shows "^not broken"'
    expect_eq "$("$HOLDFAST" status victim -o jsonl | jq .holders[0].fence)" "$fence"
    keys b
    keys yes Escape # what was begun can be left
    wait_until '! shows "^break victim"'
    expect_eq "$("$HOLDFAST" status victim -o jsonl | jq .holders[0].fence)" "$fence"
    keys b
    wait_until 'shows "^break victim\\?"'
    keys yes Enter
    if "$HOLDFAST" help break > /dev/null 2>&1; then
        wait_until 'shows "^victim: broken: its holder has let go"' 20
        wait_until '[ "$("$HOLDFAST" status victim -o jsonl | jq .holders[0].fence)" != "$fence" ]'
    else
        wait_until 'shows "^victim: not broken: this build cannot"'
    fi
    keys q
    ended 0
}
