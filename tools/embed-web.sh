#!/bin/sh
# SPDX-License-Identifier: MIT
# embed-web.sh - turn the files of a page into C: one WEB_FILE("path", "type", "text") for each.
set -eu

for file; do
    case $file in
        *.html) type='text/html; charset=utf-8' ;;
        *.css) type='text/css; charset=utf-8' ;;
        *.js) type='text/javascript; charset=utf-8' ;;
        *.svg) type='image/svg+xml' ;;
        *)
            echo "embed-web.sh: $file: what is it?" >&2
            exit 1
            ;;
    esac
    path=/${file##*/}
    [ "$path" != /index.html ] || path=/
    printf 'WEB_FILE("%s", "%s",\n' "$path" "$type"
    # \? because of trigraphs.
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/?/\\?/g' -e 's/^/    "/' -e 's/$/\\n"/' "$file"
    echo ')'
done
