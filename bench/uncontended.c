/* SPDX-License-Identifier: MIT
 * uncontended.c - what lock and unlock cost when nobody else wants the lock, as ratios to what the
 * socket and the server cost anyway. All figures of one table come from one run.
 */
#include <holdfast.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "harness/server.h"
#include "harness/t.h"

#define SAMPLES 20000
#define WORKERS 64

/* ---- small tools ---------------------------------------------------------------------------- */

static void pin(int pid, int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < CPU_SETSIZE && i < (int)sysconf(_SC_NPROCESSORS_ONLN); i++)
        if (core < 0 || i == core)
            CPU_SET(i, &set);
    CHECK_INT(sched_setaffinity(pid, sizeof set, &set), 0);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double percentile(uint64_t *ns, size_t n, int percent)
{
    qsort(ns, n, sizeof *ns, by_value);
    return (double)ns[n * (size_t)percent / 100] / 1000.0;
}

static int raw_connect(const struct server *s)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", server_socket(s));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static double raw_pings(const struct server *s, uint64_t *ns)
{
    int fd = raw_connect(s);
    char buf[64];
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t t = (uint64_t)t_now_ns();
        for (int k = 0; k < 2; k++) {
            CHECK_INT(send(fd, "*1\r\n$4\r\nPING\r\n", 14, 0), 14);
            CHECK_INT(recv(fd, buf, sizeof buf, 0), 7);
        }
        ns[i] = (uint64_t)t_now_ns() - t;
    }
    close(fd);
    return percentile(ns, SAMPLES, 50);
}

/* The SHA1 of the n-th EVALSHA that the server saw. */
static void sha_of(struct server *s, int n, char ret[41])
{
    const char *p = server_monitor_text(s);
    for (int i = 0; i <= n; i++) {
        p = strstr(p, "\"EVALSHA\" \"");
        CHECK(p != NULL);
        p += 11;
    }
    snprintf(ret, 41, "%.40s", p);
}

struct raw_worker {
    int  done, holding;
    char name[32], value[96];
};

static size_t put(char *out, const char *text)
{
    return (size_t)sprintf(out, "$%zu\r\n%s\r\n", strlen(text), text);
}

/* The very bytes that the library sends. */
static size_t raw_command(struct raw_worker *w, int i, const char sha[2][41], char *out)
{
    char token[64], key[40], queue[48], tomb[48], own[48];
    snprintf(token, sizeof token, "0123456789abcdef0123456789abcdef.%d",
             1000000 * (i + 1) + w->done);
    snprintf(key, sizeof key, "lock:%s", w->name);
    snprintf(queue, sizeof queue, "{lock:%s}:q", w->name);
    snprintf(tomb, sizeof tomb, "{lock:%s}:t", w->name);
    snprintf(own, sizeof own, "{lock:%s}:own", w->name);
    const char *acquire[] = { "EVALSHA", sha[0], "5", key, "lock:holdfast:fence", queue, tomb, own,
                              token, "30000", "0" };
    const char *release[] = { "EVALSHA", sha[1], "4", key, "lock:holdfast:fence", queue, own,
                              w->value };
    const char **argv = w->holding ? release : acquire;
    int argc = w->holding ? 8 : 11;
    size_t n = (size_t)sprintf(out, "*%d\r\n", argc);
    for (int k = 0; k < argc; k++)
        n += put(out + n, argv[k]);
    return n;
}

static hf_client *open_client(const struct server *s)
{
    hf_client *c = NULL;
    hf_error e;
    if (hf_client_open(server_url(s), NULL, &c, &e))
        FAIL("%s", e.message);
    return c;
}

static double lock_pairs(hf_client *c, uint64_t *ns, double *p99)
{
    hf_lock *m;
    CHECK_INT(hf_lock_open(c, hf_str("bench"), NULL, &m, NULL), HF_OK);
    for (int i = -1000; i < SAMPLES; i++) {
        uint64_t t = (uint64_t)t_now_ns();
        CHECK_INT(hf_lock_try(m, NULL, NULL), HF_OK);
        CHECK_INT(hf_lock_release(m, NULL), HF_OK);
        if (i >= 0)
            ns[i] = (uint64_t)t_now_ns() - t;
    }
    hf_lock_free(m);
    *p99 = percentile(ns, SAMPLES, 99);
    return percentile(ns, SAMPLES, 50);
}

/* The SHA1s of our two scripts, found out by watching; then the server starts anew. */
static void learn_scripts(struct server *s, char sha[2][41])
{
    hf_client *c = open_client(s);
    hf_lock *m;
    CHECK_INT(hf_lock_open(c, hf_str("x"), NULL, &m, NULL), HF_OK);
    for (int i = 0; i < 2; i++) { /* the first time they are sent as text */
        if (i == 1)
            server_monitor_start(s);
        CHECK_INT(hf_lock_try(m, NULL, NULL), HF_OK);
        CHECK_INT(hf_lock_release(m, NULL), HF_OK);
    }
    sha_of(s, 0, sha[0]);
    sha_of(s, 1, sha[1]);
    hf_lock_free(m);
    hf_client_free(c);
    server_restart(s); /* ends the MONITOR, which would cost */
}

/* The very same commands without the library. */
static double raw_pairs(const struct server *s, const char sha[2][41], uint64_t *ns)
{
    int fd = raw_connect(s);
    char out[512], in[64];
    struct raw_worker w = { .name = "raw" };
    for (int i = 0; i < SAMPLES; i++) {
        uint64_t t = (uint64_t)t_now_ns();
        for (w.holding = 0; w.holding < 2; w.holding++) {
            size_t n = raw_command(&w, 0, sha, out);
            CHECK_INT(send(fd, out, n, 0), (long long)n);
            ssize_t got = recv(fd, in, sizeof in, 0);
            CHECK(got > 3 && in[0] == ':');
            snprintf(w.value, sizeof w.value, "0123456789abcdef0123456789abcdef.%d:%.*s:0",
                     1000000 + w.done, (int)got - 3, in + 1);
        }
        w.done++;
        ns[i] = (uint64_t)t_now_ns() - t;
    }
    close(fd);
    return percentile(ns, SAMPLES, 50);
}

static void one_by_one(int core)
{
    static uint64_t ns[SAMPLES];
    char sha[2][41];
    struct server *s = server_start(NULL);
    learn_scripts(s, sha);
    pin(server_pid(s), core);
    pin(0, core);
    hf_client *c = open_client(s);
    for (int round = 0; round < 3; round++) {
        double p99, ping = raw_pings(s, ns), pair = lock_pairs(c, ns, &p99);
        double raw = raw_pairs(s, (const char(*)[41])sha, ns);
        printf("# %-8s two raw PINGs %5.1f us   same commands raw %5.1f us   lock+unlock %5.1f us "
               "(p99 %.1f)   ratio %.2f and %.2f\n",
               core < 0 ? "free" : "one core", ping, raw, pair, p99, pair / ping, pair / raw);
    }
    hf_client_free(c);
}

TEST_TIMEOUT(lock_unlock_on_one_core, 120)
{
    one_by_one(0);
}

TEST_TIMEOUT(lock_unlock_unpinned, 120)
{
    one_by_one(-1);
}

/* ---- 64 threads, one client ------------------------------------------------------------------ */

#define PAIRS 3000 /* of each worker */

static void *worker(void *arg)
{
    hf_client *c = ((void **)arg)[0];
    char name[32];
    snprintf(name, sizeof name, "bench%d", (int)(intptr_t)((void **)arg)[1]);
    hf_lock *m;
    CHECK_INT(hf_lock_open(c, hf_str(name), NULL, &m, NULL), HF_OK);
    for (int i = 0; i < PAIRS; i++) {
        CHECK_INT(hf_lock_try(m, NULL, NULL), HF_OK);
        CHECK_INT(hf_lock_release(m, NULL), HF_OK);
    }
    hf_lock_free(m);
    return NULL;
}

static double threads_rate(hf_client *c)
{
    pthread_t t[WORKERS];
    void *arg[WORKERS][2];
    int64_t start = t_now_ns();
    for (int i = 0; i < WORKERS; i++) {
        arg[i][0] = c;
        arg[i][1] = (void *)(intptr_t)i;
        CHECK_INT(pthread_create(&t[i], NULL, worker, arg[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(t[i], NULL);
    return (double)WORKERS * PAIRS * 1e9 / (double)(t_now_ns() - start);
}

/* One thread plays all workers over one connection: what the same commands cost without threads. */
static double raw_rate(struct server *s, const char sha[2][41])
{
    static struct raw_worker w[WORKERS];
    static char out[WORKERS * 512], in[65536];
    int queue[WORKERS], head = 0, tail = 0, left = WORKERS;
    size_t used = 0, have = 0;
    int fd = raw_connect(s);

    memset(w, 0, sizeof w);
    int64_t start = t_now_ns();
    for (int i = 0; i < WORKERS; i++) {
        snprintf(w[i].name, sizeof w[i].name, "raw%d", i);
        used += raw_command(&w[i], i, sha, out + used);
        queue[tail++ % WORKERS] = i;
    }
    while (left > 0) {
        CHECK_INT(send(fd, out, used, 0), (long long)used);
        used = 0;
        ssize_t n = recv(fd, in + have, sizeof in - have - 1, 0);
        CHECK(n > 0);
        have += (size_t)n;
        in[have] = '\0';
        char *p = in, *end;
        while ((end = strstr(p, "\r\n"))) {
            int i = queue[head++ % WORKERS];
            CHECK(*p == ':');
            if (!w[i].holding)
                snprintf(w[i].value, sizeof w[i].value,
                         "0123456789abcdef0123456789abcdef.%d:%.*s:0",
                         1000000 * (i + 1) + w[i].done, (int)(end - p - 1), p + 1);
            else
                w[i].done++;
            w[i].holding = !w[i].holding;
            p = end + 2;
            if (w[i].done < PAIRS) {
                used += raw_command(&w[i], i, sha, out + used);
                queue[tail++ % WORKERS] = i;
            } else {
                left--;
            }
        }
        have -= (size_t)(p - in);
        memmove(in, p, have);
    }
    close(fd);
    return (double)WORKERS * PAIRS * 1e9 / (double)(t_now_ns() - start);
}

TEST_TIMEOUT(sixty_four_threads_on_one_client, 300)
{
    struct server *s = server_start(NULL);
    char sha[2][41];
    learn_scripts(s, sha);
    hf_client *c = open_client(s);
    threads_rate(c); /* the scripts are loaded, the threads' stacks are warm */
    for (int round = 0; round < 3; round++) {
        double raw = raw_rate(s, (const char(*)[41])sha), ours = threads_rate(c);
        printf("# 64 workers, one connection: raw loop %7.0f pairs/s   64 threads %7.0f pairs/s   "
               "ratio %.2f\n", raw, ours, ours / raw);
    }
    hf_client_free(c);
}

/* ---- one thread, many under way -------------------------------------------------------------- */

struct async_worker {
    hf_lock *m;
    int       left;
    size_t   *active;
};

static void pair_locked(hf_err result, const hf_error *err, void *arg);

static void pair_unlocked(hf_err result, const hf_error *err, void *arg)
{
    struct async_worker *w = arg;
    if (result)
        FAIL("%s", err->message);
    if (--w->left == 0)
        --*w->active;
    else
        CHECK_INT(hf_lock_acquire_async(w->m, 0, pair_locked, w, NULL), HF_OK);
}

static void pair_locked(hf_err result, const hf_error *err, void *arg)
{
    struct async_worker *w = arg;
    if (result)
        FAIL("%s", err->message);
    CHECK_INT(hf_lock_release_async(w->m, pair_unlocked, w, NULL), HF_OK);
}

/* Pairs per second with so many locks under way, all in this thread. */
static double async_rate(hf_client *c, size_t n, int pairs)
{
    struct async_worker *w = calloc(n, sizeof *w);
    size_t active = n;
    int fd;
    CHECK_INT(hf_client_fd(c, &fd, NULL), HF_OK);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "async%zu", i);
        w[i] = (struct async_worker){ .left = pairs, .active = &active };
        CHECK_INT(hf_lock_open(c, hf_str(name), NULL, &w[i].m, NULL), HF_OK);
    }
    int64_t start = t_now_ns();
    for (size_t i = 0; i < n; i++)
        CHECK_INT(hf_lock_acquire_async(w[i].m, 0, pair_locked, &w[i], NULL), HF_OK);
    while (active) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        CHECK(poll(&p, 1, 5000) >= 0);
        hf_client_dispatch(c);
    }
    double rate = (double)n * pairs * 1e9 / (double)(t_now_ns() - start);
    for (size_t i = 0; i < n; i++)
        hf_lock_free(w[i].m);
    free(w);
    return rate;
}

static long resident_kb(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%*d %ld", &pages) == 1);
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

TEST_TIMEOUT(one_thread_without_blocking, 300)
{
    static const struct {
        size_t n;
        int    pairs;
    } step[] = { { 1, 20000 }, { 64, 3000 }, { 256, 800 }, { 1000, 200 }, { 10000, 20 } };
    struct server *s = server_start(NULL);
    char sha[2][41];
    learn_scripts(s, sha);
    hf_client *c = open_client(s);
    async_rate(c, 64, 1000);
    for (int round = 0; round < 3; round++) {
        double raw = raw_rate(s, (const char(*)[41])sha);
        for (size_t i = 0; i < sizeof step / sizeof step[0]; i++) {
            long before = resident_kb();
            double ours = async_rate(c, step[i].n, step[i].pairs);
            printf("# %5zu under way, one thread: %7.0f pairs/s   raw loop with 64 %7.0f   ratio "
                   "%.2f   %+ld kB\n", step[i].n, ours, raw, ours / raw, resident_kb() - before);
        }
    }
    hf_client_free(c);
}
