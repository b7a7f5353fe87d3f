#!/bin/sh
# SPDX-License-Identifier: MIT
# man-pages.sh - a page for each command and for each part of the C interface.
#
#   man-pages.sh HOLDFAST FOLDER   write man1/holdfast-run.1, man3/holdfast-lock.3, and for each
#                                  function a link to its page, into FOLDER
#   man-pages.sh --list            only their names
#
# Nothing is written twice: holdfast.1 and holdfast.3 are the source of every word. A command's page
# is its item of COMMANDS, those items of OPTIONS that `HOLDFAST help COMMAND` names, for some the
# exit statuses, and its examples; a page of section 3 is a part of SYNOPSIS with the part of
# DESCRIPTION of the same title.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
commands=$root/man/holdfast.1 interface=$root/man/holdfast.3

list_commands() { # help is none
    sed -n '/^\.Sh COMMANDS/,/^\.Sh OPTIONS/s/^\.It Cm \([a-z]*\).*/\1/p' "$commands" |
        grep -vx help | sort -u
}
list_titles() {
    sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/s/^\.Ss //p' "$interface"
}
slug() { # slug TITLE: holdfast-TITLE
    printf 'holdfast-%s' "$1" | tr '[:upper:] ' '[:lower:]-'
}
functions() { # functions TITLE: those of one part
    synopsis "$1" | sed -n 's/^\.Fn \(hf_[a-z0-9_]*\).*/\1/p'
}

# ---- section 1 ----

# The lines of one command under COMMANDS, or of the options in the file `options`, as they are.
from_page() { # from_page commands|options COMMAND
    awk -v what="$1" -v command="$2" -v wanted="${3:-}" '
        function has_word(text, word) { return (" " text " ") ~ ("[ ,]" word "[ ,]") }
        # How well an item fits the command: by what it says itself, or by the title above it.
        function score(line2) {
            if (line2 ~ /^\.Pq Cm /) return has_word(line2, command) ? 4 : 0
            return has_word(title, command) ? 3 : title ~ /every command/ ? 2 : 1
        }
        function end_item() {
            if (item != "" && what == "commands") printf "%s", item
            if (item != "" && what == "options" && (name in want)) {
                s = score(second)
                if (s > best[name]) { best[name] = s; text[name] = item }
            }
            item = ""
        }
        BEGIN { # long names, in the order of the help
            while (wanted != "" && (getline line < wanted) > 0) {
                order[++n] = line
                want[line] = 1
            }
            section = what == "commands" ? ".Sh COMMANDS" : ".Sh OPTIONS"
        }
        /^\.Sh / { end_item(); inside = $0 == section }
        !inside { next }
        /^\.Ss / { title = $0; gsub(/^\.Ss /, "", title) }
        /^\.Bl / { if (++depth == 1) next }
        /^\.El/ { if (--depth == 0) { end_item(); next } }
        depth == 0 { next }
        /^\.It / && depth == 1 {
            end_item()
            if (what == "commands" && $2 == "Cm" && $3 == command) { item = "@" $0 "\n"; next }
            if (what == "commands") next
            name = ""
            for (i = 3; i <= NF; i++) if ($i ~ /^-[a-z]/) { name = substr($i, 2); break }
            item = $0 "\n"; second = ""; next
        }
        item != "" { if (second == "") second = $0; item = item $0 "\n" }
        END { for (i = 1; i <= n; i++) printf "%s", text[order[i]] }' "$commands"
}

# In a page of another name: what .Nm is, where a section is, and not again which command it is.
relocate() {
    sed -e '/^\.Pq Cm [a-z]*\( , [a-z]*\)*$/d' -e 's/^\.Nm$/.Nm holdfast/' \
        -e 's/^\.Nm \([^h]\)/.Nm holdfast \1/' |
        awk '/^\.Sx / {
                rest = ""
                if (match($0, / [).,;]+( [).,;]+)*$/)) {
                    rest = substr($0, RSTART)
                    $0 = substr($0, 1, RSTART - 1)
                }
                print $0; print "in"; print ".Xr holdfast 1" rest; next
            }
            { print }'
}

command_page() { # command_page COMMAND
    "$holdfast" help "$1" > "$work/help"
    sed -n '/^Options:/,/^$/s/^  \(-[A-Za-z], \)*--\([a-z-]*\).*/\2/p' "$work/help" > "$work/names"
    from_page commands "$1" > "$work/items"
    printf '.\\" SPDX-License-Identifier: MIT\n.\\" Made from holdfast.1 by tools/man-pages.sh.\n'
    sed -n 's/^\.Dd /&/p' "$commands"
    printf '.Dt HOLDFAST-%s 1\n.Os\n.Sh NAME\n.Nm holdfast-%s\n.Nd %s\n.Sh SYNOPSIS\n' \
        "$(echo "$1" | tr '[:lower:]' '[:upper:]')" "$1" \
        "$(awk 'NR > 1 && NF { seen = 1; printf "%s%s", sep, $0; sep = " " } seen && !NF { exit }' \
            "$work/help")"
    sed -n 's/^@\.It /.Nm holdfast\n./p' "$work/items"
    printf '.Sh DESCRIPTION\n'
    # A second form of the command begins with what it is.
    awk '/^@/ { if (n++) { sub(/^@\.It /, ""); print ".Pp\nAs\n." $0 ":" } next } { print }' \
        "$work/items" | relocate
    printf '.Sh OPTIONS\n.Bl -tag -width Ds\n'
    from_page options "$1" "$work/names" | relocate
    printf '.El\n'
    case $1 in
        run | once | elect | acquire) # those that scripts are built on
            printf '.Sh EXIT STATUS\n'
            sed -n '/^\.Sh EXIT STATUS/,/^\.Sh EXAMPLES/{/^\.Sh/!p;}' "$commands" | relocate
            ;;
    esac
    if grep -q '^Examples:' "$work/help"; then
        printf '.Sh EXAMPLES\n.Bd -literal\n'
        sed -n '/^Examples:/,/^$/s/^  //p' "$work/help" | sed -e 's/\\/\\e/g' -e "s/^['.]/\\\\\&&/"
        printf '.Ed\n'
    fi
    printf '.Sh SEE ALSO\n.Xr holdfast 1 ,\nfor the server, the output, the environment and the '
    printf 'exit status;\n.Xr holdfast 7\n'
}

# ---- section 3 ----

part() { # part SECTION TITLE
    awk -v section=".Sh $1" -v title=".Ss $2" '
        /^\.Sh / { inside = $0 == section; found = 0 }
        /^\.Ss / { found = inside && $0 == title; next }
        inside && found' "$interface"
}
synopsis() {
    part SYNOPSIS "$1"
}

interface_page() { # interface_page TITLE
    name=$(slug "$1")
    printf '.\\" SPDX-License-Identifier: MIT\n.\\" Made from holdfast.3 by tools/man-pages.sh.\n'
    sed -n 's/^\.Dd /&/p' "$interface"
    printf '.Dt %s 3\n.Os\n.Sh NAME\n' "$(echo "$name" | tr '[:lower:]' '[:upper:]')"
    { echo "$name"; functions "$1"; } | sed -e 's/^/.Nm /' -e '$!s/$/ ,/'
    printf '.Nd distributed locks on Redis and Valkey, from C: %s\n.Sh LIBRARY\n' \
        "$(echo "$1" | tr '[:upper:]' '[:lower:]')"
    sed -n '/^\.Sh LIBRARY/,/^\.Sh SYNOPSIS/{/^\.Sh/!p;}' "$interface"
    printf '.Sh SYNOPSIS\n.In holdfast.h\n'
    synopsis "$1"
    printf '.Sh DESCRIPTION\n'
    part DESCRIPTION "$1"
    printf '.Sh SEE ALSO\n.Xr holdfast 3 ,\nfor threads, memory and errors;\n.Xr holdfast 7\n'
}

if [ "$1" = --list ]; then
    list_commands | sed 's|.*|man1/holdfast-&.1|'
    list_titles | while read -r title; do
        echo "man3/$(slug "$title").3"
        functions "$title" | sed 's|.*|man3/&.3|'
    done
    exit
fi

holdfast=$1 out=$2
case $holdfast in
    */*) ;;
    *) holdfast=./$holdfast ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out/man1" "$out/man3"
for c in $(list_commands); do
    command_page "$c" > "$out/man1/holdfast-$c.1"
done
list_titles | while read -r title; do
    name=$(slug "$title")
    interface_page "$title" > "$out/man3/$name.3"
    for f in $(functions "$title"); do
        echo ".so man3/$name.3" > "$out/man3/$f.3"
    done
done
