# SPDX-License-Identifier: MIT
# completion.sh - what the completion of bash, zsh and fish offers: by --complete, and by typing at
# real shells on a terminal made by script(1).
# shellcheck disable=SC2016,SC2088 # for other shells

# offers WORD...: what can be the last word, sorted, without the descriptions.
offers() {
    printf '%s\0' holdfast "$@" | "$HOLDFAST" --complete > out 2> err
    cut -f1 out | sort | tr '\n' ' '
}

# names WANT WORD...: the names of locks among them. A server is asked for less than a second, which
# a machine with much to do may need for something else.
names() {
    want_names=$1 tries=10
    shift
    until got=$(offers "$@") && [ "$got" = "$want_names" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "got '$got', want '$want_names': $*"
    done
}

# locks NAME...: held for a while.
locks() {
    for n; do
        holdfast acquire "$n" --ttl 60s > /dev/null
    done
}

# ---- what is offered ----

test_every_command_and_option_of_help_is_offered() {
    holdfast --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | sort > names
    expect_eq "$(offers '')" "$(tr '\n' ' ' < names)"
    while read -r c; do
        [ "$c" != help ] || continue
        holdfast "$c" --help > help
        sed -n '/^Options:/,/^$/p' help | grep -oE '^  (-[A-Za-z], )?--[a-z-]+' |
            sed 's/.*--/--/' | sort > options
        expect_eq "$(offers "$c" --)" "$(tr '\n' ' ' < options)"
        sed -nE "s/^  (-[A-Za-z], )?(--[a-z-]+) ([a-z]+\\|[a-z|]+).*/\\2 \\3 $c/p" help >> choices
    done < names
    expect_eq "$(offers run -)" "$(offers run --)"
    # The values that help shows as a choice: each once.
    sort -u -k1,2 choices > each
    [ "$(wc -l < each)" -ge 3 ]
    while read -r option values c; do
        fitting=$(echo "$values" | tr '|' '\n' | sort | tr '\n' ' ')
        expect_eq "$(offers "$c" "$option" '')" "$fitting"
        expect_eq "$(offers "$c" "$option=")" \
            "$(for v in $fitting; do printf '%s=%s ' "$option" "$v"; done)"
    done < each
    [ ! -e hf ] || fail "a server was started"
}

test_only_what_fits_is_offered() {
    expect_eq "$(offers r)" 'release resize run '
    expect_eq "$(offers help la)" 'latch '
    expect_eq "$(offers server st)" 'start status stop '
    expect_eq "$(offers server stop '')" ''
    expect_eq "$(offers -q --prefix p: ser)" 'server '
    expect_eq "$(offers --url redis+)" 'redis+cluster:// redis+quorum:// redis+sentinel:// '
    expect_eq "$(offers nosuch '')" ''
    expect_eq "$(offers run --on-lost ki)" 'kill '
    expect_eq "$(offers run --on-l ki)" 'kill ' # an abbreviation that getopt takes
    expect_eq "$(offers run --replicas '')" 'majority '
    expect_eq "$(offers run -nw '')" '' # a duration
    expect_eq "$(offers run -no '')" 'json jsonl table '
    expect_eq "$(offers run --ttl 5s --on-l)" '--on-lost '
    expect_eq "$(offers run --skip-ok=)" ''
    expect_eq "$(offers run -- --)" ''
}

test_where_the_command_begins() {
    expect_eq "$(offers run a '')" '-- '
    expect_eq "$(offers run a l)" ':command 3 here '
    expect_eq "$(offers run a --)" "$(offers run --)"
    expect_eq "$(offers run a -- '')" ':command 4 here '
    expect_eq "$(offers -q run -n a --ttl 5s -- ls -)" ':command 8 '
    expect_eq "$(offers run -- a ls x)" ':command 4 '
    expect_eq "$(offers elect e --value v ls '')" ':command 5 '
    expect_eq "$(offers once page --ttl 5s -- cur)" ':command 6 here '
    expect_eq "$(offers run a -c 'ls' '')" ''
    expect_eq "$(offers acquire a '')" ''
}

test_a_line_is_split_as_it_was_typed() {
    for line in 'holdfast run --on-lost ki' 'holdfast  run "--on-lost" ki' \
        "holdfast run '--on-lost' 'ki" 'holdfast run --on-los\t k"i' \
        'holdfast run --info "a \" b" -w5 --on-lost ki'; do
        printf '%s' "$line" | "$HOLDFAST" --complete line > out
        expect_out_is kill
    done
    printf 'holdfast run --on-lost ' | "$HOLDFAST" --complete line > out
    expect_out_is "$(printf 'term\nkill\nignore')"
    for line in '' holdfast 'holdfast run "' "holdfast run a\\" '   '; do
        printf '%s' "$line" | "$HOLDFAST" --complete line > out || fail "it failed: $line"
    done
    # More than a line has.
    head -c 300000 /dev/zero | expect_piped 64 --complete
    head -c 300000 /dev/zero | tr '\0' a | expect_piped 64 --complete line
}

expect_piped() { # expect_piped STATUS ARG...: with the stdin that is there
    want=$1 status=0
    shift
    "$HOLDFAST" "$@" > out 2> err || status=$?
    expect_eq "$status" "$want"
}

test_names_of_locks() {
    locks db:one db:two other
    holdfast latch gate --set 2 > /dev/null
    holdfast --prefix p: acquire elsewhere --ttl 60s > /dev/null
    names 'db:one db:two ' status db:
    grep -q "^db:one${tab}mutex, held by .* pid [0-9]*\$" out || fail "$(cat out)"
    names 'db:one db:two gate other ' status ''
    names 'db:one db:two ' status other d
    names 'other ' release o
    names 'other ' release --owner x o
    names 'gate ' latch ''
    names 'x,db:one ' run x,db:o
    names 'elsewhere ' ls --prefix p: ''
    names 'elsewhere ' --prefix=p: ls ''
    expect_eq "$(offers release o '')" ''
    expect_eq "$(offers acquire x,db:o)" ''
    expect_eq "$(offers sequence '')" ''
    # Patterns are not expanded, and what could do harm at a terminal is not offered.
    locks 'a*b' "$(printf 'x\033[31m')" "$(printf 'new\nline')"
    names 'a*b ' status 'a*'
    expect_eq "$(offers status 'o?h')" ''
    expect_eq "$(offers status x)" ''
    expect_eq "$(offers status n)" ''
}
tab=$(printf '\t')

test_names_start_no_server_and_do_not_hang() {
    expect_eq "$(offers status '')" ''
    [ ! -e hf ] || fail "a server was started"
    start_server
    ask SET lock:a x PX 60000 > /dev/null
    names 'a ' --url "$SERVER_URL" status ''
    kill -STOP "$SERVER_PID"
    before=$(date +%s%3N)
    expect_eq "$(offers --url "$SERVER_URL" status '')" ''
    took=$(($(date +%s%3N) - before))
    kill -CONT "$SERVER_PID"
    [ "$took" -ge 500 ] || fail "it did not ask"
    at_most 5000 "$took" "it took"
    expect_eq "$(offers --url "unix://$dir/nobody" status '')" ''
    expect_eq "$(offers --url nonsense status '')" ''
    # An embedded server that ran, and was killed.
    locks a
    names 'a ' status ''
    kill -9 "$(holdfast server status -o json | jq .pid)"
    wait_until '! holdfast server status > status.out'
    expect_eq "$(offers status '')" ''
    expect_exit 69 holdfast server status
}

# ---- at a shell ----

# A shell finds this as `holdfast`: it completes as the real one does, and else notes its arguments.
in_path() {
    mkdir bin
    cat > bin/holdfast << END
#!/bin/sh
[ "\$1" != --complete ] || exec '$HOLDFAST' "\$@"
printf '<%s>' "\$@" > '$dir/ran.new'
mv '$dir/ran.new' '$dir/ran'
END
    printf '#!/bin/sh\n' > bin/only-here
    chmod +x bin/*
    PATH=$dir/bin:$PATH
    export PATH
}

on_terminal() { # on_terminal CMD: until it shows its prompt, READY
    mkfifo keys
    TERM=vt100 script -qefc "stty cols 80 rows 24; exec $1" typescript < keys > screen 2>&1 &
    exec 5> keys
    wait_until 'grep -q READY screen' 20
}

# typing TEXT ARGUMENTS: TEXT and Enter, with TAB as \t, call holdfast with these.
typing() {
    for try in 1 2 3 4 5; do # again if the server did not answer in time
        rm -f ran
        # shellcheck disable=SC2059 # escapes are wanted
        printf "$1\r" >&5
        wait_until '[ -e ran ]' 20
        [ "$(cat ran)" != "$2" ] || return 0
    done
    fail "got '$(cat ran)', want '$2', $try times"
}

# All that all shells do alike.
types_well() {
    typing 'holdfast stat\tdb:o\t' '<status><db:one>'
    typing 'holdfast seq\t--cou\t5 x' '<sequence><--count><5><x>'
    typing 'holdfast run x,db:t\t-- true' '<run><x,db:two><--><true>'
    typing 'holdfast run --on-lost ki\ta -- true' '<run><--on-lost><kill><a><--><true>'
    typing 'holdfast run --on-lost=ki\ta -- true' '<run><--on-lost=kill><a><--><true>'
    typing 'holdfast ls --url embed\t' '<ls><--url><embedded:>'
    typing 'holdfast status two\t' '<status><two words>'
    typing "holdfast status 'two\t" '<status><two words>'
    typing 'holdfast run a \ttrue' '<run><a><--><true>'
    typing 'holdfast run a -- only-\tx' '<run><a><--><only-here><x>'
    typing 'holdfast run db:o\t-- cat fil\t' '<run><db:one><--><cat><file-there>'
    typing '~/../bin/holdfast stat\tdb:o\t' '<status><db:one>'
}

prepare() {
    in_path
    mkdir home
    HOME=$dir/home
    export HOME
    : > file-there
    locks db:one db:two 'two words'
}

test_bash() {
    prepare
    cat > rc << END
PS1='READY '
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
. '$root/share/completion/holdfast.bash'
END
    on_terminal "bash --noprofile --rcfile '$dir/rc' -i"
    types_well
}

# Names are those of others: whoever may take a lock must not run anything in our shell.
hostile_names_run_nothing() {
    locks ":command psvar[\$(touch $dir/pwned)1]"
    typing 'holdfast status \tx' '<status><x>'
    typing 'holdfast status :\tx' '<status><:x>'
    locks "backup\$(touch $dir/pwned)" "dump'; touch $dir/pwned; '"
    typing 'holdfast status "bac\tx"' '<status><bacx>'
    typing "holdfast status 'dum\tx'" '<status><dumx>'
    [ ! -e pwned ] || fail "a name was run"
}

test_bash_and_names_of_others() {
    in_path
    cat > rc << END
PS1='READY '
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
_command_offset() { COMPREPLY=("word\$1"); }
. '$root/share/completion/holdfast.bash'
END
    on_terminal "bash --noprofile --rcfile '$dir/rc' -i"
    hostile_names_run_nothing
}

test_names_that_look_like_our_own_answers_are_not_offered() {
    locks ':command 1' ':files' 'x:files'
    names 'x:files ' status ''
}

# With the package bash-completion, what its scripts know of CMD is offered, too.
test_bash_with_completions_of_the_command() {
    prepare
    cat > rc << END
PS1='READY '
bind 'set enable-bracketed-paste off'
_command_offset() { COMPREPLY=("word\$1"); }
. '$root/share/completion/holdfast.bash'
END
    on_terminal "bash --noprofile --rcfile '$dir/rc' -i"
    typing 'holdfast run db:one -- cmd x\t' '<run><db:one><--><cmd><word6>'
    typing 'holdfast run one cmd x\t' '<run><one><cmd><word3>'
}

test_zsh() {
    command -v zsh > /dev/null || left_out "no zsh here"
    prepare
    mkdir fpath
    cp "$root/share/completion/_holdfast" fpath/
    cat > home/.zshrc << END
fpath=('$dir/fpath' \$fpath)
autoload -Uz compinit
compinit -u -d '$dir/zcompdump'
unsetopt beep prompt_sp
PS1='READY '
END
    on_terminal "env ZDOTDIR='$dir/home' zsh -d -i"
    types_well
}

test_fish() {
    command -v fish > /dev/null || left_out "no fish here"
    prepare
    cat > ask.fish << 'END'
source $argv[1]
complete -C $argv[2]
END
    asks() { # asks LINE WORDS
        for try in 1 2 3 4 5; do
            run fish --no-config ask.fish "$root/share/completion/holdfast.fish" "$1"
            expect_no_err
            got=$(cut -f1 out | sort | tr '\n' ' ')
            [ "$got" != "$2" ] || return 0
        done
        fail "got '$got', want '$2', $try times: $1"
    }
    asks 'holdfast stat' 'status '
    expect_out 'who holds it'
    asks 'holdfast status db:' 'db:one db:two '
    expect_out 'held by'
    asks 'holdfast status tw' 'two words '
    asks "holdfast status 'tw" 'two words '
    asks 'holdfast run x,db:t' 'x,db:two '
    asks 'holdfast run --on-lost k' 'kill '
    asks 'holdfast run --on-lost=k' '--on-lost=kill '
    asks 'holdfast run --skip' '--skip-ok '
    asks 'holdfast run a ' '-- '
    asks 'holdfast run a -- only-' 'only-here '
    asks 'holdfast run a -- cat fil' 'file-there '
    asks 'holdfast server st' 'start status stop '
    asks 'holdfast server stop ' ''
}
