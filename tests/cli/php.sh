# SPDX-License-Identifier: MIT
# php.sh - the PHP binding (bindings/php): the class RedisLock and the lock functions, in the place
# of the old ones, and beside programs that still have them.
# shellcheck disable=SC2016,SC2034,SC2086 # evaluated later; variables are common.sh's; words

# shellcheck source=/dev/null
[ -z "${root:-}" ] || . "$root/tests/interop/common.sh"

php_binding() {
    php -r 'exit(extension_loaded("redis") && extension_loaded("FFI") ? 0 : 1);' 2> /dev/null ||
        skip "no php with redis and FFI here"
    [ -e "$root/build/php/holdfast.h" ] || fail "make bindings first"
    HOLDFAST_PHP=$root/build/php HOLDFAST_LIBRARY=$(echo "$root"/build/libholdfast.so.?)
    export HOLDFAST_PHP HOLDFAST_LIBRARY
    worker="php $root/bindings/php/tests/worker.php"
    start_server
}

test_every_call() {
    php_binding
    expect_exit 0 php "$root/bindings/php/tests/test.php" "$dir/server/sock"
    expect_out_is "done"
    expect_no_err
}

test_the_class_beside_our_tool() {
    php_binding
    key=Lock:interop rounds=4
    both_exclude $worker class
}

test_lock_with_a_uuid_beside_our_tool() {
    php_binding
    key=lock:interop rounds=4
    both_exclude $worker lock
}

# beside OLD NEW: programs with the old code and with ours, as fast as they can.
beside() {
    php_binding
    echo 0 > "$dir/number"
    php "$root/tests/interop/worker.php" "$1" count "$dir/server/sock" "$key" 12 "$dir/number" \
        > "$dir/old" 2>&1 &
    old=$!
    pids=
    for i in 1 2; do
        WORKER=ours $worker "$2" count "$dir/server/sock" "$key" 8 "$dir/number" \
            > "$dir/new.$i" 2>&1 &
        pids="$pids $!"
    done
    for pid in $old $pids; do
        wait $pid || { cat "$dir/old" "$dir"/new.?; fail "a worker failed"; }
    done
    expect_eq "$(cat "$dir/number")" 28
    expect_eq "$(ask EXISTS "$key")" 0
    echo "# they took $(uniq "$dir/number.log" | wc -l) turns"
}

test_the_class_beside_the_old_class() {
    key=Lock:interop
    beside class class
}

test_a_uuid_beside_setnx() {
    key=interop
    beside setnx lock
}

test_an_id_beside_a_transaction() {
    key=interop
    beside transaction acquire
}

test_an_id_beside_a_script() {
    key=interop
    beside script acquire
}

php_ends_and_releases() { # php_ends_and_releases FIRST-LINE LAST-LINE: what a script held is free
    cat > end.php << END
<?php
$1
require getenv('HOLDFAST_PHP') . '/RedisLock.php';
require getenv('HOLDFAST_PHP') . '/functions.php';
RedisLock::instance()->lock('job', 0, 600) && lock('key', 600) || exit(9);
echo (new Redis())->connect('$dir/server/sock') ? "held" : "?", "\n";
$2
END
    run php -d display_errors=0 -d log_errors=0 end.php
    expect_out '^held$'
    expect_eq "$(ask EXISTS Lock:job key)" 0
}
php_too_much='ini_set("memory_limit", "8M"); str_repeat("x", 100000000);'

# Exit, an exception and a fatal error end a request.
test_the_end_of_a_script_releases() {
    php_binding
    HOLDFAST_URL=$SERVER_URL
    for end in '' 'exit(3);' 'throw new Exception("x");' 'no_such_function();' "$php_too_much"; do
        php_ends_and_releases '' "$end"
    done
}

# A shutdown function that exits is the last one that runs, and no destructor runs after an error.
test_an_exit_in_a_shutdown_function() {
    php_binding
    HOLDFAST_URL=$SERVER_URL
    for end in '' 'exit(3);' 'no_such_function();' "$php_too_much"; do
        php_ends_and_releases 'register_shutdown_function(fn() => exit(4));' "$end"
    done
}

# Only what is renewed passes on before its time is over.
test_a_holder_that_is_killed() {
    php_binding
    HOLDFAST_URL=$SERVER_URL
    cat > holder.php << 'END'
<?php
require getenv('HOLDFAST_PHP') . '/RedisLock.php';
require getenv('HOLDFAST_PHP') . '/functions.php';
$client = new Holdfast\Client();
$renewed = $client->lock('renewed', ['ttl' => 600]);
$renewed->acquire(0);
RedisLock::instance()->lock('job', 0, 600) && lock('key', 600) && acquire('own', 600, 'me')
    || exit(9);
touch('held');
posix_kill(getmypid(), SIGKILL);
END
    run php holder.php
    [ -e held ] || fail "it held nothing"
    cat > waiter.php << 'END'
<?php
require getenv('HOLDFAST_PHP') . '/RedisLock.php';
require getenv('HOLDFAST_PHP') . '/functions.php';
echo match ($argv[1]) {
    'renewed' => (new Holdfast\Client())->run('renewed', fn() => true, 60),
    'job' => RedisLock::instance()->lock('job', 6),
    'key' => lock('key', 6),
} ? "taken" : "not taken";
END
    pids=
    for name in renewed job key; do
        php waiter.php $name > got.$name &
        pids="$pids $!"
    done
    wait $pids
    expect_eq "$(cat got.renewed)" taken
    expect_eq "$(cat got.job)" 'not taken'
    expect_eq "$(cat got.key)" 'not taken'
    expect_eq "$(ask EXISTS Lock:job key own)" 3
}

# web_server OPTION...: serves ./www; `get QUERY` asks it.
web_server() {
    # It cannot choose a port itself: the kernel names one that is free now.
    port=$(php -r '$s = stream_socket_server("tcp://127.0.0.1:0");
        echo explode(":", stream_socket_get_name($s, false))[1];')
    PHP_CLI_SERVER_WORKERS=2 setpriv --pdeathsig KILL \
        php -d display_errors=0 "$@" -S "127.0.0.1:$port" -t www > log 2>&1 &
    get() {
        php -r 'echo @file_get_contents("http://127.0.0.1:'"$port"'/" . $argv[1]);' -- "$1"
    }
    wait_until '[ -n "$(get "")" ]'
}

# A web server's process goes on after a request.
test_the_end_of_a_request_releases() {
    php_binding
    HOLDFAST_URL=$SERVER_URL
    mkdir www
    cat > www/index.php << 'END'
<?php
require getenv('HOLDFAST_PHP') . '/RedisLock.php';
if (isset($_GET['exit']))
    register_shutdown_function(fn() => exit(1));
echo RedisLock::instance()->lock('job', 0, 600) ? "locked\n" : "busy\n";
if (isset($_GET['hold'])) {
    touch('held');
    while (!file_exists('go')) {
        clearstatcache();
        usleep(10000);
    }
}
if (isset($_GET['fatal']))
    no_such_function();
if (isset($_GET['exit'])) {
    ini_set('memory_limit', '8M');
    str_repeat('x', 100000000);
}
END
    web_server -d ffi.enable=true
    for i in 1 2 3; do
        expect_eq "$(get '')" locked
        get '?fatal' > /dev/null
        get '?exit' > /dev/null
    done
    expect_eq "$(ask EXISTS Lock:job)" 0
    get '?hold' > holder &
    wait_until '[ -e www/held ]'
    expect_eq "$(get '')" busy
    : > www/go
    wait $!
    expect_eq "$(cat holder)" locked
    expect_eq "$(get '')" locked
}

# Two web hosts with a private server each would both hold the lock.
test_a_web_server_gets_no_private_server() {
    php_binding
    unset HOLDFAST_URL
    mkdir www
    cat > www/index.php << 'END'
<?php
require getenv('HOLDFAST_PHP') . '/RedisLock.php';
try {
    echo (new RedisLock($_GET['url'] ?? null))->lock('job') ? "locked\n" : "busy\n";
} catch (Holdfast\Error $e) {
    echo "$e->name ", str_contains($e->getMessage(), 'env[HOLDFAST_URL]') ? 'says how' : '', "\n";
}
END
    web_server -d ffi.enable=true
    expect_eq "$(get '')" "HF_ECONFIG says how"
    expect_eq "$(get "?url=$SERVER_URL")" locked
}

# What is set for one request (SetEnv, fastcgi_param) reaches PHP's getenv() alone.
test_the_url_of_a_request() {
    php_binding
    unset HOLDFAST_URL
    cat > request.php << 'END'
<?php
namespace Holdfast {
    function getenv(string $name): string|false
    {
        return $name === 'HOLDFAST_URL' ? $_SERVER['argv'][1] : \getenv($name);
    }
}
namespace {
    require getenv('HOLDFAST_PHP') . '/Holdfast.php';
    try {
        $client = new Holdfast\Client();
        $lock = $client->lock('job');
        $lock->acquire(0);
        $redis = new Redis();
        $redis->connect($argv[2]);
        echo $redis->exists('lock:job') ? "there\n" : "elsewhere\n";
    } catch (Holdfast\Error $e) {
        echo "$e->name\n";
    }
}
END
    expect_eq "$(php request.php "$SERVER_URL" "$dir/server/sock")" there
    expect_eq "$(php request.php '' "$dir/server/sock")" HF_ECONFIG
}

# As a web server should have it: FFI for what was preloaded, and for nothing else.
test_preloaded() {
    php_binding
    HOLDFAST_URL=$SERVER_URL
    sed "s,^#define FFI_LIB .*,#define FFI_LIB \"$HOLDFAST_LIBRARY\"," \
        "$HOLDFAST_PHP/holdfast.h" > h.h
    unset HOLDFAST_LIBRARY
    mkdir www
    cat > www/index.php << 'END'
<?php
require getenv('HOLDFAST_PHP') . '/RedisLock.php';
try {
    FFI::cdef('int getpid(void);');
    echo "anybody may use FFI\n";
} catch (FFI\Exception) {
    echo RedisLock::instance()->lock('job') ? "locked\n" : "busy\n";
}
END
    user=
    [ "$(id -u)" != 0 ] || user="-d opcache.preload_user=$(id -un)"
    web_server -d ffi.enable=preload -d ffi.preload="$dir/h.h" -d opcache.enable=1 \
        -d opcache.enable_cli=1 -d opcache.preload="$HOLDFAST_PHP/Holdfast.php" $user
    for i in 1 2 3; do
        expect_eq "$(get '')" locked
    done
}

# The lines at the top of Holdfast.php leave the lock held.
test_the_example_of_its_head() {
    php_binding
    HOLDFAST_URL=$SERVER_URL
    { echo '<?php require getenv("HOLDFAST_PHP") . "/Holdfast.php";'
      sed -n '/^declare/q; s,^//   ,,p' "$HOLDFAST_PHP/Holdfast.php"
      echo '$redis = new Redis();'
      echo '$redis->connect($argv[1]);'
      echo 'exit($fence > 0 && $redis->exists("lock:report") ? 0 : 1);'; } > head.php
    expect_exit 0 php head.php "$dir/server/sock"
    expect_no_err
}

# README.md: each program runs.
test_the_programs_of_its_readme() {
    php_binding
    HOLDFAST_URL=$SERVER_URL
    awk -v n=0 '$1 == "```php" { inside = 1; n++; next } $1 == "```" { inside = 0 }
        inside { print > ("readme" n ".php") }' "$root/bindings/php/README.md"
    cp "$HOLDFAST_PHP"/* .
    [ "$(echo readme*.php | wc -w)" -ge 3 ] || fail "where are they?"
    for f in readme*.php; do
        expect_exit 0 php -d error_reporting=-1 -d display_errors=stderr "$f"
        expect_no_err
    done
}
