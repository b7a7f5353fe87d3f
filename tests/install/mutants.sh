# SPDX-License-Identifier: MIT
# mutants.sh - each mutant of tests/mutants can still be made; the check itself notices what is
# wrong with one.

test_every_mutant_can_be_made() {
    expect_exit 0 "$root/tools/mutants.sh" --check
    expect_out '^[0-9]+ mutants can be made$'
}

# A small tree with the tool and one mutant, as it says on stdin.
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

# judged STATUS WORDS [TEXT]: what is said of a mutant whose test, a script, finds TEXT in the file
# in place of three. The test is run twice: it passes while three is there.
judged() {
    mutant three "$3" "unit/file it_is" | small_tree
    cat > tree/Makefile << 'END'
build/asan/tests/unit/file: tests/unit/file.sh
	mkdir -p $(@D)
	cp $< $@
build/asan/tests/%.so:
	: > $@
END
    cat > tree/tests/unit/file.sh << 'END'
#!/bin/sh
case $(sed -n 3p src/file.c) in
    three) echo 'ok 1 - it_is_two' ;;
    fails) echo 'not ok 1 - it_is_two (1 ms)' && exit 1 ;;
    limit) printf '# not finished after 60 s\nnot ok 1 - it_is_two (60000 ms)\n' && exit 1 ;;
    other) echo 'not ok 1 - something_else (1 ms)' && exit 1 ;;
    crash) echo 'it goes wrong' && kill -SEGV $$ ;;
    hangs) exec sleep 1000 ;;
    *) echo 'ok 1 - it_is_two' ;;
esac
END
    chmod +x tree/tests/unit/file.sh
    expect_exit "$1" tree/tools/mutants.sh
    expect_out "^it  *\\| $2"
    expect_eq "$(tail -n 1 out)" "$((1 - $1)) of 1 mutants killed"
}

test_only_a_test_that_fails_kills() {
    judged 0 'unit/file it_is_two +\| [0-9.]+$' fails
    judged 0 'unit/file it_is_two \(not finished in time\)' limit
    judged 1 'SURVIVED unit/file it_is$' unseen
    judged 1 'ERROR: unit/file it_is ended with status 1, and no test failed' other
    judged 1 'ERROR: unit/file it_is ended with status 139, and no test failed' crash
    LIMIT=1 judged 1 'ERROR: unit/file it_is was not finished in time, and no test failed' hangs
}
