# SPDX-License-Identifier: MIT
# manpage.sh - the manual names every command, option and exit status that --help lists.

page=man/holdfast.1

test_it_is_well_formed() {
    expect_exit 0 groff -mandoc -ww -z "$root/$page"
    expect_no_err
    if command -v mandoc > /dev/null; then
        expect_exit 0 mandoc -T lint -W warning "$root/$page"
    fi
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
    for c in run once acquire extend release check resize status ls break ask elect leader \
        sequence latch barrier doctor server; do
        holdfast help $c
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
    while read -r c; do
        grep -Fqx ".It $c" "$root/$page" || fail "not in the manual: $c"
    done < codes
}

test_it_names_every_variable() {
    for v in URL PASSWORD SENTINEL_PASSWORD NAME FENCE OWNER TTL_MS; do
        grep -q "^\.It Ev HOLDFAST_$v\$" "$root/$page" || fail "not in the manual: HOLDFAST_$v"
    done
}
