#!/bin/sh
# SPDX-License-Identifier: MIT
# plot.sh - how far each aim was met or missed, as an SVG. Needs gnuplot; fails without it.
#
#   plot.sh FILE OUT.svg    of the lines that the benchmarks wrote to $BENCH_OUT
set -eu
if ! command -v gnuplot > /dev/null; then
    echo "No plot: gnuplot is not installed (Debian: gnuplot-nox)." >&2
    exit 1
fi
data=$(mktemp)
trap 'rm -f "$data"' EXIT
# What is measured, as a part of the limit; more is worse.
awk '
    function get(name,    v) {
        if (!match($0, "\"" name "\":(\"[^\"]*\"|[^,}]*)")) return ""
        v = substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
        gsub(/"/, "", v)
        return v
    }
    get("kind") == "aim" && get("op") != "" {
        is = get("ratio") == "" ? get("ours") : get("ratio")
        is += 0
        limit = get("limit") + 0
        part = get("op") == "<=" ? is / limit : limit / (is > 0 ? is : 0.001)
        measure = get("measure")
        sub(/per_s/, "per s", measure)
        gsub(/_/, " ", measure)
        if (part < 0.02) part = 0.02 # where the plot begins
        printf "%s: %s\t%.4f\n", get("work"), measure, part
    }
' "$1" > "$data"
if ! gnuplot << END
set terminal svg noenhanced size 1100,620 font "sans,11" background "#ffffff"
set output "$2"
set datafile separator "\t"
set title "Holdfast: what was measured, as a part of what the aim allows (below the line: met)"
set logscale y
set yrange [0.02:10]
set ylabel "measured / aim"
set xtics rotate by -50 nomirror
set bmargin 17
set rmargin 14
set grid ytics
set boxwidth 0.7
set style fill solid 0.8
plot "$data" using 0:(\$2 <= 1 ? \$2 : NaN):xtic(1) with boxes lc rgb "#2f7d4f" title "met", \
     "$data" using 0:(\$2 > 1 ? \$2 : NaN):xtic(1) with boxes lc rgb "#b8442c" title "missed", \
     1 with lines lc rgb "#000000" title "aim"
END
then
    echo "No plot: gnuplot failed." >&2
    exit 1
fi
