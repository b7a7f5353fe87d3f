#!/bin/sh
# SPDX-License-Identifier: MIT
# cover.sh - which lines and branches of src/ and cli/ the tests have reached, by gcov.
#
#   cover.sh BUILD_DIR
#
# Prints a table, a line for each file, and writes what was not reached into BUILD_DIR/lines.txt and
# branches.txt: FILE:LINE: CODE. A branch is listed if its line was reached and it was not. Worker
# processes that a test kills tell nothing: what only they do counts as not reached.
set -eu
build=${1:?usage: cover.sh BUILD_DIR}
cd "$(dirname "$0")/.."
rm -f "$build/lines.txt" "$build/branches.txt"

find "$build/obj/src" "$build/obj/cli" -name '*.gcno' | sort | while read -r notes; do
    gcov -t -b -c -o "$(dirname "$notes")" "${notes%.gcno}.o" 2> /dev/null || true
done | awk -v lines_out="$build/lines.txt" -v branches_out="$build/branches.txt" '
    function percent(n, of) { return of ? sprintf("%5.1f %%", 100 * n / of) : "      -" }
    function row(name, a, b, c, d) {
        printf "%-34s %5d lines %s  %5d branches %s\n", name, b, percent(a, b), d, percent(c, d)
    }
    /^ +-: +0:Source:/ {
        file = $0; sub(/.*Source:/, "", file)
        ours = file ~ /^(src|cli)\/.*\.c$/
        next
    }
    !ours { next }
    /^branch / {
        if (hidden) next
        branches[file]++
        if (/taken 0|never executed/) {
            if (reached && !told) { print file ":" line ": " code > branches_out; told = 1 }
        } else {
            taken[file]++
        }
        next
    }
    /^ *[0-9#=-]+\*?: *[0-9]+:/ {
        count = $0; sub(/:.*/, "", count); gsub(/[ *]/, "", count)
        rest = $0; sub(/^[^:]*: */, "", rest)
        line = rest; sub(/:.*/, "", line)
        code = rest; sub(/^[0-9]+: */, "", code)
        told = 0; hidden = count == "-"; reached = count ~ /^[0-9]/
        if (hidden) next
        lines[file]++
        if (reached) hit[file]++
        else print file ":" line ": " code > lines_out
    }
    END {
        for (f in lines) {
            row(f, hit[f], lines[f], taken[f], branches[f])
            part = f ~ /^src/ ? "src" : "cli"
            h[part] += hit[f]; l[part] += lines[f]; t[part] += taken[f]; b[part] += branches[f]
        }
        for (part in l) row("~ all of " part "/", h[part], l[part], t[part], b[part])
    }' | sort | sed 's/^~ //'
echo "what was not reached: $build/lines.txt, $build/branches.txt"
