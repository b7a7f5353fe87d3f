# SPDX-License-Identifier: MIT
# version.sh - one version, wherever it is written; the tarball builds without git.

version() {
    sed -n 's/^#define HF_VERSION  *"\(.*\)"/\1/p' "$root/include/holdfast.h"
}

test_there_is_one_version() {
    v=$(version)
    expect_eq "$(sed -n 's/^#define HF_VERSION_[MP][A-Z]*  *//p' "$root/include/holdfast.h" |
        paste -sd.)" "$v"
    expect_eq "$("$HOLDFAST" --version)" "holdfast $v"
    grep -m 1 '^## ' "$root/CHANGELOG.md" | grep -q "^## ${v}[, ]" ||
        fail "CHANGELOG.md begins with another version"
    expect_eq "$(sed -n '1s/^holdfast (\([^)-]*\)-.*/\1/p' "$root/debian/changelog")" "$v"
}

# Every exported name is in the symbols file of the package, and no other.
test_symbols_of_the_package_are_those_of_the_library() {
    nm -D --defined-only "$root/build/libholdfast.so" | awk '{ print $3 }' | sort > exported
    sed -n 's/^ \([a-z_]*\)@.*/\1/p' "$root/debian/libholdfast0.symbols" | sort > listed
    [ "$(wc -l < exported)" -gt 100 ] || fail "found only $(wc -l < exported)"
    diff exported listed || fail "debian/libholdfast0.symbols is out of date"
}

test_the_tarball_builds_without_git() {
    [ -e "$root/.git" ] || left_out "this is not a clone"
    make -C "$root" dist > /dev/null
    tar -xf "$root/build/holdfast-$(version).tar.gz"
    cd "holdfast-$(version)"
    [ ! -e .git ] || fail "there is a .git"
    make -n all > ../plan 2>&1 || { tail ../plan; fail "it cannot be built"; }
    grep -q 'holdfast' ../plan
    make dist > /dev/null # and so does a tarball of the tarball
    tar -tf "build/holdfast-$(version).tar.gz" | sed 's,/$,,' | sort > again
    tar -tf "$root/build/holdfast-$(version).tar.gz" | sed 's,/$,,' | sort > first
    diff first again || fail "the second tarball differs"
}
