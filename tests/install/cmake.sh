# SPDX-License-Identifier: MIT
# cmake.sh - programs in C99, C11 and C++17 that CMake builds from an installed tree, with the
# shared library and with the static one.

test_cmake_finds_the_library() {
    command -v cmake > /dev/null || left_out "no cmake here"
    make -C "$root" install PREFIX="$dir/usr" > make.out 2>&1 || { cat make.out; fail "install"; }
    version=$(sed -n 's/^#define HF_VERSION  *"\(.*\)"/\1/p' "$root/include/holdfast.h")
    mkdir program
    cat > program/p.c << 'END_C'
#include <holdfast.h>
#include <stdio.h>
int main(void)
{
    return puts(hf_version()) < 0;
}
END_C
    cp program/p.c program/p.cc
    cat > program/CMakeLists.txt << END_CMAKE
cmake_minimum_required(VERSION 3.10)
project(p C CXX)
find_package(holdfast $version REQUIRED)
foreach(lib holdfast holdfast-static)
  foreach(std 99 11)
    add_executable(c\${std}-\${lib} p.c)
    set_target_properties(c\${std}-\${lib} PROPERTIES C_STANDARD \${std} C_EXTENSIONS OFF)
    target_link_libraries(c\${std}-\${lib} holdfast::\${lib})
  endforeach()
  add_executable(cc17-\${lib} p.cc)
  set_target_properties(cc17-\${lib} PROPERTIES CXX_STANDARD 17 CXX_EXTENSIONS OFF)
  target_link_libraries(cc17-\${lib} holdfast::\${lib})
endforeach()
END_CMAKE
    mkdir b
    cd b
    # The compilers of the system: what CC says here may be two words.
    unset CC CXX MAKEFLAGS MFLAGS MAKELEVEL
    { cmake -DCMAKE_PREFIX_PATH="$dir/usr" ../program && make VERBOSE=1; } > ../out 2>&1 ||
        { tail -n 30 ../out; fail "CMake or the build failed"; }
    for std in c99 c11 c++17; do
        grep -q -e "-std=$std " ../out || fail "nothing was compiled with -std=$std"
    done
    for p in c99 c11 cc17; do
        for lib in holdfast holdfast-static; do
            expect_exit 0 "./$p-$lib"
            expect_out_is "$version"
        done
        readelf -d "$p-holdfast" | grep -q 'NEEDED.*libholdfast.so'
        ! readelf -d "$p-holdfast-static" | grep 'NEEDED.*libholdfast' || fail "it is not static"
    done
    # An older one than is there is found, a newer one is not.
    sed -i "s/(holdfast $version /(holdfast 999.0 /" ../program/CMakeLists.txt
    ! cmake -DCMAKE_PREFIX_PATH="$dir/usr" ../program > ../out 2>&1 || fail "version 999 was found"
    grep -q 'version: *999\|999.0' ../out
}
