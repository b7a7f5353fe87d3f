# SPDX-License-Identifier: MIT
# first.sh - the first minutes: without rights, without a network, on another system, in a folder
# with blanks in its name. What is needed is said before anything fails.
# shellcheck disable=SC2016 # programs of their own

# A system that lacks the server program. `id`, `sudo` and `apt-get` are what the test says.
system_without_a_server() {
    mkdir -p bin
    ln -s /usr/bin/* bin/
    [ -L /bin ] || ln -sf /bin/* bin/
    rm -f bin/redis-* bin/valkey-* bin/sudo bin/apt-get bin/id
    : > apt.log
}
program() { # program NAME: its text is read
    { echo '#!/bin/sh'; cat; } > "bin/$1"
    chmod +x "bin/$1"
}
user() {
    echo "echo $1" | program id
}
deps() { # deps STATUS KIND
    expect_exit "$1" env PATH="$dir/bin" HOME="$dir" CC=gcc sh "$root/tools/deps.sh" "$2"
}

test_a_user_without_rights_is_told_the_one_command() {
    system_without_a_server
    user 1000
    echo 'echo "$@" >> apt.log' | program apt-get
    deps 1 run
    expect_err '^holdfast: missing: redis-server$'
    expect_err 'or ask somebody who may'
    expect_err '^    sudo apt-get update && sudo apt-get install .* redis-server$'
    echo 'exit 1' | program sudo # it would ask for a password
    deps 1 run
    expect_err '^    sudo apt-get update'
    [ ! -s apt.log ] || fail "apt-get was run"
}

test_a_system_without_apt_is_not_told_to_use_it() {
    system_without_a_server
    for u in 0 1000; do
        user $u
        deps 1 run
        expect_err 'by their Debian names.: redis-server\. Install them'
        if grep apt-get err; then fail "apt-get, where there is none"; fi
    done
}

test_without_a_network_it_says_what_is_missing() {
    system_without_a_server
    user 0
    printf '%s\n' 'echo "E: Unable to fetch archives" >&2' '[ "$2" = update ]' | program apt-get
    deps 1 run
    expect_out '^holdfast: installing redis-server$'
    expect_err 'could not install: redis-server'
    expect_err 'needs a network'
}

test_with_everything_there_nobody_is_asked() {
    system_without_a_server
    printf 'exit 0\n' | program redis-server
    for u in 0 1000; do
        user $u
        echo 'echo "$@" >> apt.log; exit 1' | program apt-get
        echo 'echo "$@" >> apt.log; exit 1' | program sudo
        deps 0 run
        expect_no_out
        expect_no_err
    done
    [ ! -s apt.log ] || fail "apt-get or sudo was run"
}

test_who_may_not_install_is_told_so_first() {
    as=
    mkdir locked
    cp "$root/tools/can-install.sh" . # the tree may be closed to others
    if [ "$(id -u)" = 0 ]; then
        as='setpriv --reuid=65534 --regid=65534 --clear-groups'
        chmod 755 locked "$dir"
        $as test -r "$dir/can-install.sh" || left_out "others cannot reach $dir"
    else
        chmod 555 locked
    fi
    # shellcheck disable=SC2086 # words
    expect_exit 1 $as sh can-install.sh "$dir/locked/usr/lib"
    expect_err "nothing was installed: .* may not write to $dir/locked\$"
    expect_err 'make install PREFIX="\$HOME/.local"'
    expect_exit 0 sh "$root/tools/can-install.sh" "$dir/new/bin" "$dir/new lib"
    : > file
    expect_exit 1 sh "$root/tools/can-install.sh" "$dir/file/bin"
    make -n -C "$root" install PREFIX="$dir/usr" | grep -v '^ \|Entering' > plan
    first=$(grep -n can-install plan | cut -d: -f1 | head -n 1)
    [ "$first" -lt "$(grep -n '^install -d' plan | cut -d: -f1 | head -n 1)" ] || fail "too late"
}

# The tree without git, in such a folder: it is built and shows itself.
test_a_folder_with_blanks() {
    tree="$dir/a folder/of mine"
    mkdir -p "$tree"
    (cd "$root" && tar -cf - --exclude=./build --exclude=./.git .) | tar -xf - -C "$tree"
    cd "$tree"
    expect_exit 0 make -j1 B=build build/obj/src/base/err.o build/gen/scripts.inc build/gen/web.inc
    mkdir -p build
    cp "$root/build/holdfast" build/ # the rest would take a minute
    expect_exit 0 env PATH="$PWD/build:$PATH" sh examples/show.sh
    expect_out 'fay +is done'
    expect_exit 0 tools/pictures.py "$dir/a folder/pictures"
    expect_exit 0 env HOLDFAST_URL="embedded:$dir/a folder/server" build/holdfast run a -- echo ran
    expect_out_is ran
}

# The tests themselves: they put the program and the tree into command lines.
test_the_tests_run_in_a_folder_with_blanks() {
    mkdir 'a tree'
    { # not at the beginning of a line here: it is no test of this file
        echo 'test_it() {'
        echo '    expect_exit 0 sh -c "$HOLDFAST --version"'
        echo '    expect_exit 0 sh -c "ls $root/it.sh"; }'
    } > 'a tree/it.sh'
    cp "$HOLDFAST" 'a tree/holdfast'
    cd 'a tree'
    HOLDFAST="$PWD/holdfast" sh "$root/tests/harness/lib.sh" it.sh > ../tap || { cat ../tap; fail; }
    grep -q '^# passed 1 failed 0' ../tap
}
