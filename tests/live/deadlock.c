/* SPDX-License-Identifier: MIT
 * deadlock.c - waits that would never end: found after about a second, one of those in the circle
 * gives up, the others go on. What only takes long is left alone: tests/live/deadlock_none.c.
 */
#include <signal.h>

#include "harness/cluster.h"
#include "harness/proc.h"
#include "harness/waiting.h"

enum { MOST = 10, WAIT_MS = 60000, FOUND_MS = 8000 /* on a machine with a lot to do */ };

/* One lock, and how it is wanted. */
struct need {
    const char *name; /* NULL: none */
    unsigned    slots, permits;
    int         shared;
};

struct party {
    struct need has[3]; /* taken first, one after the other */
    struct need wants;  /* when all have what they have; in the order of the parties */
    int         outside; /* it wants nothing, and stays until the victim was found */
};

struct scene {
    const char        *url;
    int                n;
    const struct party *party;
    struct {
        atomic_int ready, begun, victims, went_on, victim;
        atomic_llong took_ms;
        char       words[512];
    } *mem;
};

static hf_lock *open_need(hf_client *c, const struct need *n)
{
    return lock_with(c, n->name, (hf_lock_opts){ .ttl_ms = 30000, .slots = n->slots,
                                                 .permits = n->permits, .shared = n->shared });
}

static void await(const atomic_int *what, int n)
{
    CHECK_EVENTUALLY(atomic_load(what) >= n, 30000);
}

static void take_part(int index, void *arg)
{
    struct scene *sc = arg;
    const struct party *p = &sc->party[index];
    hf_client *c = client_at(sc->url, 20000);
    hf_lock *has[3] = { NULL }, *wants = NULL;
    for (int i = 0; i < 3 && p->has[i].name; i++)
        lock_now(has[i] = open_need(c, &p->has[i]));
    atomic_fetch_add(&sc->mem->ready, 1);
    await(&sc->mem->ready, sc->n);
    await(&sc->mem->begun, index);
    usleep(30000); /* the one before has its place */
    atomic_fetch_add(&sc->mem->begun, 1);
    if (p->outside) {
        await(&sc->mem->victims, 1);
    } else {
        int64_t begin = t_now_ms();
        wants = open_need(c, &p->wants);
        hf_err e = hf_lock_acquire(wants, WAIT_MS, NULL, &err);
        if (e == HF_EDEADLK) {
            atomic_store(&sc->mem->victim, index);
            atomic_store(&sc->mem->took_ms, t_now_ms() - begin);
            memcpy(sc->mem->words, err.message, sizeof sc->mem->words);
            CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
            for (int i = 0; i < 3 && has[i]; i++)
                CHECK_INT(hf_lock_is_held(has[i]), 1);
            atomic_fetch_add(&sc->mem->victims, 1);
        } else {
            CHECK_HF(e, HF_OK);
            atomic_fetch_add(&sc->mem->went_on, 1);
        }
    }
    hf_lock_free(wants);
    for (int i = 3; i-- > 0;)
        hf_lock_free(has[i]);
    hf_client_free(c);
}

/* One victim, the last to wait; the others go on. */
static void play(const char *url, const struct party *party, int n)
{
    struct scene sc = { .url = url, .n = n, .party = party };
    int outside = 0, last = 0;
    for (int i = 0; i < n; i++) {
        outside += party[i].outside;
        last = party[i].outside ? last : i;
    }
    sc.mem = shared_memory(sizeof *sc.mem);
    workers_run(n, take_part, &sc, 60000);
    t_note("%lld ms: %s", (long long)atomic_load(&sc.mem->took_ms), sc.mem->words);
    CHECK_INT(atomic_load(&sc.mem->victims), 1);
    CHECK_INT(atomic_load(&sc.mem->went_on), n - 1 - outside);
    CHECK_INT(atomic_load(&sc.mem->victim), last);
    CHECK_RANGE(atomic_load(&sc.mem->took_ms), 900, FOUND_MS);
    CHECK_CONTAINS(sc.mem->words, "a deadlock: this process waits for ");
    munmap(sc.mem, sizeof *sc.mem);
}

static void play_here(const struct party *party, int n)
{
    struct server *s = server_start(NULL);
    play(server_url(s), party, n);
    CHECK_EVENTUALLY(server_int(s, "EXISTS {lock:a}:wf {lock:b}:wf {lock:c}:wf") == 0, 10000);
    check_only_ttls(s);
}

TEST(two_processes)
{
    const struct party p[] = { { .has = { { "a" } }, .wants = { "b" } },
                               { .has = { { "b" } }, .wants = { "a" } } };
    play_here(p, 2);
}

TEST(three_processes)
{
    const struct party p[] = { { .has = { { "a" } }, .wants = { "b" } },
                               { .has = { { "b" } }, .wants = { "c" } },
                               { .has = { { "c" } }, .wants = { "a" } } };
    play_here(p, 3);
}

TEST(ten_processes_with_names_of_all_sorts)
{
    static const char *const name[MOST] = { "a", "b c", "{x}y", "d}e", "lock:f", "%g", "h\n", "i:q",
                                            "j\"", "\xff" };
    struct party p[MOST] = { { .has = { { NULL } } } };
    for (int i = 0; i < MOST; i++)
        p[i] = (struct party){ .has = { { name[i] } }, .wants = { name[(i + 1) % MOST] } };
    play_here(p, MOST);
}

TEST(readers_and_writers)
{
    const struct party p[] = { { .has = { { "a", .shared = 1 } }, .wants = { "b" } },
                               { .has = { { "b", .shared = 1 } }, .wants = { "a" } } };
    play_here(p, 2);
}

/* The reader comes behind a writer, who waits for the same reader. */
TEST(a_reader_that_reads_again_behind_a_writer)
{
    const struct party p[] = { { .wants = { "a" } },
                               { .has = { { "a", .shared = 1 } },
                                 .wants = { "a", .shared = 1 } } };
    play_here(p, 2);
}

TEST(all_permits_of_a_semaphore_are_in_the_circle)
{
    const struct party p[] = {
        { .has = { { "a", .slots = 2 } }, .wants = { "b" } },
        { .has = { { "a", .slots = 2 } }, .wants = { "b" } },
        { .has = { { "b" } }, .wants = { "a", .slots = 2 } },
    };
    play_here(p, 3);
}

/* One permit is somebody else's, but it would not be enough. */
TEST(a_semaphore_of_which_too_little_will_be_free)
{
    const struct party p[] = {
        { .has = { { "a", .slots = 3, .permits = 2 } }, .wants = { "b" } },
        { .has = { { "a", .slots = 3 } }, .outside = 1 },
        { .has = { { "b" } }, .wants = { "a", .slots = 3, .permits = 2 } },
    };
    play_here(p, 3);
}

TEST(who_waits_behind_others_and_holds_several)
{
    const struct party p[] = {
        { .wants = { "b" } },
        { .has = { { "a" }, { "d" }, { "e" } }, .wants = { "b" } },
        { .wants = { "a" } },
        { .has = { { "b" }, { "f" } }, .wants = { "e" } },
    };
    play_here(p, 4);
}

TEST_TIMEOUT(across_the_slots_of_a_cluster, 60)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct party p[3] = { { .has = { { NULL } } } };
    const char *name[3];
    for (int i = 0; i < 3; i++)
        name[i] = keep_text("%s", cluster_name(cl, cl->node[i], 0));
    for (int i = 0; i < 3; i++)
        p[i] = (struct party){ .has = { { name[i] } }, .wants = { name[(i + 1) % 3] } };
    play(cl->url, p, 3);
}

/* ---- several at once, elections, owner ids ------------------------------------------------- */

struct both {
    const char *url;
    struct {
        atomic_int ready, victims, went_on;
    } *mem;
};

static void note_result(struct both *b, hf_err e)
{
    if (e == HF_EDEADLK)
        atomic_fetch_add(&b->mem->victims, 1);
    else
        CHECK_HF(e, HF_OK);
    atomic_fetch_add(&b->mem->went_on, e == HF_OK);
}

static void several(int index, void *arg)
{
    struct both *b = arg;
    hf_client *c = client_at(b->url, 20000);
    hf_lock *has = lock_of(c, index ? "b" : "a", 30000);
    hf_lock *wants[] = { lock_of(c, index ? "a" : "b", 30000), lock_of(c, "c", 30000),
                         lock_of(c, "d", 30000) };
    lock_now(has);
    atomic_fetch_add(&b->mem->ready, 1);
    await(&b->mem->ready, 2);
    usleep((unsigned)index * 50000);
    hf_err e = hf_multi_acquire(wants, 3, WAIT_MS, &err);
    if (e)
        for (int i = 0; i < 3; i++)
            CHECK_INT(hf_lock_state(wants[i]), HF_STATE_FREE);
    note_result(b, e);
    for (int i = 0; i < 3; i++)
        hf_lock_free(wants[i]);
    hf_lock_free(has);
    hf_client_free(c);
}

static void candidate(int index, void *arg)
{
    struct both *b = arg;
    hf_client *c = client_at(b->url, 20000);
    hf_election *has, *wants;
    CHECK_HF(hf_election_open(c, hf_str(index ? "b" : "a"), NULL, &has, &err), HF_OK);
    CHECK_HF(hf_election_open(c, hf_str(index ? "a" : "b"), NULL, &wants, &err), HF_OK);
    CHECK_HF(hf_election_campaign(has, hf_str("me"), 10000, NULL, &err), HF_OK);
    atomic_fetch_add(&b->mem->ready, 1);
    await(&b->mem->ready, 2);
    usleep((unsigned)index * 50000);
    note_result(b, hf_election_campaign(wants, hf_str("me too"), WAIT_MS, NULL, &err));
    hf_election_free(wants);
    hf_election_free(has);
    hf_client_free(c);
}

static void run_both(void (*fn)(int index, void *arg))
{
    struct server *s = server_start(NULL);
    struct both b = { .url = server_url(s), .mem = shared_memory(sizeof *b.mem) };
    workers_run(2, fn, &b, 60000);
    CHECK_INT(atomic_load(&b.mem->victims), 1);
    CHECK_INT(atomic_load(&b.mem->went_on), 1);
}

TEST(who_wants_several_at_once_and_holds_one)
{
    run_both(several);
}

TEST(leaders)
{
    run_both(candidate);
}

/* ---- in one process ------------------------------------------------------------------------- */

TEST(two_handles_of_one_thread)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 30000), *again = lock_of(c, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(again, 300, NULL, &err), HF_ETIMEDOUT);
    int64_t begin = t_now_ms();
    CHECK_HF(hf_lock_acquire(again, WAIT_MS, NULL, &err), HF_EDEADLK);
    CHECK_RANGE(t_now_ms() - begin, 900, FOUND_MS);
    CHECK_STR(err.message, "a deadlock: this process waits for \"a\", held by this process; this "
                           "wait began last, and is given up");
    unlock_now(a);
    lock_now(again);
    hf_lock_free(again);
    hf_lock_free(a);
    hf_client_free(c);
}

TEST(two_threads_of_one_client)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 30000), *b = lock_of(c, "b", 30000);
    struct locker l = { .m = b, .wait_ms = WAIT_MS };
    locker_start(&l); /* it has b, in a thread that is gone */
    locker_join(&l, HF_OK);
    hf_lock *b2 = lock_of(c, "b", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(b2, 2500, NULL, &err), HF_ETIMEDOUT);
    hf_lock_free(b2);
    hf_lock_free(b);
    hf_lock_free(a);
    hf_client_free(c);
}

/* Handles of a thread that is not the one that will release them. */
TEST(a_lock_for_any_thread_is_nobody_s)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 30000, .any_thread = 1 });
    hf_lock *again = lock_of(c, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(again, 2500, NULL, &err), HF_ETIMEDOUT);
    hf_lock_free(again);
    hf_lock_free(a);
    hf_client_free(c);
}

TEST(switched_off)
{
    struct server *s = server_start(NULL);
    const char *url = url_with(server_url(s), "deadlock=off");
    for (int i = 0; i < 2; i++) {
        hf_client *c = i ? client_with(server_url(s), (hf_client_opts){ .no_deadlock = 1 })
                         : client_at(url, 0);
        hf_lock *a = lock_of(c, "a", 30000), *again = lock_of(c, "a", 30000);
        lock_now(a);
        CHECK_HF(hf_lock_acquire(again, 2000, NULL, &err), HF_ETIMEDOUT);
        hf_lock_free(again);
        hf_lock_free(a);
        hf_client_free(c);
    }
}

struct done {
    atomic_int n;
    hf_err     result;
};

static void note_done(hf_err result, const hf_error *e, void *arg)
{
    struct done *d = arg;
    (void)e;
    d->result = result;
    atomic_store(&d->n, 1);
}

/* Without blocking only an owner id says whose it is. */
TEST(without_blocking)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    for (int named = 0; named < 2; named++) {
        struct done d = { 0 };
        hf_lock_opts o = { .ttl_ms = 30000 };
        if (named)
            o.owner = hf_str("me");
        hf_lock *a = lock_with(c, "a", o), *b = lock_with(c, "a", o);
        lock_now(a);
        CHECK_HF(hf_lock_acquire_async(b, named ? WAIT_MS : 2500, note_done, &d, &err), HF_OK);
        LOOP_EVENTUALLY(c, atomic_load(&d.n), 20000);
        CHECK_INT(d.result, named ? HF_EDEADLK : HF_ETIMEDOUT);
        hf_lock_free(b);
        hf_lock_free(a);
    }
    hf_client_free(c);
}

TEST(a_cancel_ends_the_wait_in_the_middle_of_a_look)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 30000), *b = lock_of(other, "b", 30000);
    hf_lock *wait = lock_of(c, "b", 30000);
    lock_now(b);
    for (int i = 0; i < 4; i++) {
        struct locker l = { .m = a, .wait_ms = 1000 }, w = { .m = wait, .wait_ms = WAIT_MS };
        (void)l;
        locker_start(&w);
        usleep(990000 + (unsigned)i * 20000);
        hf_lock_cancel(wait);
        locker_join(&w, HF_ECANCELED);
    }
    hf_lock_free(wait);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(other);
    hf_client_free(c);
}

/* ---- often ---------------------------------------------------------------------------------- */

TEST_TIMEOUT(again_and_again, 3600)
{
    struct server *s = server_start(NULL);
    const struct party p[] = {
        { .has = { { "a", .slots = 2 } }, .wants = { "b", .shared = 1 } },
        { .has = { { "a", .slots = 2 } }, .wants = { "c" } },
        { .has = { { "b" } }, .wants = { "d" } },
        { .has = { { "c" }, { "d", .shared = 1 } }, .wants = { "a", .slots = 2 } },
    };
    for (int i = 0; i < (getenv("HF_SOAK") ? 100 : 1); i++)
        play(server_url(s), p, 4);
}

