# SPDX-License-Identifier: MIT
# exitcodes.sh - the exit statuses that do not belong to one command.

test_69_unreachable() {
    expect_exit 69 holdfast --url "unix://$dir/nosuch.sock" run -n a -- touch ran
    expect_err "^holdfast: a: cannot connect to \"$dir/nosuch.sock\": "
    [ ! -e ran ]
    for c in "status a" "run -n a -- true" "acquire -n a" "check a --owner me" "held a" \
        "release a --owner me" "sequence a" "latch a" "leader a" "once -n a --ttl 5 -- true"; do
        # shellcheck disable=SC2086
        expect_exit 69 holdfast --url redis://127.0.0.1:1 $c
        expect_err '^holdfast: a: cannot connect to 127.0.0.1:1: '
        expect_eq "$(wc -l < err)" 1
    done
    expect_exit 69 holdfast --url redis://nosuch.invalid run -n a -- true
}

test_74_output() {
    expect_exit 0 holdfast acquire a
    for c in "ls" "ls -o json" "--help" "status a"; do
        status=0
        # shellcheck disable=SC2086
        holdfast $c > /dev/full 2> err || status=$?
        expect_eq "$c $status" "$c 74"
        expect_err 'cannot write'
    done
}

test_77_login() {
    start_server --requirepass secret
    expect_exit 77 holdfast --url "$SERVER_URL" run -n a -- true
    expect_err "^holdfast: a: the server answered \"NOAUTH .*\(\"$dir/server/sock\"\)$"
    HOLDFAST_PASSWORD=wrong expect_exit 77 holdfast --url "$SERVER_URL" run -n a -- true
    HOLDFAST_PASSWORD=secret expect_exit 0 holdfast --url "$SERVER_URL" run -n a -- true
}

test_77_permission() {
    start_server
    ask acl setuser lk on '>pw' '~other:*' '&*' +@all > /dev/null
    expect_exit 77 holdfast --url "unix://lk:pw@$dir/server/sock" run -n a -- true
    expect_err "^holdfast: a: .*$dir/server/sock"
}

test_78_configuration() {
    expect_exit 78 holdfast --url ftp://somewhere run -n a -- true
    expect_exit 78 holdfast --url 'redis://localhost?nosuch=1' run -n a -- true
    : > pass
    chmod 644 pass
    expect_exit 78 holdfast --url "redis://localhost?passfile=$dir/pass" run -n a -- true
    start_server
    ask rpush lock:a x > /dev/null
    expect_exit 78 holdfast --url "$SERVER_URL" run -n a -- true
    expect_eq "$(ask llen lock:a)" 1
}

# An empty URL comes from a variable that was forgotten: not a wish for locks of this machine alone.
test_78_empty_url() {
    for c in "run -n a -- touch ran" "once a --ttl 5s -- touch ran" "elect a -- touch ran" \
        "acquire a" "acquire a --hold-pid $$" "extend a --owner me --ttl 5s" \
        "release a --owner me" "release --all --owner me" "check a --owner me" \
        "resize a --slots 2" "status a" "ls" "leader a" "sequence a" "latch a" \
        "barrier a --count 1" "doctor" "doctor --repair-fence" "server status" "server start" \
        "server stop"; do
        # shellcheck disable=SC2086 # several words
        expect_exit 78 holdfast --url "" $c
        expect_err '^holdfast: the URL .*is empty: .*embedded:'
        expect_eq "$(wc -l < err)" 1
        # shellcheck disable=SC2086 # several words
        HOLDFAST_URL='' expect_exit 78 holdfast $c
        expect_err 'HOLDFAST_URL.* empty: .*embedded:'
        expect_eq "$(wc -l < err)" 1
    done
    [ ! -e ran ] || fail "it ran without the fleet's lock"
    # What is given counts, and embedded: may be said.
    HOLDFAST_URL='' expect_exit 0 holdfast --url "embedded:$dir/hf" run -n a -- true
    HOLDFAST_URL='' expect_exit 0 holdfast --url "embedded:$dir/hf" server status
}

test_64_name() {
    expect_exit 64 holdfast run -n holdfast:x -- true
    expect_exit 64 holdfast run -n "$(printf '%01025d' 0)" -- true
    expect_exit 0 holdfast run -n "$(printf '%01024d' 0)" -- true
}

test_errors_are_one_line_each() {
    expect_exit 69 holdfast --url "unix://$dir/nosuch.sock" run -n a -- true
    expect_eq "$(wc -l < err)" 1
    expect_exit 78 holdfast --url ftp://somewhere ls
    expect_eq "$(wc -l < err)" 1
}

# What a full disk leaves of the server's last words is nothing.
test_69_a_full_disk_is_named() {
    [ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null || left_out "needs root, for a small disk"
    mkdir small
    run unshare -m sh -c "mount -t tmpfs -o size=64k,mode=700 none $dir/small &&
        mkdir -m 700 $dir/small/hf && dd if=/dev/zero of=$dir/small/fill bs=4k 2> /dev/null
        exec $HOLDFAST --url embedded:$dir/small/hf run -n a -- true"
    expect_eq "$status" 69
    expect_err 'disk is full|No space left'
}
