#!/bin/sh
# SPDX-License-Identifier: MIT
# install.sh - the lock libraries that bench-peers compares with, from their own registries, into
# build/peers.
#
#   install.sh [NAME...]  all, or these; what cannot be had is told, and its rows are left out
#
# Nothing goes anywhere else. Versions are fixed by the manifests beside this file. A part is
# installed again when one of its files is newer.
set -eu
cd "$(dirname "$0")/../.."
here=$PWD/bench/peers
to=$PWD/build/peers
mkdir -p "$to"

say() {
    echo "peers: $*" >&2
}

# attempt NAME COMMAND: install_NAME, which needs COMMAND, makes $to/NAME/installed
attempt() {
    name=$1
    case " $wanted " in
        *" $1 "*) ;;
        *) return 0 ;;
    esac
    mark=$to/$name/installed
    if [ -e "$mark" ] && [ -z "$(find "$here/$name" "$here/install.sh" -newer "$mark" -type f \
        2> /dev/null)" ]; then
        return 0
    fi
    mkdir -p "$to/$name"
    rm -f "$mark"
    if ! command -v "$2" > /dev/null 2>&1; then
        say "$name is skipped: there is no $2 here"
        return 0
    fi
    say "installing $name"
    if (set -e; nice "$0" --one "$name") > "$to/$name.log" 2>&1; then
        touch "$mark"
    else
        say "$name is skipped, it could not be installed:"
        tail -n 3 "$to/$name.log" | sed 's/^/    /' >&2
    fi
}

install_node() {
    cp "$here/node/package.json" "$to/node/"
    npm install --prefix "$to/node" --cache "$to/npm-cache" --ignore-scripts --no-audit --no-fund \
        --no-package-lock --fetch-retries 1
}

install_go() {
    GOPATH=$to/gopath GOCACHE=$to/gocache
    GOFLAGS='-buildvcs=false -modcacherw -mod=readonly -p=1'
    export GOPATH GOCACHE GOFLAGS
    cd "$here/go"
    go build -o "$to/go/peer" .
}

install_rust() {
    cp -r "$here/rust/." "$to/rust/" # cargo writes a lock file beside the manifest
    CARGO_HOME=$to/cargo cargo build --release --jobs 1 --manifest-path "$to/rust/Cargo.toml" \
        --target-dir "$to/rust/target"
}

install_python() {
    python3 -m venv --clear "$to/python" # an earlier try may have been cut short
    "$to/python/bin/pip" install --quiet --retries 1 --cache-dir "$to/pip-cache" \
        -r "$here/python/requirements.txt"
}

install_java() {
    cp "$here/java/pom.xml" "$to/java/"
    mvn -B -q -f "$to/java/pom.xml" -Dmaven.repo.local="$to/maven" dependency:copy-dependencies \
        -DoutputDirectory="$to/java/lib"
    javac -nowarn -cp "$to/java/lib/*" -d "$to/java/classes" "$here/java/Peer.java"
}

# Debian's package, unpacked and not installed.
install_etcd() {
    cd "$to/etcd"
    rm -f ./*.deb
    apt-get -q download etcd-server
    dpkg -x etcd-server_*.deb .
    usr/bin/etcd --version
}

if [ "${1:-}" = --one ]; then
    "install_$2"
    exit
fi
wanted=${*:-node go rust python java etcd}
attempt node npm
attempt go go
attempt rust cargo
attempt python python3
attempt java mvn
attempt etcd dpkg
