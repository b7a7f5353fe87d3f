# SPDX-License-Identifier: MIT
# versions.sh - the tool with a Valkey, in few words; `make test-valkey` runs everything with it.
# shellcheck disable=SC2016 # conditions are evaluated later

use_valkey() {
    program=${HF_TEST_SERVER:-$(command -v valkey-server || true)}
    [ -n "$program" ] || left_out 'no valkey-server here: see make test-valkey'
    case $("$program" --version) in
        Valkey*) ;;
        *) left_out "$program is no Valkey" ;;
    esac
    HF_TEST_SERVER=$program HOLDFAST_SERVER=$program
    export HF_TEST_SERVER HOLDFAST_SERVER
    version=$("$program" --version | sed 's/.* v=\([0-9.]*\) .*/\1/')
}

test_an_embedded_valkey() {
    use_valkey
    expect_exit 0 holdfast run nightly -- sh -c 'echo "$HOLDFAST_FENCE"'
    expect_out '^[0-9]+$'
    expect_exit 0 holdfast server status
    expect_out "^running, pid [0-9]+, valkey $version, up "
    expect_exit 0 holdfast acquire a --ttl 30s
    owner=$(sed 's/owner=\([^ ]*\) .*/\1/' out)
    expect_exit 75 holdfast run -n a -- true
    expect_exit 0 holdfast release a --owner "$owner"
    expect_exit 0 holdfast run -n a -- true
}

test_one_waits_for_another() {
    use_valkey
    start_server --appendonly yes
    HOLDFAST_URL=$SERVER_URL
    export HOLDFAST_URL
    holdfast run a -- sh -c ': > "$0/in"; while [ ! -e "$0/go" ]; do sleep 0.02; done' "$dir" &
    first=$!
    wait_until '[ -e "$dir/in" ]'
    holdfast run a -- touch "$dir/second" &
    wait_until '[ "$(ask zcard "{lock:a}:q")" = 1 ]'
    [ ! -e "$dir/second" ]
    : > "$dir/go"
    wait "$first"
    wait "$!"
    [ -e "$dir/second" ]
}

test_doctor_knows_valkey_by_its_own_version() {
    use_valkey
    start_server --appendonly yes --appendfsync always
    expect_exit 0 holdfast --url "$SERVER_URL" doctor
    expect_out "(ok|note) +version +valkey $version"
    case $version in
        8.0.[0-6] | 8.1.[0-5]) expect_out 'note +version .*CVE-2025-67733' ;;
    esac
}

test_doctor_and_the_disk() {
    use_valkey
    start_server --appendonly yes --appendfsync always
    url="$SERVER_URL?fsync=1"
    expect_exit 0 holdfast --url "$url" doctor
    expect_out 'ok +persistence .*appendfsync always'
    ask config set appendfsync everysec > /dev/null
    expect_exit 78 holdfast --url "$url" doctor
    expect_out 'risk +persistence .*appendfsync everysec: with fsync=1'
    ask config set appendfsync no > /dev/null
    expect_exit 78 holdfast --url "$url&timeout=1s" doctor
    expect_out 'fault +persistence .*appendfsync no'
    ask config set appendonly no > /dev/null
    expect_exit 78 holdfast --url "$url" run a -- true
    expect_err 'set appendonly yes there'
}
