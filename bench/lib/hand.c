/* SPDX-License-Identifier: MIT
 * hand.c - one lock that goes from process to process: the two kinds, and the board; see hand.h.
 */
#include "lib/hand.h"

#include <holdfast.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "harness/t.h"
#include "lib/bare.h"
#include "lib/locks.h"

/* ---- ours ---- */

static hf_client *client;
static hf_lock *lock;

static void ours_open(const struct server *s)
{
    client = bench_client(server_tcp_url(s));
    lock = bench_lock(client, "bench", NULL);
}

static void ours_take(void)
{
    bench_wait(lock);
}

static void ours_give(void)
{
    bench_give(lock);
}

static void ours_close(void)
{
    hf_lock_free(lock);
    hf_client_free(client);
}

const struct hand_kind hand_holdfast = {
    SENT_BY_HOLDFAST, ours_open, ours_take, ours_give, ours_close,
};

/* ---- the bound ---- */

static int token_fd;

static void bound_open(const struct server *s)
{
    token_fd = bare_dial(s);
}

static void bound_take(void)
{
    bare_exchange(token_fd, "*3\r\n$5\r\nBLPOP\r\n$5\r\nbound\r\n$1\r\n0\r\n",
                  "*2\r\n$5\r\nbound\r\n$1\r\nx\r\n");
}

static void bound_give(void)
{
    bare_exchange(token_fd, "*3\r\n$5\r\nLPUSH\r\n$5\r\nbound\r\n$1\r\nx\r\n", ":1\r\n");
}

static void bound_close(void)
{
    close(token_fd);
}

const struct hand_kind hand_bound = {
    "blpop lpush", bound_open, bound_take, bound_give, bound_close,
};

/* ---- the board ---- */

struct board *board_new(struct server *s, int workers)
{
    struct board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                           -1, 0);
    pthread_barrierattr_t attr;
    CHECK(b != MAP_FAILED && workers < HAND_WORKERS_MAX);
    b->s = s;
    b->workers = workers;
    CHECK_INT(sem_init(&b->ready, 1, 0), 0);
    CHECK_INT(sem_init(&b->go, 1, 0), 0);
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    /* the one who holds it, those who wait, and the test */
    CHECK_INT(pthread_barrier_init(&b->all, &attr, (unsigned)workers + 2), 0);
    return b;
}

void board_reset(struct board *b, const struct hand_kind *k)
{
    b->kind = k;
    b->samples = 0;
    for (int i = 0; i < HAND_WORKERS_MAX; i++)
        b->taken[i] = 0;
    atomic_store(&b->stop, 0);
    atomic_store(&b->released_ns, 0);
    atomic_store(&b->client_us, 0);
    atomic_store(&b->switches, 0);
    atomic_store(&b->turns, 0);
    server_ask(b->s, "FLUSHALL");
    server_ask(b->s, "LPUSH bound x");
}

void board_await(sem_t *sem, int n)
{
    while (n-- > 0)
        CHECK_INT(sem_wait(sem), 0);
}

void board_allow(sem_t *sem, int n)
{
    while (n-- > 0)
        CHECK_INT(sem_post(sem), 0);
}

void board_open(struct board *b)
{
    prctl(PR_SET_TIMERSLACK, 1000);
    b->kind->open(b->s);
    board_allow(&b->ready, 1);
}

void board_take(struct board *b, int index)
{
    b->kind->take();
    int64_t now = t_now_ns(), released = atomic_exchange(&b->released_ns, 0);
    CHECK_INT(atomic_fetch_add(&b->holders, 1), 0);
    atomic_store(&b->taken_ns, now);
    atomic_fetch_add(&b->turns, 1);
    if (!atomic_load(&b->counting))
        return;
    b->taken[index]++;
    if (released && b->samples < HAND_SAMPLES_MAX)
        b->us[b->samples++] = (double)(now - released) / 1000.0;
}

void board_give(struct board *b)
{
    atomic_fetch_sub(&b->holders, 1);
    atomic_store(&b->released_ns, t_now_ns());
    b->kind->give();
}

void board_close(struct board *b)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    atomic_fetch_add(&b->client_us, (long long)meter_rusage_us(&u));
    atomic_fetch_add(&b->switches, u.ru_nvcsw + u.ru_nivcsw);
    b->kind->close();
}

void hand_sleep_ns(int64_t ns)
{
    struct timespec t = { ns / 1000000000, ns % 1000000000 };
    if (ns > 0)
        nanosleep(&t, NULL);
}
