# SPDX-License-Identifier: MIT
# common.sh - runs the tests of the Python package; for tests/cli/python*.sh.

python=/usr/bin/python3 # Debian's, as there its modules are

need_python() { # need_python MODULE PACKAGE
    "$python" -c "import $1" 2> /dev/null || skip "no $2 here"
}

package_tests() { # package_tests MODULE...
    need_python cffi python3-cffi
    [ -e "$root/build/python/made" ] || fail "make bindings first"
    PYTHONPATH=$root/build/python PYTHONDONTWRITEBYTECODE=1
    export PYTHONPATH PYTHONDONTWRITEBYTECODE
    cd "$root/bindings/python/tests"
    expect_exit 0 "$python" -W error::ResourceWarning -X faulthandler -m unittest "$@"
    expect_err '^OK'
    sed -n 's/^Ran /# ran /p' "$dir/err"
}
