#!/bin/sh
# SPDX-License-Identifier: MIT
# check-form.sh - enforce what a machine can see of the form (CONTRIBUTING.md has the rules).
#
#   check-form.sh [TREE]
#
# In C, C++, Lua and shell: no line over 100 columns, and none that ends with a blank. C is indented
# by spaces alone, and broken before && and ||, not after. All begin with the license, a script
# after its #! line; C and shell then say what they are: "NAME - ...". In src/ and cli/ no function
# has more than 60 lines between its braces, and nothing jumps by goto. What git knows of is looked
# at; outside of a checkout, all that lies there.
set -eu
cd "${1:-.}"

files() {
    if [ -e .git ]; then
        git ls-files
    else
        find . -name build -prune -o -type f -print | sed 's,^\./,,'
    fi | grep -E '\.([ch](pp)?|lua|sh)$' | sort
}

# Some awks count bytes: so all do, but for those that only continue a character.
files | LC_ALL=C xargs awk '
    function bad(why) { print FILENAME ":" FNR ": " why; failed = 1 }
    FNR == 1 {
        c = FILENAME !~ /\.(lua|sh)$/; sh = FILENAME ~ /\.sh$/
        what = FILENAME; sub(/.*\//, "", what)
        title = c ? 2 : sh ? (/^#!/ ? 3 : 2) : 0
    }
    FNR == title && index($0, (c ? " * " : "# ") what " - ") != 1 { bad("say: " what " - ...") }
    FNR == 1 && !c && !sh && $0 != "-- SPDX-License-Identifier: MIT" { bad("no license") }
    FNR == 1 && c && $0 != "/* SPDX-License-Identifier: MIT" { bad("no license") }
    FNR == 1 && sh && /^#!/ { next }
    sh && !/^# SPDX-License-Identifier: MIT$/ { bad("no license") }
    { sh = 0 }
    c && /^ *\t/ { bad("a tab indents") }
    c && /(&&|\|\|)( *\/\*[^\/]*\*\/)?$/ && !/^ \*/ { bad("break before && and ||") }
    FNR == 1 { begun = 0; sized = c && FILENAME ~ /^(src|cli)\// }
    sized && /(^|[ \t])goto [a-z_]+;/ { bad("free by AUTO(mem_freep), not by goto") }
    sized && /^{/ { begun = FNR }
    sized && /^}/ && begun {
        if (FNR - begun - 1 > 60) bad("a function of " FNR - begun - 1 " lines")
        begun = 0
    }
    /[ \t\r]$/ { bad("ends with a blank") }
    { gsub(/[\200-\277]/, "") }
    length > 100 { bad(length " columns") }
    END {
        if (!NR) { print "check-form: no sources here"; failed = 1 }
        exit failed
    }
' >&2 || exit 1
