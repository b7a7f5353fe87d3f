# SPDX-License-Identifier: MIT
# manpage.sh - the manual is whole: every command, option, exit status and variable, every function,
# every option of a URL; and a page for each command and each part of the interface.

page=man/holdfast.1

well_formed() { # well_formed FILE...
    for m; do
        expect_exit 0 groff -mandoc -ww -z "$m"
        expect_no_err
    done
    if command -v mandoc > /dev/null; then
        expect_exit 0 mandoc -T lint -W warning "$@"
        expect_no_out
    fi
}

test_it_is_well_formed() {
    well_formed "$root"/man/*.[1-8]
}

# The pages of single commands, as `make` makes them.
made_pages() {
    "$root/tools/man-pages.sh" "$HOLDFAST" made
}
commands() {
    holdfast --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | grep -vx help
}

test_each_command_has_a_page_with_all_of_its_options_and_no_other() {
    made_pages
    commands > names
    [ "$(wc -l < names)" -ge 18 ] || fail "found only: $(cat names)"
    : > options
    while read -r c; do
        p=made/man1/holdfast-$c.1
        [ -s "$p" ] || fail "no page of $c"
        holdfast help "$c" | sed -n '/^Options:/,/^$/s/^  \(-[A-Za-z], \)*--\([a-z-]*\).*/\2/p' |
            sort > want
        cat want >> options
        awk '/^\.Bl/ { depth++ } /^\.El/ { depth-- }
            /^\.Sh/ { inside = $2 == "OPTIONS" }
            inside && depth == 1 && /^\.It Fl/ {
                for (i = 3; i <= NF; i++) if ($i ~ /^-[a-z]/) { print substr($i, 2); break }
            }' "$p" | sort > got
        cmp -s want got || { diff want got; fail "options of holdfast-$c(1)"; }
        grep -q '^\.Sh EXAMPLES' "$p" || fail "no examples: $c"
        sed -n '/^\.Sh DESCRIPTION/,/^\.Sh OPTIONS/p' "$p" | grep -q '^[A-Z]' ||
            fail "nothing is said of $c"
    done < names
    [ "$(wc -l < options)" -ge 100 ] || fail "found only $(wc -l < options) options"
    "$root/tools/man-pages.sh" --list | sort > want
    (cd made && find . -type f) | sed 's|^\./||' | sort > got
    cmp -s want got || { diff want got; fail "--list says other names"; }
    well_formed made/man1/holdfast-*.1
    for c in run once elect acquire; do
        sed -n '/^\.Sh EXIT STATUS/,/^\.Sh EXAMPLES/p' "made/man1/holdfast-$c.1" |
            grep -qx '\.It 75' || fail "no exit statuses: $c"
    done
    # Of several options with one name, the command's own is described.
    grep -A3 '^\.It Fl -ttl' made/man1/holdfast-latch.1 | grep -q 'nobody uses it' || fail latch
    grep -A3 '^\.It Fl -ttl' made/man1/holdfast-once.1 | grep -q 'fresh' || fail once
    grep -A3 '^\.It Fl -watch' made/man1/holdfast-leader.1 | grep -q 'each change' || fail leader
    grep -A3 '^\.It Fl -force' made/man1/holdfast-server.1 | grep -q 'Stop the' || fail server
    if grep '^\.Nm$' made/man1/*; then fail "a name that would be another page's"; fi
}

test_each_part_of_the_interface_and_each_function_has_a_page() {
    made_pages
    sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/s/^\.Ss //p' "$root/man/holdfast.3" > parts
    sed -n '/^\.Sh DESCRIPTION/,/^\.Sh THREADS/s/^\.Ss //p' "$root/man/holdfast.3" > described
    cmp parts described || fail "SYNOPSIS and DESCRIPTION of holdfast.3 have other parts"
    sed -n '/^ \*/d; s/^HF_API.*[ *]\(hf_[a-z0-9_]*\)(.*/\1/p' "$root/include/holdfast.h" > names
    [ "$(wc -l < names)" -ge 100 ] || fail "found only $(wc -l < names) functions"
    while read -r f; do
        [ -s "made/man3/$f.3" ] || fail "no page of $f()"
        target=made/$(sed -n 's/^\.so //p' "made/man3/$f.3")
        grep -Eq "^\.Nm $f( ,)?\$" "$target" || fail "$target does not name $f"
        grep -Eq "^\.Fn $f " "$target" || fail "$target has no prototype of $f"
    done < names
    well_formed made/man3/holdfast-*.3
    # What pages refer to is there.
    cat "$root"/man/*.[1-8] made/man1/* made/man3/holdfast-* |
        sed -n 's/^\.Xr \(holdfast[a-z.-]*\) \([0-9]\).*/\1.\2/p' | sort -u > pages
    [ "$(wc -l < pages)" -ge 5 ]
    while read -r p; do
        [ -f "$root/man/$p" ] || [ -f "made/man${p##*.}/$p" ] || fail "there is no page $p"
    done < pages
}

test_every_option_of_a_url_and_key_of_the_file_is_described() {
    sed -n '/options\[\] = {/,/^};/s/^    { "\([a-z_]*\)",.*/\1/p' "$root/src/net/url.c" > options
    [ "$(wc -l < options)" -ge 19 ]
    while read -r o; do
        grep -Eq "^\.It Cm ([a-z_]+ , )*$o( ,|\$)" "$root/man/holdfast.7" ||
            fail "holdfast.7 lacks $o"
    done < options
    sed -n 's/.*strcmp(key, "\([a-z]*\)").*/\1/p' "$root/src/net/config.c" > keys
    [ "$(wc -l < keys)" -ge 3 ]
    while read -r k; do
        grep -qx "\.It Cm $k" "$root/man/holdfast.conf.5" || fail "holdfast.conf.5 lacks $k"
    done < keys
}

# The example is one that is understood.
test_the_file_in_holdfast_conf_5() {
    sed -n '/^\.Bd/,/^\.Ed/{/^\./!p;}' "$root/man/holdfast.conf.5" | sed '/^holdfast/d' |
        sed "s|^url .*|url = unix://$dir/nobody|; s|/etc/holdfast.pass|$dir/pass|" > conf
    (umask 077; echo secret > pass)
    expect_exit 69 env -u HOLDFAST_URL HOLDFAST_CONFIG="$dir/conf" "$HOLDFAST" ls
}

# The page as one line of words without markup.
words() {
    sed -e 's/^\.[A-Z][a-z] //' -e 's/\\&//g' "$root/$page" | tr '\n' ' '
}

test_it_names_every_command() {
    holdfast --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' > names
    [ "$(wc -l < names)" -ge 9 ]
    while read -r c; do
        grep -Eq "^\.It Cm $c( |$)" "$root/$page" || fail "not in the manual: $c"
    done < names
}

test_it_names_every_option() {
    for c in $(commands); do
        holdfast help "$c"
    done > all
    holdfast --help >> all
    sed -n '/^Options/,/^$/p' all |
        grep -oE '^ +(-[A-Za-z], )?--[a-z-]+( [A-Z|a-z]+)?' | sort -u > options
    [ "$(wc -l < options)" -ge 27 ]
    while read -r first second _; do
        case $first in
            --*) want="^\.It Fl -${first#--}( |$)" ;;
            *) want="^\.It Fl $(echo "$first" | cut -c2) , -${second#--}( |$)" ;;
        esac
        grep -Eq -e "$want" "$root/$page" || fail "not in the manual: $first $second"
    done < options
}

test_it_names_every_exit_status() {
    holdfast --help | sed -n '/^Exit status:/,/^$/s/^  \([0-9][0-9+N]*\) .*/\1/p' > codes
    [ "$(wc -l < codes)" -ge 16 ]
    # --help has all that the program knows.
    sed -n 's/^    EX_[A-Z_]* = \([0-9]*\).*/\1/p' "$root/cli/exitcode.h" | grep -vx 128 > known
    [ "$(wc -l < known)" -ge 15 ]
    while read -r c; do
        grep -qx "$c" codes || fail "not in --help: $c"
    done < known
    while read -r c; do
        grep -Fqx ".It $c" "$root/$page" || fail "not in the manual: $c"
    done < codes
}

# Those of the program itself, wherever they are named; others also if they are only read.
test_it_names_every_variable() {
    cat "$root"/src/*/*.c "$root"/cli/*.c | grep -oE '"HOLDFAST_[A-Z_]+' | tr -d '"' |
        sort -u > variables
    [ "$(wc -l < variables)" -ge 10 ] || fail "found only $(cat variables)"
    while read -r v; do
        grep -q "^\.It Ev $v\$" "$root/$page" || fail "not in the manual: $v"
    done < variables
    cat "$root"/src/*/*.c "$root"/cli/*.c |
        sed -n 's/.*getenv("\([A-Z_]*\)".*/\1/p' | sort -u > asked_for
    [ "$(wc -l < asked_for)" -ge 8 ]
    while read -r v; do
        grep -Eq "^\.(It )?Ev $v( [,.;])?\$" "$root/$page" || fail "not in the manual: $v"
    done < asked_for
}

# What a program that uses the library inherits.
test_the_variables_that_the_library_reads_are_in_holdfast_3() {
    grep -hoE 'getenv\("HOLDFAST_[A-Z_]+' "$root"/src/*/*.c | sed 's/.*"//' | sort -u > asked_for
    [ "$(wc -l < asked_for)" -ge 5 ]
    while read -r v; do
        grep -q "^\.It Ev $v\$" "$root/man/holdfast.3" || fail "not in holdfast.3: $v"
    done < asked_for
}
