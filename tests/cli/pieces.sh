# SPDX-License-Identifier: MIT
# pieces.sh - the pieces of programs in the pages: those in C are C, and the commands do what they
# should. Whole programs and the blocks of the pages that teach are tried by pages.sh, recipes.sh.
# shellcheck disable=SC2016 # conditions are evaluated later

# blocks FILE FENCE: the contents of all blocks that begin with exactly this line.
blocks() {
    awk -v fence="$2" '
        /^```/ { if (inside) { inside = taken = 0 } else { inside = 1; taken = $0 == fence }; next }
        taken' "$root/$1"
}
# lines FILE: the commands of its blocks without a language, without output and comments.
lines() {
    blocks "$1" '```' | sed 's/^\$ //' | grep -E '(^|&& )holdfast [a-z]' | sed 's/  *# .*//'
}

tool_in_path() {
    mkdir bin
    ln -s "$HOLDFAST" bin/holdfast
    PATH=$dir/bin:$dir:$PATH
    export PATH
}
stub() { # stub NAME...: programs that the pages only name; each call is a line of `ran`
    for name; do
        printf '#!/bin/sh\necho %s >> "%s/ran"\necho out of %s\n' "$name" "$dir" "$name" > "$name"
        chmod +x "$name"
    done
}
ran() { # ran NAME: how often
    grep -cx "$1" "$dir/ran" || true
}
run_lines() { # run_lines FILE: one after the other
    lines "$1" > commands
    [ -s commands ] || fail "no commands in $1"
    while read -r line; do
        run sh -c "$line"
        [ "$status" = 0 ] || { show; fail "$1: $line: exit status $status"; }
    done < commands
}

# ---- C ----

# What the pieces take for granted.
prelude() {
    cat << 'END'
#include <holdfast.h>
#include <stdio.h>
#include <string.h>
struct job { hf_lock *lock; };
struct sale { long left; char text[32]; };
hf_client *c, *client;
hf_lock *lock, *from, *to;
hf_error err;
hf_err e;
uint64_t fence;
const char *text;
int stop;
struct job *j;
struct sale sale;
void one_step(uint64_t term);
void transfer(void);
void use(const void *data, size_t len);
void connect_to(const hf_leader *leader);
long number(hf_bytes text);
hf_once_fn make_report;
END
}

# Functions of a piece stay outside, the rest goes into one. Dots stand for what the reader knows.
piece() {
    sed -e 's/ || \.\.\.$/ || 0) puts("");/' -e 's/) \.\.\. */) puts(""); /' -e '/^ *\.\.\.$/d' |
        awk '/^static / { outside = 1 }
            outside { print > "outside" } !outside { print > "inside" }
            /^}/ { outside = 0 }'
}

test_the_pieces_of_c_are_c() {
    count=0
    for page in "$root"/docs/*.md; do
        page=${page#"$root/"}
        [ "$page" != docs/testing.md ] || continue # of the tests' own functions
        rm -f block.*
        awk '/^```c$/ { n++; inside = 1; next } /^```/ { inside = 0 }
            inside { print > ("block." n) }' "$root/$page"
        for b in block.*; do
            [ -f "$b" ] || continue
            : > outside
            : > inside
            piece < "$b"
            { prelude; cat outside; echo 'void f(void);'; echo 'void f(void) {'; cat inside
                echo '}'; } > piece.c
            gcc -std=c99 -fsyntax-only -Wall -Wextra -Werror -Wno-unused -Wno-unused-parameter \
                -Wno-empty-body piece.c -I"$root/include" || fail "$page, $b"
            count=$((count + 1))
        done
    done
    [ "$count" -ge 14 ] || fail "only $count pieces"
}

# ---- commands ----

test_the_commands_of_locks() {
    tool_in_path
    stub transfer report import train train-big make-report.sh curl
    for page in multi rwlock once semaphore sequence; do
        rm -f ran
        case $page in
            semaphore) # resize needs one that is held
                "$HOLDFAST" run --slots 5 gpu -- sh -c ': > up; sleep 1000' &
                wait_until '[ -e up ]'
                ;;
        esac
        run_lines "docs/$page.md"
        case $page in
            multi) expect_eq "$(ran transfer)" 1 ;;
            rwlock) expect_eq "$(ran report) $(ran import)" '1 1' ;;
            once) expect_eq "$(ran make-report.sh) $(ran curl)" '1 1' ;;
            semaphore) expect_eq "$(ran train) $(ran train-big)" '1 1' ;;
            sequence) expect_eq "$(wc -l < out | tr -d ' ')" 1000 ;;
        esac
    done
}

test_the_commands_of_latch_and_barrier() {
    tool_in_path
    stub load.sh report.sh measure.sh work.sh
    lines docs/latch.md > commands
    expect_exit 0 sh -c "$(sed -n 1p commands)"
    for _ in 1 2 3; do
        expect_exit 0 sh -c "$(sed -n 2p commands)"
    done
    expect_exit 0 sh -c "$(sed -n 3p commands)"
    expect_eq "$(ran load.sh) $(ran report.sh)" '3 1'
    lines docs/barrier.md > commands
    expect_eq "$(wc -l < commands | tr -d ' ')" 3
    while read -r line; do
        pids=
        for _ in 1 2 3 4; do
            sh -c "$line" > /dev/null &
            pids="$pids $!"
        done
        for pid in $pids; do
            wait "$pid" || fail "$line: $?"
        done
    done < commands
    expect_eq "$(ran measure.sh) $(ran work.sh)" '4 4'
}

test_the_commands_of_election_history_and_deadlock() {
    tool_in_path
    stub backup
    printf '#!/bin/sh\nexec sleep 1000\n' > scheduler
    chmod +x scheduler
    lines docs/election.md > commands
    sh -c "exec $(grep elect commands)" &
    wait_until '[ "$(sh -c "$(grep "leader scheduler *$" commands)" || true)" = 10.0.0.5:8080 ]' 30
    run_lines docs/history.md
    grep -q '^ENDED  *HOW  *HELD  *WAITED  *HOLDER' out || { show; fail "history"; }
    grep -q 'released .*backup .*exit 0' out || { show; fail "history"; }
    line=$(lines docs/deadlock.md)
    expect_exit 0 sh -c "$line"
    expect_out_is 81
    expect_err 'a deadlock: this process waits for "a", held by holdfast'
}

# ---- fencing.md: the script with another command ----

test_the_script_of_fencing_md() {
    start_server
    blocks docs/fencing.md '```lua' > guard.lua
    grep -q RPUSH guard.lua
    append() { # append NUMBER TEXT
        ask EVAL "$(cat guard.lua)" 2 newest list "$1" "$2" | tr '\n' ' '
    }
    expect_eq "$(append 41 a)" '1 '
    expect_eq "$(append 41 b)" '1 '
    expect_eq "$(append 43 c)" '1 '
    expect_eq "$(append 41 late)" '-1 43 '
    expect_eq "$(append 100 d)" '1 '
    expect_eq "$(append 99 late)" '-1 100 '
    expect_eq "$(ask LRANGE list 0 -1 | tr '\n' ' ')" 'a b c d '
}

# ---- install.md ----

test_installing_without_root() {
    awk '/^## Without root/ { here = 1 } /^## For all/ { here = 0 }
        /^```/ { inside = !inside; next } here && inside' "$root/docs/install.md" > steps
    grep -q 'PREFIX="$HOME/.local"' steps
    mkdir home
    sed "s|^make|make -C $root|; s|examples/counter.c|$root/examples/counter.c|" steps > steps.sh
    expect_exit 0 env HOME="$dir/home" sh -eu steps.sh
    expect_exit 0 env -u LD_LIBRARY_PATH ./counter
    expect_out '^1, under number'
    expect_exit 0 "$dir/home/.local/bin/holdfast" --version
}
