#!/bin/sh
# SPDX-License-Identifier: MIT
# check-layers.sh - enforce who may include what (CONTRIBUTING.md has the why).
#
#   check-layers.sh [TREE]
#
# src/N includes itself and lower layers, by paths written from src/. A file of src/lock includes
# no header of another primitive, but lock/handle.h, which several kinds are held through. cli/,
# bench/ and examples/ see the public header only, beside their own files (bench/ also the test
# harness, for its servers). hiredis, OpenSSL and sockets are each confined to the files that deal
# with them.
set -eu
cd "${1:-.}"

find src cli bench examples -name '*.[ch]' 2> /dev/null | sort |
    xargs -r grep -Hn '^[ 	]*#[ 	]*include' |
    awk '
    function bad(why) { print file ":" line ": " inc ": " why; failed = 1 }
    BEGIN {
        n = split("base net embedded topo op exec session lock doctor", order, " ")
        for (i = 1; i <= n; i++) rank[order[i]] = i
    }
    {
        split($0, at, ":"); file = at[1]; line = at[2]
        inc = $0; sub(/^[^#]*#[ \t]*include[ \t]*/, "", inc); sub(/[ \t]*(\/[*\/].*)?$/, "", inc)
        system_header = inc ~ /^</
        name = inc; gsub(/["<>]/, "", name)
        split(file, dir, "/"); top = dir[1]; layer = dir[2]
        base = file; sub(/.*\//, "", base); sub(/\.[ch]$/, "", base)
    }
    name ~ /^hiredis/ && top != "bench" && file != "src/net/resp.c" {
        bad("hiredis only in src/net/resp.c")
    }
    name ~ /^openssl\// && file != "src/net/stream_tls.c" {
        bad("OpenSSL only in src/net/stream_tls.c")
    }
    name == "sys/socket.h" && top == "src" && layer != "net" && layer != "embedded" {
        bad("sockets only in src/net and src/embedded")
    }
    system_header || name == "holdfast.h" { next }
    top == "src" && name == "scripts.inc" && layer == "op" { next }
    top == "src" {
        if (name !~ /\//) { bad("write the path from src/"); next }
        split(name, to, "/")
        if (!(to[1] in rank)) bad("no layer of src/")
        else if (rank[to[1]] > rank[layer]) bad("src/" layer " is below src/" to[1])
        else if (layer == "lock" && to[1] == "lock" && name != "lock/handle.h" &&
            index(base, substr(name, 6, length(name) - 7)) != 1)
            bad("primitives do not include one another")
        next
    }
    # cli/, bench/, examples/
    top == "bench" && name ~ /^harness\// { next }
    name ~ /\// { bad(top "/ includes only holdfast.h and its own headers") ; next }
    { local = file; sub(/[^\/]*$/, name, local)
      if ((getline junk < local) < 0) bad("not in this folder"); else close(local) }
    END {
        if (!NR) { print "check-layers: no sources here"; failed = 1 }
        exit failed
    }
' >&2
