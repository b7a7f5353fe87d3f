/* SPDX-License-Identifier: MIT
 * chaos.c - up to three faults at once, at random; each is one that the promises cover, and so are
 * all of them together. The seed decides which.
 */
#include <signal.h>

#include "faults/lib/matrix.h"

/* What is under way, to be ended again. */
struct trouble {
    struct run    *r;
    int            stopped;    /* a process; -1: none */
    struct server *frozen;
    int            count;      /* proven */
};

static void stop_one(struct trouble *t)
{
    if (t->stopped >= 0)
        return;
    t->stopped = (int)t_random(CROWD);
    crowd_freeze(t->r, t->stopped);
    t->count++;
}

static void kill_one(struct trouble *t)
{
    int i = (int)t_random(CROWD);
    if (i == t->stopped)
        return;
    crowd_freeze(t->r, i);
    crowd_kill(t->r, i);
    crowd_replace(t->r, i);
    t->count++;
}

static void freeze_one(struct trouble *t)
{
    if (t->frozen)
        return;
    struct server *s = run_server(t->r, run_any_lock());
    server_freeze(s);
    t->frozen = s;
    t->count++;
}

static void forget_scripts(struct trouble *t)
{
    for (int i = 0; i < t->r->n; i++)
        if (t->r->s[i] != t->frozen)
            server_ask(t->r->s[i], "SCRIPT FLUSH");
    t->count++;
}

static void cut_all(struct trouble *t)
{
    long long n = 0;
    for (int i = 0; i < t->r->n; i++)
        if (t->r->s[i] != t->frozen) {
            n += server_int(t->r->s[i], "CLIENT KILL TYPE pubsub");
            n += server_int(t->r->s[i], "CLIENT KILL TYPE normal SKIPME yes");
        }
    t->count += n > 0;
}

static void pause_one(struct trouble *t)
{
    struct server *s = t->r->s[t_random((uint64_t)t->r->n)];
    if (s != t->frozen)
        server_ask(s, "CLIENT PAUSE %d WRITE", 100 + (int)t_random(500));
    t->count += s != t->frozen;
}

static void hold_one(struct trouble *t)
{
    atomic_store(&t->r->b->keep[run_any_lock()], 1);
}

static void (*const fault[])(struct trouble *t) = { stop_one, kill_one, freeze_one, forget_scripts,
                                                    cut_all, pause_one, hold_one };

static int chaos(struct run *r)
{
    struct trouble t = { .r = r, .stopped = -1 };
    while (t.count < 3) {
        fault[t_random(sizeof fault / sizeof fault[0])](&t);
        t_sleep_ms((int64_t)t_random(200));
    }
    t_sleep_ms((int64_t)t_random(1000));
    if (t.frozen)
        server_thaw(t.frozen);
    if (t.stopped >= 0)
        crowd_thaw(r, t.stopped);
    crowd_let_go(r);
    if (t.frozen && r->cl)
        cluster_wait(r->cl);
    return t.count >= 3;
}

static const struct row rows[] = {
    { "chaos", "three faults at once", "SFCQ", "SC", 4, 60, .may = MAY_PASS | MAY_LATE | MAY_FAIL,
      .inject = chaos },
};
ROWS(rows)
