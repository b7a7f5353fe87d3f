# SPDX-License-Identifier: MIT
# recipes.sh - every shell block of the pages that teach is run as it stands.
# shellcheck disable=SC2016 # conditions are evaluated later

# blocks PAGE: each block of the language sh into block.1, block.2 ...
blocks() {
    rm -f block.*
    awk '/^```sh$/ { n++; inside = 1; next } /^```/ { inside = 0 }
        inside { print > ("block." n) }' "$root/$1"
}

run_page() { # run_page PAGE LEAST: at least so many blocks
    mkdir -p bin
    ln -sf "$HOLDFAST" bin/holdfast
    PATH=$PWD/bin:$PATH
    export PATH
    blocks "$1"
    ran=0
    for b in block.*; do
        status=0
        timeout 60 sh -eu "./$b" > out 2> err || status=$?
        [ "$status" = 0 ] || { cat "$b"; show; fail "$1, $b: exit status $status"; }
        ran=$((ran + 1))
    done
    [ "$ran" -ge "$2" ] || fail "$1: only $ran blocks"
}

test_readme_in_chinese() {
    run_page README.zh.md 1
}

# The piece of C there is a piece of a program.
test_the_c_of_the_readme_in_chinese() {
    awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$root/README.zh.md" > piece
    grep -q hf_lock_acquire piece
    { sed '/^#include/!d' piece; echo 'int main(void) {'; sed '/^#include/d' piece
        echo '    hf_lock_free(lock); hf_client_free(c); return 0; }'; } > piece.c
    gcc -std=c99 -Wall -Wextra -Werror piece.c -I"$root/include" -L"$root/build" -lholdfast -o piece
    LD_LIBRARY_PATH=$root/build expect_exit 0 ./piece
    expect_no_err
}

test_migration() {
    run_page docs/migration.md 3
}

test_stuck() {
    run_page docs/stuck.md 3
}

test_timing() {
    run_page docs/timing.md 1
}

test_recipes() {
    run_page docs/recipes.md 7
}

# The two languages have the same commands, but for the words inside them.
test_recipes_in_chinese() {
    run_page docs/recipes.zh.md 7
    for page in recipes.md recipes.zh.md; do
        grep -o '`holdfast [a-z-]*' "$root/docs/$page" | sort -u > "commands.$page"
        grep -o 'hf_[a-z_]*()' "$root/docs/$page" | sort -u > "calls.$page"
    done
    cmp commands.recipes.md commands.recipes.zh.md || fail "commands differ"
    cmp calls.recipes.md calls.recipes.zh.md || fail "calls differ"
}

# ---- the tutorial: three terminals ----

# Each terminal is a shell that reads its commands from a pipe, as from a person.
open_terminal() {
    mkfifo "terminal.$1"
    sh < "terminal.$1" > "screen.$1" 2>&1 &
}

# type_block TERMINAL FILE: returns when its commands are done, or hold or wait for a lock.
type_block() {
    cat "$2" > "text.$1"
    echo "echo '@$2'" >> "text.$1"
    case $1 in
        1) cat "text.1" >&5 ;;
        2) cat "text.2" >&6 ;;
        3) cat "text.3" >&7 ;;
    esac
    settled=0
    while [ $settled -lt 40 ] && ! grep -q "^@$2\$" "screen.$1"; do
        sleep 0.05
        settled=$((settled + 1))
    done
}

run_tutorial() { # run_tutorial PAGE
    mkdir -p bin
    ln -sf "$HOLDFAST" bin/holdfast
    PATH=$PWD/bin:$PATH
    export PATH
    awk '/^```sh [123]$/ { n++; name = sprintf("step.%02d.%s", n, $2); next }
        /^```/ { name = "" } name { print > name }' "$root/$1"
    sed -i 's/deploy -- sleep 30$/deploy -- sleep 4/' step.* # a person needs longer
    open_terminal 1
    open_terminal 2
    open_terminal 3
    exec 5> terminal.1 6> terminal.2 7> terminal.3
    for step in step.*; do
        # Where a person would look at another terminal first.
        if grep -q 'status deploy\|DEL lock:deploy' "$step"; then
            wait_until '"$HOLDFAST" held deploy'
        fi
        if grep -q holder.pid "$step" && [ "${step##*.}" = 3 ]; then
            wait_until '[ -s holder.pid ]'
        fi
        type_block "${step##*.}" "$step"
    done
    exec 5>&- 6>&- 7>&-
    last=$(printf '%s\n' step.*.1 | tail -n 1)
    wait_until "grep -q '^@$last\$' screen.1" 30
    tail -n 2 screen.1 | head -n 1 > reports
}

tutorial_is_as_written() { # PAGE, and the words of that language
    run_tutorial "$1"
    for words in "1:$2" "2:$3" "2:deploy: held" "2:$4" "2:$5" "2:made on" "3:deploy: held" "3:1" \
        "1:ok  *session" "1:unix://.*fleet.sock"; do
        grep -q -- "${words#*:}" "screen.${words%%:*}" ||
            { cat screen.*; fail "terminal ${words%%:*} does not say: ${words#*:}"; }
    done
    expect_eq "$(tr -d ' ' < reports)" 3
}

test_tutorial() {
    tutorial_is_as_written docs/tutorial.md 'lost: exit status 79' 'busy: exit status 75' \
        'my turn, under number [0-9]' 'taken over'
}

# The rights that the tutorial gives are those of acl.md.
test_tutorial_gives_the_rights_of_acl_md() {
    sed -n 's/^ACL SETUSER holdfast reset/reset/p' "$root/docs/acl.md" | sed 's/PASSWORD/secret/' |
        tr ' ' '\n' > want
    [ -s want ]
    for page in tutorial.md tutorial.zh.md; do
        sed -n '/ACL SETUSER holdfast/,/^```/p' "$root/docs/$page" | sed '1d; /^```/d' |
            tr -d "'\\\\" | tr -s ' ' '\n' | sed '/^$/d' > got
        diff want got || fail "$page"
    done
}

test_tutorial_in_chinese() {
    tutorial_is_as_written docs/tutorial.zh.md '丢锁：退出码 79' '被占用：退出码 75' \
        '轮到我了，编号 [0-9]' '接管了'
}
