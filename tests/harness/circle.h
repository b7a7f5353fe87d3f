/* SPDX-License-Identifier: MIT
 * circle.h - processes that wait for one another in a circle, and what becomes of them.
 */
#ifndef HARNESS_CIRCLE_H
#define HARNESS_CIRCLE_H

#include "harness/proc.h"
#include "harness/waiting.h"

enum { CIRCLE_MAX = 10, WAIT_MS = 60000, FOUND_MS = 8000 /* on a machine with a lot to do */ };
enum { APART_MS = 300 }; /* between the beginnings of two waits */

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
    int                at_once; /* all begin to wait at the same time */
    struct {
        atomic_int ready, begun, victims, went_on, victim;
        atomic_llong began_ms[CIRCLE_MAX], took_ms, late_ms;
        char       words[512];
    } *mem;
};

static inline hf_lock *open_need(hf_client *c, const struct need *n)
{
    return lock_with(c, n->name, (hf_lock_opts){ .ttl_ms = 30000, .slots = n->slots,
                                                 .permits = n->permits, .shared = n->shared });
}

static inline void await(const atomic_int *what, int n)
{
    CHECK_EVENTUALLY(atomic_load(what) >= n, 30000);
}

/* The one before has its place in a queue. A quorum does not tell that: then for half a second. */
static inline void await_place(hf_client *c, const struct scene *sc, int index)
{
    const struct party *before = index ? &sc->party[index - 1] : NULL;
    if (!before || before->outside)
        return;
    size_t n = 0, waiters = 0;
    for (int i = 0; i < index; i++)
        n += !sc->party[i].outside && strcmp(sc->party[i].wants.name, before->wants.name) == 0;
    int64_t until = t_now_ms() + (strstr(sc->url, "quorum") ? 500 : 10000);
    for (; waiters < n && t_now_ms() < until; usleep(5000)) {
        hf_inspect_info *info = NULL;
        CHECK_HF(hf_inspect_lock(c, hf_str(before->wants.name), 0, &info, &err), HF_OK);
        waiters = info->waiters;
        hf_inspect_free(info);
    }
}

static inline void take_part(int index, void *arg)
{
    struct scene *sc = arg;
    const struct party *p = &sc->party[index];
    hf_client *c = client_at(sc->url, 20000);
    hf_lock *has[3] = { NULL }, *wants = NULL;
    for (int i = 0; i < 3 && p->has[i].name; i++)
        lock_now(has[i] = open_need(c, &p->has[i]));
    atomic_fetch_add(&sc->mem->ready, 1);
    await(&sc->mem->ready, sc->n);
    if (!sc->at_once) {
        await(&sc->mem->begun, index);
        await_place(c, sc, index);
        t_sleep_ms(index && !p->outside ? APART_MS : 0);
        atomic_fetch_add(&sc->mem->begun, 1);
    }
    if (p->outside) {
        await(&sc->mem->victims, 1);
    } else {
        int64_t begin = t_now_ms();
        atomic_store(&sc->mem->began_ms[index], begin);
        wants = open_need(c, &p->wants);
        hf_err e = hf_lock_acquire(wants, WAIT_MS, NULL, &err);
        if (e == HF_EDEADLK) {
            atomic_store(&sc->mem->victim, index);
            atomic_store(&sc->mem->took_ms, t_now_ms() - begin);
            atomic_store(&sc->mem->late_ms, t_now_ms() - begin - t_calm_ms(begin));
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

/* One victim, the last to wait; the others go on. Who began last is known as exactly as messages
 * are quick: on a busy machine one of them may be late. */
static inline void play_scene(struct scene *sc)
{
    int outside = 0, last = 0;
    for (int i = 0; i < sc->n; i++) {
        outside += sc->party[i].outside;
        last = sc->party[i].outside ? last : i;
    }
    sc->mem = shared_memory(sizeof *sc->mem);
    workers_run(sc->n, take_part, sc, 60000);
    t_note("%lld ms: %s", (long long)atomic_load(&sc->mem->took_ms), sc->mem->words);
    CHECK_INT(atomic_load(&sc->mem->victims), 1);
    CHECK_INT(atomic_load(&sc->mem->went_on), sc->n - 1 - outside);
    int victim = atomic_load(&sc->mem->victim);
    long long before = sc->mem->began_ms[last] - sc->mem->began_ms[victim];
    if (!sc->at_once && before > atomic_load(&sc->mem->late_ms))
        CHECK_INT(victim, last);
    CHECK_TOOK(atomic_load(&sc->mem->took_ms), 900, FOUND_MS);
    CHECK_CONTAINS(sc->mem->words, "a deadlock: this process waits for ");
    munmap(sc->mem, sizeof *sc->mem);
}

static inline void play(const char *url, const struct party *party, int n)
{
    struct scene sc = { .url = url, .n = n, .party = party };
    play_scene(&sc);
}

static inline void play_here(const struct party *party, int n)
{
    struct server *s = server_start(NULL);
    play(server_url(s), party, n);
    CHECK_EVENTUALLY(server_int(s, "EXISTS {lock:a}:wf {lock:b}:wf {lock:c}:wf") == 0, 10000);
    check_only_ttls(s);
}

#endif
