# SPDX-License-Identifier: MIT
# build.sh - the Makefile: what it rebuilds, and where it writes. Two objects stand for all.
# shellcheck disable=SC2086 # words

object=src/base/err.o
embeds=src/exec/script.o # needs what is generated

test_other_flags_build_anew_and_the_same_do_not() {
    m="make -C $root B=$dir/b $dir/b/obj/$object"
    expect_exit 0 $m
    expect_out "CC .*$object"
    for again in '' WERROR=1 CI=1; do
        expect_exit 0 $m $again
        if grep CC "$dir/out"; then
            fail "compiled though nothing changed: $again"
        fi
    done
    for change in CFLAGS=-O1 CPPFLAGS=-DA=1 LDFLAGS=-s "CC=gcc -pipe"; do
        expect_exit 0 $m "$change"
        expect_out "CC .*$object"
        expect_exit 0 $m "$change"
        if grep CC "$dir/out"; then
            fail "compiled twice: $change"
        fi
    done
}

test_with_B_nothing_is_written_into_the_tree() {
    mkdir tree
    (cd "$root" && cp -r Makefile mk src include cli tools holdfast.pc.in man "$dir/tree/")
    find tree | sort > before
    expect_exit 0 make -C tree B="$dir/b" "$dir/b/obj/$embeds"
    [ -f "$dir/b/obj/$embeds" ] || fail "it is not there"
    [ -f "$dir/b/gen/scripts.inc" ] || fail "GEN does not follow B"
    find tree | sort > after
    cmp before after || fail "the tree was written to"
}

test_each_compiler_gets_the_warnings_that_it_knows() {
    expect_exit 0 make -C "$root" -n CC=gcc B="$dir/b" "$dir/b/obj/$object"
    if grep -e -Wno-unknown-warning-option "$dir/out"; then
        fail "to gcc that is the unknown one"
    fi
    expect_exit 0 make -C "$root" -n CC=clang B="$dir/b" "$dir/b/obj/$object"
    expect_out -Wno-unknown-warning-option
}

# On other processors the names are other ones.
test_the_tools_of_another_processor_can_be_named() {
    expect_exit 0 make -C "$root" -n CC=x-gcc AR=x-ar OBJCOPY=x-objcopy B="$dir/b" \
        "$dir/b/libholdfast.a"
    for tool in 'x-gcc -r ' x-ar x-objcopy; do
        expect_out "$tool"
    done
    if grep -E '(^|[ ;&])(ld|ar|objcopy|gcc) ' "$dir/out"; then
        fail "a tool of this machine is used"
    fi
}
