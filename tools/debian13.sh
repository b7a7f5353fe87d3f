#!/bin/sh
# SPDX-License-Identifier: MIT
# debian13.sh - `make run` and `make test` in a fresh clone on a fresh Debian 13, in a chroot.
#
#   debian13.sh             both commands
#   debian13.sh COMMAND     instead of them this shell command, in the clone
#
# T=TEXT and SEED=N are those of `make test`. SUITE=sid: another Debian. INCLUDE=a,b: packages that
# the base system has from the beginning. The clone has what is committed here. The base system is
# made once, by debootstrap from the mirror that this machine's apt uses, and kept in HF_CHROOTS
# (~/.cache/holdfast) with the packages that were fetched since; remove that folder to start anew.
# The chroot itself is a copy of it, which is removed at the end. What it mounts, it mounts in a
# mount namespace, and its processes are in a PID namespace: both end with this script, however it
# ends.
set -eu

suite=${SUITE:-trixie}
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${HF_CHROOTS:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/holdfast}
base=$cache/$suite.tar
debs=$cache/$suite-debs

die() {
    printf 'debian13.sh: %s\n' "$*" >&2
    exit 2
}
[ "$(id -u)" = 0 ] || die "a chroot needs root: run it as root or by sudo"
for c in debootstrap unshare chroot git tar; do
    command -v "$c" > /dev/null || die "$c is missing. Install it:" \
        "apt-get install debootstrap util-linux coreutils git tar"
done
git -C "$root" rev-parse -q --verify HEAD > /dev/null || die "$root is not a git clone"
[ -z "$(git -C "$root" status --porcelain --untracked-files=no)" ] ||
    echo "debian13.sh: note: what is not committed is not in the clone"

work=$(mktemp -d "${TMPDIR:-/tmp}/holdfast-$suite.XXXXXX")
chroot=$work/chroot
finish() {
    cp -u "$chroot"/var/cache/apt/archives/*.deb "$debs/" 2> /dev/null || true
    grep -q " $work/" /proc/self/mounts && die "$work has something mounted: it is left there"
    rm -rf --one-file-system "$work"
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

mirror() { # of this machine's own Debian packages; nothing: debootstrap's default
    codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    # shellcheck disable=SC2016 # a format of apt's
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' "Codename: $codename" \
        2> /dev/null | sed 1q
}

if [ ! -f "$base" ]; then
    echo "debian13.sh: making the base system of $suite"
    mkdir -p "$cache" "$debs"
    # shellcheck disable=SC2046 # no word at all where there is no mirror
    debootstrap --variant=minbase --include="make,git,ca-certificates${INCLUDE:+,$INCLUDE}" \
        "$suite" "$chroot" $(mirror) > "$work/debootstrap.out" 2>&1 ||
        { tail -n 20 "$work/debootstrap.out"; exit 1; }
    rm -f "$chroot"/var/cache/apt/archives/*.deb
    tar -C "$chroot" -cf "$base.part" . && mv "$base.part" "$base"
    rm -rf --one-file-system "$chroot"
fi

mkdir -p "$chroot" "$debs"
tar -C "$chroot" -xf "$base"
cp "$debs"/*.deb "$chroot/var/cache/apt/archives/" 2> /dev/null || true
cp -L /etc/resolv.conf "$chroot/etc/resolv.conf" 2> /dev/null || true
apt-config dump 2> /dev/null | grep -i '^Acquire::https*::Proxy ' \
    > "$chroot/etc/apt/apt.conf.d/99proxy" || true
git clone -q --no-hardlinks "$root" "$chroot/root/holdfast"

command=${1:-}
[ -n "$command" ] || command="make run && make test T='${T:-}'"
cat > "$chroot/root/enter.sh" << 'ENTER'
set -e
mount --bind "$1" "$1" # tests unshare mounts too, for which / must be one
mount -t proc proc "$1/proc"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$1/dev/pts"
mount -t tmpfs tmpfs "$1/dev/shm"
exec chroot "$1" sh -c "cd /root/holdfast && . /etc/os-release && echo \"\$PRETTY_NAME\" && $2"
ENTER
env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LC_ALL=C.UTF-8 TERM="${TERM:-dumb}" ${SEED:+SEED="$SEED"} ${CI:+CI="$CI"} \
    unshare --mount --pid --fork --kill-child sh "$chroot/root/enter.sh" "$chroot" "$command" &
inside=$!
trap 'kill -9 $inside; exit 1' INT TERM HUP # unshare heeds nothing else, and takes all with it
wait $inside
