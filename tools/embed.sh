#!/bin/sh
# SPDX-License-Identifier: MIT
# embed.sh - turn Lua scripts into C: one HF_SCRIPT(name, "sha1", "text") for each file given.
#
# The SHA1 is made here so that the very first call can be EVALSHA. The text must stay within
# 4095 bytes, the longest string literal that every C11 compiler must take.
set -eu

# A line "--#include part/x.lua" stands for that file: what several scripts share. Whole-line
# comments are for readers of the sources and stay here.
# shellcheck disable=SC2094 # what is included is another file
expand() {
    while IFS= read -r line; do
        case $line in
        *'--#include '*) expand "$(dirname "$1")/${line##*'--#include '}" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done < "$1" | grep -v '^ *--' | sed 's,^ *,,'
}

whole=$(mktemp)
trap 'rm -f "$whole"' EXIT
for source; do
    expand "$source" > "$whole"
    f=$whole
    size=$(wc -c < "$f")
    if [ "$size" -gt 4095 ]; then
        echo "embed.sh: $source has $size bytes; the limit is 4095. Split it or trim its comments." >&2
        exit 1
    fi
    # sed gives the last line a newline whether it has one or not: the SHA1 would not fit.
    if [ -n "$(tail -c 1 "$f")" ]; then
        echo "embed.sh: $source does not end with a newline" >&2
        exit 1
    fi
    sha1=$(sha1sum < "$f")
    printf 'HF_SCRIPT(%s, "%s",\n' "$(basename "$source" .lua)" "${sha1%% *}"
    # \? because of trigraphs.
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n"/' "$f"
    echo ')'
done
