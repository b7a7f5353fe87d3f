#!/bin/sh
# SPDX-License-Identifier: MIT
# deps.sh - install the Debian packages that a make target needs and that are missing.
#
#   deps.sh KIND            install: build run test web python bench plot lint lint-quick fuzz
#                           models sim faults valgrind valkey
#   deps.sh --check KIND    only say what is missing
#
# Each need is found by trying it, never by asking the package database: what was built by hand
# counts too. With everything there, nothing is run but these probes and no network is used.
set -eu

check=
if [ "${1:-}" = --check ]; then
    check=yes
    shift
fi
kind=${1:?usage: deps.sh [--check] KIND, which is one of those above}
missing=

optional=

want() { # want PACKAGE PROBE...: a test is left out without it
    package=$1
    shift
    "$@" >/dev/null 2>&1 || optional="$optional $package"
}
need() { # need PACKAGE PROBE...: PROBE fails when PACKAGE is missing
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
clang_version() { # of the one that is there, or that apt would install; 14 is Debian 12's
    version=$({ clang -dumpversion || apt-cache depends clang | sed -n 's/.*Depends: clang-//p'; } \
        2> /dev/null | sed 's/[^0-9].*//;1q')
    echo "${version:-14}"
}
clang_fuzzes() {
    dir=$(mktemp -d)
    echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return p && n > 1; }' |
        clang -fsanitize=fuzzer,address,undefined -x c -o "$dir/a" -
    works=$?
    rm -rf "$dir"
    return "$works"
}
links_static() { # links_static NAME: libNAME is there, or a static link of OpenSSL needs none
    ! libs=$(pkg-config --static --libs openssl) || case " $libs " in
        *" -l$1 "*) ;;
        *) return 0 ;;
    esac
    # shellcheck disable=SC2086 # it may be two words
    [ "$(${CC:-gcc} -print-file-name="lib$1.a")" != "lib$1.a" ]
}
one_of() { # one_of COMMAND...: any of them will do
    for c; do
        command -v "$c" && return 0
    done
    return 1
}

if [ "$kind" != valkey ] && [ "$kind" != plot ]; then
    compiler=${CC:-gcc}
    need gcc one_of "${compiler%% *}" # CC may be ccache gcc
    need libc6-dev test -e /usr/include/stdio.h
fi
if [ "$kind" != models ] && [ "$kind" != valkey ] && [ "$kind" != plot ]; then
    need binutils one_of objcopy
    need pkg-config one_of pkg-config
    need libssl-dev pkg-config --exists openssl
    need libjansson-dev pkg-config --exists jansson
    need libncurses-dev pkg-config --exists ncursesw
    need libmicrohttpd-dev pkg-config --exists libmicrohttpd
fi
case $kind in
    build | python | models | plot | sim | lint-quick) ;;
    run | test | web | bench | lint | fuzz | faults | valgrind)
        need redis-server one_of redis-server valkey-server
        ;;
    valkey)
        need valkey-server one_of valkey-server
        ;;
    *)
        echo "deps.sh: unknown kind '$kind'" >&2
        exit 2
        ;;
esac
case $kind in
    test)
        need libhiredis-dev pkg-config --exists hiredis
        need liblua5.1-0-dev pkg-config --exists lua5.1
        need zlib1g-dev links_static z # Debian 13's libssl-dev does not bring what it needs
        need libzstd-dev links_static zstd
        need g++ one_of g++
        need openssl one_of openssl
        need groff-base one_of groff
        want mandoc one_of mandoc
        want zsh one_of zsh
        want fish one_of fish
        need redis-tools one_of redis-cli valkey-cli
        need procps one_of ps
        need jq one_of jq
        need curl one_of curl
        need tmux one_of tmux
        need spin one_of spin
        want tcc one_of tcc # models.sh is quicker with it
        need libuv1-dev pkg-config --exists libuv
        need python3-cffi /usr/bin/python3 -c 'import cffi'
        need python3-redis /usr/bin/python3 -c 'import redis'
        need php-cli one_of php
        need php-common php -r 'exit(extension_loaded("FFI") ? 0 : 1);'
        need php-redis php -r 'exit(extension_loaded("redis") ? 0 : 1);'
        ;;
    python)
        need python3-cffi /usr/bin/python3 -c 'import cffi'
        ;;
    web)
        need redis-tools one_of redis-cli valkey-cli
        need procps one_of ps
        need jq one_of jq
        need curl one_of curl
        need chromium one_of chromium
        need fonts-dejavu-core test -d /usr/share/fonts/truetype/dejavu
        ;;
    faults)
        need libhiredis-dev pkg-config --exists hiredis
        ;;
    bench)
        need libhiredis-dev pkg-config --exists hiredis
        need util-linux one_of flock
        ;;
    lint-quick)
        need cppcheck one_of cppcheck
        need shellcheck one_of shellcheck
        ;;
    lint)
        need clang-tidy one_of clang-tidy
        need cppcheck one_of cppcheck
        need shellcheck one_of shellcheck
        ;;
    sim)
        need libhiredis-dev pkg-config --exists hiredis
        need liblua5.1-0-dev pkg-config --exists lua5.1
        ;;
    plot)
        need gnuplot-nox one_of gnuplot
        ;;
    models)
        need spin one_of spin
        ;;
    valgrind)
        need valgrind one_of valgrind
        ;;
    fuzz)
        need clang one_of clang
        # What libFuzzer and the sanitizers are made of: a package that clang only recommends.
        need "libclang-rt-$(clang_version)-dev" clang_fuzzes
        ;;
esac

[ -n "$missing" ] || [ -z "$check" ] || exit 0
[ -n "$missing$optional" ] || exit 0
install="apt-get install -y --no-install-recommends$missing"
if [ -n "$check" ]; then
    echo "holdfast: missing:$missing" >&2
    echo "holdfast: install with:  $install" >&2
    exit 1
fi

if ! command -v apt-get >/dev/null; then
    [ -n "$missing" ] || exit 0
    echo "holdfast: missing (by their Debian names):$missing. Install them, then try again." >&2
    exit 1
fi
root=
if [ "$(id -u)" != 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        root="sudo -n"
    elif [ -z "$missing" ]; then
        exit 0
    else
        echo "holdfast: missing:$missing" >&2
        echo "holdfast: run this, or ask somebody who may; then try again:" >&2
        echo "    sudo apt-get update && sudo $install" >&2
        exit 1
    fi
fi
# Without a network apt only says that it cannot fetch something.
not_installed() {
    echo "holdfast: could not install:$missing" >&2
    echo "holdfast: nothing was built. This needs a network, or a mirror that apt knows, once:" >&2
    echo "    apt-get update && $install" >&2
    exit 1
}

# RUNLEVEL=1 keeps the redis-server package from starting a system-wide service.
echo "holdfast: installing$missing$optional"
apt() {
    $root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q "$@"
}
has_package() { # has_package NAME [OPTION...]: apt knows a version of it that can be installed
    name=$1
    shift
    apt-cache "$@" policy "$name" | grep -q '^  Candidate: [0-9]'
}

# Debian 12 has Valkey among its backports only. They are looked at through a list of our own, in a
# folder of our own: what this machine installs from does not change.
install_valkey() {
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    # shellcheck disable=SC2016 # a format of apt's
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' "Codename: $codename" |
        sed 1q)
    lists=$(mktemp -d)
    trap 'rm -rf "$lists"' EXIT
    chmod 755 "$lists" # apt reads it as another user
    cp -r /var/lib/apt/lists "$lists/" 2> /dev/null || mkdir "$lists/lists"
    cat /etc/apt/sources.list > "$lists/sources.list" 2> /dev/null || true
    echo "deb ${site:-http://deb.debian.org/debian} $codename-backports main" \
        >> "$lists/sources.list"
    set -- -o "Dir::Etc::sourcelist=$lists/sources.list" -o "Dir::State::lists=$lists/lists"
    if ! apt "$@" update || ! has_package valkey-server "$@"; then
        echo "holdfast: there is no Valkey here: neither this system's packages nor" >&2
        echo "    $codename-backports have a valkey-server. Name one by" \
            "HF_TEST_SERVER=/path/to/it" >&2
        exit 1
    fi
    apt "$@" install -y --no-install-recommends valkey-server
}

if [ -z "$missing" ]; then # nobody fails for want of these
    # shellcheck disable=SC2086 # a list of words
    apt install -y --no-install-recommends $optional ||
        { apt update && apt install -y --no-install-recommends $optional; } ||
        echo "holdfast: not installed:$optional. Tests that use them are left out" >&2
    exit 0
fi
apt update || not_installed
if [ "$kind" = valkey ] && ! has_package valkey-server; then
    install_valkey
    exit
fi
# shellcheck disable=SC2086 # a list of words
apt install -y --no-install-recommends $missing || not_installed
# shellcheck disable=SC2086
[ -z "$optional" ] || apt install -y --no-install-recommends $optional || true
