#!/bin/sh
# SPDX-License-Identifier: MIT
# section.sh - what our side does under the lock: section.sh FILE. See common.sh.
set -eu
set -C # an existing file is not overwritten: the shell's O_EXCL
if ! : 2> /dev/null > "$1.in"; then
    echo OVERLAP
    exit 1
fi
set +C
read -r n < "$1"
sleep 0.002
echo $((n + 1)) > "$1"
echo ours >> "$1.log"
rm "$1.in"
