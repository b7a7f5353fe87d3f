# SPDX-License-Identifier: MIT
# cpp.sh - holdfast.hpp: installed, compiled as old and new C++ without a warning, and at work.

compile_and_run() { # compile_and_run COMPILER STANDARD
    "$1" "-std=$2" -Wall -Wextra -Wpedantic -Wshadow -Werror -g "$root/tests/install/holdfast.cpp" \
        -I"$root/include" -L"$root/build" -lholdfast -pthread -o "cpp-$2"
    LD_LIBRARY_PATH=$root/build expect_exit 0 "./cpp-$2"
    expect_no_out
    expect_no_err
}

test_cpp11() {
    compile_and_run g++ c++11
}

test_cpp17() {
    compile_and_run g++ c++17
}

test_clang() {
    command -v clang++ > /dev/null || left_out "no clang++ here"
    echo '#include <vector>' | clang++ -x c++ -fsyntax-only - 2> /dev/null ||
        left_out "no headers for clang++"
    compile_and_run clang++ c++14
}

# Several files of one program may include it, beside the C header in any order.
test_it_can_be_included_everywhere() {
    echo '#include <holdfast.hpp>
#include <holdfast.h>
int f() { return holdfast::forever().count() == HF_WAIT_FOREVER; }' > f.cc
    echo '#include <holdfast.h>
#include <holdfast.hpp>
int f();
int main() { return !f(); }' > main.cc
    g++ -std=c++11 -Wall -Wextra -Werror f.cc main.cc \
        -I"$root/include" -L"$root/build" -lholdfast -o both
    LD_LIBRARY_PATH=$root/build expect_exit 0 ./both
}

test_it_is_installed_with_the_other_header() {
    make -C "$root" install PREFIX="$dir/usr" > make.out 2>&1 ||
        { cat make.out; fail "make install"; }
    cmp "$root/include/holdfast.hpp" "$dir/usr/include/holdfast.hpp"
    make -C "$root" uninstall PREFIX="$dir/usr" > make.out 2>&1 ||
        { cat make.out; fail "make uninstall"; }
    expect_eq "$(find "$dir/usr" ! -type d)" ""
}
