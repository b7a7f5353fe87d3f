/* SPDX-License-Identifier: MIT
 * watch.c - telling what happens to locks, as it happens.
 *
 *  W1  Nobody who holds or wants a lock does anything for those who watch, but for what is rare and
 *      nobody else can see: in doubt, lost, a deadlock.
 *  W2  Watching writes nothing, and asks the server about a lock at most 40 times a second, about
 *      all of them at most 500 times.
 *  W3  After a connection broke it is said that something may be missing; and with each event, how
 *      many changes it was found together with.
 */
#include "lock/watch.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "session/feed.h"
#include "session/scan.h"

#define ROWS        4096
#define LOOK_MS     25  /* between two looks at one lock */
#define AGAIN_MS    200 /* until it is known who holds it */
#define LOOKS_IN_MS 0.5 /* at all of them */
#define LOOKS_MAX   20  /* before the feed is heard again */
#define FIRST_MAX   2000 /* locks that are looked at in the beginning; others when they change */

struct watcher {
    struct watch_teller t;
    const char         *pattern; /* NULL: all */
    struct feed        *feed;
    struct watched     *row[ROWS];
    struct watched     *first, **last; /* those to be looked at, in order */
    struct watched     *first_again, **last_again; /* those to be looked at once more */
    bool                draining;      /* what comes now was seen by the look before it, perhaps */
    bool                unknown;       /* anything may have changed */
    bool                began;         /* it was told that everything is heard */
    bool                complete;      /* and what is not known was free then */
    hf_err              result;
    hf_error           *reterr;
};

/* ---- the locks that are known ---------------------------------------------------------------- */

static size_t row_of(hf_bytes name)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ ((const unsigned char *)name.data)[i]) * 16777619u;
    return h % ROWS;
}

static struct watched **place_of(struct watcher *w, hf_bytes name)
{
    struct watched **p = &w->row[row_of(name)];
    while (*p && ((*p)->keys->name.len != name.len
                  || memcmp((*p)->keys->name.data, name.data, name.len) != 0))
        p = &(*p)->next;
    return p;
}

static void watched_free(struct watched *one)
{
    keys_free(one->keys);
    watch_state_free(one->was);
    mem_free(one);
}

static bool wanted(const struct watcher *w, hf_bytes name)
{
    char text[HF_NAME_MAX + 1];
    if (!w->pattern)
        return true;
    snprintf(text, sizeof text, "%.*s", (int)name.len, (const char *)name.data);
    return fnmatch(w->pattern, text, 0) == 0;
}

/* The lock of this name, made known if it was not: free so far, or nobody knows. NULL: no
 * memory. */
static struct watched *known(struct watcher *w, hf_bytes name, bool free_so_far)
{
    struct watched **p = place_of(w, name);
    if (*p)
        return *p;
    struct watched *one = mem_zalloc(sizeof *one);
    if (!one || client_keys(w->t.c, name, &one->keys, NULL)) {
        mem_free(one);
        return NULL;
    }
    if (free_so_far && !(one->was = mem_zalloc(sizeof *one->was))) {
        watched_free(one);
        return NULL;
    }
    return *p = one;
}

static void forget(struct watcher *w, struct watched *one)
{
    struct watched **p = place_of(w, one->keys->name);
    *p = one->next;
    watched_free(one);
}

static void stand_in_line(struct watcher *w, struct watched *one, unsigned changed)
{
    one->changed |= changed;
    if ((changed & WATCH_LOCK) && !w->draining)
        one->merged++;
    if (one->in_line)
        return;
    one->in_line = true;
    one->later = NULL;
    *w->last = one;
    w->last = &one->later;
}

/* ---- what the feed says ---------------------------------------------------------------------- */

static const struct {
    const char *tail;
    unsigned    bit;
} companions[] = {
    { ":q", WATCH_QUEUE }, { ":absent", WATCH_ABSENT }, { ":h", WATCH_LOCK },
    { ":d", WATCH_LOCK },  { ":own", WATCH_LOCK },      { ":x", WATCH_MARKS },
};

/* {KEY}:q, or KEY:q where KEY has a tag of its own. What lies in front of the ending, or nothing;
 * *ret_bit: which it is. */
static hf_bytes without_tail(hf_bytes key, unsigned *ret_bit)
{
    const char *k = key.data;
    for (size_t i = 0; i < sizeof companions / sizeof companions[0]; i++) {
        size_t n = strlen(companions[i].tail);
        if (key.len <= n || memcmp(k + key.len - n, companions[i].tail, n) != 0)
            continue;
        *ret_bit = companions[i].bit;
        size_t len = key.len - n;
        return k[0] == '{' && k[len - 1] == '}' ? (hf_bytes){ k + 1, len - 2 }
                                                : (hf_bytes){ k, len };
    }
    return (hf_bytes){ 0 };
}

static void on_changed(void *arg, hf_bytes key)
{
    struct watcher *w = arg;
    const char *prefix = w->t.c->prefix;
    unsigned bit = WATCH_LOCK;
    if (!keys_is_lock(prefix, key))
        key = without_tail(key, &bit);
    if (!key.len || !keys_is_lock(prefix, key))
        return;
    hf_bytes name = { (const char *)key.data + strlen(prefix), key.len - strlen(prefix) };
    struct watched *one = wanted(w, name) ? known(w, name, w->complete) : NULL;
    if (one)
        stand_in_line(w, one, bit);
}

static void on_unknown(void *arg)
{
    struct watcher *w = arg;
    w->unknown = true;
}

/* AGO KIND FENCE OWNER PID HOST USER PROGRAM LENGTH KEY TEXT, as notes.c writes it. Anybody who may
 * publish there may have written anything. */
static void on_told(void *arg, hf_bytes message)
{
    struct watcher *w = arg;
    char kind[16], owner[16], host[64], user[64], program[64];
    unsigned long long fence;
    long long ago, pid;
    size_t len;
    int at = 0;
    const char *prefix = w->t.c->prefix, *text = message.data;
    if (memchr(text, '\0', message.len)
        || sscanf(text, "%lld %15s %llu %15s %lld %63s %63s %63s %zu %n", &ago, kind, &fence,
                  owner, &pid, host, user, program, &len, &at) < 9
        || !at || (size_t)at > message.len || len > message.len - (size_t)at
        || kind[strspn(kind, "abcdefghijklmnopqrstuvwxyz_")])
        return;
    hf_bytes key = { text + at, len };
    if (!keys_is_lock(prefix, key))
        return;
    hf_bytes name = { text + at + strlen(prefix), len - strlen(prefix) };
    char copy[HF_NAME_MAX + 1];
    snprintf(copy, sizeof copy, "%.*s", (int)name.len, (const char *)name.data);
    hf_party party = { .owner = owner, .host = host, .user = user, .program = program, .pid = pid,
                       .age_ms = -1, .fence = fence, .lease_ms = -1, .renewed_ms = -1,
                       .since_unix_ms = -1, .present = -1 };
    hf_news news = { .kind = kind, .name = copy, .name_len = name.len, .party = &party,
                     .unix_ms = -1, .held_ms = -1, .waited_ms = -1, .ttl_ms = -1, .merged = 1,
                     .text = (size_t)at + len < message.len ? text + at + len + 1 : "" };
    if (!w->t.over && wanted(w, name))
        w->t.over = w->t.each(&news, w->t.arg) != 0;
}

/* ---- looking --------------------------------------------------------------------------------- */

struct beginning {
    struct watcher *w;
    size_t          n;
};

static hf_err found(hf_bytes name, void *arg, hf_error *reterr)
{
    struct beginning *b = arg;
    struct watched *one = b->n++ < FIRST_MAX ? known(b->w, name, false) : NULL;
    (void)reterr;
    if (one)
        stand_in_line(b->w, one, 0);
    return HF_OK;
}

static void look_again_later(struct watcher *w, struct watched *one)
{
    if (one->in_again)
        return;
    one->in_again = true;
    one->again = NULL;
    one->again_at_ms = clock_now_ms() + AGAIN_MS;
    *w->last_again = one;
    w->last_again = &one->again;
}

/* Those for whom the moment has come; returns when it does for the next. */
static int64_t take_again(struct watcher *w)
{
    int64_t now = clock_now_ms();
    while (w->first_again && w->first_again->again_at_ms <= now) {
        struct watched *one = w->first_again;
        w->first_again = one->again;
        if (!w->first_again)
            w->last_again = &w->first_again;
        one->in_again = false;
        stand_in_line(w, one, 0);
    }
    return w->first_again ? w->first_again->again_at_ms : CLOCK_NEVER;
}

static void look_at_first(struct watcher *w)
{
    struct watched *one = w->first;
    w->first = one->later;
    if (!w->first)
        w->last = &w->first;
    one->in_line = false;
    one->look_at_ms = clock_now_ms() + LOOK_MS;
    hf_err e = watch_look(&w->t, one, w->reterr);
    if (e == HF_ECONN || e == HF_EUNSURE)
        stand_in_line(w, one, 0); /* the feed will say that it has been away */
    else if (e)
        w->result = e;
    else if (watch_nameless(one))
        look_again_later(w, one);
    if (e)
        return;
    /* The server has said of all that was before the look that it has changed: it is read now, and
     * not counted again. */
    w->draining = true;
    feed_wait(w->feed, 0);
    w->draining = false;
    if (!one->in_line && !one->in_again && watch_idle(one))
        forget(w, one);
}

/* All that is there, without telling it: what changes from now on is news. */
static void begin_anew(struct watcher *w)
{
    struct beginning b = { .w = w };
    hf_error err;
    for (size_t i = 0; i < ROWS; i++)
        for (struct watched *one = w->row[i]; one; one = one->next)
            stand_in_line(w, one, WATCH_LOCK | WATCH_QUEUE);
    hf_err e = scan_locks(w->t.c, w->pattern, clock_add(clock_now_ms(), w->t.c->timeout_ms), found,
                          &b, &err);
    if (e && e != HF_EAUTH) { /* without SCAN a lock is known from its first change on */
        w->unknown = true;
        return;
    }
    w->complete = !e && b.n <= FIRST_MAX;
    while (w->first && !w->t.over && !w->result && !w->first->was)
        look_at_first(w);
    hf_news news = { .kind = "watching", .name = "", .unix_ms = -1, .held_ms = -1,
                     .waited_ms = -1, .ttl_ms = -1,
                     .text = w->began ? "a connection had broken, or the server was emptied: what "
                                        "happened meanwhile may not have been told" : "" };
    if (!w->t.over)
        w->t.over = w->t.each(&news, w->t.arg) != 0;
    w->began = true;
}

/* Until when there is nothing to do but to hear. */
static int64_t look_at_some(struct watcher *w, int64_t until_ms)
{
    int64_t begun = clock_now_ms();
    for (int n = 0; n < LOOKS_MAX && w->first && !w->t.over && !w->result; n++) {
        if (w->first->look_at_ms > clock_now_ms())
            return clock_earlier(until_ms, w->first->look_at_ms);
        look_at_first(w);
        int64_t paced = begun + (int64_t)((n + 1) / LOOKS_IN_MS);
        if (n + 1 == LOOKS_MAX && w->first)
            return clock_earlier(until_ms, paced);
    }
    return w->first ? clock_earlier(until_ms, w->first->look_at_ms) : until_ms;
}

static void run(struct watcher *w, int64_t until_ms)
{
    while (!w->t.over && !w->result && clock_now_ms() < until_ms
           && !atomic_load(&w->t.c->stopping)) {
        int64_t next = clock_earlier(until_ms, clock_now_ms() + LIMIT_SLEEP_MS);
        if (w->unknown) {
            w->unknown = false;
            begin_anew(w);
            next = w->unknown ? clock_now_ms() + LOOK_MS : 0;
        } else {
            next = look_at_some(w, clock_earlier(next, take_again(w)));
        }
        feed_wait(w->feed, next);
    }
}

static void clear(struct watcher *w)
{
    feed_free(w->feed);
    for (size_t i = 0; i < ROWS; i++) {
        while (w->row[i]) {
            struct watched *one = w->row[i];
            w->row[i] = one->next;
            watched_free(one);
        }
    }
}

hf_err hf_watch(hf_client *c, const char *pattern, int64_t wait_ms, hf_watch_fn each, void *arg,
                hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(c, reterr);
    if (!e && (!each || wait_ms < HF_WAIT_FOREVER))
        e = err_set(reterr, HF_EINVAL, each ? "a wait of %lld ms is out of range"
                                            : "no function was given to tell it to",
                    (long long)wait_ms);
    if (!e && !topo_quorum(c->topo))
        e = client_can(c, CLIENT_SCRIPT, "watching", reterr);
    if (e)
        return e;
    AUTO(mem_freep) struct watcher *w = mem_zalloc(sizeof *w);
    if (!w)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    *w = (struct watcher){ .t = { .c = c, .each = each, .arg = arg }, .pattern = pattern,
                           .reterr = reterr };
    w->last = &w->first;
    w->last_again = &w->first_again;
    struct feed_hooks hooks = { on_changed, on_unknown, on_told, w };
    e = feed_open(c, &hooks, client_deadline(c), &w->feed, reterr);
    if (!e)
        run(w, wait_ms < 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms));
    clear(w);
    return e ? e : w->result;
}
