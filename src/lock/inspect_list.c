/* SPDX-License-Identifier: MIT
 * inspect_list.c - all locks under a pattern, looked at some at a time: each is a request of its
 * own, so that nobody is kept waiting, and they are under way together, so that a round trip is
 * paid for once.
 */
#include "lock/inspect.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/call.h"
#include "session/record.h"
#include "session/scan.h"

#define AT_ONCE       32
#define STRANGERS_MAX 64

struct listing {
    hf_client    *c;
    int64_t       until_ms;
    hf_inspect_fn each;
    void         *arg;
    bool          ended;   /* each() has seen enough */
    hf_error      failure; /* the first that left a lock unknown; its code is HF_OK: none did */

    /* Sessions whose records could not be read: in a cluster they may lie on a server that is away.
     * Nobody waits for it at each of thousands of locks. */
    size_t        strangers;
    char          stranger[STRANGERS_MAX][SIGHT_SESSION_DIGITS + 1];
    bool          strange; /* there was one */

    /* Those that are being looked at. */
    size_t            n;
    struct lock_keys *keys[AT_ONCE];
    struct sights     sights[AT_ONCE];
    struct op         op[AT_ONCE];
    hf_error          err[AT_ONCE];
    struct record_reading record[AT_ONCE];
    const struct sight   *of[AT_ONCE]; /* whose record it is */
};

static hf_err no_memory(hf_error *reterr)
{
    return err_set(reterr, HF_ENOMEM, "out of memory");
}

static int64_t deadline(const struct listing *l)
{
    return l->until_ms == CLOCK_NEVER ? client_deadline(l->c) : l->until_ms;
}

/* ---- who they are --------------------------------------------------------------------------- */

static bool is_stranger(const struct listing *l, const char *session)
{
    for (size_t i = 0; i < l->strangers; i++)
        if (strcmp(l->stranger[i], session) == 0)
            return true;
    return false;
}

static void add_stranger(struct listing *l, const char *session)
{
    l->strange = true;
    if (l->strangers < STRANGERS_MAX && !is_stranger(l, session))
        memcpy(l->stranger[l->strangers++], session, sizeof l->stranger[0]);
}

/* Read the records of n sessions, which have been begun. */
static void read_records(struct listing *l, size_t n)
{
    for (size_t i = 0; i < n; i++)
        l->op[i] = l->record[i].op;
    exec_run_all(l->c->exec, l->op, n);
    for (size_t i = 0; i < n; i++) {
        l->record[i].op = l->op[i];
        if (record_read_end(&l->record[i]))
            add_stranger(l, l->of[i]->session);
        sight_complete(l->of[i]);
    }
}

/* All whom the locks at hand name, some at a time. */
static hf_err ask_who(struct listing *l, const int64_t now_ms[AT_ONCE], hf_error *reterr)
{
    size_t n = 0;
    hf_err e = HF_OK;
    for (size_t i = 0; i < l->n && !e; i++)
        for (size_t k = 0; k < l->sights[i].n && !e; k++) {
            const struct sight *s = &l->sights[i].sight[k];
            if (is_stranger(l, s->session))
                continue;
            int64_t patience = l->strange ? SIGHT_RECORD_MS / 10 : SIGHT_RECORD_MS;
            e = record_read_begin(&l->record[n], l->c->prefix, s->session, s->sequence, s->waits,
                                  now_ms[i], s->party,
                                  clock_earlier(deadline(l), clock_now_ms() + patience), NULL);
            l->of[n] = s;
            n += !e;
            if (n == AT_ONCE) {
                read_records(l, n);
                n = 0;
            }
        }
    read_records(l, n);
    return e ? no_memory(reterr) : HF_OK;
}

/* ---- the locks ------------------------------------------------------------------------------ */

/* A cluster that is down shows the names of its keys and nothing else. */
static bool is_part_away(const struct listing *l, hf_err e)
{
    return !l->c->keyspace && (e == HF_ECONN || e == HF_EUNSURE);
}

static hf_err describe(struct listing *l, size_t i, hf_error *reterr)
{
    hf_err e = l->op[i].result;
    bool whole = true;
    if (!e) {
        whole = sights_fill(&l->sights[i], l->c->prefix, l->keys[i]->name,
                            &l->op[i].got.inspected, exec_can(l->c->exec, EXEC_PRESENCE));
    } else if (is_part_away(l, e)) {
        whole = sights_name(&l->sights[i], l->keys[i]->name);
        if (!l->failure.code)
            l->failure = l->err[i];
        e = HF_OK;
    } else if (reterr) {
        *reterr = l->err[i];
    }
    return whole ? e : no_memory(reterr);
}

static hf_err look_at_all(struct listing *l, hf_error *reterr)
{
    int64_t now_ms[AT_ONCE] = { 0 };
    hf_err e = HF_OK;
    for (size_t i = 0; i < l->n; i++)
        l->op[i] = (struct op){ .id = OP_inspect, .deadline_ms = deadline(l),
                                .reterr = &l->err[i], .once = l->failure.code != HF_OK,
                                .inspect = { .keys = l->keys[i], .max = SIGHTS_MAX } };
    exec_run_all(l->c->exec, l->op, l->n);
    for (size_t i = 0; i < l->n; i++) {
        if (!e)
            e = describe(l, i, reterr);
        now_ms[i] = l->op[i].result ? 0 : l->op[i].got.inspected.server_ms;
        op_clear(&l->op[i]);
    }
    return e ? e : ask_who(l, now_ms, reterr);
}

/* Those that were collected are looked at and told. */
static hf_err flush(struct listing *l, hf_error *reterr)
{
    hf_err e = l->ended ? HF_OK : look_at_all(l, reterr);
    for (size_t i = 0; i < l->n; i++) {
        const hf_inspect_info *info = l->sights[i].info;
        /* It may have ended since the scan: then it is not there to be listed. */
        if (!e && !l->ended && (info->holders || strcmp(info->kind, SIGHT_FREE) != 0))
            l->ended = l->each(info, l->arg) != 0;
        sights_clear(&l->sights[i]);
        keys_free(l->keys[i]);
    }
    l->n = 0;
    return e;
}

static hf_err add(hf_bytes name, void *arg, hf_error *reterr)
{
    struct listing *l = arg;
    if (l->ended)
        return HF_OK;
    hf_err e = client_keys(l->c, name, &l->keys[l->n], reterr);
    if (e)
        return e;
    return ++l->n == AT_ONCE ? flush(l, reterr) : HF_OK;
}

/* What could be seen has been told: what could not? */
static hf_err missing(const struct listing *l, hf_error *reterr)
{
    if (l->failure.code) {
        if (reterr)
            *reterr = l->failure;
        return l->failure.code;
    }
    if (l->strange)
        return err_set(reterr, HF_ECONN, "who holds some of these locks is not known: a server "
                                         "that would tell does not answer");
    return HF_OK;
}

hf_err hf_inspect_list(hf_client *c, const char *pattern, int64_t timeout_ms, hf_inspect_fn each,
                       void *arg, hf_error *reterr)
{
    CALL_GUARD;
    hf_error err;
    hf_err e = inspect_check(c, timeout_ms, each, reterr);
    if (e)
        return e;
    struct listing *l = mem_zalloc(sizeof *l);
    if (!l)
        return no_memory(reterr);
    l->c = c;
    l->until_ms = inspect_until(timeout_ms);
    l->each = each;
    l->arg = arg;
    e = scan_locks(c, pattern, l->until_ms, add, l, reterr);
    hf_err rest = flush(l, &err); /* also of what a part of a cluster has */
    if (!e && rest) {
        e = rest;
        if (reterr)
            *reterr = err;
    }
    if (!e)
        e = missing(l, reterr);
    mem_free(l);
    return e;
}
