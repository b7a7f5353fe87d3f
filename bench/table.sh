#!/bin/sh
# SPDX-License-Identifier: MIT
# table.sh - the table of ratios against the aims, what stands behind them, and how costs grow.
#
#   table.sh FILE    of the lines that the benchmarks wrote to $BENCH_OUT
set -eu
awk '
    # The value of a field; "" if it is not there. The lines are flat.
    function get(name,    v) {
        if (!match($0, "\"" name "\":(\"[^\"]*\"|[^,}]*)")) return ""
        v = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
        gsub(/"/, "", v)
        return v
    }
    function number(v) {
        if (v == "") return "-"
        v += 0
        return sprintf(v >= 100 || v == int(v) ? "%.0f" : v >= 10 ? "%.1f" : "%.2f", v)
    }
    function words(v) {
        if (v == "per_s") return "per s"
        if (v == "max_min") return "max/min"
        gsub(/_/, " ", v)
        return v
    }
    function head(title) { printf "%s%s\n", (parts++ ? "\n" : ""), title }

    BEGIN {
        n_fields = split("per_s p50_us p99_us max_us commands bytes server_us client_us switches " \
                         "max_min", field, " ")
    }
    get("kind") == "aim" {
        work = get("work"); op = get("op"); ratio = get("ratio")
        line = sprintf("%-37s %-25s %9s  %-25s ", work == last ? "" : work,
                       words(get("measure")), number(get("ours")),
                       get("yardstick") == "" ? "" : number(get("theirs")) " " get("yardstick"))
        last = work
        rounds = "[" number(get("low")) "-" number(get("high")) "]"
        line = line (ratio == "" ? sprintf("%21s", "") : sprintf("%6.2fx %-13s", ratio, rounds))
        if (op != "") {
            line = line sprintf(" %s %-6g %s", op, get("limit"),
                                get("met") == "true" ? "met" : "MISSED")
            aims++
            met += get("met") == "true"
        }
        sub(/ *$/, "", line)
        aim_line[++n_aims] = line
    }
    get("kind") == "cost" {
        line = sprintf("%-37s %-16s", get("work") == last_cost ? "" : get("work"), get("who"))
        last_cost = get("work")
        for (i = 1; i <= n_fields; i++) line = line sprintf(" %9s", number(get(field[i])))
        cost_line[++n_costs] = line
    }
    get("kind") == "growth" {
        what = get("what"); measure = get("measure"); size = get("size")
        if (!((what, measure) in seen)) { order[++n_growth] = what SUBSEP measure }
        seen[what, measure]
        if (!((what, size) in sized)) { sized[what, size]; sizes[what] = sizes[what] " " size }
        value[what, measure, size] = get("value")
    }
    END {
        if (n_aims) {
            head(sprintf("%-37s %-25s %9s  %-25s %7s %-13s %s", "WORK", "MEASURE", "HOLDFAST",
                         "YARDSTICK", "RATIO", "[ROUNDS]", "AIM"))
            for (i = 1; i <= n_aims; i++) print aim_line[i]
            printf "%d of %d aims met\n", met, aims
        }
        if (n_costs) {
            line = sprintf("%-37s %-16s", "BEHIND IT, FOR EACH PAIR OR HANDOFF", "")
            for (i = 1; i <= n_fields; i++) line = line sprintf(" %9s", words(field[i]))
            head(line)
            for (i = 1; i <= n_costs; i++) print cost_line[i]
        }
        for (i = 1; i <= n_growth; i++) {
            split(order[i], key, SUBSEP)
            n = split(sizes[key[1]], list, " ")
            if (key[1] != shown) {
                line = sprintf("%-32s", toupper(key[1]))
                for (k = 1; k <= n; k++) line = line sprintf(" %10d", list[k])
                head(line)
                shown = key[1]
            }
            line = sprintf("%-32s", key[2])
            for (k = 1; k <= n; k++)
                line = line sprintf(" %10s", number(value[key[1], key[2], list[k]]))
            print line
        }
    }
' "$1"
