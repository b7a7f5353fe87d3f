/* SPDX-License-Identifier: MIT
 * deadlock_random.c - random orders without a circle; what others wrote; and what it costs.
 */
#define LIVE_SCRIPTS
#include "harness/proc.h"
#include "harness/waiting.h"

enum { PEOPLE = 8, LOCKS = 5, READERS = 16, LOOKED = 3 };

struct crowd {
    const char *url;
    int64_t     until_ms;
    struct {
        atomic_long grants, waited; /* longer than a second, and holding another: they looked */
    } *mem;
};

/* Whether the server knows the script: whoever uses it first brings it along. */
static int asked(struct server *s, int script)
{
    return atoi(server_ask(s, "SCRIPT EXISTS %s", lua_sha[script]));
}

/* ---- random orders without a circle ---- */

static hf_lock *any_kind(hf_client *c, int lock)
{
    hf_lock_opts o = { .ttl_ms = 30000 };
    const char *name = keep_text("l%d", lock);
    if (lock % 3 == 1)
        o.shared = t_random(3) > 0;
    if (lock % 3 == 2) {
        o.slots = 3;
        o.permits = 1 + (unsigned)t_random(2);
    }
    return lock_with(c, name, o);
}

/* Each later in one order than the one before, and the last ones are wanted most: who waits for
 * them holds others for longer than a second, and only then it looks for a circle. For some
 * seconds, and until some have looked. */
static void ordered(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(cr->url, 20000);
    (void)index;
    while (t_now_ms() < cr->until_ms || atomic_load(&cr->mem->waited) < LOOKED) {
        hf_lock *m[LOCKS];
        int n = 0;
        for (int i = 0; i < LOCKS; i++) {
            if ((int)t_random(LOCKS) > i)
                continue;
            int64_t begin = t_now_ms();
            m[n] = any_kind(c, i);
            CHECK_HF(hf_lock_acquire(m[n], 60000, NULL, &err), HF_OK);
            atomic_fetch_add(&cr->mem->waited, n > 0 && t_now_ms() - begin > 1500);
            atomic_fetch_add(&cr->mem->grants, 1);
            n++;
            usleep((useconds_t)t_random(150) * 1000);
        }
        t_sleep_ms((int64_t)t_random(800));
        while (n > 0)
            hf_lock_free(m[--n]);
    }
    hf_client_free(c);
}

TEST_TIMEOUT(random_orders_without_a_circle, 900)
{
    int soak = getenv("HF_SOAK") != NULL, n = soak ? 32 : PEOPLE;
    struct server *s = server_start(NULL);
    struct crowd cr = { .url = server_url(s), .mem = shared_memory(sizeof *cr.mem) };
    cr.until_ms = t_now_ms() + (soak ? 600000 : 3000);
    workers_run(n, ordered, &cr, soak ? 800000 : 60000);
    t_note("%ld grants, %ld of them after a look for a circle", atomic_load(&cr.mem->grants),
           atomic_load(&cr.mem->waited));
    CHECK(asked(s, LUA_edge) && asked(s, LUA_edges));
}

/* ---- what is on the server may be anything ---- */

TEST(forged_and_broken_entries)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *own = lock_of(c, "own", 30000), *wants = lock_of(c, "a", 30000), *a[READERS];
    static const char *const bad[] = {
        "", " ", "x", "99999999999999 1 ", "99999999999999 1 t", "99999999999999 1 t ",
        "99999999999999 99999999999999999999999 t lock:own", "99999999999999 -1 t lock:own",
        "99999999999999 1 0123456789012345678901234567890123456789012345678901234567890 lock:own",
        "99999999999999 1 t lock:holdfast:fence", "99999999999999 1 t lock:a",
        "99999999999999 1 t nothing", "99999999999999 1 t {lock:a}:q",
    };
    lock_now(own);
    for (size_t i = 0; i < READERS; i++) {
        const char *text = i < sizeof bad / sizeof bad[0] ? bad[i] : keep_text("%09000d", 1);
        lock_now(a[i] = lock_with(other, "a", hf_reader()));
        server_ask(s, "HSET {lock:a}:wf %s %b", hf_lock_owner(a[i]), text, strlen(text));
    }
    CHECK_HF(hf_lock_acquire(wants, 1400, NULL, &err), HF_ETIMEDOUT);
    CHECK_INT(server_int(s, "HLEN {lock:a}:wf"), READERS); /* they were there all the time */
    server_ask(s, "DEL {lock:a}:wf {lock:own}:wf");
    server_ask(s, "SET {lock:a}:wf x");
    server_ask(s, "SET {lock:own}:wf x");
    CHECK_HF(hf_lock_acquire(wants, 1400, NULL, &err), HF_ETIMEDOUT);
    CHECK_STR(server_ask(s, "GET {lock:own}:wf"), "x");
    for (size_t i = 0; i < READERS; i++)
        hf_lock_free(a[i]);
    hf_lock_free(wants);
    hf_lock_free(own);
    hf_client_free(other);
    hf_client_free(c);
}

/* ---- what it costs ---- */

TEST(nothing_is_sent_before_a_second_nor_by_who_holds_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *own = lock_of(c, "own", 30000), *a = lock_of(other, "a", 30000);
    hf_lock *wants = lock_of(c, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(wants, 1500, NULL, &err), HF_ETIMEDOUT);
    lock_now(own);
    CHECK_HF(hf_lock_acquire(wants, 900, NULL, &err), HF_ETIMEDOUT);
    CHECK_INT(asked(s, LUA_edge) + asked(s, LUA_edges), 0);
    CHECK_HF(hf_lock_acquire(wants, 1500, NULL, &err), HF_ETIMEDOUT);
    CHECK_INT(asked(s, LUA_edge) + asked(s, LUA_edges), 2);
    CHECK_INT(server_int(s, "EXISTS {lock:own}:wf"), 0); /* it waits no more */
    hf_lock_free(wants);
    hf_lock_free(own);
    hf_lock_free(a);
    hf_client_free(other);
    hf_client_free(c);
}
