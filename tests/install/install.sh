# SPDX-License-Identifier: MIT
# install.sh - `make install` into an empty folder, and programs built from nothing but that.
# shellcheck disable=SC2046 # pkg-config prints words

make_install() {
    make -C "$root" "$@" > make.out 2>&1 || { cat make.out; fail "make $* failed"; }
}

version() {
    sed -n 's/^#define HF_VERSION  *"\(.*\)"/\1/p' "$root/include/holdfast.h"
}

use_tree() { # use_tree PREFIX: from now on pkg-config sees that tree beside the system's
    PKG_CONFIG_PATH=$1/lib/pkgconfig
    LD_LIBRARY_PATH=$1/lib
    export PKG_CONFIG_PATH LD_LIBRARY_PATH
}

write_program() {
    cat > "$1" << 'END'
#include <holdfast.h>
#include <stdio.h>
#include <string.h>
/* Short names that a library could have taken: they must not clash with the library's own. */
int mem_alloc(void);
int mem_alloc(void) { return 7; }
int err_set(void);
int err_set(void) { return 7; }
int main(void)
{
    puts(hf_version());
    return strcmp(hf_version(), HF_VERSION) != 0 || mem_alloc() != 7 || err_set() != 7;
}
END
}

test_programs_build_with_pkg_config_alone() {
    make_install install PREFIX="$dir/usr"
    use_tree "$dir/usr"
    expect_eq "$(pkg-config --modversion holdfast)" "$(version)"
    write_program p.c
    write_program p.cc
    for std in 99 11; do
        gcc -std=c$std -pedantic -Wall -Wextra -Werror p.c -o c$std-shared \
            $(pkg-config --cflags --libs holdfast)
    done
    g++ -std=c++17 -Wall -Wextra -Werror p.cc -o cc-shared \
        $(pkg-config --cflags --libs holdfast)
    # Static: the archive by name, and everything that it needs itself.
    gcc p.c -o c-static $(pkg-config --cflags holdfast) \
        $(pkg-config --static --libs holdfast | sed 's/-lholdfast/-l:libholdfast.a/')
    g++ p.cc -o cc-static $(pkg-config --cflags holdfast) \
        $(pkg-config --static --libs holdfast | sed 's/-lholdfast/-l:libholdfast.a/')
    for p in c99-shared c11-shared cc-shared c-static cc-static; do
        expect_exit 0 "./$p"
        expect_out_is "$(version)"
    done
    readelf -d c99-shared | grep -q "NEEDED.*libholdfast.so"
    if readelf -d c-static | grep 'NEEDED.*libholdfast'; then
        fail "c-static needs the shared library"
    fi
}

test_shared_library_is_linked_as_it_should_be() {
    make_install install PREFIX="$dir/usr"
    lib=$dir/usr/lib
    v=$(version)
    expect_eq "$(readlink "$lib/libholdfast.so")" "libholdfast.so.${v%%.*}"
    expect_eq "$(readlink "$lib/libholdfast.so.${v%%.*}")" "libholdfast.so.$v"
    readelf -d "$lib/libholdfast.so" | grep -q "SONAME.*\[libholdfast.so.${v%%.*}\]"
    expect_exit 0 "$root/tools/check-exports.sh" "$lib"
}

test_destdir_is_only_a_prefix_of_the_copy() {
    make_install install DESTDIR="$dir/stage" PREFIX=/opt/hf LIBDIR=/opt/hf/lib/multi
    cd "$dir/stage"
    for f in opt/hf/bin/holdfast opt/hf/include/holdfast.h opt/hf/lib/multi/libholdfast.a \
        opt/hf/lib/multi/libholdfast.so opt/hf/lib/multi/pkgconfig/holdfast.pc; do
        [ -f "$f" ] || fail "missing: $f"
    done
    if grep -r "$dir" opt/hf/lib/multi/pkgconfig; then
        fail "holdfast.pc names DESTDIR"
    fi
    grep -q '^libdir=/opt/hf/lib/multi$' opt/hf/lib/multi/pkgconfig/holdfast.pc
    if grep '@' opt/hf/lib/multi/pkgconfig/holdfast.pc; then
        fail "holdfast.pc was not filled in"
    fi
}

test_folders_may_have_spaces() {
    make_install install DESTDIR="$dir/a b" PREFIX="/opt/h f"
    [ -f "$dir/a b/opt/h f/bin/holdfast" ] || fail "no holdfast"
    [ -f "$dir/a b/opt/h f/lib/libholdfast.so" ] || fail "no libholdfast.so"
    [ -f "$dir/a b/opt/h f/share/man/man1/holdfast.1" ] || fail "no holdfast.1"
    make_install uninstall DESTDIR="$dir/a b" PREFIX="/opt/h f"
    expect_eq "$(find "$dir/a b" ! -type d)" ""
}

test_man_pages_are_installed_and_clean() {
    make_install install PREFIX="$dir/usr"
    [ -f "$dir/usr/share/man/man1/holdfast.1" ] || fail "no holdfast.1"
    [ -f "$dir/usr/share/man/man3/holdfast.3" ] || fail "no holdfast.3"
    [ -f "$dir/usr/share/man/man5/holdfast.conf.5" ] || fail "no holdfast.conf.5"
    [ -f "$dir/usr/share/man/man7/holdfast.7" ] || fail "no holdfast.7"
    [ -f "$dir/usr/share/man/man1/holdfast-run.1" ] || fail "no holdfast-run.1"
    cd "$dir/usr/share/man" # links to other pages begin there
    for m in man*/*; do
        link=$(sed -n 's/^\.so //p' "$m")
        [ -z "$link" ] || { [ -f "$link" ] || fail "$m: no $link"; continue; }
        groff -mandoc -Tutf8 -ww -z "$m" 2> "$dir/groff.out"
        [ ! -s "$dir/groff.out" ] || { cat "$dir/groff.out"; fail "$m: groff complains"; }
    done
}

test_completions_are_installed_where_the_shells_look() {
    make_install install PREFIX="$dir/usr"
    for f in bash-completion/completions/holdfast zsh/site-functions/_holdfast \
        fish/vendor_completions.d/holdfast.fish; do
        [ -f "$dir/usr/share/$f" ] || fail "no $f"
    done
    bash -n "$dir/usr/share/bash-completion/completions/holdfast"
}

test_uninstall_leaves_nothing() {
    make_install install PREFIX="$dir/usr"
    make_install uninstall PREFIX="$dir/usr"
    expect_eq "$(find "$dir/usr" ! -type d)" ""
}
