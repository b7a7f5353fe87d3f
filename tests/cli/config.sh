# SPDX-License-Identifier: MIT
# config.sh - the file that names the server for the whole machine: who may write it, what it says,
# and that a mistake in it never means "this machine only".
# shellcheck disable=SC2016 # conditions are evaluated later

# config [LINE...]: a file with these lines is the machine's.
config() {
    (umask 022 && printf '%s\n' "$@" > "$dir/conf")
    HOLDFAST_CONFIG=$dir/conf
    export HOLDFAST_CONFIG
    unset HOLDFAST_URL
}
# refused PART: the file is not used, and the message says so.
refused() {
    expect_exit 78 holdfast run -n a -- true
    expect_err "$1"
    expect_err "$dir/conf"
}

test_the_file_names_the_server_and_the_prefix() {
    start_server
    exists="$(command -v redis-cli || command -v valkey-cli) -s $dir/server/sock exists"
    config '# the locks of this machine' '' "  url = $SERVER_URL  # one for all" 'prefix=jobs:'
    expect_exit 0 holdfast run -n a -- sh -c "$exists jobs:a | grep -qx 1"
    # The URL's own prefix, and --prefix, win over it.
    config "url = $SERVER_URL?prefix=own:" 'prefix = jobs:'
    expect_exit 0 holdfast run -n a -- sh -c "$exists own:a | grep -qx 1"
    expect_exit 0 holdfast run --prefix p: a -- sh -c "$exists p:a | grep -qx 1"
}

test_the_environment_and_the_option_win_over_it() {
    config 'url = unix:///nowhere/sock'
    expect_exit 69 holdfast run -n a -- true
    expect_exit 0 holdfast run -n --url "embedded:$dir/hf" a -- true
    HOLDFAST_URL=embedded:$dir/hf
    export HOLDFAST_URL
    expect_exit 0 holdfast run -n a -- true
    # Not even read then.
    echo nonsense > conf
    expect_exit 0 holdfast run -n a -- true
}

test_the_file_names_the_password_file() {
    start_server --requirepass s3cret
    (umask 077 && echo s3cret > pass)
    config "url = $SERVER_URL" "passfile = $dir/pass"
    expect_exit 0 holdfast run -n a -- true
    HOLDFAST_PASSWORD=wrong expect_exit 77 holdfast run -n a -- true
    chmod 644 pass
    expect_exit 78 holdfast run -n a -- true
    expect_err 'password file'
    config "passfile = $dir/pass"
    refused 'passfile without the url'
}

test_only_root_and_we_may_write_it() {
    config "url = embedded:$dir/hf"
    expect_exit 0 holdfast run -n a -- true
    for mode in 620 602 666; do
        chmod $mode conf
        refused 'others can write to it: chmod go-w'
    done
}

test_one_of_another_user_is_refused() {
    [ "$(id -u)" = 0 ] || left_out "needs root, who alone can give a file away"
    config "url = embedded:$dir/hf"
    expect_exit 0 holdfast run -n a -- true
    chown 12345 conf
    refused 'belongs to another user'
}

test_a_password_in_it_is_not_for_everybody() {
    start_server --requirepass s3cret
    config "url = unix://:s3cret@$dir/server/sock"
    refused 'password, and everybody can read the file'
    if grep -q s3cret out err; then fail "the password is shown"; fi
    chmod 640 conf
    expect_exit 0 holdfast run -n a -- true
}

test_mistakes_are_told_with_their_line() {
    config '# one' 'ulr = redis://x:s3cret@y'
    refused 'line 2: unknown key.*url, prefix and passfile'
    expect_exit 78 holdfast server status
    expect_exit 78 holdfast doctor
    if grep -q 's3cret' err; then fail "the line is shown"; fi
    config 'redis://x'
    refused 'line 1: no = in it'
    config 'url = embedded:' 'prefix = a' 'url = embedded:'
    refused 'line 3: url for the second time'
    config 'url ='
    refused 'line 1: url is empty'
    config 'url = redis:/x'
    refused 'conf.*URL'
    printf 'url = embedded:\000\n' > conf
    refused 'NUL byte'
}

test_a_file_that_is_named_must_be_there() {
    config
    HOLDFAST_CONFIG=$dir/conf
    rm conf
    refused 'No such file'
    mkdir conf
    refused 'not a regular file'
    HOLDFAST_CONFIG='' expect_exit 78 holdfast run -n a -- true
    expect_err 'HOLDFAST_CONFIG is set but empty'
    # The usual way to say "none".
    HOLDFAST_CONFIG=/dev/null expect_exit 0 holdfast run -n --url "embedded:$dir/hf" a -- true
}

test_server_follows_the_file() {
    config "url = embedded:$dir/other"
    expect_exit 0 holdfast server start
    expect_out "$dir/other/redis.sock"
    expect_exit 0 holdfast server stop
    config 'url = redis://127.0.0.1:1'
    expect_exit 64 holdfast server status
    expect_err 'does not begin with embedded:'
}

# The machine's own file, in a mount namespace where it is ours to write.
test_the_machines_file_is_found_without_any_variable() {
    [ "$(id -u)" = 0 ] && unshare -m true 2> /dev/null ||
        left_out "needs root, for a mount namespace"
    mkdir etc
    echo "url = embedded:$dir/hf" > etc/holdfast.conf
    unset HOLDFAST_URL HOLDFAST_CONFIG
    run unshare -m sh -c "mount --bind $dir/etc /etc && exec $HOLDFAST server status"
    expect_out "$dir/hf"
    rm etc/holdfast.conf # and without it all is as ever
    run unshare -m sh -c "mount --bind $dir/etc /etc && exec $HOLDFAST server status"
    expect_out '/holdfast'
    expect_no_err
}

# ---- the word at a terminal ----------------------------------------------------------------

on_terminal() { # on_terminal CMD: its screen in the file `screen`
    script -qefc "$1" typescript < /dev/null > screen 2>&1 || true
}

test_at_a_terminal_a_lock_of_this_machine_only_is_said_so() {
    command -v unshare > /dev/null && unshare -rn true 2> /dev/null ||
        left_out "needs a network namespace, for an embedded server of its own"
    : > empty
    chmod 644 empty
    unset HOLDFAST_URL
    HOLDFAST_CONFIG=$dir/empty
    export HOLDFAST_CONFIG
    mkdir run
    # The default server of a machine that nobody else is on.
    alone="unshare -rnm sh -c 'mount --bind $dir/run /run; \
        $HOLDFAST run %s a -- echo RUNS; $HOLDFAST server stop'"
    # shellcheck disable=SC2059
    on_terminal "$(printf "$alone" '')"
    grep -q RUNS screen || fail "not run: $(cat screen)"
    expect_eq "$(grep -c 'this machine only' screen)" 1
    # shellcheck disable=SC2059
    on_terminal "$(printf "$alone" -q)"
    grep -q RUNS screen || fail "not run: $(cat screen)"
    expect_eq "$(grep -c 'this machine only' screen)" 0
}

test_an_embedded_server_that_was_named_is_no_news() {
    on_terminal "$HOLDFAST run a -- echo RUNS" # by $HOLDFAST_URL
    grep -q RUNS screen
    unset HOLDFAST_URL
    on_terminal "$HOLDFAST run --url embedded:$dir/hf a -- echo RUNS"
    grep -q RUNS screen
    config "url = embedded:$dir/hf"
    on_terminal "$HOLDFAST run a -- echo RUNS"
    grep -q RUNS screen
    if grep -q 'this machine only' screen; then fail "said"; fi
}
