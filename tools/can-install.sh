#!/bin/sh
# SPDX-License-Identifier: MIT
# can-install.sh - whether these folders can be written to, or made; otherwise what to do.
#
#   can-install.sh FOLDER...
set -eu

for folder; do
    there=$folder
    while [ ! -e "$there" ]; do # the nearest that exists
        there=$(dirname "$there")
    done
    [ -d "$there" ] && [ -w "$there" ] && continue
    echo "holdfast: nothing was installed: $(id -un) may not write to $there" >&2
    echo "holdfast: use \`sudo make install\`, or install for yourself alone:" >&2
    echo "    make install PREFIX=\"\$HOME/.local\"" >&2
    exit 1
done
