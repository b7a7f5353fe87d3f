/* SPDX-License-Identifier: MIT
 * watch_look.c - a look at one lock, and what has happened to it since the last one.
 */
#include "lock/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/kind.h"
#include "session/record.h"

#define PARTIES_MAX    100
#define SESSION_DIGITS 32
#define SHOWN_DIGITS   8
#define NAMELESS_MS    1000 /* who is not known by then stays unknown */
#define RENEWED_MS     20 /* less than that is the time between two looks, and rounding */

/* ---- what was seen --------------------------------------------------------------------------- */

static void parties_clear(struct watch_parties *p)
{
    for (size_t i = 0; i < p->n; i++) {
        mem_free(p->one[i].id);
        mem_free(p->one[i].asked);
        record_party_clear(&p->one[i].party);
    }
    mem_free(p->one);
    *p = (struct watch_parties){ 0 };
}

struct watch_state *watch_state_free(struct watch_state *s)
{
    if (!s)
        return NULL;
    parties_clear(&s->holder);
    parties_clear(&s->waiter);
    mem_free(s);
    return NULL;
}

bool watch_idle(const struct watched *w)
{
    return w->was && !w->was->holder.n && !w->was->waiter.n;
}

static bool is_token(const char *text)
{
    return strspn(text, "0123456789abcdef") == SESSION_DIGITS && text[SESSION_DIGITS] == '.';
}

bool watch_nameless(const struct watched *w)
{
    for (size_t i = 0; w->was && i < w->was->holder.n; i++) {
        const struct watch_party *p = &w->was->holder.one[i];
        if (!p->party.host && is_token(p->id) && p->since_ms >= 0
            && w->was->server_ms - p->since_ms < NAMELESS_MS)
            return true;
    }
    return false;
}

/* One more, of whom this is known. False: no memory. */
static bool add(struct watch_parties *p, const char *id, size_t len, uint64_t fence,
                unsigned permits)
{
    struct watch_party one = { .id = mem_copy(id, len), .since_ms = -1 };
    one.party = (hf_party){ .age_ms = -1, .fence = fence, .permits = permits, .lease_ms = -1,
                            .renewed_ms = -1, .since_unix_ms = -1, .present = -1 };
    if (one.id)
        one.party.owner = mem_copy(one.id, is_token(one.id) ? SHOWN_DIGITS : len);
    if (!one.party.owner) {
        mem_free(one.id);
        return false;
    }
    p->one[p->n++] = one;
    return true;
}

/* A value, or own: the token in front of its number. */
static size_t token_len(const char *text, uint64_t *ret_fence)
{
    const char *colon = strchr(text, ':');
    *ret_fence = colon ? strtoull(colon + 1, NULL, 10) : 0;
    return colon ? (size_t)(colon - text) : strlen(text);
}

static bool add_only_holder(struct watch_state *s, const struct op_inspected *got)
{
    uint64_t fence = 0;
    const char *value = got->value.len ? got->value.data : "";
    const char *own = got->own.len ? got->own.data : "";
    if (is_token(value))
        return add(&s->holder, value, token_len(value, &fence), 0, 0)
               && ((void)token_len(value, &s->holder.one[0].party.fence), true);
    if (!is_token(own))
        return add(&s->holder, value, got->value.len, 0, 0);
    size_t len = token_len(own, &fence);
    if (!add(&s->holder, own, len, fence, 0))
        return false;
    mem_free(s->holder.one[0].party.owner); /* a caller-chosen id is shown as it is */
    s->holder.one[0].party.owner = mem_copy(value, got->value.len);
    return s->holder.one[0].party.owner != NULL;
}

static bool add_sharers(struct watch_state *s, struct op_list holders)
{
    for (size_t i = 0; i + 2 < op_list_len(holders); i += 3) {
        unsigned long long fence = 0;
        unsigned permits = 0;
        hf_bytes token = op_list_at(holders, i);
        (void)!sscanf(op_list_at(holders, i + 1).data, "%llu:%*u:%u", &fence, &permits);
        if (!add(&s->holder, token.data, token.len, fence, permits))
            return false;
    }
    return true;
}

static bool add_all(struct watch_state *s, const struct op_inspected *got)
{
    struct kind kind;
    size_t most = op_list_len(got->holders) / 3 + 1, waiting = op_list_len(got->waiters);
    bool held = got->type.len && strcmp(got->type.data, "string") == 0 && got->left_ms != -2;
    s->holder.one = mem_zalloc(most * sizeof *s->holder.one);
    s->waiter.one = mem_zalloc((waiting + 1) * sizeof *s->waiter.one);
    bool fits = s->holder.one && s->waiter.one;
    if (fits && held && !kind_parse(got->value.len ? got->value.data : "", &kind))
        fits = add_only_holder(s, got);
    else if (fits && held && kind.lock)
        fits = add_sharers(s, got->holders);
    for (size_t i = 0; fits && i < waiting; i++) {
        const char *member = op_list_at(got->waiters, i).data;
        fits = add(&s->waiter, member, strcspn(member, ":"), 0, 0);
    }
    return fits;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* The fields of a companion that are there; name, value, ... Blocking. */
static hf_err read_marks(hf_client *c, const struct lock_keys *keys, const char *tail, size_t n,
                         const char *const *field, char **ret)
{
    hf_bytes key = { 0 };
    char *name = keys_companion(keys->key[KEY_LOCK], tail, &key.len);
    key.data = name;
    struct op op = { .id = OP_recall, .deadline_ms = client_deadline(c),
                     .recall = { .key = key, .n = n, .field = field } };
    hf_err e = name ? exec_run(c->exec, &op, NULL) : HF_ENOMEM;
    for (size_t i = 0; !e && i + 1 < op_list_len(op.got.list); i += 2)
        for (size_t k = 0; k < n; k++)
            if (strcmp(op_list_at(op.got.list, i).data, field[k]) == 0 && !ret[k])
                ret[k] = mem_copy(op_list_at(op.got.list, i + 1).data,
                                  op_list_at(op.got.list, i + 1).len);
    if (name)
        op_clear(&op);
    mem_free(name);
    return e;
}

/* Whether its only holder is marked absent, or one of several. */
static void look_for_absence(hf_client *c, const struct watched *w, const struct op_inspected *got,
                             struct watch_state *s)
{
    char *mark[1] = { NULL };
    if (w->changed & WATCH_ABSENT) {
        const char *of[1] = { got->value.len ? got->value.data : "" };
        if (op_list_len(got->holders) && s->holder.n)
            of[0] = s->holder.one[0].id;
        (void)read_marks(c, w->keys, ":absent", 1, of, mark);
        s->absent = mark[0] && strncmp(mark[0], "absent ", 7) == 0;
        mem_free(mark[0]);
    } else {
        s->absent = w->was && w->was->absent;
    }
}

/* What somebody wrote for the holder of that number, of the kind "break" or "ask": "WHEN BY TEXT".
 * To be freed; NULL: nothing. */
static char *written_for(hf_client *c, const struct watched *w, const char *kind, uint64_t fence)
{
    char field[40], *mark = NULL;
    const char *of[1] = { field };
    snprintf(field, sizeof field, "%s:%llu", kind, (unsigned long long)fence);
    if (fence)
        (void)read_marks(c, w->keys, ":x", 1, of, &mark);
    return mark;
}

/* Without the time. */
static const char *words_of(const char *mark)
{
    const char *by = strchr(mark, ' ');
    return by ? by + 1 : "";
}

static hf_err look(hf_client *c, const struct watched *w, struct watch_state **ret,
                   hf_error *reterr)
{
    struct op op = { .id = OP_inspect, .deadline_ms = client_deadline(c),
                     .inspect = { .keys = w->keys, .max = PARTIES_MAX } };
    hf_err e = exec_run(c->exec, &op, reterr);
    const struct op_inspected *got = &op.got.inspected;
    struct watch_state *s = e ? NULL : mem_zalloc(sizeof *s);
    if (s) {
        s->server_ms = got->server_ms;
        s->left_ms = got->left_ms;
    }
    if (!e && (!s || !add_all(s, got)))
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    if (!e)
        look_for_absence(c, w, got, s);
    op_clear(&op);
    if (e)
        watch_state_free(s);
    else
        *ret = s;
    return e;
}

/* Who is behind a token, as its session's record says; that may come a moment later. */
static void identify(hf_client *c, const struct watch_state *s, struct watch_party *p, bool waits)
{
    struct record_reading r;
    char session[SESSION_DIGITS + 1];
    if (p->party.host || !is_token(p->id))
        return;
    memcpy(session, p->id, SESSION_DIGITS);
    session[SESSION_DIGITS] = '\0';
    if (record_read_begin(&r, c->prefix, session, strtoull(p->id + SESSION_DIGITS + 1, NULL, 10),
                          waits, s->server_ms, &p->party, client_deadline(c), NULL))
        return;
    (void)exec_run(c->exec, &r.op, NULL);
    (void)record_read_end(&r);
    if (p->party.age_ms >= 0)
        p->since_ms = s->server_ms - p->party.age_ms;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static struct watch_party *find(const struct watch_parties *in, const char *id)
{
    for (size_t i = 0; i < in->n; i++)
        if (strcmp(in->one[i].id, id) == 0)
            return &in->one[i];
    return NULL;
}

static void move_text(char **to, char **from)
{
    if (!*to) {
        *to = *from;
        *from = NULL;
    }
}

/* What was known of somebody stays known. */
static void inherit(struct watch_party *to, struct watch_party *from)
{
    move_text(&to->party.host, &from->party.host);
    move_text(&to->party.user, &from->party.user);
    move_text(&to->party.program, &from->party.program);
    move_text(&to->party.info, &from->party.info);
    move_text(&to->asked, &from->asked);
    to->party.pid = to->party.pid ? to->party.pid : from->party.pid;
}

/* What a comparison needs. */
struct comparison {
    struct watch_teller *t;
    struct watched      *w;
    struct watch_state  *was, *is;
};

static void tell(struct comparison *k, const char *kind, const struct watch_party *p, hf_news n)
{
    hf_bytes name = k->w->keys->name;
    char copy[HF_NAME_MAX + 1];
    if (k->t->over)
        return;
    memcpy(copy, name.data, name.len);
    copy[name.len] = '\0';
    n.kind = kind;
    n.name = copy;
    n.name_len = name.len;
    n.party = p ? &p->party : NULL;
    n.unix_ms = k->is->server_ms;
    n.merged = k->w->merged;
    n.text = n.text ? n.text : "";
    k->t->over = k->t->each(&n, k->t->arg) != 0;
}

#define NOTHING_MORE .held_ms = -1, .waited_ms = -1, .ttl_ms = -1

static int64_t since(const struct watch_state *now, const struct watch_party *p)
{
    return p->since_ms < 0 || p->since_ms > now->server_ms ? -1 : now->server_ms - p->since_ms;
}

/* broken: what was written for it, or NULL. */
static const char *how_it_ended(const struct comparison *k, const char *broken,
                                const char **ret_text)
{
    int64_t left = k->was->left_ms - (k->is->server_ms - k->was->server_ms);
    *ret_text = NULL;
    if (broken) {
        *ret_text = words_of(broken);
        return "broken";
    }
    /* Who took it over may have given it back before this look. */
    if (k->was->absent && (k->is->holder.n || left > 0)) {
        *ret_text = "its process was gone for longer than its grace";
        return "taken_over";
    }
    if (k->was->left_ms >= 0 && left <= 0) {
        *ret_text = "nobody renewed it";
        return "expired";
    }
    return "released";
}

static void tell_ends(struct comparison *k)
{
    for (size_t i = 0; i < k->was->holder.n; i++) {
        struct watch_party *p = &k->was->holder.one[i];
        const char *text;
        if (find(&k->is->holder, p->id))
            continue;
        char *broken = k->w->marked ? written_for(k->t->c, k->w, "break", p->party.fence) : NULL;
        const char *kind = how_it_ended(k, broken, &text);
        tell(k, kind, p, (hf_news){ .held_ms = since(k->is, p), .waited_ms = -1, .ttl_ms = -1,
                                    .text = text });
        mem_free(broken);
    }
}

static void tell_grants(struct comparison *k)
{
    for (size_t i = 0; i < k->is->holder.n; i++) {
        struct watch_party *p = &k->is->holder.one[i];
        struct watch_party *held = find(&k->was->holder, p->id);
        struct watch_party *waited = find(&k->was->waiter, p->id);
        if (held) {
            bool nameless = !held->party.host;
            inherit(p, held);
            p->since_ms = held->since_ms;
            identify(k->t->c, k->is, p, false);
            if (nameless && p->party.host)
                tell(k, "held", p, (hf_news){ .held_ms = since(k->is, p), .waited_ms = -1,
                                              .ttl_ms = k->is->left_ms });
            continue;
        }
        p->since_ms = k->is->server_ms;
        if (waited)
            inherit(p, waited);
        identify(k->t->c, k->is, p, false);
        tell(k, "granted", p, (hf_news){ .held_ms = -1, .ttl_ms = k->is->left_ms,
                                         .waited_ms = waited ? since(k->is, waited) : -1 });
    }
}

/* Once for each ask. */
static void tell_ask(struct comparison *k, struct watch_party *p)
{
    char *asked = written_for(k->t->c, k->w, "ask", p->party.fence);
    if (asked && (!p->asked || strcmp(asked, p->asked) != 0))
        tell(k, "asked", p, (hf_news){ NOTHING_MORE, .text = words_of(asked) });
    if (asked) {
        mem_free(p->asked);
        p->asked = asked;
    }
}

static void tell_renewal(struct comparison *k)
{
    int64_t left = k->was->left_ms - (k->is->server_ms - k->was->server_ms);
    for (size_t i = 0; i < k->is->holder.n; i++) {
        struct watch_party *p = &k->is->holder.one[i];
        if (!find(&k->was->holder, p->id))
            continue;
        if ((k->w->changed & WATCH_LOCK) && k->is->left_ms > left + RENEWED_MS
            && k->is->holder.n == 1)
            tell(k, "renewed", p, (hf_news){ .held_ms = since(k->is, p), .waited_ms = -1,
                                             .ttl_ms = k->is->left_ms });
        if (k->w->changed & WATCH_MARKS)
            tell_ask(k, p);
    }
}

static void tell_waiters(struct comparison *k)
{
    for (size_t i = 0; i < k->was->waiter.n; i++) {
        struct watch_party *p = &k->was->waiter.one[i];
        if (!find(&k->is->waiter, p->id) && !find(&k->is->holder, p->id))
            tell(k, "left_queue", p,
                 (hf_news){ .held_ms = -1, .waited_ms = since(k->is, p), .ttl_ms = -1,
                            .text = "it gave up, or held the lock only between two looks" });
    }
    for (size_t i = 0; i < k->is->waiter.n; i++) {
        struct watch_party *p = &k->is->waiter.one[i];
        struct watch_party *waited = find(&k->was->waiter, p->id);
        if (waited) {
            inherit(p, waited);
            p->since_ms = waited->since_ms;
        } else {
            p->since_ms = k->is->server_ms;
        }
        identify(k->t->c, k->is, p, true);
        if (!waited && !find(&k->was->holder, p->id))
            tell(k, "queued", p, (hf_news){ NOTHING_MORE });
    }
}

/* It changed, and is as free as it was. */
static void tell_unseen(struct comparison *k)
{
    if (k->w->merged && !k->was->holder.n && !k->is->holder.n)
        tell(k, "unseen", NULL,
             (hf_news){ NOTHING_MORE, .text = "held and given back between two looks" });
}

static void first_look(struct comparison *k)
{
    for (size_t i = 0; i < k->is->holder.n; i++)
        identify(k->t->c, k->is, &k->is->holder.one[i], false);
    for (size_t i = 0; i < k->is->waiter.n; i++)
        identify(k->t->c, k->is, &k->is->waiter.one[i], true);
}

hf_err watch_look(struct watch_teller *t, struct watched *w, hf_error *reterr)
{
    struct comparison k = { .t = t, .w = w, .was = w->was };
    w->marked |= (w->changed & WATCH_MARKS) != 0;
    hf_err e = look(t->c, w, &k.is, reterr);
    if (e)
        return e;
    if (k.was) {
        tell_ends(&k);
        tell_grants(&k);
        tell_renewal(&k);
        tell_waiters(&k);
        tell_unseen(&k);
    } else {
        first_look(&k);
    }
    watch_state_free(w->was);
    w->was = k.is;
    w->changed = w->merged = 0;
    return HF_OK;
}
