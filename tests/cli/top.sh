# SPDX-License-Identifier: MIT
# top.sh - the screen of holdfast top, driven in tmux.
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
    pgrep -f "^$HOLDFAST top"
}

test_the_list_shows_who_holds_and_how_many_wait() {
    held quiet
    held busy
    waiter busy 1
    waiter busy 2
    on_screen 80 24
    top
    wait_until 'shows "^ busy +[a-z@0-9A-Z.:_…-]+ +2 "'
    wait_until 'shows "^ quiet +[a-z@0-9A-Z.:_…-]+ +0 "'
    shows '2 locks, 2 held, 2 waiting'
    # The busiest first; nothing is wider than the terminal.
    expect_eq "$(screen | grep -nE '^ (busy|quiet) ' | cut -d' ' -f2 | tr '\n' ' ')" 'busy quiet '
    expect_eq "$(screen | wc -l)" 24
    keys q
    ended 0
}

test_hand_overs_are_seen() {
    "$HOLDFAST" run hot -- true
    (while :; do "$HOLDFAST" run hot -- sleep 0.1; done) > /dev/null 2>&1 &
    on_screen 100 24
    top --every 200ms
    wait_until 'screen | grep -E "^ hot " | grep -q "[1-9]\.[0-9] .*[▁▂▃▄▅▆▇█]"' 20
    keys q
    ended 0
}

test_one_lock_with_its_holders_and_waiters_in_order() {
    held a --info first
    "$HOLDFAST" run --info second a -- sleep 1000 > /dev/null 2>&1 &
    wait_until '"$HOLDFAST" status a | grep -q second'
    "$HOLDFAST" run --info third a -- sleep 1000 > /dev/null 2>&1 &
    wait_until '"$HOLDFAST" status a | grep -q third'
    on_screen 80 24
    top
    keys Enter
    wait_until 'shows "^ +2\. .*third"'
    screen > seen
    expect_eq "$(grep -oE 'HOLDERS \(1\)|WAITERS \(2\)|first|second|third' seen | tr '\n' ' ')" \
        'HOLDERS (1) first WAITERS (2) second third '
    grep -Eq 'fence [0-9]{16}' seen
    keys Escape
    wait_until 'shows "NAME +HOLDER"'
    keys q
    ended 0
}

test_sort_filter_pause_help() {
    held apple
    held banana
    held cherry
    waiter cherry 1
    on_screen 80 24
    top
    first() { screen | sed -n 4p | cut -d' ' -f2; }
    wait_until '[ "$(first)" = cherry ]'
    keys s s s s
    wait_until 'shows "sort: name"'
    wait_until '[ "$(first)" = apple ]'
    keys r
    wait_until '[ "$(first)" = cherry ]'
    keys / nan
    wait_until '[ "$(first)" = banana ] && ! shows "^ apple"'
    keys Enter
    wait_until 'shows "filter: nan"'
    keys / BSpace BSpace BSpace 'c*y' Enter
    wait_until '[ "$(first)" = cherry ] && ! shows "^ banana"'
    keys Escape
    wait_until 'shows "^ banana"'
    keys p
    wait_until 'shows PAUSED'
    held dates
    sleep 1.5
    if shows '^ dates'; then fail "it is paused"; fi
    keys p
    wait_until 'shows "^ dates"'
    keys '?'
    wait_until 'shows "any key: back"'
    shows 'part of a deadlock'
    keys x
    wait_until 'shows "^ dates"'
    keys q
    ended 0
}

test_names_of_others_do_no_harm() {
    held "$(printf 'a\033[2Jb\nc<b>&')"
    held 'a name that is much longer than the column of names is and goes on'
    on_screen 80 24
    top
    wait_until 'shows "^ a.x1b.2Jb.x0ac<b>&"'
    wait_until 'shows "a name that is much .*…"'
    shows 'holdfast top'
    keys q
    ended 0
}

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
    for sig in INT TERM HUP QUIT; do
        rm -f before after status
        [ -e tmux ] || on_screen 80 24
        top
        case $sig in
            INT) keys C-c ;;
            QUIT) keys 'C-\' ;;
            *) kill -$sig "$(top_pid)" ;;
        esac
        ended $((128 + $(kill -l $sig 2> /dev/null || case $sig in
            INT) echo 2 ;; QUIT) echo 3 ;; HUP) echo 1 ;; *) echo 15 ;; esac)))
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
    HOLDFAST_URL=$SERVER_URL?timeout=2s
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
    HOLDFAST_URL=$SERVER_URL?timeout=2s
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

test_what_it_needs_is_said() {
    expect_exit 64 holdfast top
    expect_err 'needs a terminal'
    expect_exit 64 holdfast top a b
    expect_exit 64 holdfast top --every 10ms
    expect_exit 64 holdfast top -o json
    on_screen 80 24
    keys "TERM=nosuch '$HOLDFAST' top" Enter
    wait_until 'shows "cannot be drawn on"'
    # Without ncurses: what to install.
    mkdir empty
    : > empty/libncursesw.so.6
    keys clear Enter
    keys "LD_LIBRARY_PATH=$dir/empty '$HOLDFAST' top" Enter
    wait_until 'screen | tr -d "\n" | grep -q "top needs the library libncursesw.so.6.*apt-get install libncursesw6"'
}
