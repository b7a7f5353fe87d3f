#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh - the neighbours that Debian does not have, from their own registries, into
# build/interop.
#
#   install.sh            all; what cannot be had is told, and its tests are skipped
#
# Nothing goes anywhere else. Versions are fixed by the manifests beside this file.
set -eu
cd "$(dirname "$0")/../.."
here=$PWD/tests/interop
to=$PWD/build/interop
mkdir -p "$to"

# attempt NAME RESULT CMD...: RESULT is what CMD makes; done again when a manifest is newer.
attempt() {
    name=$1 result=$2
    shift 2
    if [ -e "$result" ] && [ -z "$(find "$here" -newer "$result" -type f -path "*/$name/*")" ]; then
        return 0
    fi
    echo "interop: installing $name"
    if ! command -v "$1" > /dev/null 2>&1; then
        echo "interop: $name is skipped: there is no $1 here"
    elif ! "install_$name" > "$to/$name.log" 2>&1; then
        echo "interop: $name is skipped, it could not be installed:"
        tail -n 3 "$to/$name.log" | sed 's/^/    /'
        rm -f "$result"
    else
        touch "$result"
    fi
}

# shellcheck disable=SC2317 # called by name
install_node() {
    mkdir -p "$to/node"
    cp "$here/node/package.json" "$here/node/package-lock.json" "$to/node/"
    npm ci --prefix "$to/node" --cache "$to/npm-cache" --ignore-scripts --no-audit --no-fund \
        --fetch-retries 1
}

# shellcheck disable=SC2317
install_go() {
    GOPATH=$to/gopath GOCACHE=$to/gocache GOFLAGS='-buildvcs=false -modcacherw -mod=readonly'
    export GOPATH GOCACHE GOFLAGS
    cd "$here/go"
    go build -o "$to/go-worker" .
}

# shellcheck disable=SC2317
install_rust() {
    mkdir -p "$to/rust-source"
    cp -r "$here/rust/." "$to/rust-source/" # cargo writes a lock file beside the manifest
    CARGO_HOME=$to/cargo cargo build --quiet --manifest-path "$to/rust-source/Cargo.toml" \
        --target-dir "$to/rust"
}

# shellcheck disable=SC2317
install_python() {
    python3 -m venv --clear "$to/python" # an earlier try may have been cut short
    "$to/python/bin/pip" install --quiet --retries 1 --cache-dir "$to/pip-cache" \
        -r "$here/python/requirements.txt"
}

attempt node "$to/node/node_modules/.package-lock.json" npm
(attempt go "$to/go-worker" go)
attempt rust "$to/rust/debug/rust-worker" cargo
attempt python "$to/python/installed" python3
