#!/bin/sh
# SPDX-License-Identifier: MIT
# test-deb.sh - build the packages, install them, use them as a stranger would, remove them. Changes
# the system that it runs on: `make test-deb` runs it in a chroot.
set -eu
export DEBIAN_FRONTEND=noninteractive

say() {
    printf '== %s\n' "$*"
}
quietly() {
    "$@" > /tmp/test-deb.out 2>&1 || { tail -n 30 /tmp/test-deb.out; exit 1; }
}

say "build"
quietly apt-get update -q
quietly apt-get install -y -q --no-install-recommends build-essential pkg-config libssl-dev \
    libjansson-dev libncurses-dev libmicrohttpd-dev debhelper dh-python python3 python3-cffi \
    lintian fakeroot cmake
make deb
version=$(sed -n 's/^#define HF_VERSION  *"\(.*\)"/\1/p' include/holdfast.h)

say "install"
quietly apt-get install -y -q ./build/deb/*.deb redis-server
[ "$(holdfast --version)" = "holdfast $version" ]
dpkg -l holdfast libholdfast0 libholdfast-dev python3-holdfast | grep -c '^ii' | grep -qx 4

say "use: the tool, as an ordinary user"
useradd -m stranger
su stranger -c 'holdfast run a -- sh -c "echo \$HOLDFAST_FENCE"' | grep -qE '^[0-9]{16}$'
su stranger -c 'holdfast run a -- holdfast run -n a -- true' && exit 1
su stranger -c 'holdfast server stop'

say "use: Python"
cat > /tmp/lock.py << 'END'
import holdfast
with holdfast.Lock("a", wait=10) as fence:
    print("number", fence)
END
su stranger -c 'cd ~ && python3 /tmp/lock.py' | grep -qE '^number [0-9]{16}$'
su stranger -c 'holdfast server stop'

say "use: pkg-config in C99, C11, C++17; CMake, shared and static"
cd /tmp
cp /usr/share/doc/libholdfast-dev/examples/counter.c .
for std in c99 c11; do
    # shellcheck disable=SC2046 # flags are words
    gcc -std=$std -D_DEFAULT_SOURCE counter.c $(pkg-config --cflags --libs holdfast) -o counter
    su stranger -c 'cd ~ && /tmp/counter' | grep -q 'under number'
done
cp /usr/share/doc/libholdfast-dev/examples/counter.cpp .
# shellcheck disable=SC2046 # flags are words
g++ -std=c++17 counter.cpp $(pkg-config --cflags --libs holdfast) -o counter-cpp
mkdir -p cmake/build
cat > cmake/CMakeLists.txt << 'END'
cmake_minimum_required(VERSION 3.10)
project(counter C CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(holdfast REQUIRED)
add_executable(shared ../counter.c)
target_link_libraries(shared holdfast::holdfast)
add_executable(static ../counter.c)
target_link_libraries(static holdfast::holdfast-static)
add_executable(cpp ../counter.cpp)
target_link_libraries(cpp holdfast::holdfast)
END
(cd cmake/build && quietly cmake .. && quietly make)
su stranger -c 'cd ~ && b=/tmp/cmake/build && $b/shared && $b/static && $b/cpp' |
    grep -c 'under number' | grep -qx 3
su stranger -c 'holdfast server stop'

say "remove"
quietly apt-get purge -y -q holdfast libholdfast0 libholdfast-dev python3-holdfast
for f in /usr/bin/holdfast /usr/include/holdfast.h /usr/lib/*/libholdfast* /usr/share/doc/holdfast \
    /usr/share/man/man1/holdfast* /usr/lib/python3/dist-packages/holdfast; do
    [ ! -e "$f" ] || { echo "left behind: $f"; exit 1; }
done
say "the packages were built, installed, used and removed"
