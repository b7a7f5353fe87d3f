# SPDX-License-Identifier: MIT
# tools.sh - the checks of the tree itself: each passes here, and finds a fault that is planted.

test_layers_are_kept() {
    expect_exit 0 "$root/tools/check-layers.sh" "$root"
}

# plant FILE LINE REASON: a copy of the tree with LINE in FILE must be refused, with REASON.
plant() {
    rm -rf tree
    mkdir tree
    for d in src include cli bench examples; do
        [ ! -d "$root/$d" ] || cp -r "$root/$d" tree/
    done
    mkdir -p "tree/$(dirname "$1")"
    printf '%s\n' "$2" >> "tree/$1"
    expect_exit 1 "$root/tools/check-layers.sh" tree
    expect_err "^$1:[0-9]+: .*$3"
}

test_layer_check_finds_planted_faults() {
    plant src/base/err.c '#include "net/conn.h"' 'is below'
    plant src/topo/new.c '#include "lock/mutex.h"' 'is below'
    plant src/exec/new.c '  #  include "session/client.h"' 'is below'
    plant src/lock/one.c '#include "lock/other.h"' 'one another'
    plant src/base/new.c '#include "err.h"' 'path from src'
    plant src/net/new.c '#include <hiredis/hiredis.h>' 'hiredis only'
    plant src/net/new.c '#include <openssl/ssl.h>' 'OpenSSL only'
    plant src/session/new.c '#include <sys/socket.h> /* why */' 'sockets only'
    plant cli/new.c '#include "base/err.h"' 'only holdfast.h'
    plant cli/new.c '#include "elsewhere.h"' 'not in this folder'
    plant examples/new.c '#include "net/conn.h"' 'only holdfast.h'
}

# The same without an #include: what a lower layer only speaks of, or passes on unseen.
test_layer_check_finds_ways_around() {
    plant src/topo/new.h 'struct keeper;' 'keeper: src/topo is below src/session'
    plant src/net/new.c 'void f(struct topo *t);' 'topo: src/net is below src/topo'
    plant src/base/err.c 'static int f(const hf_client *c);' 'hf_client: src/base is below'
    plant src/session/new.c 'void f(hf_lock *m);' 'hf_lock: src/session is below src/lock'
    plant src/exec/new.h 'struct nothing_of_ours;' 'defined nowhere'
    plant src/topo/new.h 'struct new { int n; void *attached; };' 'void \*attached: give it a type'
    plant src/topo/new.h 'struct new { int n; void *arg; };' 'no callback beside it'
    plant src/topo/new.c 'static void *attached;' 'void \*attached: give it a type'
    plant src/topo/new.h 'void *topo_attached(const struct topo *t);' 'returns void'
    plant src/topo/new.h 'void topo_attach(struct topo *t, void *o);' 'void \*o of topo_attach'
    plant src/topo/new.h 'void topo_attach(struct topo *t, void *arg);' 'no callback beside it'
    # What is right is not refused.
    rm -rf tree
    mkdir -p tree/src/topo
    cat > tree/src/topo/new.h << 'END'
/* struct keeper is a word here, as is void *attached; */
struct new { void (*done)(void *arg); void *arg; };
typedef void (*new_fn)(void *arg);
void new_start(new_fn fn, void *arg, const void *data, size_t len);
void *new_main(void *n);
struct pollfd *new_poll(struct new *n);
#include <poll.h>
END
    expect_exit 0 "$root/tools/check-layers.sh" tree
}

# A port is the work of one folder and one file.
test_layer_check_finds_what_only_linux_has() {
    plant src/net/new.c '#include <sys/epoll.h>' 'only in src/base and cli/platform'
    plant src/lock/new.c 'int f(void) { return eventfd(0, 0); }' 'eventfd: only in src/base'
    plant src/session/new.c 'const char *f(void) { return "/proc/self/stat"; }' '/proc/: only in'
    plant src/topo/new.c 'enum { CLOCK = CLOCK_BOOTTIME };' 'CLOCK_BOOTTIME: only in'
    plant cli/new.c '#include <linux/futex.h>' 'only in src/base and cli/platform'
    plant cli/new.c 'int f(int fd) { return syscall(SYS_futex, fd); }' 'syscall: only in'
    plant cli/child.c 'void f(void) { prctl(PR_SET_NAME, "x"); }' 'prctl: only in'
    plant src/op/new.c 'char *f(void) { return strdup("x"); }' 'strdup: use mem_'
    plant src/op/new.c 'void f(char *p) { free(p); }' 'free: use mem_'
    plant src/op/new.c 'long f(void) { return time(NULL); }' 'time: use base/clock.h'
    rm -rf tree
    mkdir -p tree/src/base tree/cli
    echo '#include <sys/epoll.h>' | tee tree/src/base/new.c > tree/cli/platform.c
    echo '/* not of /proc/self, nor by prctl() */ int my_prctl(int a);' > tree/cli/new.h
    expect_exit 0 "$root/tools/check-layers.sh" tree
}

test_locks_are_spoken_of_in_one_way() {
    expect_exit 0 "$root/tools/check-locks.sh" "$root"
}

# mislock TEXT REASON: TEXT as a file of src/ must be refused, with REASON.
mislock() {
    rm -rf tree
    mkdir -p tree/src/net
    printf '%s\n' "$1" > tree/src/net/new.c
    expect_exit 1 "$root/tools/check-locks.sh" tree
    expect_err "^src/net/new.c:[0-9]+: .*$2"
}

test_lock_check_finds_planted_faults() {
    mislock 'pthread_mutex_t mu; /* pthread_mutex_lock(&mu) */' 'use struct mutex'
    mislock '/* Holds: mu, released meanwhile. */
static void f(struct x *x)
{
}' 'f\(\) holds a lock: it ends in _locked'
    mislock "/* Holds: the keeper's mu. */
void f(struct x *x);" 'f\(\) holds a lock'
    mislock '/* Holds: mu. */
static void f_locked(struct x *x)
{
    mutex_assert_held(&x->mu);
}' 'its name says that it holds mu'
    mislock 'static void f_locked(struct x *x)
{
    x->n++;
}' 'f_locked\(\): mutex_assert_held'
    mislock 'static void g(struct x *x)
{
    f_locked(x);
}' 'g\(\) calls what needs a lock, but takes none'
    # What is right is not refused.
    cat > tree/src/net/new.c << 'END'
/* Holds: mu, released meanwhile. */
static void f_locked(struct x *x)
{
    mutex_assert_held(&x->mu);
    g_locked(x);
}

/* Holds: the connection's mu. */
static void g_locked(struct y *y)
{
    y->n++;
}

/* Thread: any. Holds: nothing. */
void h(struct x *x)
{
    mutex_lock(&x->mu);
    f_locked(x);
    mutex_unlock(&x->mu);
}
END
    expect_exit 0 "$root/tools/check-locks.sh" tree
    # The page has the order of the code.
    mkdir -p tree/src/base tree/docs
    cp "$root/src/base/mutex.h" tree/src/base/
    sed 's/^3\. `keeper/1. `keeper/' "$root/docs/threads.md" > tree/docs/threads.md
    expect_exit 1 "$root/tools/check-locks.sh" tree
    expect_err 'threads.md: `keeper.mu` has the rank 3'
    grep -v '`inbox.mu`' "$root/docs/threads.md" > tree/docs/threads.md
    expect_exit 1 "$root/tools/check-locks.sh" tree
    expect_err 'threads.md: `inbox.mu` has the rank 5'
}

test_form_is_kept() {
    expect_exit 0 "$root/tools/check-form.sh" "$root"
}

# malform FILE TEXT REASON: a tree with that FILE alone must be refused, with REASON.
malform() {
    rm -rf tree
    mkdir -p "tree/$(dirname "$1")"
    # shellcheck disable=SC2059 # escapes are wanted
    printf -- "$2" > "tree/$1"
    expect_exit 1 "$root/tools/check-form.sh" tree
    expect_err "^$1:[0-9]+: $3"
}

test_form_check_finds_planted_faults() {
    c='/* SPDX-License-Identifier: MIT\n * a.c - it. */\n'
    sh='# SPDX-License-Identifier: MIT\n# a.sh - it.\n'
    lua='-- SPDX-License-Identifier: MIT\n'
    long=$(printf '%0100d' 0)
    malform a.c "${c}int x$long;\n" '106 columns'
    malform a.lua "${lua}local x = $long\n" '110 columns'
    malform a.sh "${sh}x=${long}\n" '102 columns'
    malform a.c "$c\tint x;\n" 'a tab indents'
    malform a.c "${c}int x = a &&\n    b;\n" 'break before'
    malform a.c "${c}int x = a || /* or */\n    b;\n" 'break before'
    malform cli/a.c "${c}int f(void)\n{\n$(printf '%061d' 0 | sed 's/0/    x;\\n/g')}\n" \
        'a function of 61 lines'
    malform src/a.c "${c}int f(void)\n{\n    goto out;\n}\n" 'free by AUTO'
    malform b.c "${c}int x;\n" 'say: b.c - '
    malform b.sh "${sh}true\n" 'say: b.sh - '
    malform a.c "${c}int x; \n" 'ends with a blank'
    malform a.lua "${lua}local x\t\n" 'ends with a blank'
    malform a.h 'int x;\n' 'no license'
    malform a.sh '#!/bin/sh\ntrue\n' 'no license'
    malform a.sh 'true\n' 'no license'
    malform a.lua 'return 1\n' 'no license'
    # What is right is not refused: 100 characters, whatever they take; a script with its #! line.
    rm -rf tree
    mkdir tree
    expect_exit 1 "$root/tools/check-form.sh" tree
    expect_err 'no sources here'
    # shellcheck disable=SC2059
    printf "#!/bin/sh\n$sh# %s\303\244\n" "${long#???}" > tree/a.sh
    # shellcheck disable=SC2059
    printf -- "$lua%s\n" "$long" > tree/a.lua
    mkdir tree/src
    # shellcheck disable=SC2059
    printf "${c}int f(void)\n{\n$(printf '%060d' 0 | sed 's/0/    x;\\n/g')}\n" > tree/src/a.c
    expect_exit 0 "$root/tools/check-form.sh" tree
}

# What a machine runs fails when either half does, and the tests have the last word.
test_ci_runs_the_rules_and_the_tests() {
    mkdir -p tree/.ci bin
    cp "$root/.ci/run" tree/.ci/
    cat > bin/make << 'END'
#!/bin/sh
[ -n "$CI" ] || exit 9
echo "$1"
[ "$1" != "$BREAKS" ]
END
    chmod +x bin/make
    for breaks in none tidy lint test; do
        want=1
        [ $breaks != none ] || want=0
        BREAKS=$breaks PATH="$dir/bin:$PATH" expect_exit $want sh tree/.ci/run
        expect_eq "$(cat out)" "$(printf 'tidy\nlint\ntest')"
    done
}

test_exports_are_the_header() {
    expect_exit 0 "$root/tools/check-exports.sh" "$root/build"
}

test_export_check_finds_planted_faults() {
    echo 'int hf_version; int leak;' > a.c
    gcc -shared -fPIC a.c -o libholdfast.so
    gcc -c a.c
    ar rcs libholdfast.a a.o
    expect_exit 1 "$root/tools/check-exports.sh" .
    expect_err 'libholdfast.so: exports leak'
    expect_err 'libholdfast.a: exports leak'
    expect_err 'lacks hf_lock_acquire'
}

test_the_build_is_hardened() {
    expect_exit 0 "$root/tools/check-hardening.sh" "$root/build"
}

test_hardening_check_finds_planted_faults() {
    printf '#include <stdlib.h>\nchar *hf_a(void) { return getenv("A"); }\n' > a.c
    echo "const char place[] = \"$root/src\"; int main(void) { return place[0] == 1; }" > tool.c
    weak='-O0 -U_FORTIFY_SOURCE -fno-stack-protector -Wl,-z,norelro,-z,lazy,-z,execstack'
    # shellcheck disable=SC2086 # a list of words
    gcc $weak -Wl,-rpath,/tmp -shared -fPIC a.c -o libholdfast.so
    # shellcheck disable=SC2086
    gcc $weak -no-pie -fno-pie tool.c -o holdfast
    gcc -g -fno-stack-clash-protection -fcf-protection=none -c a.c ||
        gcc -g -fno-stack-clash-protection -c a.c
    ar rcs libholdfast.a a.o
    expect_exit 1 "$root/tools/check-hardening.sh" .
    for fault in RELRO BIND_NOW 'stack can be executed' 'stack-protector' FORTIFY RPATH \
        'calls getenv'; do
        expect_err "libholdfast.so: .*$fault"
    done
    expect_err 'holdfast: it is no PIE'
    expect_err 'holdfast: it has the name of the folder'
    expect_err 'libholdfast.a: no -fstack-clash-protection'
    [ "$(uname -m)" != x86_64 ] || expect_err 'libholdfast.a: no -fcf-protection'
    rm holdfast libholdfast.a
    expect_exit 1 "$root/tools/check-hardening.sh" .
    expect_err 'it is not there'
}

test_embedding_keeps_every_byte_of_the_code() {
    mkdir part
    printf -- '-- for readers\n  local x = "quotes" .. "\\n ??/ %%d \t tab" -- stays\n' > part/x.lua
    printf -- '-- a comment\n--#include part/x.lua\nreturn x\n' > a.lua
    printf 'local x = "quotes" .. "\\n ??/ %%d \t tab" -- stays\nreturn x\n' > want.lua
    "$root/tools/embed.sh" a.lua > scripts.inc
    {
        echo '#include <stdio.h>'
        echo '#define HF_SCRIPT(name, sha, text) int main(void) { return fputs(text, stdout) < 0; }'
        cat scripts.inc
    } > a.c
    gcc -std=c11 a.c -o a
    ./a | cmp - want.lua
    grep -q "$(sha1sum < want.lua | cut -c1-40)" scripts.inc
}

test_embedding_refuses_what_would_break() {
    head -c 12001 /dev/zero | tr '\0' '\n' > long.lua
    expect_exit 1 "$root/tools/embed.sh" long.lua
    expect_err '12001 bytes'
    printf 'return 1' > noeol.lua
    expect_exit 1 "$root/tools/embed.sh" noeol.lua
    expect_err 'newline'
    printf -- '--#include noeol.lua\n' > includes.lua
    expect_exit 1 "$root/tools/embed.sh" includes.lua
    expect_err 'noeol.lua does not end with a newline'
}

test_dependencies_are_checked_without_root() {
    expect_exit 0 "$root/tools/deps.sh" --check run
    expect_exit 2 "$root/tools/deps.sh" --check nonsense
    # With nothing to be found, it names the packages and the one command.
    mkdir empty
    PATH=$dir/empty expect_exit 1 "$(command -v sh)" "$root/tools/deps.sh" --check run
    expect_err 'apt-get install .*gcc.* libssl-dev.* redis-server'
}

test_fuzzing_needs_what_clang_only_recommends() {
    mkdir bin
    printf '#!/bin/sh\n[ "$1" = -dumpversion ] && echo 14.0.6\n' > bin/clang
    chmod +x bin/clang
    PATH=$dir/bin:$PATH expect_exit 1 "$root/tools/deps.sh" --check fuzz
    expect_err 'apt-get install .*libclang-rt-14-dev'
    printf '#!/bin/sh\nexit 0\n' > bin/clang # one that has it all
    PATH=$dir/bin:$PATH expect_exit 0 "$root/tools/deps.sh" --check fuzz
}

# harness STATUS: a file of tests on stdin, T_a for test_a, lest they are taken for some of this
# file, ends with it, and what was said of them is in result.
harness() {
    sed 's/^T_/test_/' > it.sh
    expect_exit "$1" sh "$root/tests/harness/lib.sh" it.sh
    sed 's/ ([0-9]* ms)$//' out > result
}

test_only_who_says_so_is_skipped_or_left_out() {
    harness 0 << 'END'
T_a() { true; }
T_b() { skip why; }
T_c() { left_out why; }
END
    expect_eq "$(cat result)" '1..3
ok 1 - a
ok 2 - b # SKIP why
ok 3 - c # left out: why
# passed 1 failed 0 skipped 1'
    # The statuses of holdfast for a password and for settings that will not do. What was said in a
    # part of a test is no reason for another status.
    harness 1 << 'END'
T_a() { sh -c 'exit 77'; true; }
T_b() { holdfast --url "$HOLDFAST_URL?history=x" ls; true; }
T_c() { (skip why) || holdfast --url "$HOLDFAST_URL?history=x" ls; }
END
    expect_eq "$(grep '^[1no]' result)" '1..3
not ok 1 - a (exit status 77, but nothing was skipped)
not ok 2 - b (exit status 78, but nothing was left out)
not ok 3 - c (exit status 78, but nothing was left out)'
}

test_a_file_without_tests_is_a_failure() {
    : > it.sh
    expect_exit 1 sh "$root/tests/harness/lib.sh" it.sh
    expect_out '^# no tests in it.sh$'
    expect_exit 2 sh "$root/tests/harness/lib.sh" nowhere.sh
}

test_run_tests_sums_and_judges() {
    cat > good << 'END'
#!/bin/sh
echo 'ok 1 - a'; echo 'ok 2 - b # SKIP no reason'; echo '# passed 1 failed 0 skipped 1'
END
    printf '#!/bin/sh\nexit 3\n' > dies
    cp good good2
    chmod +x good good2 dies
    CI='' expect_exit 0 "$root/tools/run-tests.sh" "$dir/good" "$dir/good2"
    expect_eq "$(tail -n 1 out)" 'holdfast: 2 passed, 0 failed, 2 skipped'
    CI=1 expect_exit 1 "$root/tools/run-tests.sh" "$dir/good"
    CI='' expect_exit 1 "$root/tools/run-tests.sh" "$dir/good" "$dir/dies"
    expect_eq "$(tail -n 1 out)" 'holdfast: 1 passed, 1 failed, 1 skipped'
    expect_exit 1 "$root/tools/run-tests.sh"
    expect_eq "$(tail -n 1 out)" 'holdfast: 0 passed, 0 failed, 0 skipped'
}

# Of a program that takes its runner with it, and of those that were to come after it, no sum is
# known: they are named, and the whole has failed, whatever the others say.
test_run_tests_misses_who_said_nothing() {
    cat > kills << 'END'
#!/bin/sh
# The larger one of the two, so that it is begun first.
until [ -e alone ] || [ -e good.ended ]; do sleep 0.02; done
kill -9 $PPID
END
    printf "#!/bin/sh\necho '# passed 1 failed 0 skipped 0'\n: > good.ended\n" > good
    chmod +x good kills
    JOBS=3 CI='' expect_exit 1 "$root/tools/run-tests.sh" "$dir/good" "$dir/kills"
    expect_out "^  not ok - $dir/kills did not get to its end"
    expect_eq "$(tail -n 1 out)" 'holdfast: 1 passed, 1 failed, 0 skipped'
    : > alone
    JOBS=1 CI='' expect_exit 1 "$root/tools/run-tests.sh" "$dir/good" "$dir/kills"
    expect_out "^  not ok - $dir/kills did not get to its end"
    expect_out "^  not ok - $dir/good did not get to its end"
    expect_eq "$(tail -n 1 out)" 'holdfast: 0 passed, 2 failed, 0 skipped'
}

# ---- the matrix of faults ----

# faults STATUS [PROGRAM...]: the tool, for four rounds: its hour passes by a clock of ours.
faults() {
    want=$1
    shift
    mkdir -p bin
    cat > bin/date << 'END'
#!/bin/sh
[ "$1" = +%s ] || exit 0
echo t >> clock
echo $(($(wc -l < clock) * 1000))
END
    chmod +x bin/date
    rm -f clock dies.ran
    PATH="$dir/bin:$PATH" HOURS=1 SEED=5 CI='' expect_exit "$want" "$root/tools/faults.sh" "$@"
    expect_eq "$(grep -c '^seed' out)" 4
}

# fault_program NAME: a program of the matrix on stdin, which writes a row for each cell.
fault_program() {
    printf '#!/bin/sh\nrow() { echo "$1" | tee -a "$HF_FAULTS_OUT/table.txt" %s; }\n' \
        '>> "$HF_FAULTS_OUT/table.json"' > "$1"
    cat >> "$1"
    chmod +x "$1"
}

test_faults_misses_who_ends_early_in_any_round() {
    echo 'row a; echo "# passed 1 failed 0 skipped 0"' | fault_program good
    fault_program dies << 'END'
[ "$SEED" -lt 7 ] || exit 3
row b; echo "# passed 1 failed 0 skipped 0"
END
    echo 'row c; echo "not ok 1 - c"; echo "# passed 0 failed 1 skipped 0"; exit 1' |
        fault_program fails
    faults 0 ./good
    expect_eq "$(tail -n 1 out)" 'faults: 4 cells, 0 failed, 0 skipped'
    faults 1 ./good ./dies
    expect_out '^not ok - ./dies ended early with status 3, seed 7$'
    expect_err '^faults: 6 of 8 programs got to their end, in 4 rounds$'
    expect_eq "$(tail -n 1 out)" 'faults: 6 cells, 2 failed, 0 skipped'
    faults 1 ./good ./fails
    expect_eq "$(grep -c '^not ok 1 - c' out)" 4 # once for each round
    expect_no_err
    # The shell that runs it goes with it.
    echo 'if [ "$SEED" = 8 ]; then kill -9 $PPID; fi; row d; echo "# passed 1 failed 0 skipped 0"' |
        fault_program kills
    faults 1 ./kills
    expect_err '^faults: 3 of 4 programs got to their end'
}

test_faults_that_runs_no_cell_has_failed() {
    echo 'echo "# passed 0 failed 0 skipped 0"' | fault_program none
    ROW=typo faults 1 ./none
    expect_err '^faults: no row of this name: typo, on any$'
}
