#!/bin/sh
# SPDX-License-Identifier: MIT
# redis_py.sh - redis-py's own lock tests, with the Locks of holdfast.compat and compat_asyncio in
# the place of its own.
#
# They come from its registry, in this version, into build/redis-py, with pytest; nothing else is
# changed. Passes if those fail that are meant to, and no others: README.md says why.
set -eu
cd "$(dirname "$0")/../../.."
here=$PWD version=5.0.8 to=$PWD/build/redis-py
python=${PYTHON:-python3}

if [ ! -e "$to/installed-$version" ]; then
    mkdir -p "$to"
    "$python" -m venv --system-site-packages "$to/venv"
    "$to/venv/bin/pip" install --quiet --retries 1 "redis==$version" pytest pytest-asyncio packaging
    "$to/venv/bin/pip" download --quiet --retries 1 --no-deps --no-binary :all: \
        --no-build-isolation "redis==$version" -d "$to/source"
    tar -xzf "$to/source/redis-$version.tar.gz" -C "$to"
    touch "$to/installed-$version"
fi

dir=$(mktemp -d)
trap 'kill "$server"; wait "$server" || true; rm -rf "$dir"' EXIT
server=
program=${HF_TEST_SERVER:-$(command -v redis-server || command -v valkey-server)}
"$program" --port 0 --unixsocket "$dir/sock" --dir "$dir" --save '' --logfile "$dir/log" &
server=$!
until [ -S "$dir/sock" ]; do
    sleep 0.05
done

# The tests name redis.lock.Lock and redis.asyncio.lock.Lock; they are replaced before that is read.
mkdir "$dir/plugin"
cat > "$dir/plugin/with_holdfast.py" << 'END'
import holdfast.compat
import holdfast.compat_asyncio
import redis.asyncio.lock
import redis.lock

redis.lock.Lock = holdfast.compat.Lock
redis.asyncio.lock.Lock = holdfast.compat_asyncio.Lock
END
cd "$to/redis-$version"

run() { # run FILE
    PYTHONPATH=$dir/plugin:$here/build/python HOLDFAST_CONFIG=/dev/null \
        "$to/venv/bin/python" -m pytest -q -p with_holdfast --redis-url "unix://$dir/sock" \
        -p no:cacheprovider -o asyncio_mode=auto -rfE "$1" > "$dir/out" 2>&1 || true
    cat "$dir/out"
    grep -q '[0-9] passed' "$dir/out" || exit 1
    # One with parameters counts once. What is timed to milliseconds may pass, or not.
    sed -n 's/^\(FAILED\|ERROR\) [^:]*::\([A-Za-z]*::[a-z_]*\).*/\2/p' "$dir/out" | sort -u |
        grep -v -e blocking_timeout > "$dir/failed" || true
    printf 'TestLock::%s\n' test_lock test_lock_token test_lock_token_thread_local_false |
        diff - "$dir/failed" || {
        echo "redis-py: others failed than are meant to"
        exit 1
    }
    echo "redis-py $version, $1: $(sed -n '$p' "$dir/out"); those that failed are meant to"
}

run tests/test_lock.py
run tests/test_asyncio/test_lock.py
