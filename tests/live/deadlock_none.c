/* SPDX-License-Identifier: MIT
 * deadlock_none.c - what takes long and is no deadlock is never called one.
 */
#include <signal.h>

#define LIVE_SCRIPTS
#include "harness/proc.h"
#include "harness/waiting.h"

enum { PEOPLE = 8, HOLD_MS = 1900 /* several looks */ };

struct crowd {
    const char *url;
    struct {
        atomic_int ready, done;
    } *mem;
};

static struct crowd crowd_at(struct server *s)
{
    struct crowd cr = { .url = server_url(s) };
    cr.mem = shared_memory(sizeof *cr.mem);
    return cr;
}

static void everybody_ready(struct crowd *cr, int n)
{
    atomic_fetch_add(&cr->mem->ready, 1);
    CHECK_EVENTUALLY(atomic_load(&cr->mem->ready) >= n, 30000);
}

/* Whoever looks for a circle brings the scripts for it along. Nobody looked: nothing was tested. */
static void check_looked(struct server *s)
{
    CHECK_STR(server_ask(s, "SCRIPT EXISTS %s %s", lua_sha[LUA_edge], lua_sha[LUA_edges]), "1\n1");
}

/* ---- converging ---- */

/* Each has one of its own and wants the next; the last one only takes its time. All but two want
 * the same at the end: a queue of people who hold something. */
static void chain(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(cr->url, 20000);
    hf_lock *has = lock_of(c, keep_text("own%d", index), 30000);
    hf_lock *wants = lock_of(c, index % 2 ? "own0" : keep_text("own%d", index + 2), 30000);
    lock_now(has);
    everybody_ready(cr, PEOPLE);
    if (index == 0 || index + 2 >= PEOPLE)
        usleep(HOLD_MS * 1000);
    if (index)
        lock_now(wants);
    hf_lock_free(wants);
    hf_lock_free(has);
    hf_client_free(c);
}

TEST(waits_that_converge)
{
    struct server *s = server_start(NULL);
    struct crowd cr = crowd_at(s);
    workers_run(PEOPLE, chain, &cr, 40000);
    check_looked(s);
}

/* ---- a semaphore with a holder outside ---- */

static void permit(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(cr->url, 20000);
    hf_lock_opts two = { .ttl_ms = 30000, .slots = 2 };
    hf_lock *has = index == 2 ? lock_of(c, "b", 30000) : lock_with(c, "a", two);
    hf_lock *wants = index == 2 ? lock_with(c, "a", two) : lock_of(c, "b", 30000);
    lock_now(has);
    everybody_ready(cr, 3);
    if (index == 1)
        usleep(HOLD_MS * 1000); /* has a permit, and wants nothing */
    else
        lock_now(wants);
    hf_lock_free(index == 2 ? has : wants); /* so that the other goes on */
    hf_lock_free(index == 2 ? wants : has);
    hf_client_free(c);
}

TEST(a_semaphore_with_a_holder_outside_the_circle)
{
    struct server *s = server_start(NULL);
    struct crowd cr = crowd_at(s);
    workers_run(3, permit, &cr, 40000);
    check_looked(s);
}

/* ---- readers ---- */

static void read_twice(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(cr->url, 20000);
    hf_lock *has = lock_with(c, "a", hf_reader()), *again = lock_with(c, "a", hf_reader());
    hf_lock *b = lock_of(c, "b", 30000);
    lock_now(has);
    if (index == 0)
        lock_now(b);
    everybody_ready(cr, 3);
    lock_now(again); /* nobody wants to write */
    if (index == 0)
        usleep(HOLD_MS * 1000);
    else
        lock_now(b);
    hf_lock_free(b);
    hf_lock_free(again);
    hf_lock_free(has);
    hf_client_free(c);
}

TEST(readers_of_the_same)
{
    struct server *s = server_start(NULL);
    struct crowd cr = crowd_at(s);
    workers_run(3, read_twice, &cr, 40000);
    check_looked(s);
}

/* ---- somebody dies in the circle ---- */

static void doomed(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(cr->url, 20000);
    hf_lock_opts o = { .ttl_ms = 20000, .grace_ms = 3000 };
    hf_lock *has = lock_with(c, index ? "b" : "a", o), *wants = lock_with(c, index ? "a" : "b", o);
    lock_now(has);
    everybody_ready(cr, 2);
    if (index == 1)
        CHECK_EVENTUALLY(atomic_load(&cr->mem->done), 20000);
    /* The other one is dead by the first look; what it said, and its place, are still there. */
    lock_now(wants);
    hf_lock_free(wants);
    hf_lock_free(has);
    hf_client_free(c);
}

TEST(who_died_in_the_circle_does_not_count)
{
    struct server *s = server_start(NULL);
    struct crowd cr = crowd_at(s);
    struct workers *w = workers_start(2, doomed, &cr);
    CHECK_EVENTUALLY(server_int(s, "HLEN {lock:a}:wf") == 1, 20000);
    atomic_store(&cr.mem->done, 1);
    CHECK_QUEUE(s, "a", 1);
    workers_signal(w, 0, SIGKILL);
    CHECK_INT(server_int(s, "HLEN {lock:a}:wf"), 1); /* the fault is there */
    CHECK_INT(queue_of(s, "b"), 1);
    workers_join(w, 40000);
}
