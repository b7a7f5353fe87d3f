#!/bin/sh
# SPDX-License-Identifier: MIT
# redis_py.sh - redis-py's own lock tests, with holdfast.compat.Lock in the place of its Lock.
#
# They come from its registry, in this version, into build/redis-py, with pytest; nothing else is
# changed. Passes if exactly those fail that are meant to: README.md says why.
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

# The tests name redis.lock.Lock; it is replaced before they are read.
mkdir "$dir/plugin"
cat > "$dir/plugin/with_holdfast.py" << 'END'
import holdfast.compat
import redis.lock

redis.lock.Lock = holdfast.compat.Lock
END
cd "$to/redis-$version"
PYTHONPATH=$dir/plugin:$here/build/python HOLDFAST_CONFIG=/dev/null \
    "$to/venv/bin/python" -m pytest -q -p with_holdfast --redis-url "unix://$dir/sock" \
    -p no:cacheprovider -rfE tests/test_lock.py > "$dir/out" 2>&1 || true
cat "$dir/out"

sed -n 's/^\(FAILED\|ERROR\) [^:]*::\([A-Za-z]*::[a-z_]*\).*/\2/p' "$dir/out" | sort > "$dir/failed"
sort > "$dir/meant" << 'END'
TestLock::test_high_sleep_small_blocking_timeout
TestLock::test_lock
TestLock::test_lock_token
TestLock::test_lock_token_thread_local_false
END
diff "$dir/meant" "$dir/failed" || {
    echo "redis-py: others failed than are meant to"
    exit 1
}
echo "redis-py $version: $(sed -n '$p' "$dir/out"); those that failed are meant to"
