#!/bin/sh
# SPDX-License-Identifier: MIT
# deb.sh - Debian packages of a version (deb.sh VERSION), from the tarball of `make dist`, into
# build/deb. lintian has the last word.
set -eu
version=$1
missing=
for p in debhelper dh-python dpkg-dev lintian fakeroot; do
    dpkg-query -W -f '${Status}' "$p" 2> /dev/null | grep -q 'ok installed' || missing="$missing $p"
done
if [ -n "$missing" ]; then
    echo "holdfast: installing$missing" >&2
    # shellcheck disable=SC2086 # words
    apt-get install -y -q --no-install-recommends $missing > /dev/null ||
        { echo "holdfast: install these first:$missing" >&2; exit 1; }
fi
rm -rf build/deb
mkdir -p build/deb
cp "build/holdfast-$version.tar.gz" "build/deb/holdfast_$version.orig.tar.gz"
cd build/deb
tar -xf "holdfast_$version.orig.tar.gz"
cd "holdfast-$version"
unset MAKEFLAGS MFLAGS MAKELEVEL CI
dpkg-buildpackage -us -uc -b > ../build.log 2>&1 || { tail -n 40 ../build.log; exit 1; }
cd ..
lintian --fail-on error,warning holdfast_"$version"*.changes
ls ./*.deb
