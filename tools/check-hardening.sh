#!/bin/sh
# SPDX-License-Identifier: MIT
# check-hardening.sh - were the program and the libraries built with what makes attacks harder?
#
#   check-hardening.sh BUILD_DIR
#
# It looks at what came out, not at the flags that went in: a flag that some line of the Makefile
# forgot, or that the compiler ignores, is missed here. What only some processors have is asked for
# there only.
set -eu
build=${1:?usage: check-hardening.sh BUILD_DIR}
root=$(cd "$(dirname "$0")/.." && pwd)
export LC_ALL=C
tool=$build/holdfast lib=$build/libholdfast.so
objects=$(mktemp -d)
trap 'rm -rf "$objects"' EXIT

bad=0
complain() { # complain FILE WHAT
    echo "$1: $2" >&2
    bad=1
}
# has PATTERN, in what comes in
has() {
    grep -Eq -e "$1"
}

for f in "$tool" "$lib"; do
    [ -e "$f" ] || { complain "$f" "it is not there"; continue; }
    readelf -lW "$f" > "$objects/segments"
    readelf -dW "$f" > "$objects/dynamic"
    readelf -sW --dyn-syms "$f" > "$objects/symbols"
    has 'GNU_RELRO' < "$objects/segments" || complain "$f" "no RELRO (-Wl,-z,relro)"
    has 'BIND_NOW|FLAGS_1.* NOW' < "$objects/dynamic" || complain "$f" "no BIND_NOW (-Wl,-z,now)"
    has 'GNU_STACK .* RW  ' < "$objects/segments" || complain "$f" "its stack can be executed"
    ! has 'RPATH|RUNPATH' < "$objects/dynamic" || complain "$f" "it has an RPATH"
    ! has 'TEXTREL' < "$objects/dynamic" || complain "$f" "its code is relocated"
    has ' __stack_chk_fail(@|$)' < "$objects/symbols" || complain "$f" "no -fstack-protector-strong"
    has ' __[a-z]+_chk(@|$)' < "$objects/symbols" || complain "$f" "no _FORTIFY_SOURCE"
    # The caller of a setuid program chooses its environment.
    ! has ' UND getenv(@|$)' < "$objects/symbols" || [ "$f" = "$tool" ] ||
        complain "$f" "it calls getenv(): use secure_getenv()"
    ! grep -qF -e "$root/" "$f" || complain "$f" "it has the name of the folder it was built in" \
        "(-ffile-prefix-map)"
done
[ ! -e "$tool" ] || { readelf -hW "$tool"; readelf -dW "$tool"; } | has 'FLAGS_1.* PIE' ||
    complain "$tool" "it is no PIE (-fPIE -pie)"

# What the linker makes of it depends on the system's own objects as well, so look at ours.
lib=$build/libholdfast.a
[ -e "$lib" ] || { complain "$lib" "it is not there"; exit 1; }
path=$(cd "$build" && pwd)/libholdfast.a
(cd "$objects" && ar x "$path")
case $(readelf -hW "$objects"/*.o) in
    *X86-64*)
        readelf -nW "$objects"/*.o | has 'IBT, SHSTK' || complain "$lib" "no -fcf-protection"
        ;;
esac
# Of each file the compiler noted how it was made, if it was told to (-g).
readelf --debug-dump=info "$objects"/*.o 2> /dev/null |
    grep 'DW_AT_producer' > "$objects/made" || true
if grep -q 'GNU C' "$objects/made"; then
    ! grep -v -e '-fstack-clash-protection' "$objects/made" | has 'GNU C' ||
        complain "$lib" "no -fstack-clash-protection"
fi
exit "$bad"
