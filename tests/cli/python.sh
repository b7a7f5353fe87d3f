# SPDX-License-Identifier: MIT
# python.sh - the Python package (bindings/python): taking locks, and how it is built and typed.
# shellcheck disable=SC2016 # conditions are evaluated later

# shellcheck source=/dev/null
[ -z "${root:-}" ] || . "$root/bindings/python/tests/common.sh"

test_threads_take_locks() {
    package_tests test_threads.Taking test_threads.Others
}

test_redis_py_is_replaced() {
    need_python redis python3-redis
    package_tests test_compat
}

test_redis_py_is_replaced_in_asyncio() {
    need_python redis.asyncio python3-redis
    package_tests test_compat_asyncio
}

test_the_programs_of_its_readme() {
    need_python redis python3-redis
    package_tests test_readme
}

# What the header declares and the package does not know cannot be: it is made from the header.
test_it_declares_every_function_of_the_header() {
    sed -n 's/.*[ *]\(hf_[a-z_]*\)(.*/\1/p' "$root/build/gen/holdfast.cdef" | sort -u > declared
    sed -n '/^HF_API/,/;/s/.*[ *]\(hf_[a-z_]*\)(.*/\1/p' "$root/include/holdfast.h" |
        sort -u > header
    [ "$(wc -l < header)" -gt 100 ] || fail "only $(wc -l < header) functions in the header"
    cmp declared header || { diff declared header || true; fail "they differ"; }
}

test_the_wheel_has_all_in_it() {
    need_python cffi python3-cffi
    version=$(sed -n 's/^.define HF_VERSION  *"\(.*\)"/\1/p' "$root/include/holdfast.h")
    for i in 1 2; do
        "$python" "$root/bindings/python/build.py" wheel "$root/build/gen/holdfast.cdef" \
            "$version" "$root/build/libholdfast.so.$version" "$dir/$i" > /dev/null
    done
    cmp 1/*.whl 2/*.whl || fail "the same sources made different wheels"
    cp 1/*.whl .
    "$python" -m zipfile -e ./*.whl installed
    [ -e installed/holdfast/py.typed ] || fail "it is not typed"
    # Every file is listed with its digest.
    "$python" - installed << 'END'
import base64, csv, hashlib, os, sys
os.chdir(sys.argv[1])
record, = [d + "/RECORD" for d in os.listdir() if d.endswith(".dist-info")]
listed = set()
for name, digest, size in csv.reader(open(record)):
    listed.add(name)
    if digest:
        data = open(name, "rb").read()
        want = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert digest == "sha256=" + want and int(size) == len(data), name
there = {os.path.join(d, f)[2:] for d, _, files in os.walk(".") for f in files}
assert there == listed, there ^ listed
END
    cd "$dir"
    PYTHONPATH=$dir/installed
    export PYTHONPATH
    expect_exit 0 "$python" -c '
import holdfast
assert holdfast._lib.__file__.startswith("'"$dir"'/installed/"), holdfast.__file__
with holdfast.Lock("a", wait=10) as fence:
    print(holdfast.__version__, holdfast.version(), fence)'
    expect_out "^$version $version [0-9]{16}\$"
}

test_a_missing_library_is_told() {
    need_python cffi python3-cffi
    PYTHONPATH=$root/build/python HOLDFAST_LIBRARY=/nowhere/libholdfast.so.0
    export PYTHONPATH HOLDFAST_LIBRARY
    expect_exit 1 "$python" -c 'import holdfast'
    expect_err 'ImportError: the library /nowhere/libholdfast.so.0 cannot be loaded .*HOLDFAST_LIB'
}

test_types() {
    command -v mypy > /dev/null || left_out "no mypy here"
    cp -r "$root/build/python/holdfast" .
    expect_exit 0 mypy --strict --cache-dir "$dir/cache" holdfast
    cat > use.py << 'END'
import holdfast
from holdfast import aio

with holdfast.Lock("a", wait="10s") as fence:
    n: int = fence
holdfast.Lock("a", wait=[])
END
    expect_exit 1 mypy --strict --cache-dir "$dir/cache" use.py
    expect_out 'use.py:6: error: Argument "wait"'
    expect_out 'Found 1 error'
}
