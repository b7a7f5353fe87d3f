/* SPDX-License-Identifier: MIT
 * history.c - who held a lock: reading its log, which notes.c writes.
 *
 * A hold is told once: what its holder wrote itself wins over what others wrote of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "lock/history.h"
#include "session/client.h"

#define PAGE    100
#define ID_SIZE 64
#define TOLD_MAX 256

/* The numbers of the last that were told: a request of which the answer was lost may have been
 * written twice, soon after. */
struct told {
    uint64_t fence[TOLD_MAX];
    size_t   n;
};

static bool is_new(struct told *t, uint64_t fence)
{
    for (size_t i = 0; fence && i < TOLD_MAX; i++)
        if (t->fence[i] == fence)
            return false;
    t->fence[t->n++ % TOLD_MAX] = fence;
    return true;
}

/* Anybody may have written it: believe nothing. */
static int64_t number(const char *text, int64_t otherwise)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    return *text && !*end && n >= 0 ? n : otherwise;
}

static int64_t earlier(int64_t unix_ms, int64_t ms)
{
    return __builtin_sub_overflow(unix_ms, ms, &unix_ms) ? 0 : unix_ms;
}

static void take_text(hf_past *p, const char *name, const char *value)
{
    const struct {
        const char  *name;
        const char **to;
    } texts[] = {
        { "owner", &p->owner }, { "host", &p->host }, { "user", &p->user },
        { "program", &p->program }, { "info", &p->info }, { "mode", &p->mode },
        { "end", &p->end }, { "why", &p->why }, { "note", &p->note },
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(name, texts[i].name) == 0)
            *texts[i].to = value;
}

hf_past history_entry(const struct reply *entry)
{
    hf_past p = { .end = "?", .why = "", .waited_ms = -1, .held_ms = -1,
                  .ended_unix_ms = strtoll(entry->item[0]->str, NULL, 10) };
    const struct reply *field = entry->item[1];
    for (size_t i = 0; i + 1 < field->len; i += 2) {
        const char *name = field->item[i]->str, *value = field->item[i + 1]->str;
        if (strcmp(name, "fence") == 0)
            p.fence = (uint64_t)number(value, 0);
        else if (strcmp(name, "pid") == 0)
            p.pid = number(value, 0);
        else if (strcmp(name, "waited") == 0)
            p.waited_ms = number(value, -1);
        else if (strcmp(name, "held") == 0)
            p.held_ms = number(value, -1);
        else if (strcmp(name, "ago") == 0)
            p.ended_unix_ms = earlier(p.ended_unix_ms, number(value, 0));
        else
            take_text(&p, name, value);
    }
    return p;
}

static bool by_others(const hf_past *p)
{
    return strcmp(p->end, "taken over") == 0;
}

/* Whether the page tells this hold in its holder's own words as well. */
static bool own_words(const struct reply *page, const hf_past *p)
{
    for (size_t i = 1; by_others(p) && p->fence && i < page->len; i++) {
        hf_past other = history_entry(page->item[i]);
        if (other.fence == p->fence && !by_others(&other))
            return true;
    }
    return false;
}

struct reading {
    hf_client    *c;
    hf_bytes      log;
    hf_history_fn each;
    void         *arg;
    struct told   told;
    char          from[ID_SIZE]; /* the next page */
    bool          over;
};

static void tell_page(struct reading *r, const struct reply *page)
{
    for (size_t i = 1; i < page->len && !r->over; i++) {
        hf_past p = history_entry(page->item[i]);
        snprintf(r->from, sizeof r->from, "(%.60s", page->item[i]->item[0]->str);
        if (!own_words(page, &p) && (is_new(&r->told, p.fence) || strcmp(p.end, "left") == 0))
            r->over = r->each(&p, r->arg) != 0;
    }
    r->over |= page->len <= PAGE;
}

static hf_err read_page(struct reading *r, hf_error *reterr)
{
    AUTO(op_clear) struct op op = { .id = OP_past, .deadline_ms = client_deadline(r->c),
                                    .past = { .log = r->log, .from = r->from, .most = PAGE } };
    hf_err e = exec_run(r->c->exec, &op, reterr);
    if (e)
        return e;
    if (op.got.entries.code == ANSWER_WRONG_TYPE)
        return err_set(reterr, HF_ETYPE, "the key %.*s, the history of this lock, holds something "
                       "else: look at it", (int)r->log.len, (const char *)r->log.data);
    tell_page(r, op.got.entries.rp);
    return HF_OK;
}

hf_err hf_history_read(hf_client *c, hf_bytes name, hf_history_fn each, void *arg,
                       hf_error *reterr)
{
    CALL_GUARD;
    struct reading r = { .c = c, .each = each, .arg = arg, .from = "+" };
    struct lock_keys *keys = NULL;
    hf_err e = client_enter(c, reterr);
    if (!e && !each)
        e = err_set(reterr, HF_EINVAL, "no function was given to tell it to");
    if (!e)
        e = client_can(c, CLIENT_SCRIPT, "the history of a lock", reterr);
    if (!e)
        e = client_keys(c, name, &keys, reterr);
    if (e)
        return e;
    char *log = keys_companion(keys->key[KEY_LOCK], ":log", &r.log.len);
    r.log.data = log;
    if (!log)
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    while (!e && !r.over)
        e = read_page(&r, reterr);
    mem_free(log);
    keys_free(keys);
    return e;
}
