/* SPDX-License-Identifier: MIT
 * shared_clocks.c - SEM1: whatever the clocks of the clients say. Client processes whose wall
 * clocks are hours apart, and jump while they work, share locks as if they were not.
 *
 * The clients are this program once more, under tests/harness/clockshim.c, with a task in the
 * environment; what they do is seen in a file that all of them map.
 */
#include <fcntl.h>
#include <signal.h>
#include <time.h>

#include "harness/proc.h"
#include "harness/sharing.h"

#define CLIENTS 4
#define SLOTS   2
#define HOUR_NS (3600 * INT64_C(1000000000))

struct board {
    atomic_int       inside, alone, ready, go, granted;
    atomic_long      done, wanted;
    _Atomic int64_t  wall_ns[CLIENTS]; /* as each client sees it */
};

static int64_t wall_ns(void)
{
    struct timespec ts;
    CHECK_INT(clock_gettime(CLOCK_REALTIME, &ts), 0);
    return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static void *map(const char *path, size_t size, int create)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
    CHECK(fd >= 0);
    CHECK(!create || ftruncate(fd, (off_t)size) == 0);
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED);
    close(fd);
    return p;
}

/* ---- a client with a clock of its own ---- */

static void shares(struct board *b, hf_client *c, int index)
{
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 5000, .slots = SLOTS });
    while (atomic_fetch_add(&b->done, 1) < atomic_load(&b->wanted)) {
        atomic_store(&b->wall_ns[index], wall_ns());
        CHECK_HF(hf_lock_acquire(m, 30000, NULL, &err), HF_OK);
        CHECK(atomic_fetch_add(&b->inside, 1) < SLOTS);
        CHECK(hf_lock_is_held(m) && hf_lock_time_left_ms(m) <= 5000);
        atomic_fetch_sub(&b->inside, 1);
        unlock_now(m);
    }
    hf_lock_free(m);
}

static void reads_and_writes(struct board *b, hf_client *c, int index)
{
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 5000 });
    while (atomic_fetch_add(&b->done, 1) < atomic_load(&b->wanted)) {
        int write = t_random(3) == 0;
        atomic_store(&b->wall_ns[index], wall_ns());
        CHECK_HF(write ? hf_lock_acquire(m, 30000, NULL, &err)
                       : hf_lock_acquire_shared(m, 30000, NULL, &err), HF_OK);
        if (write) {
            CHECK_INT(atomic_fetch_add(&b->alone, 1), 0);
            CHECK_INT(atomic_load(&b->inside), 0);
            atomic_fetch_sub(&b->alone, 1);
        } else {
            atomic_fetch_add(&b->inside, 1);
            CHECK_INT(atomic_load(&b->alone), 0);
            atomic_fetch_sub(&b->inside, 1);
        }
        unlock_now(m);
    }
    hf_lock_free(m);
}

/* The first holds what there is and never lets go; the second waits for it. */
static void dies_or_waits(struct board *b, hf_client *c, int index)
{
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .grace_ms = 2000,
                                                      .slots = SLOTS, .permits = SLOTS });
    if (index == 1)
        CHECK_EVENTUALLY(atomic_load(&b->go), 20000);
    CHECK_HF(hf_lock_acquire(m, 30000, NULL, &err), HF_OK);
    atomic_store(&b->wall_ns[index], wall_ns());
    if (index == 0) {
        atomic_store(&b->go, 1);
        for (;;)
            pause();
    }
    atomic_store(&b->granted, 1);
    unlock_now(m);
    hf_lock_free(m);
}

__attribute__((constructor)) static void client_main(void)
{
    const char *task = getenv("CLOCK_TASK"), *url = getenv("CLOCK_URL"),
               *board = getenv("CLOCK_BOARD");
    if (!task || !url || !board)
        return;
    int index = task[1] - '0';
    struct board *b = map(board, sizeof *b, 0);
    hf_client *c = client_at(url, 20000);
    atomic_fetch_add(&b->ready, 1);
    if (task[0] != 'd')
        CHECK_EVENTUALLY(atomic_load(&b->ready) == CLIENTS, 30000);
    if (task[0] == 's')
        shares(b, c, index);
    else if (task[0] == 'r')
        reads_and_writes(b, c, index);
    else
        dies_or_waits(b, c, index);
    hf_client_free(c);
    exit(0);
}

/* ---- the test's side ---- */

struct clocks {
    struct server    *s;
    struct board     *board;
    volatile int64_t *shift[CLIENTS]; /* the shim's offsets: see clockshim.c */
    struct proc      *p[CLIENTS];
    int               n;
};

static const int hours[CLIENTS] = { 9, -7, 0, 3 };

static void clocks_start(struct clocks *k, char task, int n, long wanted)
{
    char *board = t_path("board");
    k->s = server_start(NULL);
    k->board = map(board, sizeof *k->board, 1);
    k->n = n;
    atomic_store(&k->board->wanted, wanted);
    for (int i = 0; i < n; i++) {
        char *file = t_path("clock%d", i), env[6][4300];
        k->shift[i] = map(file, 3 * sizeof(int64_t), 1);
        k->shift[i][0] = hours[i] * HOUR_NS;
        snprintf(env[0], sizeof env[0], "LD_PRELOAD=%s/../clockshim.so", t_program_dir());
        snprintf(env[1], sizeof env[1], "CLOCKSHIM=%s", file);
        snprintf(env[2], sizeof env[2], "CLOCK_TASK=%c%d", task, i);
        snprintf(env[3], sizeof env[3], "CLOCK_URL=%s", server_url(k->s));
        snprintf(env[4], sizeof env[4], "CLOCK_BOARD=%s", board);
        /* The shim comes before the sanitizer's own library. */
        snprintf(env[5], sizeof env[5], "ASAN_OPTIONS=verify_asan_link_order=0:%s",
                 getenv("ASAN_OPTIONS") ? getenv("ASAN_OPTIONS") : "");
        const char *all[] = { env[0], env[1], env[2], env[3], env[4], env[5], NULL };
        k->p[i] = proc_spawn((const char *[]){ "/proc/self/exe", NULL },
                             &(struct proc_opts){ .env = all });
        free(file);
    }
    free(board);
}

/* The fault was there: each client saw the time that it was given. */
static void check_apart(struct clocks *k, int i, int64_t shift_ns)
{
    int64_t apart = atomic_load(&k->board->wall_ns[i]) - wall_ns() - shift_ns;
    if (apart > HOUR_NS / 2 || apart < -HOUR_NS / 2)
        FAIL("the clock of client %d is off by %lld s", i, (long long)(apart / 1000000000));
}

static void work_with_clocks_apart(char task)
{
    struct clocks k;
    clocks_start(&k, task, CLIENTS, 3000);
    CHECK_EVENTUALLY(atomic_load(&k.board->done) > 1000, 40000);
    for (int i = 0; i < CLIENTS; i++) {
        CHECK(atomic_load(&k.board->wall_ns[i]) != 0);
        check_apart(&k, i, hours[i] * HOUR_NS);
        k.shift[i][0] = -hours[i] * HOUR_NS; /* and now the other way, in one jump */
    }
    for (int i = 0; i < CLIENTS; i++) {
        CHECK_INT(proc_wait(k.p[i], 40000), 0);
        check_apart(&k, i, -hours[i] * HOUR_NS);
    }
    t_note("%ld operations", atomic_load(&k.board->done));
    CHECK_INT(atomic_load(&k.board->inside) + atomic_load(&k.board->alone), 0);
    CHECK_INT(server_int(k.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(k.s);
}

TEST(SEM1_clients_whose_clocks_are_hours_apart_never_hold_too_many)
{
    work_with_clocks_apart('s');
}

TEST(R1_clients_whose_clocks_are_hours_apart_never_overlap)
{
    work_with_clocks_apart('r');
}

TEST(SEM5_a_holder_that_died_is_gone_after_its_grace_by_whatever_clock)
{
    struct clocks k;
    clocks_start(&k, 'd', 2, 0);
    CHECK_EVENTUALLY(atomic_load(&k.board->go), 20000);
    CHECK_QUEUE(k.s, "a", 1);
    check_apart(&k, 0, hours[0] * HOUR_NS);
    int64_t start = t_now_ms();
    proc_signal(k.p[0], SIGKILL);
    CHECK_INT(proc_wait(k.p[1], 40000), 0);
    t_note("after %lld ms", (long long)(t_now_ms() - start));
    CHECK_TOOK(t_now_ms() - start, 1900, 20000); /* not at once, nor when the ttl ended */
    CHECK_INT(atomic_load(&k.board->granted), 1);
    check_apart(&k, 1, hours[1] * HOUR_NS);
    CHECK_INT(server_int(k.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(k.s);
}
