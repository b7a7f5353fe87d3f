#!/bin/sh
# SPDX-License-Identifier: MIT
# check-layers.sh - enforce who may include what (CONTRIBUTING.md has the why).
#
#   check-layers.sh [TREE]
#
# src/N includes itself and lower layers, by paths written from src/. A file of src/lock includes
# no header of another primitive, but lock/handle.h, which several kinds are held through. cli/,
# bench/ and examples/ see the public header only, beside their own files (bench/ also bench/lib
# and the test harness, for its servers). OpenSSL and sockets are each confined to the files that
# deal with them.
#
# Nor are there ways around. In src/N there is no word of a struct that is defined above it, even if
# it is only declared, nor of one that is defined nowhere. Above src/base, whose memory and lists
# are everybody's, void * is what a callback gets back (`arg`, with the callback beside it) or bytes
# (with their number beside them), and nothing else.
#
# What only Linux has is used by src/base and by cli/platform.c alone: a port is their work. And in
# src/ all memory is got from base/mem.h, and all time from base/clock.h.
set -eu
cd "${1:-.}"
failed=0

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
    name ~ /^hiredis/ && top != "bench" {
        bad("hiredis only in tests and benchmarks")
    }
    name ~ /^openssl\// && file != "src/net/openssl.h" ||
    name == "net/openssl.h" && file !~ /^src\/net\/(openssl|stream_tls)\.c$/ {
        bad("OpenSSL only in src/net/openssl.h, for src/net/stream_tls.c")
    }
    name == "sys/socket.h" && top == "src" && layer != "net" && layer != "embedded" &&
    file !~ /^src\/base\/(sockopt|claim)\.c$/ {
        bad("sockets only in src/net, src/embedded, src/base/sockopt.c and claim.c")
    }
    system_header || name == "holdfast.h" { next }
    top == "src" && name == "scripts.inc" && layer == "op" { next }
    file == "cli/cmd_web.c" && name == "web.inc" { next } # made of cli/web/
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
    top == "bench" && name ~ /^(harness|lib)\// { next }
    name ~ /\// { bad(top "/ includes only holdfast.h and its own headers") ; next }
    { local = file; sub(/[^\/]*$/, name, local)
      if ((getline junk < local) < 0) bad("not in this folder"); else close(local) }
    END {
        if (!NR) { print "check-layers: no sources here"; failed = 1 }
        exit failed
    }
' >&2 || failed=1

# Functions, members and parameters that are void * for another reason.
untyped='
topo_server   tells servers apart; compared, never followed
server        the same, as a member or a parameter
inbox_server  the same, of an inbox
member_greet  is itself a topo_greet
call_new      fills in the pointer to the struct of any call, whose first member is a struct call
more          of one operation, the executor that made it, reads it and frees it
'
# Types that are callbacks.
callbacks=$(find src include -name '*.h' 2> /dev/null | sort |
    xargs -r sed -n 's/^typedef .*(\*\([a-z_0-9]*\))(.*/\1/p' | tr '\n' ' ')

find src -name '*.[ch]' 2> /dev/null | sort |
    xargs -r awk -v untyped="$untyped" -v types="$callbacks" '
    function bad(why) { say(FILENAME, began, why) }
    function say(file, line, why) { print file ":" line ": " why; failed = 1 }
    BEGIN {
        n = split("base net embedded topo op exec session lock doctor", order, " ")
        for (i = 1; i <= n; i++) rank[order[i]] = i
        for (i = split(types, list, " "); i; i--) callback[list[i]]
        n = split(untyped, list, "\n")
        for (i = 1; i <= n; i++) if (split(list[i], col, " ")) known[col[1]]
    }

    # What a struct is called, where it is defined first, and who speaks of it.
    function words(text,    s, w) {
        while (match(text, /[A-Za-z_][A-Za-z_0-9]*/)) {
            w = substr(text, RSTART, RLENGTH)
            text = substr(text, RSTART + RLENGTH)
            if (s == "struct" || s == "union") mention(w, text)
            else if (w ~ /^hf_/) spoken[w, layer] = spoken[w, layer] " " FILENAME ":" FNR
            s = w
        }
    }
    function mention(w, rest) {
        if (rest ~ /^ *$/ || rest ~ /^ *\{/) {
            if (!(w in low) || rank[layer] < low[w]) low[w] = rank[layer]
        } else if (rest ~ /^ *;/ && depth == 0) declared[w] = FILENAME ":" FNR
        spoken[w, layer] = spoken[w, layer] " " FILENAME ":" FNR
        tags[w]
    }

    # One declaration, without its last character; inside of a struct if member.
    function statement(s, member, end,    w, p, rest) {
        gsub(/[ \t]+/, " ", s); sub(/^ /, "", s)
        if (s ~ /^typedef/) return
        if (member && calls(s)) has_callback[depth] = 1
        if (layer == "base" || s !~ /(^| )void \*/) return
        if (s !~ /\(/) {
            if (end == "{") return
            w = s; sub(/ *[=[].*/, "", w); sub(/.*[ *]/, "", w)
            if (w in known) return
            if (!member || w !~ /(^|_)arg$/) { bad("void *" w ": give it a type"); return }
            wants[depth] = wants[depth] " " began
            return
        }
        if (member || s ~ /=/) return # a callback, a value
        w = s; sub(/ ?\(.*/, "", w)
        p = w; sub(/.*[ *]/, "", w)
        if (w in known || s ~ /^static / || s ~ /^void \*[a-z_0-9]+\(void \*[a-z_]+\)/) return
        if (p ~ /(^| )void \*/) bad(w "() returns void *: give it a type")
        if (FILENAME !~ /\.h$/) return
        rest = s; sub(/^[^(]*\(/, "", rest)
        gsub(/\( ?\*[^)]*\) ?\([^)]*\)/, "CALLBACK", rest)
        n = split(rest, par, ",")
        for (i = 1; i <= n; i++) {
            if (par[i] !~ /(^| )void \*/) continue
            p = par[i]; gsub(/\)| *$/, "", p); sub(/.*[ *]/, "", p)
            if (p in known || par[i + 1] ~ /^ ?size_t /) continue
            if (p != "arg") bad("void *" p " of " w "(): give it a type")
            else if (!calls(s)) bad("void *arg of " w "(): no callback beside it")
        }
    }
    function calls(s,    w, k) {
        if (s ~ /\( ?\* ?[a-z_0-9]+\) ?\(/) return 1
        for (k = split(s, w, /[^a-z_0-9]+/); k; k--) if (w[k] in callback) return 1
        return 0
    }
    function leave(    l, k) {
        if (inside[depth] && !has_callback[depth])
            for (k = split(wants[depth], l, " "); k; k--)
                say(FILENAME, l[k], "void *arg: no callback beside it")
        depth--
    }

    FNR == 1 { split(FILENAME, dir, "/"); layer = dir[2]; depth = 0; text = ""; comment = 0 }
    {
        line = $0
        gsub(/"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047/, "0", line)
        gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
        if (comment) {
            if (!sub(/^.*\*\//, "", line)) next
            comment = 0
        }
        if (sub(/\/\*.*/, "", line)) comment = 1
        if (going || line ~ /^[ \t]*#/) { going = line ~ /\\$/; next }
        words(line)
        while (match(line, /[;{}]/)) {
            if (text ~ /^ *$/) began = FNR
            text = text " " substr(line, 1, RSTART - 1)
            end = substr(line, RSTART, 1)
            line = substr(line, RSTART + 1)
            if (!depth || inside[depth]) statement(text, depth > 0, end)
            if (end == "{") {
                depth++
                inside[depth] = text ~ /(struct|union)( [a-z_0-9]+)? *$/
                has_callback[depth] = 0; wants[depth] = ""
            } else if (end == "}" && depth) leave()
            text = ""
        }
        if (text ~ /^ *$/) began = FNR
        text = text " " line
    }
    END {
        for (k in spoken) {
            split(k, at, SUBSEP)
            if (!(at[1] in low)) continue
            if (low[at[1]] > rank[at[2]]) {
                m = split(spoken[k], place, " ")
                for (i = 1; i <= m; i++) {
                    split(place[i], fl, ":")
                    say(fl[1], fl[2], at[1] ": src/" at[2] " is below src/" order[low[at[1]]])
                }
            }
        }
        for (w in declared) if (!(w in low)) {
            split(declared[w], fl, ":")
            say(fl[1], fl[2], "struct " w " is defined nowhere")
        }
        exit failed
    }
' >&2 || failed=1

find src cli -name '*.[ch]' 2> /dev/null | sort | grep -vE '^(src/base/|cli/platform\.[ch]$)' |
    xargs -r awk '
    function look(for_it, why) {
        if (!match(line, "(^|[^A-Za-z_0-9.>])(" for_it ")")) return
        word = substr(line, RSTART, RLENGTH); gsub(/^[^A-Za-z_<"]|[("]/, "", word)
        print FILENAME ":" FNR ": " word ": " why
        failed = 1
    }
    BEGIN {
        linux = "<linux/[a-z_]+\\.h>|<sys/(epoll|eventfd|inotify|prctl|random|signalfd|statfs|" \
                "syscall|sysinfo|timerfd|vfs)\\.h>|\"/proc/|(epoll|eventfd|fanotify|inotify|" \
                "memfd|pidfd|signalfd|timerfd)[a-z_0-9]*\\(|(close_range|getrandom|gettid|prctl|" \
                "secure_getenv|syscall)\\(|program_invocation_[a-z_]*|CLOCK_BOOTTIME|" \
                "SO_(DOMAIN|PEERCRED)|TCP_(KEEPCNT|KEEPIDLE|KEEPINTVL|USER_TIMEOUT)"
        memory = "(malloc|calloc|realloc|free|strn?dup|v?asprintf)\\("
        time = "(time|gettimeofday|clock_gettime|clock_nanosleep|nanosleep|u?sleep)\\("
        wall["src/doctor/exam_server.c"] # compares clocks with the server
    }
    FNR == 1 { comment = 0 }
    {
        line = $0
        gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
        if (comment) {
            if (!sub(/^.*\*\//, "", line)) next
            comment = 0
        }
        if (sub(/\/\*.*/, "", line)) comment = 1
        look(linux, "only in src/base and cli/platform.c")
        if (FILENAME !~ /^src\//) next
        look(memory, "use mem_*, of base/mem.h")
        if (!(FILENAME in wall)) look(time, "use base/clock.h")
    }
    END { exit failed }
' >&2 || failed=1
exit $failed
