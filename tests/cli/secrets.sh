# SPDX-License-Identifier: MIT
# secrets.sh - a password shows nowhere: argv, CMD's environment, messages.

secret=correct-horse-battery

test_password_in_the_url_option() {
    start_server --requirepass $secret
    "$HOLDFAST" -v -v --url "unix://default:$secret@$dir/server/sock" run a -- \
        sh -c ': > up; cat /proc/self/environ > env; sleep 1000' > out 2> err &
    pid=$!
    wait_until '[ -e up ] && [ -s env ]'
    for f in /proc/[0-9]*; do
        # Of everything that runs for this test: holdfast, its guardian, CMD.
        [ "$(readlink "$f/cwd" 2> /dev/null)" = "$dir" ] || [ "${f#/proc/}" = $pid ] || continue
        if tr '\0' ' ' 2> /dev/null < "$f/cmdline" | grep -v requirepass | grep -qF $secret; then
            fail "in the arguments of ${f#/proc/}"
        fi
    done
    # ps(1) shows that there was one.
    tr '\0' ' ' < /proc/$pid/cmdline | grep -qF 'unix://default:*'
    if grep -qF $secret env out err; then fail "shown"; fi
    kill $pid
}

test_password_variable_does_not_reach_the_command() {
    start_server --requirepass $secret
    export HOLDFAST_PASSWORD=$secret
    "$HOLDFAST" -v -v --url "$SERVER_URL" run a -- \
        sh -c 'cat /proc/self/environ > env; : > up; sleep 1000' > out 2> err &
    pid=$!
    wait_until '[ -e up ]'
    if grep -qF $secret env out err; then fail "shown"; fi
    if grep -q HOLDFAST_PASSWORD env; then fail "the variable is there"; fi
    if grep -qF $secret /proc/$pid/environ; then fail "in our own environment"; fi
    kill $pid
}

test_password_in_the_url_variable_is_cut_out() {
    start_server --requirepass $secret
    HOLDFAST_URL="unix://default:$secret@$dir/server/sock?prefix=p:"
    export HOLDFAST_URL
    expect_exit 0 holdfast -v -v run a -- env
    expect_out "^HOLDFAST_URL=unix://default@$dir/server/sock\?prefix=p:$"
    if grep -qF $secret out err; then fail "shown"; fi
}

test_passfile_goes_on_to_the_command() {
    start_server --requirepass $secret
    (umask 077 && echo $secret > pass)
    HOLDFAST_URL="$SERVER_URL?passfile=$dir/pass"
    export HOLDFAST_URL
    # A holdfast within a holdfast works.
    expect_exit 5 holdfast run a -- "$HOLDFAST" run b -- sh -c 'exit 5'
}

test_errors_show_no_password() {
    for url in "redis://u:$secret@127.0.0.1:1" "redis//u:$secret@host" "ftp://u:$secret@host" \
        "redis://u:$secret@host:port" "redis://u:a/$secret@host" "redis://u:a?$secret@host" \
        "redis://:$secret@nosuch.invalid" "unix://u:$secret@/nosuch.sock?nosuch=1"; do
        for c in "run -n a -- true" "acquire -n a" "ls" "server status" \
            "acquire -n a --hold-pid $$"; do
            # shellcheck disable=SC2086
            run holdfast -v -v --url "$url" $c
            [ "$status" != 0 ] || fail "$url worked"
            if grep -qF $secret out err; then
                show
                fail "shown: $c"
            fi
        done
        HOLDFAST_URL=$url run holdfast -v -v ls
        [ "$status" != 0 ] || fail "$url worked as \$HOLDFAST_URL"
        if grep -qF $secret out err; then
            show
            fail "shown"
        fi
    done
    # Mistyped options, a URL where a word belongs.
    for args in "--ulr=redis://u:$secret@h ls" "--ulr redis://u:$secret@h ls" \
        "redis://u:$secret@h" "help redis://u:$secret@h" "ls -o redis://u:$secret@h"; do
        # shellcheck disable=SC2086
        expect_exit 64 holdfast $args
        if grep -qF $secret out err; then
            show
            fail "shown"
        fi
    done
}

# Who calls a setuid program must not choose the server to which it sends its password. Only root
# can make one of another user; tools/check-hardening.sh looks at the library everywhere.
test_a_setuid_program_does_not_follow_the_environment() {
    [ "$(id -u)" = 0 ] || left_out "needs root"
    cp "$HOLDFAST" other
    chown 65534 other
    chmod 4755 other
    chmod 711 .
    start_server --requirepass $secret --unixsocketperm 777
    chmod 711 server
    HOLDFAST_PASSWORD=$secret expect_exit 0 holdfast --url "$SERVER_URL" ls
    HOLDFAST_PASSWORD=$secret run ./other --url "$SERVER_URL" ls
    expect_err 'give a password'
    HOLDFAST_URL=redis://127.0.0.1:1 run ./other server status
    [ "$status" != 64 ] || { show; fail "it heeded \$HOLDFAST_URL"; }
}
