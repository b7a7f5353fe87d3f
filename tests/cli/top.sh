# SPDX-License-Identifier: MIT
# top.sh - the screen of holdfast top, driven in tmux.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

# shellcheck source=/dev/null
. "$root/tests/harness/tmux.sh"
# shellcheck source=/dev/null
. "$root/tests/harness/forge.sh"

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
    # shellcheck disable=SC2317 # called in conditions
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

test_a_deadlock_comes_first() {
    forge_deadlock
    held quiet
    waiter quiet 1
    waiter quiet 2
    on_screen 80 24
    top
    wait_until 'shows "DEADLOCK: 2 locks"'
    expect_eq "$(screen | sed -n '4,6s/^\(.\)\([a-z]*\).*/\1\2/p' | tr '\n' ' ')" '!a !b  quiet '
    keys Enter
    wait_until 'shows "^DEADLOCK: its holder waits" && shows "waits for b"'
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
    wait_until 'screen | tr -d "\n" | grep -q "top needs the library libncursesw.*libncursesw6)"'
}
