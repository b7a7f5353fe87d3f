#!/bin/sh
# SPDX-License-Identifier: MIT
# mutants.sh - take one rule away at a time, and see that a test fails.
#
#   mutants.sh [TEXT]...    those of tests/mutants whose name contains one of the texts; all
#   mutants.sh --check      only that each can still be made: its text is there, once
#
# A mutant is a file (tests/mutants/README.md): what it takes away, the file, the test that notices,
# the old text and the new one. Each is made in a copy of the tree, build/mutants/tree, which stays;
# only what its test needs is built there, and only that test is run. Before that, the same test has
# to pass without the mutant. One that survives is named, and the exit status is 1; so is one that
# cannot be made, does not compile, or whose test does not run, or ends without a word (after LIMIT
# seconds at the latest: 300, for the simulation 600). Only a test that says `not ok` kills.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
home=$top/tests/mutants
tree=$top/build/mutants/tree

# What a file of a mutant says. field NAME FILE: the rest of that line.
field() {
    sed -n "/^--- /q; s/^$1: *//p" "$2"
}

# make_it MUTANT: its file in the copy, changed; or why not, on stdout.
make_it() {
    awk -v top="$top" -v to="$tree/$(field file "$1")" -f "$top/tools/mutants.awk" "$1"
}

check_all() {
    cd "$top"
    set -- tests/mutants/*.mutant
    awk -v top=. -f tools/mutants.awk "$@" >&2 && echo "$# mutants can be made"
}

# ---- the copy ----

# What differs is copied, so that the rest need not be built again.
copy_tree() {
    mkdir -p "$tree"
    LC_ALL=C diff -rq --no-dereference -x build -x .git "$top" "$tree" > "$tree/../differ" || true
    while read -r word a b c; do
        case $word-$a-$b in
            Files-*) cp -P "$a" "$tree/${a#"$top/"}" ;;
            Only-in-"$tree"*) dir=${b%:} && rm -rf "${dir:?}/$c" ;;
            Only-in-*) b=${b%:} && cp -RP "$b/$c" "$tree${b#"$top"}/$c" ;;
        esac
    done < "$tree/../differ"
}

# A file whose objects may be newer than it is gets a new date.
put_back() {
    cp "$top/$1" "$tree/$1"
}

# ---- a test ----

build() { # build TEST
    case $1 in
        cli/*) set -- build/asan/holdfast ;;
        *) set -- "build/asan/tests/$1" ;;
    esac
    (cd "$tree" && make SAN=address "$@" build/asan/tests/clockshim.so \
        build/asan/tests/diskshim.so) > "$tree/../make.log" 2>&1
}

run() { # run TEST [NAME]: its output is in out
    (
        cd "$tree"
        export SEED="${SEED:-1}"
        case $1 in
            cli/*)
                HOLDFAST=$tree/build/asan/holdfast timeout -k 5 "${LIMIT:-300}" \
                    sh tests/harness/lib.sh "tests/$1.sh" ${2:+"$2"}
                ;;
            sim/*)
                SIM_SECONDS=${SIM_SECONDS:-120} timeout -k 5 "${LIMIT:-600}" \
                    "build/asan/tests/$1" ${2:+"$2"}
                ;;
            *) timeout -k 5 "${LIMIT:-300}" "build/asan/tests/$1" ${2:+"$2"} ;;
        esac
    ) > "$tree/../out" 2>&1 < /dev/null
}

# passes TEST [NAME]: did tests run, and all of them pass? Each is asked once, without a mutant; the
# search, which looks for as long as it is given, for a moment.
passes() {
    grep -qxF -e "$*" "$tree/../passed" && return 0
    build "$1" || { echo "$1 cannot be built; see build/mutants/make.log"; return 1; }
    SIM_SECONDS=5 run "$@" || { echo "$* fails without a mutant; see build/mutants/out"; return 1; }
    grep -q '^ok ' "$tree/../out" || { echo "$*: no such test"; return 1; }
    echo "$*" >> "$tree/../passed"
}

killer() { # killer [TEXT]: which test said that it failed, of those that were asked
    sed -n 's/^not ok [0-9]* - \([A-Za-z0-9_]*\).*/\1/p' "$tree/../out" | grep -F -e "${1:-}" |
        sed 1q
}

try() { # try MUTANT: one line of the table
    name=$(basename "$1" .mutant)
    file=$(field file "$1") test=$(field test "$1")
    set -- "$1" "${test%% *}" "${test#* }"
    if [ "$2" = "$test" ]; then set -- "$1" "$2"; fi
    mutant=$1
    shift
    if ! why=$(passes "$@") || ! why=$(make_it "$mutant"); then
        printf '%-44s | ERROR: %s\n' "$name" "$why"
        return 1
    fi
    if ! build "$1"; then
        cp "$tree/../make.log" "$tree/../$name.log"
        put_back "$file"
        printf '%-44s | ERROR: does not compile; see build/mutants/%s.log\n' "$name" "$name"
        return 1
    fi
    begun=$(date +%s%N) status=0
    run "$@" || status=$?
    took=$((($(date +%s%N) - begun) / 100000000))
    put_back "$file"
    if [ "$status" = 0 ]; then
        printf '%-44s | SURVIVED %s\n' "$name" "$*"
        return 1
    fi
    cp "$tree/../out" "$tree/../$name.out"
    by=$(killer "${2:-}")
    if [ -z "$by" ]; then # a crash of the runner, say: who knows what it would have found
        why="ended with status $status"
        [ "$status" != 124 ] && [ "$status" != 137 ] || why='was not finished in time'
        printf '%-44s | ERROR: %s %s, and no test failed; see build/mutants/%s.out\n' "$name" \
            "$*" "$why" "$name"
        return 1
    fi
    if grep -q '^# not finished after' "$tree/../out"; then by="$by (not finished in time)"; fi
    printf '%-44s | %-68s | %d.%d\n' "$name" "$1 $by" $((took / 10)) $((took % 10))
}

if [ "${1:-}" = --check ]; then
    check_all
    exit
fi
copy_tree
: > "$tree/../passed"
printf '%-44s | %-68s | %s\n' mutant 'killed by' s
all=0 bad=0
for m in "$home"/*.mutant; do
    chosen=$#
    for text; do
        case $(basename "$m" .mutant) in *"$text"*) chosen=0 ;; esac
    done
    [ "$chosen" = 0 ] || continue
    all=$((all + 1))
    try "$m" || bad=$((bad + 1))
done
printf '%d of %d mutants killed\n' $((all - bad)) "$all"
[ "$all" -gt 0 ] && [ "$bad" = 0 ]
