#!/bin/sh
# SPDX-License-Identifier: MIT
# builds.sh - library and tool built with other compilers and for other processors, warnings being
# errors.
#
#   builds.sh               all of it, in chroots with Debian 12, 13 and sid (debian13.sh); root
#   builds.sh KIND...       on this system, on which it installs what is missing: gcc, clang, or
#                           arm64, i386 with a compiler for that processor; gcc-lto, clang-lto
#
# HF_BUILD_ONLY=1: nothing is installed but for the build, and nothing is run. In sid only what is
# there from the beginning is used: its package list is often too old for apt to take it.
#
# A program that this machine can run takes a lock; for the others the processor is shown.
set -eu
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1

quietly() {
    "$@" > /tmp/builds.out 2>&1 || { tail -n 30 /tmp/builds.out; exit 1; }
}
libraries="libssl-dev libjansson-dev libncurses-dev libmicrohttpd-dev"

# Only what is missing: a system whose package list is out of date may have all that is needed.
install() { # install PACKAGE...
    missing=
    for p; do
        dpkg-query -W -f '${Status}' "$p" 2> /dev/null | grep -q 'ok installed' ||
            missing="$missing $p"
    done
    [ -n "$missing" ] || return 0
    quietly apt-get update -q
    # shellcheck disable=SC2086 # words
    quietly apt-get install -y -q --no-install-recommends $missing
}

build() { # build NAME VARIABLE=VALUE...
    name=$1
    shift
    quietly make WERROR=1 B="build/$name" "$@" all
    printf '== %s: %s, %s\n' "$name" "$("$compiler" --version | sed 1q)" \
        "$(readelf -h "build/$name/holdfast" | sed -n 's/.*Machine: *//p')"
}

takes_a_lock() { # takes_a_lock NAME
    command -v redis-server > /dev/null || install redis-server
    dir=$(mktemp -d)
    # shellcheck disable=SC2016 # of the command
    "build/$1/holdfast" --url "embedded:$dir/s" run a -- \
        sh -c 'echo "   took a lock: $HOLDFAST_FENCE"'
    "build/$1/holdfast" --url "embedded:$dir/s" server stop --force > /dev/null
    rm -rf "$dir"
}

cross() { # cross PROCESSOR TRIPLET MULTIARCH
    dpkg --add-architecture "$1"
    list=
    for l in $libraries; do
        list="$list $l:$1"
    done
    # shellcheck disable=SC2086 # words
    install binutils make pkgconf "gcc-$2" "libc6-dev-$1-cross" $list
    compiler=$2-gcc
    export PKG_CONFIG_LIBDIR="/usr/lib/$3/pkgconfig:/usr/share/pkgconfig"
    build "$1" CC="$compiler" AR="$2-ar" OBJCOPY="$2-objcopy"
    # A program of somebody else, linked with the static library and with the shared one.
    for lib in "build/$1/libholdfast.a -ldl" "-Lbuild/$1 -lholdfast"; do
        # shellcheck disable=SC2086 # words
        "$compiler" -std=c11 -D_DEFAULT_SOURCE -Iinclude examples/counter.c $lib -pthread \
            -o "build/$1/counter"
    done
}

in_chroots() {
    SUITE=bookworm tools/debian13.sh 'tools/builds.sh gcc clang'
    SUITE=trixie tools/debian13.sh 'tools/builds.sh gcc clang gcc-lto clang-lto arm64 i386'
    INCLUDE=gcc,clang,libc6-dev,binutils,pkgconf,$(echo "$libraries" | tr ' ' ,) SUITE=sid \
        tools/debian13.sh 'HF_BUILD_ONLY=1 tools/builds.sh gcc clang'
}

[ $# -gt 0 ] || in_chroots
for kind; do
    case $kind in
        gcc | clang)
            compiler=$kind
            # shellcheck disable=SC2086 # words
            install "$kind" libc6-dev binutils make pkgconf $libraries
            build "$kind" CC="$kind"
            [ -n "${HF_BUILD_ONLY:-}" ] || takes_a_lock "$kind"
            ;;
        gcc-lto | clang-lto)
            compiler=${kind%-lto} linker=
            # shellcheck disable=SC2086 # words
            install "$compiler" libc6-dev binutils make pkgconf $libraries
            if [ "$compiler" = clang ]; then
                install lld
                linker=-fuse-ld=lld
            fi
            build "$kind" CC="$compiler" CFLAGS='-O2 -flto' LDFLAGS="-flto $linker"
            [ -n "${HF_BUILD_ONLY:-}" ] || takes_a_lock "$kind"
            ;;
        arm64) cross arm64 aarch64-linux-gnu aarch64-linux-gnu ;;
        i386)
            cross i386 i686-linux-gnu i386-linux-gnu
            [ -n "${HF_BUILD_ONLY:-}" ] || takes_a_lock i386
            ;;
        *)
            echo "builds.sh: unknown kind '$kind'" >&2
            exit 2
            ;;
    esac
done
