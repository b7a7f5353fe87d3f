# SPDX-License-Identifier: MIT
# graph.sh - who waits for whom: as text, for graphviz, as a drawing, as JSON.
# shellcheck disable=SC2016,SC2034,SC2086 # conditions are evaluated later; pids are plain words

# shellcheck source=/dev/null
. "$root/tests/harness/forge.sh"

held() {
    name=$1
    "$HOLDFAST" run "$@" -- sleep 1000 > /dev/null 2>&1 &
    wait_until '"$HOLDFAST" held "$name"'
}
waiter() { # waiter NAME INFO
    name=$1 info=$2
    "$HOLDFAST" run --info "$2" "$1" -- sleep 1000 > /dev/null 2>&1 &
    wait_until '"$HOLDFAST" status "$name" | grep -qF "$info"'
}
is_svg() {
    /usr/bin/python3 -c 'import sys, xml.dom.minidom as m
assert m.parse(sys.argv[1]).documentElement.tagName == "svg"' "$1"
}

test_nobody_waits() {
    expect_exit 0 holdfast graph
    expect_no_out
    expect_err '^holdfast: nobody waits$'
    held a
    expect_exit 0 holdfast graph -q
    expect_no_out
    expect_no_err
    expect_exit 0 holdfast graph -o json
    expect_out_is '{"schema":"holdfast.graph/1","nodes":[],"edges":[],"deadlocks":[]}'
    expect_exit 0 holdfast graph --svg
    is_svg out
    expect_exit 0 holdfast graph --dot
}

test_a_queue_in_order() {
    held a --info first
    waiter a second
    waiter a third
    held quiet
    expect_exit 0 holdfast graph
    expect_eq "$(grep -oE '\((first|second|third)\)|holds a|^    [12]\.' out | tr '\n' ' ')" \
        '(first) holds a     1. (second)     2. (third) '
    if grep -q quiet out; then fail "nobody waits for that"; fi
    expect_exit 0 holdfast graph 'b*'
    expect_no_out
    expect_exit 0 holdfast graph -o json
    jq -e '[.nodes[] | select(.type == "lock") | .name] == ["a"]
        and ([.nodes[] | select(.type == "party") | .info] | sort) == ["first", "second", "third"]
        and ([.edges[] | select(.type == "waits_for") | .place] == [1, 2])
        and ([.edges[] | select(.type == "held_by")] | length) == 1
        and .deadlocks == []' out > /dev/null || { show; fail "not as described"; }
}

test_foreign_text_does_no_harm() {
    held "$(printf 'x"</svg><script>&\\\033[2J\nend')" --info "$(printf '</title><b>\357\277\277')"
    waiter "$(printf 'x"</svg><script>&\\\033[2J\nend')" '"];} digraph'
    for form in '' --dot --svg '-o json'; do
        expect_exit 0 holdfast graph $form
        [ -s out ] || fail "nothing is printed"
        if grep -q "$(printf '[\001-\011\013-\037]')" out; then fail "control bytes"; fi
    done
    expect_exit 0 holdfast graph --svg
    is_svg out
    if grep -q '<script\|<b>' out; then fail "markup"; fi
    expect_exit 0 holdfast graph --dot
    if grep -q '[^\\]"\];} digraph' out; then fail "it ends the text"; fi
    expect_exit 0 holdfast graph
    expect_eq "$(grep -c . out)" 3
}

test_what_is_refused() {
    expect_exit 64 holdfast graph a b
    expect_exit 64 holdfast graph --dot --svg
    expect_exit 64 holdfast graph --svg -o json
    [ ! -e hf ] || fail "a server was started for a usage error"
}

test_a_deadlock_is_marked() {
    forge_deadlock
    expect_exit 0 holdfast graph
    expect_out '^deadlock:$'
    expect_eq "$(grep -c 'and waits for [ab]$' out)" 2
    expect_out '\[deadlock\]'
    expect_exit 0 holdfast graph -o json
    jq -e '(.deadlocks | length) == 1 and (.deadlocks[0] | sort) == ["a", "b"]
        and ([.edges[] | select(.deadlock)] | length) == 4' out > /dev/null ||
        { show; fail "not as described"; }
    expect_exit 0 holdfast graph --svg
    is_svg out
    expect_eq "$(grep -o 'class="line [a-z]* dead"' out | wc -l)" 4
    expect_exit 0 holdfast graph --dot
    expect_eq "$(grep -c -e '->.*color=red' out)" 4
}
