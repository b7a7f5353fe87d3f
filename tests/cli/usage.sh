# SPDX-License-Identifier: MIT
# usage.sh - options, help, and what is refused before any server is asked.

test_version() {
    expect_exit 0 holdfast --version
    expect_out '^holdfast [0-9]+\.[0-9]+\.[0-9]+$'
    expect_exit 0 holdfast -V
}

test_help_names_every_command() {
    expect_exit 0 holdfast --help
    for c in run once acquire extend release check held resize status why ls break ask top graph \
        web watch history exporter elect leader sequence latch barrier doctor bench server; do
        expect_out "^  $c +[a-z]"
        cp out all
        expect_exit 0 holdfast "$c" --help
        expect_out "^Usage: holdfast $c "
        cp out long
        expect_exit 0 holdfast help "$c"
        cmp out long
        expect_exit 0 holdfast --help "$c"
        cmp out long
        cp all out
    done
    expect_exit 0 holdfast help
    expect_exit 0 holdfast -h
}

test_no_command() {
    expect_exit 64 holdfast
    expect_err 'a command is missing'
    expect_err 'see holdfast --help'
    expect_exit 64 holdfast nosuch
    expect_err "no command 'nosuch'"
    expect_exit 64 holdfast help nosuch
}

test_usage_errors_say_what_and_where() {
    expect_exit 64 holdfast run
    expect_err "run: the lock's name is missing"
    expect_err 'see holdfast run --help'
    expect_exit 64 holdfast run a
    expect_err 'command to run is missing'
    expect_exit 64 holdfast run a --
    expect_err 'command to run is missing'
    expect_exit 64 holdfast run -n -w 1 a true
    expect_err 'cannot be used together'
    expect_exit 64 holdfast run --nosuch a true
    expect_err 'unknown option --nosuch$'
    expect_exit 64 holdfast run -Z a true
    expect_err 'unknown option -Z$'
    expect_exit 64 holdfast run -nZq a true
    expect_err 'unknown option -Z$'
    expect_exit 64 holdfast run --ttl
    expect_err 'needs a value'
    expect_exit 64 holdfast run -w
    expect_err 'needs a value'
    expect_exit 64 holdfast run --skip-ok=1 a true
    expect_err 'takes no value'
    expect_exit 64 holdfast run a,,b -- true
    expect_err 'name is empty'
    expect_exit 64 holdfast run '' true
    expect_exit 64 holdfast run --max-run 0 a true
    [ ! -e hf ] || fail "a server was started for a usage error"
}

test_values() {
    for bad in abc -1 '' 1x 1.s 99999999999999999999d; do
        expect_exit 64 holdfast run --ttl "$bad" a true
        expect_err "is not a duration"
    done
    expect_exit 64 holdfast run --ttl 0 a true
    expect_exit 64 holdfast run --ttl 99ms a true
    expect_exit 64 holdfast run --ttl 366d a true
    expect_err 'between 100ms and 365d'
    for bad in 256 -1 x 1x '' 99999999999999999999; do
        expect_exit 64 holdfast run -E "$bad" a true
        expect_err 'number from 0 to 255'
    done
    expect_exit 64 holdfast run --on-lost maybe a true
    expect_err 'term\|kill\|ignore'
    expect_exit 64 holdfast ls -o xml
    expect_err 'table\|json\|jsonl'
    for bad in 0 x -5; do
        expect_exit 64 holdfast acquire --hold-pid "$bad" a
        expect_err 'is not a process id'
    done
}

test_ttl_must_outlast_the_stop() {
    expect_exit 64 holdfast run --ttl 1s --kill-after 2s a true
    expect_err 'ttl 1.0s is too short for --kill-after 2.0s'
    # The least ttl that the message names is accepted, a little less is not.
    least=$(sed -n 's/.*at least \([0-9]*\)ms.*/\1/p' err)
    expect_exit 0 holdfast run --ttl "${least}ms" --kill-after 2s a true
    expect_exit 64 holdfast run --ttl "$((least - 20))ms" --kill-after 2s a true
    expect_exit 64 holdfast run --ttl 150ms a true
    expect_exit 0 holdfast run --ttl 150ms --on-lost ignore a true
}

test_later_versions_are_refused_not_faked() {
    expect_exit 64 holdfast run --protocol nosuch a true
    expect_err "--protocol: 'nosuch' is not one of script.transaction.timestamp"
    expect_exit 0 holdfast run --protocol script a true
    for c in web break once barrier latch; do
        expect_exit 64 holdfast "$c"
    done
}

test_replicas() {
    for n in 0 x 101 -2 -1 ''; do
        expect_exit 64 holdfast acquire --replicas "$n" a
        expect_err 'not a number from 1 to 100, or majority'
    done
    expect_exit 69 holdfast acquire --replicas 1 -n a
    expect_err '0 of the 1 replicas'
    expect_exit 78 holdfast acquire --replicas majority -n a
    expect_exit 0 holdfast acquire -n a
}

test_operands_of_the_others() {
    expect_exit 64 holdfast extend a --ttl 5s
    expect_err 'owner is missing'
    expect_exit 64 holdfast extend a --owner x
    expect_err 'ttl is missing'
    expect_exit 64 holdfast extend --owner x --ttl 5s
    expect_exit 64 holdfast release a
    expect_exit 64 holdfast release --owner x
    expect_exit 64 holdfast release --all a --owner x
    expect_exit 64 holdfast check a
    expect_exit 64 holdfast check a b --owner x
    expect_exit 64 holdfast status
    expect_exit 64 holdfast ls a b
    expect_exit 64 holdfast server
    expect_exit 64 holdfast server restart
    expect_exit 64 holdfast server start --force
    expect_exit 64 holdfast acquire
    expect_exit 64 holdfast acquire --on-lost kill a
    expect_err 'needs --hold-pid'
    expect_exit 64 holdfast acquire --json --sh a
    expect_exit 64 holdfast --url redis://localhost server start
    expect_err 'embedded'
}

# A comma separates names everywhere. Who takes one name says so, and touches no server.
test_commas_are_refused_where_one_name_is_taken() {
    for c in "acquire a,b" "acquire a,b --hold-pid $$" "acquire ,a" "acquire a," "acquire ," \
        "acquire -s a,b" "acquire --slots 2 a,b" "acquire --owner me a,b" \
        "extend a,b --owner me --ttl 5s" "release a,b --owner me" "check a,b --owner me" \
        "resize a,b --slots 2" "elect a,b -- touch ran" "once a,b --ttl 5s -- touch ran" \
        "leader a,b" "leader --watch a,b" "sequence a,b" "latch a,b" "latch a,b --set 2" \
        "latch a,b --down" "latch a,b --down 2" "latch a,b -w 1" "barrier a,b --count 1" \
        "ls a,b" "ls *,b" "top a,b" "graph a,b"; do
        set -f
        # shellcheck disable=SC2086 # several words
        expect_exit 64 timeout 10 "$HOLDFAST" $c
        set +f
        expect_no_out
        expect_err "^holdfast: ${c%% *}: a comma separates names, and ${c%% *} takes one"
        expect_err "^holdfast: see holdfast ${c%% *} --help"
    done
    [ ! -e ran ] || fail "it ran"
    [ ! -e hf ] || fail "a server was started for a usage error"
    expect_exit 64 holdfast acquire a,b
    expect_err 'holdfast run NAME,NAME -- CMD'
    expect_exit 64 holdfast ls 'a,b'
    expect_err 'write \? where'
    # The commas of others are theirs.
    expect_exit 0 holdfast acquire a --owner 'me,you' --info 'x,y'
    expect_exit 0 holdfast check a --owner 'me,you'
    expect_exit 0 holdfast release a --owner 'me,you'
    expect_exit 0 holdfast once a --ttl 5s -- echo x,y
    expect_exit 0 holdfast elect --value x,y a -- echo x,y
}

# Every command of --help is in the list above, takes several names, or none.
test_commas_every_command_was_thought_of() {
    holdfast --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' > names
    while read -r c; do
        case $c in
            run | status | doctor | bench | server | web | help) continue ;;
        esac
        expect_exit 64 timeout 10 "$HOLDFAST" "$c" a,b
        expect_err 'a comma separates names'
    done < names
    expect_exit 64 holdfast server start,stop
    expect_exit 64 holdfast doctor a,b
    expect_exit 64 holdfast bench a,b
}

test_commas_in_run_and_status() {
    # shellcheck disable=SC2016 # for the inner shell
    expect_exit 0 holdfast run a,b -- sh -c '"$HOLDFAST" status "$HOLDFAST_NAME" -o jsonl'
    expect_eq "$(jq -r 'select(.held) | .name' out | tr '\n' ' ')" 'a b '
    expect_exit 0 holdfast acquire b
    expect_exit 75 holdfast run -n a,b -- true
    expect_exit 0 holdfast status a,b c,a -o jsonl
    expect_eq "$(jq -r '.name + ":" + (.held | tostring)' out | tr '\n' ' ')" \
        'a:false b:true c:false a:false '
    for bad in '' ',' 'a,' ',a' 'a,,b'; do
        expect_exit 64 holdfast status "$bad"
        expect_err "a lock's name is empty"
        expect_exit 64 holdfast status a "$bad"
        expect_exit 64 holdfast run "$bad" -- true
    done
}

test_spellings() {
    # --opt value, --opt=value, bundled letters, options before the command, -- left out.
    expect_exit 3 holdfast run --ttl=5s -w 3 -q a sh -c 'exit 3'
    expect_exit 3 holdfast -q --prefix=p: run -nx --ttl 5s a -- sh -c 'exit 3'
    expect_exit 0 holdfast run -w3 -- a true
    # CMD's own options are CMD's.
    expect_exit 0 holdfast run a echo -n -q --url x
    expect_out_is '-q --url x'
    expect_exit 0 holdfast run a -- echo -- x
    expect_out_is '-- x'
}

test_options_may_come_after_the_name() {
    expect_exit 0 holdfast run a -n --ttl 5s -- sh -c 'echo "$HOLDFAST_NAME $HOLDFAST_TTL_MS"'
    expect_out_is 'a 5000'
    expect_exit 0 holdfast run -n a --ttl=5s echo -n x --ttl # those of CMD are CMD's
    expect_out_is 'x --ttl'
    expect_exit 127 holdfast run a -n -- -x
    expect_exit 0 holdfast elect e --value me -- sh -c '"$HOLDFAST" leader e'
    expect_out_is me
    expect_exit 64 holdfast run a --nosuch -- true
    expect_err 'unknown option --nosuch$'
    expect_exit 64 holdfast run a -n
    expect_err 'command to run is missing'
    expect_exit 64 holdfast run a --ttl
    expect_err '--ttl needs a value'
    expect_exit 0 holdfast run a --help
}

test_protocol_may_come_before_the_command() {
    expect_exit 0 holdfast --protocol transaction run a -- true
    expect_exit 64 holdfast --protocol nonsense run a -- true
}

test_what_was_meant_is_suggested() {
    expect_exit 64 holdfast rnu a -- true
    expect_err "there is no command 'rnu': did you mean run\?"
    expect_exit 64 holdfast list
    expect_err 'use ls'
    expect_exit 64 holdfast unlock a
    expect_err 'use release'
    expect_exit 64 holdfast version
    expect_err 'use --version'
    expect_exit 64 holdfast run --skipok a -- true
    expect_err 'unknown option --skipok: did you mean --skip-ok\?'
    expect_exit 64 holdfast frobnicate
    expect_err "no command 'frobnicate'$"
    expect_exit 0 holdfast help --help
}

test_held_is_for_if() {
    if holdfast held a; then fail "nobody holds it"; fi
    expect_exit 1 holdfast held a
    expect_no_out
    expect_no_err
    expect_exit 0 holdfast run a -- "$HOLDFAST" held a
    expect_exit 1 holdfast held a -o json
    expect_out_is '{"schema":"holdfast.held/1","name":"a","held":false}'
    HOLDFAST_URL=unix://$dir/nobody expect_exit 69 holdfast held a
    expect_exit 64 holdfast held
}

test_what_is_cut_is_said() {
    expect_exit 0 holdfast run --info "$(printf '%0300d' 0)" a -- true
    expect_err '^holdfast: --info has 300 bytes: others see the first 200$'
    expect_exit 0 holdfast run --ttl 10s --grace 20s a -- true
    expect_err '^holdfast: --grace 20.0s is more than half of the ttl, 10.0s: it counts as 5.0s$'
    expect_exit 0 holdfast run -q --ttl 10s --grace 20s a -- true
    expect_no_err
}

test_ls_of_nothing_is_nothing() {
    expect_exit 0 holdfast ls
    expect_no_out
    expect_exit 0 holdfast run --info 'ticket 17' a -- sh -c '"$HOLDFAST" held a; sleep 0.4
        "$HOLDFAST" ls; "$HOLDFAST" ls -o json'
    expect_out 'WAITERS +STATE +INFO$'
    expect_out ' ticket 17$'
    expect_out '"since":"20[0-9-]{8}T[0-9:]{8}Z"'
}
