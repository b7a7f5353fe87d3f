#!/bin/sh
# SPDX-License-Identifier: MIT
# declare.sh - what include/holdfast.h declares, in the plain C that the foreign function interfaces
# of Python (cffi) and PHP (FFI) can read.
#
#   declare.sh include/holdfast.h > build/gen/holdfast.cdef
#
# The compiler's preprocessor expands the list of errors. What is left are types, enums and
# functions: no macros, no attributes, no inline functions. Constants that are small numbers become
# an enum, since macros have no place there. So a binding cannot know less than the header does.
set -eu
header=${1:?usage: declare.sh HEADER}

# Without the system's headers, whose types both readers know by name; and for no compiler in
# particular, so that there are no attributes.
sed '/^#include/d' "$header" | ${CC:-cc} -E -P -U__GNUC__ -U__cplusplus -x c - |
    awk '/^static inline/ { inline = 1 } !inline && NF { print } /^}/ { inline = 0 }'

# shellcheck disable=SC2016 # awk's
awk '/^#define HF_[A-Z0-9_]+ / && $2 !~ /^HF_VERSION/ {
        value = $0
        sub(/^#define [A-Z0-9_]+ +/, "", value)
        sub(/ *\/\*.*/, "", value)
        if (value ~ /^\(?-?[0-9][0-9 *]*\)?$/)
            list = list "    " $2 " = " value ",\n"
    }
    END { print "enum hf_constants {\n" list "    HF_CONSTANTS_FORCE_INT = 0x7fffffff\n};" }
' "$header"
