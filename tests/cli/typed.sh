# SPDX-License-Identifier: MIT
# typed.sh - made for people who type: suggestions, examples, options in any place, -c, durations.
# shellcheck disable=SC2016 # for other shells

commands() { # all but help
    holdfast --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z]*\) .*/\1/p' | grep -vx help
}

test_a_beginning_is_completed_or_its_choices_are_named() {
    expect_exit 64 holdfast rel a
    expect_err "no command 'rel': did you mean release\?$"
    expect_exit 64 holdfast help rel
    expect_err "no command 'rel': did you mean release\?$"
    expect_exit 64 holdfast se
    expect_err "no command 'se': did you mean sequence or server\?$"
    expect_exit 64 holdfast ''
    expect_err "no command ''$"
    # getopt takes the beginning of an option, if it is that of one only.
    expect_exit 0 holdfast run --nonb --tt 5s a true
    expect_exit 64 holdfast run --kil 1 --ma=5s --o kill a true
    expect_err 'run: unknown option --o: did you mean --on-.*--owner or --output\?$'
    expect_exit 64 holdfast ls --wa
    expect_err 'ls: unknown option --wa: did you mean --waiters or --watch\?$'
    expect_exit 64 holdfast run a --no-such=5 true
    expect_err 'unknown option --no-such$'
}

test_the_nearest_is_suggested() {
    expect_exit 64 holdfast run --sloots 2 a true
    expect_err 'did you mean --slots\?$'
    expect_exit 64 holdfast acquire --hold-pdi 2 a
    expect_err 'did you mean --hold-pid\?$' # not --hold-min
    expect_exit 64 holdfast run a --tll 5 true
    expect_err 'did you mean --ttl\?$'
    expect_exit 64 holdfast elect a --vlaue 5 true
    expect_err 'did you mean --value\?$'
    expect_exit 64 holdfast once a --tll 5 -- true
    expect_err 'did you mean --ttl\?$'
}

test_an_option_of_another_command_is_known() {
    expect_exit 64 holdfast check --slots 2 a
    expect_err 'check: unknown option --slots: it belongs to run, acquire and resize$'
    expect_exit 64 holdfast doctor -c x
    expect_err 'doctor: unknown option -c: it belongs to run, once'
    expect_exit 64 holdfast server --protocol script status
    expect_err 'server: unknown option --protocol: it belongs to other commands$'
    expect_exit 64 holdfast -n run a -- true
    expect_err 'unknown option -n: options of a command come behind it, as in holdfast run -n$'
    expect_exit 64 holdfast --ttl 5s run a -- true
    expect_err 'unknown option --ttl: options of a command come .* as in holdfast run --ttl$'
    expect_exit 64 holdfast --slots=redis://:secret@x run a -- true
    if grep secret err; then fail "a value is shown"; fi
}

test_help_fits_the_terminal_and_has_examples() {
    holdfast --help > all
    for c in $(commands); do
        expect_exit 0 holdfast "$c" --help
        grep -q '^Examples:$' out || fail "no examples: $c"
        sed -n '/^Examples:/,/^$/p' out | grep -Eq "holdfast $c( |\$)" || fail "not its own: $c"
        cat out >> all
    done
    [ "$(grep -c '^Examples:$' all)" -ge 18 ] || fail "too few commands found"
    awk 'length($0) > 80 { print; bad = 1 } END { exit bad }' all || fail "wider than 80 columns"
}

# Each option of an example is one of the command's.
test_the_examples_have_options_that_exist() {
    n=0
    for c in $(commands); do
        holdfast "$c" --help > help
        sed -n '/^Examples:/,/^$/p' help | grep "holdfast $c" |
            sed -e 's/ *#.*//' -e "s/'[^']*'//g" -e "s/.*holdfast $c//" -e 's/ -- .*//' \
                -e 's/ [|&>].*//' -e 's/).*//' | tr ' ' '\n' | grep '^-' | sort -u > used || true
        while read -r o; do
            n=$((n + 1))
            case $o in
                --*) grep -Eq "^  (-[A-Za-z], )?$o( |\$)" help ;;
                *) grep -Eq "^  $o, " help ;;
            esac || fail "holdfast $c has no $o"
        done < used
    done
    [ $n -ge 40 ] || fail "found only $n options"
}

test_the_examples_run() {
    for c in extend release check held resize status ls sequence latch; do
        holdfast "$c" --help | sed -n '/^Examples:/,/^$/s/^  //p' |
            grep -v -e --watch -e '--wait ' > lines || fail "no examples: $c"
        holdfast acquire -n deploy --owner me --ttl 60s > /dev/null 2>&1 || true
        mkdir -p bin
        ln -sf "$HOLDFAST" bin/holdfast
        while read -r line; do
            run env PATH="$dir/bin:$PATH" sh -c "$line"
            [ "$status" = 0 ] || [ "$status" = 82 ] || { show; fail "exit status $status: $line"; }
        done < lines
    done
}

test_a_line_for_the_shell() {
    expect_exit 3 holdfast run a -c 'echo "$HOLDFAST_NAME" $((1 + 1)) | cat; exit 3'
    expect_out_is 'a 2'
    expect_exit 0 holdfast run -c 'echo "$0 $#"' -n a
    expect_out_is '/bin/sh 0'
    expect_exit 0 holdfast run a --command='echo x' --
    expect_out_is x
    expect_exit 0 env SHELL=/bin/false "$HOLDFAST" run -qc 'echo always sh' a
    expect_out_is 'always sh'
    expect_exit 0 holdfast elect e -c '"$HOLDFAST" held e && echo led'
    expect_out_is led
    expect_exit 0 holdfast once page --ttl 60 -c 'echo one; echo two'
    expect_exit 0 holdfast once --ttl 60 -c 'echo other' page
    expect_out_is "$(printf 'one\ntwo')"
    expect_exit 143 holdfast run a -c 'kill -TERM $$'
    expect_exit 127 holdfast run a -c 'exec no-such-program'
    for bad in "run a -c true x" "run a -c true -- x" "run -c true a x"; do
        # shellcheck disable=SC2086 # words
        expect_exit 64 holdfast $bad
        expect_err "-c is the whole command, but 'x' follows"
    done
    expect_exit 64 holdfast run -c true
    expect_err "the lock's name is missing"
    expect_exit 64 holdfast run a -c
    expect_err '-c needs a value'
}

# Before the name, behind it, before the command; and for those who ask for the old ways.
test_options_come_before_and_behind_the_name_in_every_command() {
    holdfast acquire mine --owner me --ttl 60s > /dev/null
    holdfast run --slots 2 sem -- true
    for c in 'status mine' 'held mine' 'ls m*' 'check mine --owner me' 'resize sem --slots 2' \
        'extend mine --owner me --ttl 2m' 'sequence ids' 'latch gate --set 1 --force' \
        'barrier meet --count 1'; do
        set -f
        # shellcheck disable=SC2086 # words
        set -- $c
        set +f
        command=$1 name=$2
        shift 2
        expect_exit 0 env POSIXLY_CORRECT=1 "$HOLDFAST" "$command" "$name" "$@" -o json
        lines=$(wc -l < out)
        expect_exit 0 holdfast "$command" "$@" -o json "$name"
        expect_eq "$(wc -l < out)" "$lines"
        expect_exit 0 holdfast -o json "$command" "$name" "$@"
        expect_eq "$(wc -l < out)" "$lines"
    done
}

test_options_come_before_and_behind_the_name_of_what_runs_a_command() {
    show='echo "$HOLDFAST_NAME ${POSIXLY_CORRECT-no}"'
    for c in 'run a' 'elect e' 'once o --ttl 60 --refresh'; do
        # shellcheck disable=SC2086 # words
        set -- $c
        command=$1 name=$2
        shift 2
        expect_exit 0 env POSIXLY_CORRECT=1 "$HOLDFAST" "$command" "$name" -q "$@" -- sh -c "$show"
        expect_out_is "$name 1"
        expect_exit 0 holdfast "$command" "$@" "$name" -q -- sh -c "$show"
        expect_out_is "$name no"
        expect_exit 0 holdfast -q "$command" "$@" "$name" sh -c "$show" -q
        expect_out_is "$name no"
        expect_exit 0 holdfast "$command" "$@" -- "$name" sh -c "$show" --
        expect_out_is "$name no"
    done
}

# The second word would be run as a program.
test_once_takes_one_name() {
    printf '#!/bin/sh\necho ran > ran\n' > b
    chmod +x b
    expect_exit 64 holdfast once a ./b --ttl 5 -- echo x
    [ ! -e ran ] || fail "it ran"
}

test_long_durations() {
    for d in 1h30m 1.5h 90m 5400 5400s 1h29m60s; do
        expect_exit 0 holdfast run --ttl "$d" a -- sh -c 'echo $HOLDFAST_TTL_MS'
        expect_out_is 5400000
    done
    for d in 30m1h 1h1h 1h30 '1h 30m' 1,5h h; do
        expect_exit 64 holdfast run --ttl "$d" a true
        expect_err 'is not a duration \(such as 500ms, 10s, 5m, 1h30m'
    done
}
