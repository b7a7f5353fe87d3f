# SPDX-License-Identifier: MIT
# mutants.sh - each mutant of tests/mutants can still be made; the check itself notices what is
# wrong with one.

test_every_mutant_can_be_made() {
    expect_exit 0 "$root/tools/mutants.sh" --check
    expect_out '^[0-9]+ mutants can be made$'
}

# tree NAME: a small tree with the tool and one mutant, as it says on stdin.
small_tree() {
    rm -rf tree
    mkdir -p tree/tools tree/src tree/tests/mutants tree/tests/unit
    cp "$root/tools/mutants.sh" "$root/tools/mutants.awk" tree/tools/
    printf 'one\ntwo \\ & * [x]\nthree\ntwo\n' > tree/src/file.c
    echo 'TEST(it_is_two)' > tree/tests/unit/file.c
    cat > tree/tests/mutants/it.mutant
}

refused() { # refused WHY, and the mutant on stdin
    small_tree
    expect_exit 1 tree/tools/mutants.sh --check
    expect_err "^tests/mutants/it.mutant: .*$1"
}

mutant() { # mutant OLD NEW [TEST] [FILE]
    printf 'rule: It is.\nfile: %s\ntest: %s\n--- old\n%s\n--- new\n%s\n' "${4:-src/file.c}" \
        "${3:-unit/file it_is}" "$1" "$2"
}

test_mutants_that_cannot_be_made_are_named() {
    mutant three four | small_tree
    expect_exit 0 tree/tools/mutants.sh --check
    mutant 'two \ & * [x]' '' | small_tree
    expect_exit 0 tree/tools/mutants.sh --check
    mutant five four | refused 'not there any more'
    mutant two four | refused 'more than once'
    mutant three three | refused 'changes nothing'
    mutant three four 'unit/other it_is' | refused 'no such test'
    mutant three four 'unit/file other' | refused 'has no test other'
    mutant three four 'unit/file it_is' src/other.c | refused 'a file that exists'
}
