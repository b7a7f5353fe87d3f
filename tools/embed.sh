#!/bin/sh
# SPDX-License-Identifier: MIT
# embed.sh - turn Lua scripts into C: one HF_SCRIPT(name, "sha1", "text") for each file given.
#
# The SHA1 is made here so that the very first call can be EVALSHA. C11 promises string literals of
# 4095 bytes; the compilers that there are take much more. The limit here is one of taste: what is
# longer does too much.
set -eu

# A line "--#include part/x.lua" stands for that file: what several scripts share. Whole-line
# comments and indentation are for readers of the sources and stay here. A last line without its
# newline would be lost.
# shellcheck disable=SC2094 # what is included is another file
expand() {
    if [ -n "$(tail -c 1 "$1")" ]; then
        echo "embed.sh: $1 does not end with a newline" >&2
        exit 1
    fi
    while IFS= read -r line; do
        case $line in
        *'--#include '*) expand "$(dirname "$1")/${line##*'--#include '}" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done < "$1"
}

whole=$(mktemp)
trap 'rm -f "$whole" "$whole.lua"' EXIT
for source; do
    expand "$source" > "$whole.lua"
    grep -v '^ *--' "$whole.lua" | sed 's,^ *,,' > "$whole"
    size=$(wc -c < "$whole")
    if [ "$size" -gt 12000 ]; then
        echo "embed.sh: $source has $size bytes of code; the limit is 12000. Split it." >&2
        exit 1
    fi
    sha1=$(sha1sum < "$whole")
    printf 'HF_SCRIPT(%s, "%s",\n' "$(basename "$source" .lua)" "${sha1%% *}"
    # \? because of trigraphs.
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n"/' "$whole"
    echo ')'
done
