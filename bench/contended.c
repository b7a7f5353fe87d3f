/* SPDX-License-Identifier: MIT
 * contended.c - what it costs to hand one lock from process to process, beside the least that this
 * server can do: "bound" is a list with one token, BLPOP to take it and LPUSH to give it back, from
 * bare sockets. It has no lease, no fencing and no safety: a yardstick. Both run by turns in one
 * run, on one server; the ratios are what counts.
 */
#include <holdfast.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "harness/proc.h"
#include "harness/server.h"
#include "harness/t.h"

#define WORKERS     64
#define SAMPLES_MAX 50000
#define ROUNDS      5
#define WARM_MS     500
#define RUN_MS      2000

/* ---- small tools ---------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double percentile(double *v, size_t n, int percent)
{
    CHECK(n > 0);
    qsort(v, n, sizeof *v, by_value);
    return v[n * (size_t)percent / 100];
}

static void sleep_ns(int64_t ns)
{
    struct timespec t = { ns / 1000000000, ns % 1000000000 };
    if (ns > 0)
        nanosleep(&t, NULL);
}

static void *shared(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static double server_cpu_us(const struct server *s)
{
    clockid_t id;
    struct timespec t;
    CHECK_INT(clock_getcpuclockid(server_pid(s), &id), 0);
    CHECK_INT(clock_gettime(id, &t), 0);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* Commands that clients sent. INFO counts what scripts do, too: these names only clients use. */
static double commands(struct server *s)
{
    static const char *const sent[] = { "eval", "evalsha", "subscribe", "ping", "blpop", "lpush" };
    const char *text = server_ask(s, "INFO commandstats");
    double sum = 0;
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        char field[40];
        snprintf(field, sizeof field, "cmdstat_%s:calls=", sent[i]);
        const char *p = strstr(text, field);
        sum += p ? strtod(p + strlen(field), NULL) : 0;
    }
    return sum;
}

/* ---- the two locks, one at a time in a process ----------------------------------------------- */

struct kind {
    const char *name;
    void (*open)(const struct server *s);
    void (*take)(void);
    void (*give)(void);
    void (*close)(void);
};

static hf_client *client;
static hf_lock *mutex;

static void ours_open(const struct server *s)
{
    hf_error e;
    if (hf_client_open(server_url(s), NULL, &client, &e)
        || hf_lock_open(client, hf_str("bench"), NULL, &mutex, &e))
        FAIL("%s", e.message);
}

static void ours_take(void)
{
    hf_error e;
    if (hf_lock_acquire(mutex, HF_WAIT_FOREVER, NULL, &e))
        FAIL("%s", e.message);
}

static void ours_give(void)
{
    hf_error e;
    if (hf_lock_release(mutex, &e))
        FAIL("%s", e.message);
}

static void ours_close(void)
{
    hf_lock_free(mutex);
    hf_client_free(client);
}

static int token_fd;

static void bound_open(const struct server *s)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s", server_socket(s));
    token_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(token_fd, (struct sockaddr *)&a, sizeof a), 0);
}

static void exchange(const char *out, const char *want)
{
    char in[64];
    size_t have = 0, n = strlen(want);
    CHECK_INT(send(token_fd, out, strlen(out), 0), (long long)strlen(out));
    while (have < n) {
        ssize_t got = recv(token_fd, in + have, sizeof in - have, 0);
        CHECK(got > 0);
        have += (size_t)got;
    }
    CHECK_MEM(in, have, want, n);
}

static void bound_take(void)
{
    exchange("*3\r\n$5\r\nBLPOP\r\n$5\r\nbound\r\n$1\r\n0\r\n", "*2\r\n$5\r\nbound\r\n$1\r\nx\r\n");
}

static void bound_give(void)
{
    exchange("*3\r\n$5\r\nLPUSH\r\n$5\r\nbound\r\n$1\r\nx\r\n", ":1\r\n");
}

static void bound_close(void)
{
    close(token_fd);
}

static const struct kind kinds[] = {
    { "bound", bound_open, bound_take, bound_give, bound_close },
    { "holdfast", ours_open, ours_take, ours_give, ours_close },
};

/* ---- the board that all processes see -------------------------------------------------------- */

struct board {
    const struct kind   *kind;
    const struct server *server;
    int64_t              hold_ns, away_ns;
    sem_t                ready, go;
    atomic_int           counting, stop, holders;
    _Atomic int64_t      released_ns; /* when the last holder began to give it back; 0: not known */
    _Atomic int64_t      taken_ns;
    size_t               samples;     /* this and below: whoever holds the lock */
    double               us[SAMPLES_MAX];
    int                  taken[WORKERS + 1];
};

static struct board *board_new(const struct server *s)
{
    struct board *b = shared(sizeof *b);
    b->server = s;
    CHECK_INT(sem_init(&b->ready, 1, 0), 0);
    CHECK_INT(sem_init(&b->go, 1, 0), 0);
    return b;
}

static void await(sem_t *sem, int n)
{
    while (n-- > 0)
        CHECK_INT(sem_wait(sem), 0);
}

static void allow(sem_t *sem, int n)
{
    while (n-- > 0)
        CHECK_INT(sem_post(sem), 0);
}

static void take(struct board *b, int index)
{
    b->kind->take();
    int64_t now = t_now_ns(), released = atomic_exchange(&b->released_ns, 0);
    CHECK_INT(atomic_fetch_add(&b->holders, 1), 0);
    atomic_store(&b->taken_ns, now);
    if (atomic_load(&b->counting)) {
        b->taken[index]++;
        if (released && b->samples < SAMPLES_MAX)
            b->us[b->samples++] = (double)(now - released) / 1000.0;
    }
}

static void give(struct board *b)
{
    atomic_fetch_sub(&b->holders, 1);
    atomic_store(&b->released_ns, t_now_ns());
    b->kind->give();
}

static void worker_open(struct board *b)
{
    prctl(PR_SET_TIMERSLACK, 1000);
    b->kind->open(b->server);
    allow(&b->ready, 1);
}

/* ---- handing it round ------------------------------------------------------------------------ */

static void go_round(int index, void *arg)
{
    struct board *b = arg;
    worker_open(b);
    await(&b->go, 1);
    while (!atomic_load(&b->stop)) {
        take(b, index);
        sleep_ns((int64_t)t_random((uint64_t)b->hold_ns + 1));
        give(b);
        sleep_ns(b->away_ns);
    }
    b->kind->close();
}

struct result {
    double rate, p50, p99, commands, most, cpu;
};

static struct result measure(struct server *s, struct board *b, const struct kind *kind,
                             int workers)
{
    struct result r;
    b->kind = kind;
    b->samples = 0;
    memset(b->taken, 0, sizeof b->taken);
    atomic_store(&b->stop, 0);
    atomic_store(&b->released_ns, 0);
    server_ask(s, "FLUSHALL");
    server_ask(s, "LPUSH bound x");
    struct workers *w = workers_start(workers, go_round, b);
    await(&b->ready, workers);
    allow(&b->go, workers);
    t_sleep_ms(WARM_MS);

    double sent = commands(s), cpu = server_cpu_us(s);
    int64_t start = t_now_ns();
    atomic_store(&b->counting, 1);
    t_sleep_ms(RUN_MS);
    atomic_store(&b->counting, 0);
    double seconds = (double)(t_now_ns() - start) / 1e9;
    cpu = server_cpu_us(s) - cpu;
    sent = commands(s) - sent;
    atomic_store(&b->stop, 1);
    workers_join(w, 20000);

    int total = 0, least = b->taken[0], most = b->taken[0];
    for (int i = 0; i < workers; i++) {
        total += b->taken[i];
        least = b->taken[i] < least ? b->taken[i] : least;
        most = b->taken[i] > most ? b->taken[i] : most;
    }
    r.rate = total / seconds;
    r.commands = sent / total;
    r.cpu = cpu / total;
    r.most = (double)most / (least > 0 ? least : 0.5);
    r.p50 = percentile(b->us, b->samples, 50);
    r.p99 = percentile(b->us, b->samples, 99);
    printf("# %2d %-8s %6.0f handoffs/s   p50 %4.0f us   p99 %5.0f us   %.2f commands   server "
           "%3.0f us   max/min %d/%d\n", workers, kind->name, r.rate, r.p50, r.p99, r.commands,
           r.cpu, most, least);
    return r;
}

static void hand_round(int workers, int64_t hold_ns, int64_t away_ns)
{
    struct server *s = server_start(NULL);
    struct board *b = board_new(s);
    struct result r[2];
    double rate[ROUNDS], p50[ROUNDS], p99[ROUNDS], sent[ROUNDS], most[ROUNDS];
    b->hold_ns = hold_ns;
    b->away_ns = away_ns;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) { /* each goes first by turns: noise often comes in bursts */
            int k = (round + i) % 2;
            r[k] = measure(s, b, &kinds[k], workers);
        }
        rate[round] = r[1].rate / r[0].rate;
        p50[round] = r[1].p50 / r[0].p50;
        p99[round] = r[1].p99 / r[0].p99;
        sent[round] = r[1].commands;
        most[round] = r[1].most;
    }
    printf("# %2d ratios (median of %d): handoffs %.2f (aim >= 0.9)   p50 %.2f (<= 1.6)   p99 %.2f "
           "(<= 2)   commands %.2f (<= 3)   max/min %.3f (<= 1.05)\n", workers, ROUNDS,
           percentile(rate, ROUNDS, 50), percentile(p50, ROUNDS, 50), percentile(p99, ROUNDS, 50),
           percentile(sent, ROUNDS, 50), percentile(most, ROUNDS, 50));
}

TEST_TIMEOUT(sixty_four_processes_one_lock, 120)
{
    hand_round(64, 1000000, 64 * 250000);
}

TEST_TIMEOUT(eight_processes_one_lock, 120)
{
    hand_round(8, 1000000, 8 * 250000);
}

/* Each waits while the other holds: the time from release to ownership, and nothing else. */
TEST_TIMEOUT(from_one_process_to_the_other, 120)
{
    hand_round(2, 1000000, 0);
}

/* ---- all that wait, one after the other ------------------------------------------------------ */

#define DRAINS 5

struct drain {
    struct board     *b;
    pthread_barrier_t all; /* holder, waiters and the test */
};

static void meet(struct drain *d)
{
    int e = pthread_barrier_wait(&d->all);
    CHECK(e == 0 || e == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* Number 0 is the holder. */
static void wait_and_pass(int index, void *arg)
{
    struct drain *d = arg;
    struct board *b = d->b;
    worker_open(b);
    for (int round = 0; round < DRAINS; round++) {
        if (index == 0)
            take(b, 0);
        meet(d); /* it is held */
        if (index == 0)
            await(&b->go, 1);
        else
            take(b, index);
        sleep_ns(index == 0 ? 0 : b->hold_ns);
        give(b);
        meet(d); /* all had it */
    }
    b->kind->close();
}

static double drain(struct server *s, struct drain *d, const struct kind *kind, int64_t settle_ms)
{
    double ms[DRAINS];
    d->b->kind = kind;
    atomic_store(&d->b->released_ns, 0);
    server_ask(s, "FLUSHALL");
    server_ask(s, "LPUSH bound x");
    struct workers *w = workers_start(WORKERS + 1, wait_and_pass, d);
    await(&d->b->ready, WORKERS + 1);
    for (int round = 0; round < DRAINS; round++) {
        meet(d);
        t_sleep_ms(settle_ms);
        int64_t start = t_now_ns();
        allow(&d->b->go, 1);
        meet(d);
        ms[round] = (double)(atomic_load(&d->b->taken_ns) - start) / 1e6;
    }
    workers_join(w, 10000);
    return percentile(ms, DRAINS, 50);
}

/* Who has waited for long must ask once more before it believes that it is the owner. */
TEST_TIMEOUT(sixty_four_waiters_served, 400)
{
    static const struct {
        int hold_us, settle_ms;
    } form[] = { { 500, 1500 }, { 500, 300 }, { 0, 1500 }, { 0, 300 } };
    struct server *s = server_start(NULL);
    struct drain *d = shared(sizeof *d);
    pthread_barrierattr_t attr;
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    CHECK_INT(pthread_barrier_init(&d->all, &attr, WORKERS + 2), 0);
    d->b = board_new(s);
    for (size_t i = 0; i < sizeof form / sizeof form[0]; i++) {
        double bound[ROUNDS], ours[ROUNDS], ratio[ROUNDS];
        d->b->hold_ns = form[i].hold_us * 1000;
        for (int round = 0; round < ROUNDS; round++) {
            bound[round] = drain(s, d, &kinds[0], form[i].settle_ms);
            ours[round] = drain(s, d, &kinds[1], form[i].settle_ms);
            ratio[round] = ours[round] / bound[round];
        }
        double middle = percentile(ratio, ROUNDS, 50); /* sorts them */
        printf("# drain of %d, each holds %3d us, waited %4d ms: bound %5.1f ms   holdfast %5.1f "
               "ms   ratio %.2f [%.2f-%.2f]%s\n", WORKERS, form[i].hold_us, form[i].settle_ms,
               percentile(bound, ROUNDS, 50), percentile(ours, ROUNDS, 50),
               middle, ratio[0], ratio[ROUNDS - 1],
               form[i].hold_us ? " (aim <= 1.3)" : "");
    }
}
