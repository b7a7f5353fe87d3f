# SPDX-License-Identifier: MIT
# examples.sh - the programs of examples/ that solve a whole problem do solve it.
# shellcheck disable=SC2016 # conditions are evaluated later

compile() { # compile NAME: examples/NAME.c, as a user's program
    gcc -std=c99 -D_DEFAULT_SOURCE -pedantic -Wall -Wextra -Werror "$root/examples/$1.c" \
        -I"$root/include" -L"$root/build" -lholdfast -o "$1"
    LD_LIBRARY_PATH=$root/build
    export LD_LIBRARY_PATH
}

embedded_cli() {
    "$(command -v redis-cli || command -v valkey-cli)" -s "$dir/hf/redis.sock" "$@"
}

# examples/show.sh: what `make run` shows
test_the_show_runs_to_its_end() {
    mkdir bin
    ln -s "$HOLDFAST" bin/holdfast
    PATH=$PWD/bin:$PATH expect_exit 0 sh "$root/examples/show.sh"
    for who in ann bob cid dan eve fay; do
        expect_out "s  $who +HOLDS the lock"
    done
    expect_out '^ +waiters +3$'
}

# examples/flash_sale.c
test_flash_sale_sells_what_there_is_and_no_more() {
    compile flash_sale
    expect_exit 0 ./flash_sale 10 40
    expect_out_is 'sold 10, sold out for 30, failed 0, left 0'
    expect_eq "$(wc -l < orders.txt)" 10
    expect_eq "$(sort -u orders.txt | wc -l)" 10
    cut -d' ' -f1 orders.txt | sort -nc || fail "the numbers do not rise"
    expect_exit 0 ./flash_sale 30 20
    expect_out_is 'sold 20, sold out for 0, failed 0, left 10'
}

# examples/ids.c
test_ids_are_given_once_and_grow() {
    compile ids
    for i in 1 2 3 4 5 6; do
        ./ids 50 $((1 + i % 2 * 9)) > "ids.$i" &
    done
    wait
    for i in 1 2 3 4 5 6; do
        expect_eq "$(wc -l < "ids.$i")" 50
        sort -nuc "ids.$i" || fail "ids do not grow"
    done
    expect_eq "$(cat ids.* | sort -nu | wc -l)" 300
    expect_eq "$(cat ids.* | sort -n | tail -n 1)" 300
    expect_exit 0 ./ids 1
    expect_out_is 301
    expect_exit 0 ./ids 2 10
    expect_exit 0 ./ids 1 # the block's other eight are gone
    expect_out_is 312
}

# examples/floors.c
test_floors_have_no_gap_and_none_twice() {
    compile floors
    for i in 1 2 3 4 5 6 7 8; do
        ./floors 17 a b c d e > "floors.$i" &
        ./floors 18 x > /dev/null &
    done
    wait
    expect_eq "$(cut -d' ' -f1 17.posts | tr '\n' ' ')" "$(seq -s ' ' 40) "
    expect_eq "$(cut -d' ' -f1 18.posts | tr '\n' ' ')" "$(seq -s ' ' 8) "
    expect_eq "$(cat floors.* | sort -u | wc -l)" 40
    # One lock for each thread: that of one does not stop the other.
    expect_exit 0 holdfast run thread/17/floor -- ./floors 18 y
    expect_out_is 'floor 9'
    expect_exit 1 ./floors
}

# examples/rebuild.c
test_rebuild_makes_it_once_for_all() {
    compile rebuild
    for i in 1 2 3 4 5 6; do
        ./rebuild 1 > "got.$i" 2> "made.$i" &
    done
    wait
    expect_eq "$(cat made.*)" "making it ..."
    expect_eq "$(sed -n 1p got.1 got.2 got.3 got.4 got.5 got.6 | sort -u | wc -l)" 1
    expect_eq "$(cat got.* | grep -c 'made now')" 1
    expect_eq "$(cat got.* | grep -c 'cached')" 5
}

# examples/trade.c
test_trade_over_two_accounts_loses_nothing() {
    compile trade
    # What is handed over has to be claimed within a second. On a machine that has too much to do it
    # may be lost by then, and the program says so. Then again.
    for _ in 1 2 3; do
        run ./trade 4 6 20
        grep -q 'was lost: its lease of 1.0 s ended' err && [ "$(patience)" != 1 ] || break
    done
    expect_eq "$status" 0
    expect_out_is '4 accounts, 400 in all, 0 traders failed'
}

# shim TEXT: what the program calls is this instead of the C library's or ours.
shim() {
    printf '%s\n' "$1" > shim.c
    gcc -shared -fPIC -D_GNU_SOURCE shim.c -I"$root/include" -o shim.so
}

test_trade_with_an_account_that_is_empty() {
    compile trade
    ln -s /dev/null account.1 # takes what is written, and has nothing to be read
    expect_exit 1 ./trade 2 1 20
    expect_err '^account: No data available$'
    expect_out '1 traders failed$'
    expect_eq "$(cat account.0)" 100
}

# A write that fails is a failure of the program.
test_what_cannot_be_written_is_told() {
    compile floors
    compile counter
    g++ -std=c++11 "$root/examples/counter.cpp" -I"$root/include" -L"$root/build" -lholdfast -o cpp
    expect_exit 0 ./floors 17 a
    expect_exit 1 ./floors 17 'b
c'
    expect_eq "$(cat 17.posts)" '1 a'
    mkdir 18.posts
    expect_exit 1 ./floors 18 a b
    expect_err '^18: Is a directory$'
    mkdir counter.txt
    for program in ./counter ./cpp; do
        expect_exit 1 $program
        expect_err '^counter.txt'
        expect_no_out
    done
    rmdir counter.txt
    expect_exit 0 ./counter
    # No byte more in any file: the output is a pipe.
    for program in ./counter ./cpp; do
        (trap '' XFSZ; ulimit -f 0; $program 2>&1 || echo "exit $?") | cat > said
        grep -q '^counter.txt' said
        expect_eq "$(tail -n 1 said)" 'exit 1'
        rm counter.txt
    done
}

# examples/slots.c
test_slots_are_never_more_than_there_are() {
    compile slots
    expect_exit 0 ./slots 3 12
    expect_out '^12 workers, at most [123] at a time, 0 failed$'
    expect_eq "$(grep -c '^in ' slots.log)" 12
}

# examples/own_key.c
test_own_key_is_made_once_and_read_by_others() {
    compile own_key
    for i in 1 2 3 4 5 6; do
        ./own_key report 1 > "got.$i" 2> "made.$i" &
    done
    wait
    expect_eq "$(cat made.*)" "making it ..."
    expect_eq "$(cat got.* | sort -u | wc -l)" 1
    expect_eq "$(embedded_cli GET report)" "$(cat got.1)" # the key is the caller's own
    expect_eq "$(embedded_cli TTL report | awk '{ print ($1 > 0 && $1 <= 10) }')" 1
}

# Its lock is not held for certain, but the server says that it is: then the value is stored.
test_own_key_stores_what_it_prints() {
    compile own_key
    shim 'int hf_lock_is_held(const void *lock) { (void)lock; return 0; }'
    run env LD_PRELOAD="$PWD/shim.so" ./own_key report 0
    expect_eq "$status" 0
    expect_out '^made by process'
    expect_eq "$(embedded_cli GET report)" "$(cat out)"
}

# examples/epoll.c: the third request is refused, while two are under way.
test_epoll_ends_what_is_under_way() {
    compile epoll
    shim '#include <dlfcn.h>
#include <holdfast.h>
#include <stdio.h>
hf_err hf_lock_acquire_async(hf_lock *lock, int64_t wait_ms, hf_done_fn done, void *arg,
                             hf_error *reterr)
{
    static int calls;
    hf_err (*real)(hf_lock *, int64_t, hf_done_fn, void *, hf_error *)
        = dlsym(RTLD_NEXT, "hf_lock_acquire_async");
    snprintf(reterr->message, sizeof reterr->message, "refused");
    return ++calls == 3 ? HF_ENOMEM : real(lock, wait_ms, done, arg, reterr);
}'
    # What has been freed is overwritten.
    run env MALLOC_PERTURB_=165 LD_PRELOAD="$PWD/shim.so" ./epoll 5
    expect_eq "$status" 1
    expect_err '^HF_ENOMEM: refused$'
    expect_eq "$(grep -c '^worker [12]: ' err)" 2
}

# examples/update_or_lock.c
test_update_or_lock_counts_the_same_both_ways() {
    compile update_or_lock
    expect_exit 0 ./update_or_lock 4 50
    expect_eq "$(embedded_cli GET count:updated)" 200
    expect_eq "$(embedded_cli GET count:locked)" 200
    expect_eq "$(grep -c 'under the lock: 50 tries$' out)" 4
    shim '#include <errno.h>
#include <unistd.h>
pid_t fork(void) { errno = EAGAIN; return -1; }'
    run env LD_PRELOAD="$PWD/shim.so" ./update_or_lock 4 50
    expect_eq "$status" 1
    expect_eq "$(embedded_cli GET count:updated)" 200
}

# ---- examples/leader_pg.sh: a PostgreSQL server of the test's own ----

find_postgres() { # where initdb and postgres are
    for p in $(command -v initdb || true) /usr/lib/postgresql/*/bin/initdb /usr/local/bin/initdb; do
        if [ -x "$p" ] && [ -x "$(dirname "$p")/postgres" ]; then
            dirname "$p"
            return 0
        fi
    done
    return 1
}

start_postgres() {
    command -v psql > /dev/null || left_out "no psql here"
    bin=$(find_postgres) || left_out "no PostgreSQL server here"
    as=
    if [ "$(id -u)" = 0 ]; then # it refuses to run as root
        id postgres > /dev/null 2>&1 ||
            left_out "PostgreSQL does not run as root, and there is no user postgres"
        as="setpriv --reuid=postgres --regid=$(id -g postgres) --clear-groups"
    fi
    mkdir "$dir/pg"
    chmod 711 "$dir"
    [ -z "$as" ] || chown postgres "$dir/pg"
    cd "$dir/pg"
    $as "$bin/initdb" -D "$dir/pg/data" -U tester -A trust --no-sync > "$dir/initdb.log" 2>&1 ||
        { cat "$dir/initdb.log"; fail "initdb"; }
    # It dies with this shell, however this shell ends.
    # shellcheck disable=SC2086 # words
    $as setpriv --pdeathsig INT "$bin/postgres" -D "$dir/pg/data" -k "$dir/pg" \
        -c listen_addresses= -c fsync=off > "$dir/pg.log" 2>&1 &
    cd "$dir"
    PGHOST=$dir/pg PGUSER=tester PGDATABASE=postgres
    export PGHOST PGUSER PGDATABASE
    wait_until 'psql -XqAtc "SELECT 1" > /dev/null 2>&1' 30
}

# docs/fencing.md: the statements refuse an older number, and accept the same one again.
sql_of_fencing_md() {
    awk '/^```sql$/ { n++; inside = 1; next } /^```/ { inside = 0 }
        inside { print > ("sql." n) }' "$root/docs/fencing.md"
    sed -n '/^CREATE/,/^);/p' sql.1 | psql -Xq
    sed '1,/^);/d' sql.1 > write.sql
    for n in 41 41 43 41 43; do
        psql -XqAt -v day=2026-01-01 -v total=$n -v fence=$n -f write.sql
    done > written
    expect_eq "$(tr '\n' ' ' < written)" '41 41 43 43 '
    expect_eq "$(psql -XqAtc 'SELECT total, fence FROM report')" '43|43'
    psql -Xq -f sql.2
    for n in 41 43 41 43; do
        sed 's/^-- .*/SELECT :fence;/' sql.3 |
            psql -XqAt -v ON_ERROR_STOP=1 -v fence=$n 2>> refused || true
    done | sed '/^$/d' > written
    expect_eq "$(tr '\n' ' ' < written)" '41 43 43 '
    grep -q 'fencing number 41 of orders is stale' refused
}

test_leader_pg_refuses_a_leader_of_yesterday() {
    start_postgres
    sql_of_fencing_md
    mkdir bin
    ln -s "$HOLDFAST" bin/holdfast
    PATH=$dir/bin:$PATH
    example=$root/examples/leader_pg.sh
    expect_exit 0 "$example" init
    "$example" lead > first &
    first=$!
    wait_until '"$example" show | grep -q "beat"'
    old=$(sed -n 's/.*number //p' first)
    expect_eq "$("$example" show | cut -d'|' -f1)" "$old"
    "$example" lead 2 > second &
    second=$!
    wait_until '[ "$(embedded_cli ZCARD "{lock:leader}:q")" = 1 ]'
    [ ! -s second ] || fail "two leaders"
    kill -9 $first
    wait $second
    new=$(sed -n 's/.*number //p' second)
    [ "$new" -gt "$old" ] || fail "$new is not larger than $old"
    # The first, had it only been asleep, writes now.
    expect_exit 3 "$example" write "$old" "I am still the leader"
    expect_err '^refused'
    expect_eq "$("$example" show | cut -d'|' -f1)" "$new"
    expect_exit 0 "$example" write "$new" "the same number is accepted again"
    expect_exit 64 "$example"
}
