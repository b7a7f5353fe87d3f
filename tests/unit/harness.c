/* SPDX-License-Identifier: MIT
 * harness.c - the harness tested by itself: a fault it cannot see would prove nothing.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/history.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/server.h"
#include "harness/t.h"

TEST(t_random_repeats_with_the_seed)
{
    uint64_t a = t_random(1000000), b = t_random(1000000);
    CHECK(a != b);
    CHECK_RANGE(t_random(10), 0, 9);
}

TEST(server_answers)
{
    struct server *s = server_start(NULL);
    CHECK_STR(server_ask(s, "PING"), "PONG");
    CHECK_STR(server_ask(s, "GET nothing"), NULL);
    CHECK_STR(server_keys(s), "");
    CHECK_STR(server_ask(s, "SET b %b", "x\0y", (size_t)3), "OK");
    CHECK_STR(server_ask(s, "SET a 1"), "OK");
    size_t len;
    const char *b = server_ask_bytes(s, &len, "GET b");
    CHECK_MEM(b, len, "x\0y", 3);
    CHECK_INT(server_int(s, "INCR a"), 2);
    CHECK_STR(server_keys(s), "a\nb");
    CHECK_CONTAINS(server_ask(s, "NOSUCH"), "ERR unknown command");
    CHECK_STR(server_info(s, "tcp_port"), "0");
    CHECK_CONTAINS(server_log(s), "to accept connections");
}

TEST(server_survives_kill_with_aof_only)
{
    struct server_opts o = { .aof = 1 };
    struct server *with = server_start_opts(&o), *without = server_start(NULL);
    server_ask(with, "SET k 1");
    server_ask(without, "SET k 1");
    server_restart(with);
    server_restart(without);
    CHECK_STR(server_ask(with, "GET k"), "1");
    CHECK_STR(server_ask(without, "GET k"), NULL);
}

TEST(server_freezes_and_thaws)
{
    struct server *s = server_start(NULL);
    server_ask(s, "SET k 1 PX 50");
    server_freeze(s);
    t_sleep_ms(60);
    server_thaw(s);
    CHECK_STR(server_ask(s, "GET k"), NULL);
}

TEST(server_monitor_sees_everything_before_the_call)
{
    struct server *s = server_start(NULL);
    server_monitor_start(s);
    for (int i = 0; i < 100; i++)
        server_ask(s, "SET key%d 1", i);
    CHECK_INT(server_monitor_count(s, "\"SET\" \"key"), 100);
    server_monitor_clear(s);
    CHECK_STR(server_monitor_text(s), "");
}

TEST(server_speaks_tls_and_tcp)
{
    struct server_opts o = { .tcp = 1, .tls = 1, .requirepass = "secret" };
    struct server *s = server_start_opts(&o);
    CHECK_STR(server_ask(s, "PING"), "PONG");
    CHECK_CONTAINS(server_tcp_url(s), "redis://127.0.0.1:");
    char *cmd = NULL;
    int port = atoi(strrchr(server_tls_url(s), ':') + 1);
    CHECK(asprintf(&cmd, "printf 'PING\\r\\nQUIT\\r\\n' | openssl s_client -quiet "
                         "-verify_return_error -CAfile %s/ca.crt -verify_ip 127.0.0.1 "
                         "-connect 127.0.0.1:%d 2>/dev/null | grep -q NOAUTH",
                   server_make_certs(), port) > 0);
    CHECK_INT(system(cmd), 0);
    free(cmd);
}

TEST(server_clock_is_shifted)
{
    struct server_opts o = { .clockshim = 1 };
    struct server *s = server_start_opts(&o);
    long long before = atoll(server_ask(s, "TIME"));
    server_clock_shift(s, 3600 * 1000);
    CHECK_RANGE(atoll(server_ask(s, "TIME")) - before, 3600, 3610);
    server_clock_shift(s, -3600 * 1000);
    CHECK_RANGE(atoll(server_ask(s, "TIME")) - before, -3600, -3590);
}

/* ---- processes ---- */

TEST(proc_captures_output_and_status)
{
    const char *argv[] = { "sh", "-c", "cat; echo $X >&2; exit 3", NULL };
    const char *env[] = { "X=from env", NULL };
    struct proc *p = proc_spawn(argv, &(struct proc_opts){ .input = "typed\n", .env = env });
    CHECK_INT(proc_wait(p, 5000), 3);
    CHECK_STR(proc_out(p), "typed\n");
    CHECK_STR(proc_err(p), "from env\n");
    CHECK_INT(proc_wait(proc_run("no-such-program", NULL), 0), 127);
}

TEST(proc_signals_and_pipes)
{
    const char *argv[] = { "cat", NULL };
    struct proc *p = proc_spawn(argv, &(struct proc_opts){ .open_stdin = 1 });
    proc_write(p, "abc");
    CHECK_EVENTUALLY(strcmp(proc_out(p), "abc") == 0, 5000);
    CHECK(proc_running(p));
    proc_close_stdin(p);
    CHECK_INT(proc_wait(p, 5000), 0);
    p = proc_spawn(argv, &(struct proc_opts){ .open_stdin = 1 });
    proc_signal(p, SIGTERM);
    CHECK_INT(proc_wait(p, 5000), 128 + SIGTERM);
}

static void count_up(int index, void *arg)
{
    server_ask(arg, "INCRBY n %d", index);
    server_ask(arg, "SADD random %d", (int)t_random(1000000000));
}

TEST(workers_run_all_with_their_own_numbers)
{
    struct server *s = server_start(NULL);
    CHECK_STR(server_ask(s, "PING"), "PONG"); /* the connection is not shared with workers */
    workers_run(5, count_up, s, 10000);
    CHECK_STR(server_ask(s, "GET n"), "10");
    CHECK_INT(server_int(s, "SCARD random"), 5);
}

static void wait_for_ever(int index, void *arg)
{
    (void)index, (void)arg;
    for (;;)
        pause();
}

TEST(workers_can_be_killed)
{
    struct workers *w = workers_start(2, wait_for_ever, NULL);
    workers_signal(w, 0, SIGKILL);
    workers_signal(w, 1, SIGKILL);
    workers_join(w, 1000);
}

/* ---- proxy ---- */

static int dial(const struct proxy *p)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", proxy_url(p) + strlen("unix://"));
    CHECK(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
    return fd;
}

static void say(int fd, const char *text)
{
    CHECK_INT(write(fd, text, strlen(text)), strlen(text));
}

/* What comes within ms: "" for nothing, "(end)" for the end of the stream. */
static const char *hear_within(int fd, int ms)
{
    static char buf[4096];
    struct pollfd f = { .fd = fd, .events = POLLIN };
    ssize_t n = poll(&f, 1, ms) > 0 ? read(fd, buf, sizeof buf - 1) : -1;
    buf[n > 0 ? n : 0] = 0;
    return n == 0 ? "(end)" : buf;
}

static const char *hear(int fd)
{
    return hear_within(fd, 10000);
}

TEST(proxy_passes)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    int fd = dial(p);
    say(fd, "PING\r\n");
    CHECK_STR(hear(fd), "+PONG\r\n");
    CHECK_INT(proxy_connections(p), 1);
    close(fd);
    CHECK_EVENTUALLY(!strstr(server_ask(s, "CLIENT LIST"), "cmd=ping"), 2000);
    CHECK_CONTAINS(proxy_url(proxy_start_tcp(s)), "redis://127.0.0.1:");
}

TEST(proxy_holds_requests_past_the_client)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    int fd = dial(p), other = dial(p);
    proxy_hold(p);
    say(fd, "SET late 1\r\n");
    CHECK_EVENTUALLY(proxy_held(p) == 12, 2000);
    CHECK_STR(hear_within(fd, 100), "");
    close(fd);
    say(other, "PING\r\n");
    CHECK_STR(server_ask(s, "GET late"), NULL);
    proxy_pass(p);
    CHECK_EVENTUALLY(server_int(s, "EXISTS late") == 1, 2000);
    CHECK_STR(hear(other), "+PONG\r\n");
    close(other);
}

TEST(proxy_drops_replies_when_told_to)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    int fd = dial(p);
    proxy_when(p, "marked");
    proxy_drop_replies(p);
    say(fd, "SET plain 1\r\n");
    CHECK_STR(hear(fd), "+OK\r\n");
    CHECK_INT(proxy_dropped(p), 0);
    say(fd, "SET marked 1\r\n");
    CHECK_STR(hear_within(fd, 100), "");
    CHECK_INT(proxy_dropped(p), 5);
    CHECK_STR(server_ask(s, "GET marked"), "1");
    close(fd);
}

TEST(proxy_cuts_delays_refuses_and_breaks)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    int fd = dial(p);
    proxy_cut_after(p, 2);
    say(fd, "PING\r\n");
    CHECK_STR(hear(fd), "+P");
    CHECK_STR(hear(fd), "(end)");
    CHECK_INT(proxy_cuts(p), 1);
    close(fd);

    fd = dial(p);
    proxy_delay(p, 50);
    int64_t start = t_now_ms();
    say(fd, "PING\r\n");
    CHECK_STR(hear(fd), "+PONG\r\n");
    CHECK_TOOK(t_now_ms() - start, 100, 5000);
    CHECK_INT(proxy_delayed(p), 13);

    proxy_refuse(p);
    int refused = dial(p);
    CHECK_STR(hear(refused), "(end)");
    CHECK_INT(proxy_refused(p), 1);
    close(refused);
    proxy_break(p);
    CHECK_STR(hear(fd), "(end)");
    close(fd);
}

TEST(proxy_drips)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    int fd = dial(p), later = dial(p);
    proxy_drip(p, 20);
    int64_t start = t_now_ms();
    say(fd, "PING\r\n");
    char got[16] = "";
    while (strlen(got) < 12) { /* more than one at once, if we were late */
        const char *some = hear(fd);
        CHECK(*some);
        strncat(got, some, sizeof got - 1 - strlen(got));
    }
    CHECK(strncmp(got, "$1000000\r\nxx", 12) == 0);
    CHECK_TOOK(t_now_ms() - start, 11 * 20, 5000);
    CHECK(proxy_dripped(p) >= 12);
    proxy_pass(p); /* the others go on as before, this one goes on dripping */
    say(later, "PING\r\n");
    CHECK_STR(hear(later), "+PONG\r\n");
    const char *more = hear(fd);
    CHECK(*more && strspn(more, "x") == strlen(more));
    close(fd);
    close(later);
}

/* ---- history: each fault that it must see, planted ---- */

static struct grant *grant(struct history *h, uint32_t lock, uint64_t fence, int64_t invoke,
                           int64_t returned, int64_t release, int64_t deadline)
{
    struct grant *g = history_grant(h, lock, 1, fence, invoke, deadline);
    g->returned = returned;
    g->release = release;
    return g;
}

static struct history_report judge(struct history *h)
{
    struct history_report r;
    size_t n = history_check(h, &r);
    CHECK_INT(n, r.duplicates + r.disorder + r.overlaps);
    return r;
}

TEST(history_accepts_what_is_right)
{
    struct history *h = history_new(10);
    grant(h, 1, 5, 10, 20, 30, 100);   /* released early */
    grant(h, 1, 6, 12, 31, 0, 100);    /* waited; ran out */
    grant(h, 1, 9, 13, 101, 110, 200); /* a gap in the numbers is no fault */
    grant(h, 2, 5, 10, 20, 30, 100);   /* another lock */
    struct history_report r = judge(h);
    CHECK_INT(r.grants, 4);
    CHECK_INT(r.duplicates + r.disorder + r.overlaps, 0);
}

TEST(history_finds_duplicate_numbers)
{
    struct history *h = history_new(10);
    grant(h, 1, 5, 10, 20, 30, 100);
    grant(h, 1, 5, 40, 50, 60, 100);
    CHECK_INT(judge(h).duplicates, 1);
}

TEST(history_finds_numbers_against_real_time)
{
    struct history *h = history_new(10);
    grant(h, 1, 9, 10, 20, 30, 100);   /* the first in time has the largest number, */
    grant(h, 1, 8, 200, 210, 220, 300);
    grant(h, 1, 7, 5, 40, 60, 100);    /* and its neighbour by number is no evidence */
    struct history_report r = judge(h);
    CHECK_INT(r.disorder, 1);
    CHECK_INT(r.duplicates + r.overlaps, 0);
}

TEST(history_finds_overlaps)
{
    struct history *h = history_new(10);
    grant(h, 1, 1, 0, 10, 0, 1000);    /* believes for long; */
    grant(h, 1, 2, 5, 1000, 1100, 2000); /* begins just when it ends: fine */
    grant(h, 2, 1, 0, 10, 0, 1000);
    grant(h, 2, 2, 5, 20, 30, 900);    /* two within it */
    grant(h, 2, 3, 5, 40, 90, 900);
    struct history_report r = judge(h);
    CHECK_INT(r.overlaps, 2);
    CHECK_INT(r.worst_ns, 50);
}

static struct history_report judge_shared(struct history *h, uint32_t limit)
{
    struct history_report r;
    size_t n = history_check_shared(h, limit, &r);
    CHECK_INT(n, r.duplicates + r.disorder + r.overlaps);
    return r;
}

static void share(struct history *h, uint32_t weight, uint32_t client, uint64_t fence,
                  int64_t returned, int64_t release)
{
    struct grant *g = history_share(h, 1, client, fence, 0, 1000, weight);
    g->returned = returned;
    g->release = release;
}

TEST(history_of_a_shared_lock_finds_what_is_too_much)
{
    struct history *h = history_new(10);
    share(h, 2, 1, 1, 10, 100);
    share(h, 1, 2, 2, 20, 60);
    share(h, 1, 3, 3, 60, 80); /* comes when the other leaves */
    share(h, 0, 4, 4, 100, 120); /* alone, when all have left */
    share(h, 1, 4, 4, 120, 150); /* its downgrade */
    CHECK_INT(judge_shared(h, 3).overlaps, 0);
    CHECK_INT(judge_shared(h, 3).duplicates, 0);
    CHECK_INT(judge_shared(h, 2).overlaps, 2); /* twice one too many */
    share(h, 1, 5, 5, 110, 111); /* within the one that is alone */
    struct history_report r = judge_shared(h, 3);
    CHECK_INT(r.overlaps, 1);
    CHECK_INT(r.worst_ns, 1);
    share(h, 1, 6, 5, 200, 210);
    CHECK_INT(judge_shared(h, 3).duplicates, 1);
}

static void record(int index, void *arg)
{
    for (int i = 0; i < 1000; i++)
        history_release(history_grant(arg, (uint32_t)index, 1, (uint64_t)i, t_now_ns(),
                                      t_now_ns() + 1000000000));
}

TEST(history_is_shared_by_workers)
{
    struct history *h = history_new(4000);
    workers_run(4, record, h, 20000);
    struct history_report r = judge(h);
    CHECK_INT(r.grants, 4000);
    CHECK_INT(r.duplicates + r.disorder + r.overlaps, 0);
}

/* ---- a failing test seen from outside: this program run again, for the test "victim" alone,
 * which passes unless the environment asks it to fail ---- */

static void failing_worker(int index, void *arg)
{
    (void)arg;
    CHECK_INT(index, 0);
}

/* A server that left its parent, session and all, as a daemon does. */
static void leave_orphan(void)
{
    if (fork() == 0) {
        setsid();
        execlp("sleep", "sleep", getenv("HARNESS_MARK"), (char *)NULL);
        _exit(127);
    }
}

TEST_TIMEOUT(victim, 3)
{
    const char *fault = getenv("HARNESS_FAULT");
    if (!fault)
        return;
    if (strcmp(fault, "check") == 0)
        CHECK_INT(2 + 2, 5);
    if (strcmp(fault, "skip") == 0)
        SKIP("no wish to run");
    if (strcmp(fault, "77") == 0 || strcmp(fault, "78") == 0)
        _exit(atoi(fault));
    if (strcmp(fault, "signal") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(fault, "hang") == 0)
        t_sleep_ms(30000);
    if (strcmp(fault, "worker") == 0)
        workers_run(2, failing_worker, NULL, 3000);
    if (strcmp(fault, "server") == 0) {
        server_start(NULL);
        FAIL("wanted");
    }
    if (strcmp(fault, "orphan") == 0)
        leave_orphan();
}

static struct proc *run_victim(const char *fault)
{
    char env[64], mark[64], self[4200];
    snprintf(env, sizeof env, "HARNESS_FAULT=%s", fault);
    snprintf(mark, sizeof mark, "HARNESS_MARK=9999.%d", getpid()); /* how long the orphan sleeps */
    snprintf(self, sizeof self, "%s/harness", t_program_dir());
    const char *argv[] = { self, "victim", NULL }, *envs[] = { env, mark, "SEED=12345", NULL };
    struct proc *p = proc_spawn(argv, &(struct proc_opts){ .env = envs });
    proc_wait(p, 30000);
    return p;
}

static void expect_failure(const char *fault, const char *words)
{
    struct proc *p = run_victim(fault);
    CHECK_INT(proc_wait(p, 0), 1);
    CHECK_CONTAINS(proc_out(p), words);
    CHECK_CONTAINS(proc_out(p), "not ok 1 - victim");
    CHECK_CONTAINS(proc_out(p), "SEED=12345");
    CHECK_CONTAINS(proc_out(p), "# passed 0 failed 1 skipped 0\n");
}

TEST(failures_are_seen_and_told)
{
    expect_failure("check", "2 + 2: got 4, want 5");
    expect_failure("signal", "ended by signal 9");
    expect_failure("hang", "not finished after 3 s");
    expect_failure("worker", "1 of 2 workers failed");
    expect_failure("server", "to accept connections"); /* the server's log */
    expect_failure("77", "ended with status 77"); /* that of a skip, which nobody asked for */
    expect_failure("78", "ended with status 78");
    struct proc *p = run_victim("skip");
    CHECK_INT(proc_wait(p, 0), 0);
    CHECK_CONTAINS(proc_out(p), "ok 1 - victim # SKIP no wish to run\n");
    CHECK_CONTAINS(proc_out(p), "# passed 0 failed 0 skipped 1\n");
}

TEST(nothing_outlives_a_test)
{
    CHECK_INT(proc_wait(run_victim("orphan"), 0), 0);
    char ps[64];
    snprintf(ps, sizeof ps, "ps -eo args | grep -x '[s]leep 9999.%d'", getpid());
    CHECK_INT(system(ps), 1 << 8);
}
