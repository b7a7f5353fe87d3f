#!/bin/sh
# SPDX-License-Identifier: MIT
# check-locks.sh - enforce how locks are spoken of (CONTRIBUTING.md has the rule).
#
#   check-locks.sh [TREE]
#
# In src/: a mutex is a struct mutex (base/mutex.h), so that its order is checked. A function whose
# comment says that it holds one ends in _locked, and the comment says more than the name does. One
# that ends so asserts that it is held, unless the comment says that it is another object's. Who
# calls it either is one as well or takes a lock itself. docs/threads.md has every mutex of
# MUTEX_MAP, under the number that is its rank.
set -eu
cd "${1:-.}"
failed=0

find src -name '*.[ch]' | sort | xargs -r awk '
    function bad(line, why) { print FILENAME ":" line ": " why; failed = 1 }
    function judge_comment(    said) {
        if (!match(above, /Holds:? ([a-z_.\047]+ )*[a-z_.]*mu[,.: ]/)) return
        said = substr(above, RSTART, RLENGTH)
        if (name !~ /_locked$/) bad(begun, name "() holds a lock: it ends in _locked")
        else if (said ~ /^Holds:? mu\./) bad(begun, name "(): its name says that it holds mu")
    }
    FNR == 1 { above = ""; comment = body = 0 }
    /pthread_mutex_/ && FILENAME !~ /^src\/base\/mutex\.[ch]$/ {
        bad(FNR, "use struct mutex, of base/mutex.h")
    }
    body {
        if (/^}/) {
            if (calls && !takes && name !~ /_locked$/)
                bad(calls, name "() calls what needs a lock, but takes none")
            if (name ~ /_locked$/ && !asserts && !others)
                bad(begun, name "(): mutex_assert_held()")
            body = 0
        } else {
            if (!calls && /_locked\(/) calls = FNR
            if (/lock\(/) takes = 1
            if (/mutex_assert_held\(/) asserts = 1
        }
        next
    }
    /^\/\*/ { above = ""; comment = 1 }
    comment { above = above " " $0; if (/\*\//) comment = 0; next }
    /^[a-z].*[a-z_0-9]\(/ {
        name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name); begun = FNR
        others = above ~ /Holds: the [a-z]+\047s mu/
        judge_comment()
    }
    /^{/ { body = 1; calls = takes = asserts = 0 }
    { above = "" }
    END { exit failed }
' >&2 || failed=1

if [ -e src/base/mutex.h ]; then
    awk '
        FILENAME ~ /\.h$/ && /^ *X\([A-Z]/ {
            rank = $2; sub(/,/, "", rank)
            name = $0; sub(/[^"]*"/, "", name); sub(/".*/, "", name)
            want[name] = rank + 0
        }
        FILENAME ~ /\.md$/ {
            if (/^#/) item = 0
            if (/^[0-9]+\. /) item = $1 + 0
            if (item) for (n in want) if (index($0, "`" n "`")) seen[n] = item
        }
        END {
            for (n in want) if (seen[n] != want[n]) {
                print "docs/threads.md: `" n "` has the rank " want[n] " in src/base/mutex.h"
                failed = 1
            }
            exit failed
        }
    ' src/base/mutex.h docs/threads.md >&2 || failed=1
fi
exit $failed
