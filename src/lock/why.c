/* SPDX-License-Identifier: MIT
 * why.c - why can a lock not be taken?
 *
 * One look at the lock, one at the locks that its holders wait for, one at the server. Every
 * answer may be old when it is read: it is for people and monitors, and nothing is decided by it.
 */
#include "lock/why.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/call.h"

#define TEXT_MAX  1024
#define LOCKS_MAX 32   /* of the graph of who waits for whom */
#define STATE_MS  2000 /* for the look at the server */

static const struct {
    const char *cause, *advice;
} advices[] = {
    { CAUSE_HELD, "wait, or ask its holder to let go" },
    { CAUSE_SILENT, "look after that process: it is stopped, or its machine or network stands" },
    { CAUSE_LEFT, "wait, or release it by its owner id" },
    { CAUSE_ABSENT, "wait: the next waiter takes over by itself" },
    { CAUSE_CLAIM, "wait: it passes to the next waiter by itself" },
    { CAUSE_FOREIGN, "wait, or let that program release it" },
    { CAUSE_NO_TTL, "wait for it: who waits gives it a time to live, unless ?repair=off; or delete "
                    "the key if nobody needs it" },
    { CAUSE_NOT_A_LOCK, "choose another name" },
    { CAUSE_DEADLOCK, "end one of these processes, and let all take their locks in one order" },
    { CAUSE_READ_ONLY, "see holdfast doctor" },
    { CAUSE_MEMORY, "free memory on the server, or raise its maxmemory" },
    { CAUSE_MOVING, "wait; if it does not end, see CLUSTER SETSLOT on both servers" },
    { CAUSE_LOADING, "wait" },
    { CAUSE_QUARANTINE, "wait, or set appendonly yes on the servers: see holdfast doctor" },
    { CAUSE_NO_QUORUM, "start the servers that are away: see holdfast doctor" },
    { CAUSE_AWAY, "does it run, and can it be reached? See holdfast doctor" },
};

static const char *advice_for(const char *cause)
{
    for (size_t i = 0; i < sizeof advices / sizeof advices[0]; i++)
        if (strcmp(advices[i].cause, cause) == 0)
            return advices[i].advice;
    return NULL;
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* By the words of the messages where the code alone does not tell. */
static const struct {
    const char *words, *cause;
} told[] = {
    { "answered \"LOADING", CAUSE_LOADING },
    { "answered \"OOM", CAUSE_MEMORY },
    { "answered \"READONLY", CAUSE_READ_ONLY },
    { "answered \"MISCONF", CAUSE_READ_ONLY },
    { "answered \"NOREPLICAS", CAUSE_READ_ONLY },
    { "a slot is being moved", CAUSE_MOVING },
    { "so it may have come back empty", CAUSE_QUARANTINE },
    { "started lately", CAUSE_QUARANTINE },
    { "no vote for another", CAUSE_QUARANTINE },
};

const char *hf_why_error(const hf_error *error, const char **ret_advice)
{
    const char *cause = NULL;
    if (!error)
        return NULL;
    for (size_t i = 0; !cause && i < sizeof told / sizeof told[0]; i++)
        if (strstr(error->message, told[i].words))
            cause = told[i].cause;
    if (!cause && error->code == HF_ENOQUORUM)
        cause = CAUSE_NO_QUORUM;
    if (!cause && (error->code == HF_ECONN || error->code == HF_EUNSURE))
        cause = CAUSE_AWAY;
    if (cause && ret_advice)
        *ret_advice = advice_for(cause);
    return cause;
}

/* ---- the answer ------------------------------------------------------------------------------ */

/* One call. */
struct asking {
    hf_client   *c;
    int64_t      until_ms; /* CLOCK_NEVER: each request as long as the client allows */
    hf_why_info *why;
    char         text[TEXT_MAX];
    struct words words;
};

hf_why_info *hf_why_free(hf_why_info *why)
{
    if (!why)
        return NULL;
    for (size_t i = 0; why->cycle && i < why->cycle_len; i++)
        mem_free(why->cycle[i]);
    mem_free(why->cycle);
    mem_free(why->text);
    hf_inspect_free(why->lock);
    mem_free(why);
    return NULL;
}

static hf_err no_memory(hf_error *reterr)
{
    return err_set(reterr, HF_ENOMEM, "out of memory");
}

static void set_cause(struct asking *a, const char *cause)
{
    a->why->cause = cause;
    a->why->advice = advice_for(cause);
}

static hf_err look_at(const struct asking *a, hf_bytes name, hf_inspect_info **ret,
                      hf_error *reterr)
{
    int64_t left = a->until_ms == CLOCK_NEVER ? 0 : a->until_ms - clock_now_ms();
    return hf_inspect_lock(a->c, name, a->until_ms == CLOCK_NEVER || left > 1 ? left : 1, ret,
                           reterr);
}

/* ---- deadlock -------------------------------------------------------------------------------- */

/* The locks that can be reached from the first by "its holder waits for". */
struct graph {
    size_t           n;
    hf_inspect_info *lock[LOCKS_MAX]; /* the first is the caller's */
    bool             stuck[LOCKS_MAX];
};

static size_t find(const struct graph *g, const char *name)
{
    size_t i = 0;
    while (i < g->n && strcmp(g->lock[i]->name, name) != 0)
        i++;
    return i;
}

/* All that can be found; what cannot be asked about is no part of it. */
static void explore(const struct asking *a, struct graph *g)
{
    for (size_t i = 0; i < g->n; i++)
        for (size_t k = 0; k < g->lock[i]->holders; k++) {
            const char *next = g->lock[i]->holder[k]->waits_for;
            if (next && g->n < LOCKS_MAX && find(g, next) == g->n
                && look_at(a, hf_str(next), &g->lock[g->n], NULL) == HF_OK)
                g->n++;
        }
}

/* A lock is stuck if each of its holders waits for one that is. */
static bool still_stuck(const struct graph *g, const hf_inspect_info *lock)
{
    if (lock->holders == 0 || lock->holders < lock->holders_total)
        return false;
    for (size_t k = 0; k < lock->holders; k++) {
        const char *next = lock->holder[k]->waits_for;
        size_t at = next ? find(g, next) : g->n;
        if (at == g->n || !g->stuck[at])
            return false;
    }
    return true;
}

static void judge(struct graph *g)
{
    bool changed = true;
    for (size_t i = 0; i < g->n; i++)
        g->stuck[i] = true;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < g->n; i++)
            if (g->stuck[i] && !still_stuck(g, g->lock[i])) {
                g->stuck[i] = false;
                changed = true;
            }
    }
}

/* From the first lock along the first holders: the way, and where the cycle in it begins. */
static size_t walk(const struct graph *g, size_t way[LOCKS_MAX], size_t *ret_from)
{
    size_t n = 0;
    for (size_t at = 0;; at = find(g, g->lock[at]->holder[0]->waits_for)) {
        for (size_t k = 0; k < n; k++)
            if (way[k] == at) {
                *ret_from = k;
                return n;
            }
        way[n++] = at;
    }
}

static bool tell_deadlock(struct asking *a, const struct graph *g)
{
    size_t way[LOCKS_MAX], from = 0, n = walk(g, way, &from);
    a->why->cycle = mem_zalloc((n - from) * sizeof *a->why->cycle);
    if (!a->why->cycle)
        return false;
    words_add(&a->words, from ? "its holder waits behind a deadlock: " : "deadlock: ");
    for (size_t k = from; k < n; k++) {
        const hf_inspect_info *l = g->lock[way[k]];
        const hf_party *p = l->holder[0];
        words_add(&a->words, "%s", k > from ? "; " : "");
        words_party(&a->words, p);
        if (p->pid > 0)
            words_add(&a->words, " (pid %lld)", (long long)p->pid);
        words_add(&a->words, " holds %.100s and waits for %.100s", l->name, p->waits_for);
        if (!(a->why->cycle[a->why->cycle_len] = mem_copy(l->name, l->name_len)))
            return false;
        a->why->cycle_len++;
    }
    set_cause(a, CAUSE_DEADLOCK);
    return true;
}

/* Sets the cause if it is one. HF_ENOMEM. */
static hf_err look_for_deadlock(struct asking *a, hf_error *reterr)
{
    struct graph g = { .n = 1, .lock = { a->why->lock } };
    explore(a, &g);
    judge(&g);
    bool told_all = !g.stuck[0] || tell_deadlock(a, &g);
    for (size_t i = 1; i < g.n; i++)
        hf_inspect_free(g.lock[i]);
    return told_all ? HF_OK : no_memory(reterr);
}

/* ---- the server ------------------------------------------------------------------------------ */

static void tell_state(struct asking *a, const struct op_state *s)
{
    struct words *w = &a->words;
    if (s->servers && s->usable > s->servers / 2)
        return; /* of a quorum the others are enough */
    if (s->servers && s->young_ms > 0) {
        words_add(w, "%zu of %zu servers may vote; others started lately and keep nothing on disk: "
                     "enough of them count in ", s->usable, s->servers);
        words_time(w, s->young_ms);
        a->why->free_ms = s->young_ms;
        set_cause(a, CAUSE_QUARANTINE);
    } else if (s->full) {
        words_add(w, "the server takes no writes: its maxmemory is used up");
        set_cause(a, CAUSE_MEMORY);
    } else if (s->replica) {
        words_add(w, "the server takes no writes: it is a replica");
        set_cause(a, CAUSE_READ_ONLY);
        a->why->advice = "connect to the master";
    } else if (s->no_disk) {
        words_add(w, "the server may take no writes: it could not write to its disk");
        set_cause(a, CAUSE_READ_ONLY);
    } else if (s->few_replicas) {
        words_add(w, "the server takes no writes: too few replicas follow it "
                     "(min-replicas-to-write)");
        set_cause(a, CAUSE_READ_ONLY);
    }
}

/* Sets the cause if the server is. */
static void look_at_server(struct asking *a, const struct lock_keys *keys)
{
    hf_error err = { 0 };
    AUTO(op_clear) struct op op = {
        .id = OP_health, .once = true, .health = { .keys = keys, .ttl_ms = HF_TTL_DEFAULT_MS },
        .deadline_ms = clock_earlier(a->until_ms, clock_now_ms() + STATE_MS),
    };
    hf_err e = exec_run(a->c->exec, &op, &err);
    const char *cause = e ? hf_why_error(&err, NULL) : NULL;
    if (!e) {
        tell_state(a, &op.got.state);
    } else if (cause && strcmp(cause, CAUSE_AWAY) != 0) {
        words_add(&a->words, "%s", err.message);
        set_cause(a, cause);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What the server cannot do comes first: nobody gets the lock before that ends. */
static hf_err find_cause(struct asking *a, const struct lock_keys *keys, hf_error *reterr)
{
    hf_why_info *why = a->why;
    look_at_server(a, keys);
    if (why->cause && why->lock->holders == 0)
        return HF_OK; /* that it is free helps nobody */
    if (why->cause) {
        words_add(&a->words, "; as far as can be seen, the lock is ");
        words_inspected(&a->words, why->lock, hf_inspect_cause(why->lock));
        return HF_OK;
    }
    hf_err e = look_for_deadlock(a, reterr);
    if (e || why->cause)
        return e;
    set_cause(a, hf_inspect_cause(why->lock));
    why->free_ms = why_free_ms(why->lock, why->cause);
    words_inspected(&a->words, why->lock, why->cause);
    return HF_OK;
}

static hf_err answer(struct asking *a, const struct lock_keys *keys, hf_error *reterr)
{
    hf_error err = { 0 };
    hf_err e = look_at(a, keys->name, &a->why->lock, &err);
    const char *cause = e ? hf_why_error(&err, NULL) : NULL;
    if (cause) {
        words_add(&a->words, "%s", err.message);
        set_cause(a, cause);
        e = HF_OK;
    } else if (e) {
        if (reterr)
            *reterr = err;
    } else {
        e = find_cause(a, keys, reterr);
    }
    if (!e && !(a->why->text = mem_copy(a->text, strlen(a->text))))
        e = no_memory(reterr);
    return e;
}

hf_err hf_why(hf_client *c, hf_bytes name, int64_t timeout_ms, hf_why_info **ret,
              hf_error *reterr)
{
    CALL_GUARD;
    struct asking a = { .c = c };
    struct lock_keys *keys;
    hf_err e = client_enter(c, reterr);
    if (!e && (timeout_ms < 0 || !ret))
        e = err_set(reterr, HF_EINVAL, ret ? "a negative time limit: give 0 for the client's own"
                                           : "no place for the result was given");
    if (!e)
        e = client_keys(c, name, &keys, reterr);
    if (e)
        return e;
    a.words = (struct words){ a.text, sizeof a.text, 0 };
    a.until_ms = timeout_ms ? clock_add(clock_now_ms(), timeout_ms) : CLOCK_NEVER;
    a.why = mem_zalloc(sizeof *a.why);
    if (a.why)
        a.why->free_ms = -1;
    e = a.why ? answer(&a, keys, reterr) : no_memory(reterr);
    keys_free(keys);
    if (e)
        hf_why_free(a.why);
    else
        *ret = a.why;
    return e;
}
