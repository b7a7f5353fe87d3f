#!/bin/sh
# SPDX-License-Identifier: MIT
# check-exports.sh - both libraries must export hf_* and nothing else, and all that the header has.
#
#   check-exports.sh BUILD_DIR
set -eu
build=${1:?usage: check-exports.sh BUILD_DIR}
root=$(cd "$(dirname "$0")/.." && pwd)

declared=$(cc -E -P -I"$root/include" -x c "$root/include/holdfast.h" |
    tr '\n' ' ' | sed 's/[;{}]/\n/g' |
    sed -n 's/.*__attribute__((visibility("default"))).*[ *]\(hf_[a-z0-9_]*\)(.*/\1/p' | sort -u)
[ -n "$declared" ] || { echo "check-exports: found no declarations" >&2; exit 1; }

bad=0
check() { # check LIBRARY NM_OPTIONS...
    lib=$1
    shift
    exported=$(nm "$@" --defined-only "$lib" | awk 'NF == 3 { print $3 }' | sort -u)
    for name in $exported; do
        case $name in
            hf_*) ;;
            *) echo "$lib: exports $name" >&2; bad=1 ;;
        esac
    done
    for name in $declared; do
        echo "$exported" | grep -qx "$name" ||
            { echo "$lib: lacks $name, which holdfast.h declares" >&2; bad=1; }
    done
}
check "$build/libholdfast.so" -D
check "$build/libholdfast.a" -g
exit "$bad"
