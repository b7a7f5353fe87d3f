#!/bin/sh
# SPDX-License-Identifier: MIT
# fuzz.sh - run fuzz targets until each has had SECONDS of processor time, JOBS of them at once.
#
#   SECONDS_EACH=3600 JOBS=2 fuzz.sh build/fuzz/tests/fuzz/url ...
#   fuzz.sh --keep build/fuzz/tests/fuzz/url ...    of what was found, the inputs that reach what
#                                                   the corpus in the tree does not
#
# Time of the processor counts, not of the clock: a busy machine makes the run longer, not worse.
# Targets take turns of SLICE seconds. What each turn used is a line in build/fuzz/spent/TARGET
# ("SECONDS INPUTS EDGES"), so a run that was ended goes on where it was. A target that has found
# something gets no more turns until its file in build/fuzz is looked at and removed. At the end a
# line for each target. Exit 1 when one of them has found something.
set -eu

state=build/fuzz
spent() { # spent TARGET: seconds so far
    awk '{ s += $1 } END { printf "%d\n", s }' "$state/spent/$1" 2> /dev/null || echo 0
}
findings() { # findings TARGET: the names of files that libFuzzer left
    find "$state" -maxdepth 1 -name "$1-*" ! -name '*slow-unit*'
}
wants_time() { # wants_time TARGET: it has not had its seconds, and has found nothing
    [ "$(spent "$1")" -lt "$SECONDS_EACH" ] && [ -z "$(findings "$1")" ]
}

if [ "${1:-}" = --turn ]; then
    name=${2##*/}
    log=$state/log/$name
    mkdir -p "$state/corpus/$name" "$state/spent" "$state/log"
    wants_time "$name" || exit 0
    "$2" -max_total_time="$SLICE" -print_final_stats=1 -artifact_prefix="$state/$name-" \
        "$state/corpus/$name" "tests/fuzz/corpus/$name" > "$log" 2>&1 ||
        printf 'fuzz.sh: %s has ended with status %s, see %s\n' "$name" $? "$log" >&2
    times > "$log.times" # line 2: the user's and the system's minutes and seconds of all children
    awk 'FILENAME ~ /times$/ && FNR == 2 {
             for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); used += 60 * t[1] + t[2] }
         }
         /^stat::number_of_executed_units:/ { inputs = $2 }
         / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") edges = $(i + 1) }
         END { printf "%.1f %d %d\n", used, inputs, edges }' "$log" "$log.times" \
        >> "$state/spent/$name"
    exit 0
fi

if [ "${1:-}" = --keep ]; then
    shift
    for program; do
        name=${program##*/}
        kept=tests/fuzz/corpus/$name
        [ -d "$state/corpus/$name" ] || {
            echo "fuzz.sh: nothing was found by $name yet: run make fuzz first" >&2
            exit 1
        }
        all=$(mktemp -d)
        cp "$kept"/* "$all"
        "$program" -use_counters=0 -set_cover_merge=1 "$all" "$state/corpus/$name" \
            > "$state/log/$name.keep" 2>&1 || {
            rm -rf "$all"
            echo "fuzz.sh: $name has failed, see $state/log/$name.keep" >&2
            exit 1
        }
        n=0
        for f in "$all"/*; do
            input=${f##*/}
            [ ! -e "$kept/$input" ] || continue
            cp "$f" "$kept/found-$(printf '%.8s' "$input")" # libFuzzer names it by its SHA-1
            n=$((n + 1))
        done
        rm -rf "$all"
        printf '%-12s %4d inputs more\n' "$name" $n
    done
    exit 0
fi

export SECONDS_EACH="${SECONDS_EACH:-60}" SLICE="${SLICE:-60}"
# Targets that still want time get turns, until none of them does. Several passes at a time: at the
# end of a list some of the jobs have nothing to do.
while :; do
    for _ in 1 2 3 4; do
        for program; do
            ! wants_time "${program##*/}" || echo "$program"
        done
    done > "$state/turns"
    [ -s "$state/turns" ] || break
    xargs -P "${JOBS:-2}" -n 1 "$0" --turn < "$state/turns"
done

status=0
for program; do
    name=${program##*/}
    awk -v name="$name" '{ s += $1; n += $2; if ($3 > e) e = $3 }
        END { printf "%-12s %6d s, %12d inputs, %5d edges\n", name, s, n, e }' "$state/spent/$name"
    for f in $(findings "$name"); do
        echo "    found: $f"
        status=1
    done
done
exit $status
