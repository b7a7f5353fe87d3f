/* SPDX-License-Identifier: MIT
 * judge.c - what must always be true in the simulated world.
 */
#include "sim/lib/judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"
#include "sim/lib/model.h"
#include "sim/lib/slots.h"
#include "topo/slot.h"

#define PARTIES_MAX 32
#define TOKENS_MAX  400
#define GRANTS_MAX  64
#define SETTLE_MS   2500 /* what is free is handed over by then, when nothing disturbs */
#define TOLD_MS     1000 /* who holds what was broken has heard of it by then */

struct judge_verdict judge_verdict;
struct judge_counts judge_counts;

/* Who holds or waits, as the server has it. */
struct party {
    char     token[TOKEN_SIZE];
    int      proc; /* -1: nobody's */
    uint64_t fence;
    int64_t  ends_ms, grace_ms; /* the server's time */
    /* While a slot moves, the keys of a hold are renewed one by one: it is over when the first of
     * them ends, and so is what the holder believes. 0: never. */
    int64_t  parts_ms;
    unsigned weight; /* 0: alone */
    double   ticket;
    bool     broken; /* somebody has marked it */
};

struct view {
    struct party holder[PARTIES_MAX], waiter[PARTIES_MAX];
    size_t       nholders, nwaiters;
};

struct lock {
    char            key[100], queue[110], own[110], holders[110], details[110], breaks[110];
    enum judge_kind kind;
    unsigned        limit;
    struct view     view;     /* after the last command */
    uint64_t        top;      /* the largest number ever granted */
    uint64_t        old_top;  /* the same, before this life of the server */
    int             reign_at; /* the server that began it */
    int64_t         idle_ms;  /* since when it could be handed to somebody; 0: it could not */
    struct {
        uint64_t fence;
        int      proc;
    } grant[GRANTS_MAX];      /* the last ones */
    size_t          ngrants;
};

struct handle {
    const hf_lock           *m;
    const struct world_proc *proc;
    int                      lock;
    unsigned                 weight;
    uint64_t                 believed; /* the number it believed in the last time; 0: in none */
    int64_t                  told_by_ms; /* it believes in what was broken, until then at most */
    bool                     lost;       /* it was told so */
};

struct tokens {
    char   token[TOKENS_MAX][TOKEN_SIZE];
    bool   excused[TOKENS_MAX];
    double ticket[TOKENS_MAX];
    size_t n;
};

static struct {
    struct lock   lock[JUDGE_LOCKS];
    int           nlocks;
    struct handle handle[JUDGE_HANDLES];
    size_t        nhandles;
    struct {
        const struct world_proc *proc;
        char                     session[40], channel[JUDGE_LOCKS][120];
        bool                     closed;
        bool                     seen[JUDGE_LOCKS][MODEL_NODES]; /* in this life of the server */
        bool                     looked_at[JUDGE_LOCKS][MODEL_NODES]; /* and somebody looked */
        int64_t                  absent_ms[JUDGE_LOCKS][MODEL_NODES]; /* watch_sessions() */
    } session[WORLD_PROCS];
    struct tokens gone, lost; /* given up or back; taken away by a fault */
    struct tokens again;      /* a late copy of a request may have queued it once more */
    struct tokens came;       /* who ever waited, with its first ticket: it may come back to it */
    void        (*also)(void);
    int64_t       loss_ms; /* when a fault last took something away */
    int64_t       calm_ms; /* nothing has disturbed since then */
    bool          reign_gone; /* the server has forgotten its reign, and lives on */
} all;

void judge_wrong(int rule, const char *fmt, ...)
{
    char text[250];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!judge_verdict.times++) {
        judge_verdict.rule = rule;
        snprintf(judge_verdict.first, sizeof judge_verdict.first, "I%d: %s", rule, text);
        world_tell("WRONG: I%d: %s", rule, text);
        world_tells = false; /* what follows explains nothing */
    }
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static size_t find_token(const struct tokens *t, const char *token)
{
    size_t i = 0;
    while (i < t->n && strcmp(t->token[i], token) != 0)
        i++;
    return i;
}

static void add_token(struct tokens *t, const char *token)
{
    if (find_token(t, token) < t->n)
        return;
    if (t->n == TOKENS_MAX) { /* the oldest do not matter any more */
        memmove(t->token[0], t->token[1], sizeof t->token - sizeof t->token[0]);
        memmove(t->excused, t->excused + 1, sizeof t->excused - sizeof t->excused[0]);
        memmove(t->ticket, t->ticket + 1, sizeof t->ticket - sizeof t->ticket[0]);
        t->n--;
    }
    t->excused[t->n] = false;
    snprintf(t->token[t->n++], TOKEN_SIZE, "%s", token);
}

static bool is_lost(const char *token)
{
    return find_token(&all.lost, token) < all.lost.n;
}

void judge_gone(const char *token, int64_t begun_ms)
{
    if (!token[0])
        return;
    add_token(&all.gone, token);
    all.gone.excused[find_token(&all.gone, token)] |= begun_ms <= all.loss_ms || is_lost(token);
}

static int proc_of(const char *token)
{
    for (int i = 0; i < WORLD_PROCS; i++)
        if (all.session[i].proc && strncmp(all.session[i].session, token, 32) == 0)
            return i;
    return -1;
}

/* ---- what the server has --------------------------------------------------------------------- */

static struct entry *find(const char *key)
{
    return model_find(hf_str(key));
}

static void add_alone(struct view *v, const char *record, int64_t ends_ms, bool owned)
{
    struct party *p = &v->holder[v->nholders];
    const char *colon = strchr(record, ':');
    if (!colon || colon - record >= TOKEN_SIZE)
        return;
    *p = (struct party){ .ends_ms = ends_ms };
    memcpy(p->token, record, (size_t)(colon - record));
    p->fence = strtoull(colon + 1, NULL, 10);
    colon = strchr(colon + 1, ':');
    p->grace_ms = colon && !owned ? strtoll(colon + 1, NULL, 10) : 0;
    p->proc = proc_of(p->token);
    v->nholders++;
}

static void note_parts(struct party *p, const struct entry *part)
{
    int64_t ends_ms = part ? part->ends_ms : 1;
    if (model_nodes > 1 && ends_ms != STORE_NO_TTL && (!p->parts_ms || ends_ms < p->parts_ms))
        p->parts_ms = ends_ms;
}

static void add_sharers(struct view *v, const struct lock *l)
{
    const struct entry *h = find(l->holders), *d = find(l->details);
    for (size_t i = 0; h && i < h->n && v->nholders < PARTIES_MAX; i++) {
        struct party *p = &v->holder[v->nholders++];
        *p = (struct party){ .ends_ms = (int64_t)h->element[i].score, .weight = 1 };
        snprintf(p->token, sizeof p->token, "%s", h->element[i].name.p);
        p->proc = proc_of(p->token);
        size_t at = d ? entry_place(d, hf_str(p->token)) : 0;
        unsigned long long fence = 0;
        long long grace = 0;
        if (d && at < d->n)
            sscanf(d->element[at].value.p, "%llu:%lld:%u", &fence, &grace, &p->weight);
        p->fence = fence;
        p->grace_ms = grace;
        /* Others may have made the details anew, after those of this one had ended. */
        note_parts(p, fence ? d : NULL);
        note_parts(p, h);
        note_parts(p, find(l->key));
    }
}

static void add_breaks(struct view *v, const struct entry *breaks)
{
    for (size_t i = 0; i < v->nholders; i++) {
        char field[40];
        snprintf(field, sizeof field, "break:%llu", (unsigned long long)v->holder[i].fence);
        v->holder[i].broken = entry_place(breaks, hf_str(field)) < breaks->n;
    }
}

static void read_view(const struct lock *l, struct view *v)
{
    const struct entry *e = find(l->key), *q = find(l->queue), *breaks = find(l->breaks);
    v->nholders = v->nwaiters = 0;
    if (e && strncmp(e->string.p, "shared.", 7) == 0) {
        add_sharers(v, l);
    } else if (e && strchr(e->string.p, ':')) {
        add_alone(v, e->string.p, e->ends_ms, false);
    } else if (e) {
        const struct entry *own = find(l->own);
        if (own) {
            add_alone(v, own->string.p, e->ends_ms, true);
            if (v->nholders)
                note_parts(&v->holder[v->nholders - 1], own);
        }
    }
    if (breaks && breaks->kind == ENTRY_HASH)
        add_breaks(v, breaks);
    for (size_t i = 0; q && i < q->n && i < PARTIES_MAX; i++) {
        struct party *p = &v->waiter[v->nwaiters++];
        size_t len = strcspn(q->element[i].name.p, ":");
        *p = (struct party){ .ticket = q->element[i].score };
        memcpy(p->token, q->element[i].name.p, len < TOKEN_SIZE ? len : TOKEN_SIZE - 1);
        p->proc = proc_of(p->token);
    }
}

static const struct party *among(const struct party *p, size_t n, const char *token)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(p[i].token, token) == 0)
            return &p[i];
    return NULL;
}

static bool valid(const struct party *p)
{
    if (p->parts_ms && p->parts_ms <= model_now_ms())
        return false;
    return p->ends_ms == STORE_NO_TTL || p->ends_ms > model_now_ms();
}

static const struct party *holder(const struct lock *l, const char *token)
{
    const struct party *p = among(l->view.holder, l->view.nholders, token);
    return p && valid(p) ? p : NULL;
}

bool judge_has(int lock, const char *token, bool waits)
{
    const struct lock *l = &all.lock[lock];
    if (is_lost(token)) /* a replica may still have what became of it before */
        return false;
    return holder(l, token) || (waits && among(l->view.waiter, l->view.nwaiters, token));
}

bool judge_has_hold(int lock, const char *token, uint64_t fence)
{
    const struct party *p = is_lost(token) ? NULL : holder(&all.lock[lock], token);
    return p && p->fence == fence;
}

static bool is_from(const struct party *p, const char *session, uint64_t first)
{
    return strncmp(p->token, session, 32) == 0 && strtoull(p->token + 33, NULL, 10) >= first
           && !is_lost(p->token);
}

bool judge_waits(int lock, int proc)
{
    const struct view *v = &all.lock[lock].view;
    for (size_t i = 0; i < v->nwaiters; i++)
        if (v->waiter[i].proc == proc)
            return true;
    return false;
}

const char *judge_has_any(int lock, const char *session, uint64_t first)
{
    const struct view *v = &all.lock[lock].view;
    for (size_t i = 0; i < v->nholders; i++)
        if (valid(&v->holder[i]) && is_from(&v->holder[i], session, first))
            return v->holder[i].token;
    /* What a late copy put into the queue is refused by its session when its turn comes. */
    for (size_t i = 0; i < v->nwaiters; i++)
        if (is_from(&v->waiter[i], session, first)
            && find_token(&all.again, v->waiter[i].token) == all.again.n)
            return v->waiter[i].token;
    return NULL;
}

static int server_of(const struct lock *l)
{
    return model_nodes == 1 ? 0 : slots_owner(slot_of(l->key, strlen(l->key)));
}

/* Does the server that has the lock see it? */
static bool present(const struct lock *l, int proc)
{
    return proc >= 0 && model_listeners(all.session[proc].channel[l - all.lock]) > 0;
}

/* How long a session has been absent, for the holders of a lock; -1: it is there. */
static int64_t absent_ms(const struct lock *l, int proc)
{
    if (proc < 0 || present(l, proc))
        return -1;
    int64_t since = all.session[proc].absent_ms[l - all.lock][server_of(l)];
    return since ? world_now() - since : -1;
}

/* Absence begins anew when somebody has looked at the lock meanwhile, and saw the session, or when
 * it looked after the lock itself: a holder does that before it relies on being back. */
static void watch_sessions(void)
{
    for (int i = 0; i < WORLD_PROCS; i++) {
        if (!all.session[i].proc)
            continue;
        for (int k = 0; k < all.nlocks; k++) {
            bool there = present(&all.lock[k], i);
            int at = server_of(&all.lock[k]);
            all.session[i].seen[k][at] |= there;
            if (!there && !all.session[i].absent_ms[k][at])
                all.session[i].absent_ms[k][at] = world_now();
        }
    }
}

static bool concerns(const struct lock *l)
{
    for (int i = 0; i < model->nkeys; i++)
        if (model->key[i].len == strlen(l->key)
            && memcmp(model->key[i].data, l->key, model->key[i].len) == 0)
            return true;
    return false;
}

/* A look of one whose place in the queue is gone, or who has the lock by now, asks for nobody. */
static bool looked(void)
{
    return model->op == OP_look && (model->said == 1 || model->said == 2);
}

static bool is_argument(const char *text)
{
    for (int i = model->nkeys; i < model->nkeys + model->nargs; i++)
        if (model->key[i].len == strlen(text)
            && memcmp(model->key[i].data, text, model->key[i].len) == 0)
            return true;
    return false;
}

/* The command asked for the hold that this process has now: a late copy may ask for an earlier one.
 * A holder whose lock was broken is told so, and that is all. */
static bool named_its_hold(const struct lock *l, int proc)
{
    for (size_t i = 0; i < l->view.nholders; i++)
        if (l->view.holder[i].proc == proc && !l->view.holder[i].broken
            && is_argument(l->view.holder[i].token))
            return true;
    return false;
}

static bool looked_after(const struct lock *l, int proc, int by)
{
    return looked() ? present(l, proc) : proc == by && named_its_hold(l, proc);
}

/* Absence begins anew, at the server that has the lock; or everywhere. */
static void begin_absence(int lock, int proc, bool everywhere)
{
    int64_t *at = all.session[proc].absent_ms[lock];
    if (everywhere)
        memset(at, 0, sizeof all.session[proc].absent_ms[lock]);
    at[server_of(&all.lock[lock])] = present(&all.lock[lock], proc) ? 0 : world_now();
}

static void notice_presence(int by)
{
    for (int k = 0; k < all.nlocks; k++) {
        if ((!looked() && model->op != OP_keep) || !concerns(&all.lock[k]))
            continue;
        for (int i = 0; i < WORLD_PROCS; i++)
            if (all.session[i].proc && looked_after(&all.lock[k], i, by)) {
                all.session[i].looked_at[k][server_of(&all.lock[k])] |= looked();
                begin_absence(k, i, !looked());
            }
    }
}

/* ---- what a command did ---------------------------------------------------------------------- */

/* A clock may be 1 % faster, and times are rounded. Absence counts after the holder was granted it,
 * or seen, in this life of the server; in a cluster, in this reign of it. */
static bool granted_here(const struct lock *l, const struct party *was)
{
    return was->fence > l->old_top && (model_nodes == 1 || l->reign_at == server_of(l));
}

static bool may_be_taken_over(const struct lock *l, const struct party *was)
{
    bool known = granted_here(l, was)
                 || (was->proc >= 0 && all.session[was->proc].seen[l - all.lock][server_of(l)]);
    return known && was->grace_ms > 0
           && absent_ms(l, was->proc) >= was->grace_ms - was->grace_ms / 50 - 5;
}

/* And has to be: its presence was noted, not only there for a moment in which nobody looked. */
static bool has_to_be_taken_over(const struct lock *l, const struct party *was)
{
    return may_be_taken_over(l, was)
           && (granted_here(l, was)
               || all.session[was->proc].looked_at[l - all.lock][server_of(l)]);
}

static void check_removed(const struct lock *l, const struct party *was, int by)
{
    if (was->proc == by || was->proc < 0 || is_lost(was->token))
        return;
    if ((model->op == OP_look || model->op == OP_break) && may_be_taken_over(l, was)) {
        judge_counts.takeovers++;
        return;
    }
    judge_wrong(3, "%s ended the hold of %s (client %d) for client %d, absent for %lld ms, grace "
                "%lld", op_name((enum op_id)model->op), was->token, was->proc, by,
                (long long)absent_ms(l, was->proc), (long long)was->grace_ms);
}

static void check_kept(const struct party *was, const struct party *is, int by)
{
    if (was->proc != by && was->proc >= 0 && was->ends_ms != is->ends_ms && !is_lost(was->token))
        judge_wrong(3, "%s of client %d moved the end of the hold of %s by %lld ms",
                    op_name((enum op_id)model->op), by, was->token,
                    (long long)(is->ends_ms - was->ends_ms));
    int64_t least = was->parts_ms < was->ends_ms ? was->parts_ms : was->ends_ms;
    if (was->proc != by && was->proc >= 0 && is->parts_ms && is->parts_ms < least
        && !is_lost(was->token))
        judge_wrong(3, "%s of client %d shortened a part of the hold of %s by %lld ms",
                    op_name((enum op_id)model->op), by, was->token,
                    (long long)(least - is->parts_ms));
}

/* Only who breaks it marks it; then its end does not move away, and a question moves nothing. */
static void check_marks(const struct party *was, const struct party *is)
{
    const char *op = op_name((enum op_id)model->op);
    if (is_lost(was->token))
        return;
    if (is->broken && !was->broken && model->op != OP_break)
        judge_wrong(3, "%s marked the hold of %s as broken", op, was->token);
    if (is->broken && was->broken && is->ends_ms > was->ends_ms)
        judge_wrong(3, "%s prolonged the hold of %s, which was broken", op, was->token);
    if (model->op == OP_ask && (is->ends_ms != was->ends_ms || is->weight != was->weight))
        judge_wrong(3, "a question changed the hold of %s", was->token);
}

static void note_late(const struct view *v, int by)
{
    bool asks = model->op == OP_acquire || model->op == OP_share;
    for (size_t i = 0; asks && world_late() && i < v->nwaiters; i++)
        if (v->waiter[i].proc == by)
            add_token(&all.again, v->waiter[i].token);
}

static void note_tickets(const struct view *v)
{
    for (size_t i = 0; i < v->nwaiters; i++) {
        size_t n = all.came.n;
        add_token(&all.came, v->waiter[i].token);
        if (n < all.came.n) /* so many never wait in one schedule */
            all.came.ticket[all.came.n - 1] = v->waiter[i].ticket;
    }
}

/* The ticket with which somebody got it: that of its first place. Who was not there when it came
 * lost its place in the same moment; it names its ticket when it comes back. 0: it has none. */
static double ticket_of(const struct party *got, int by)
{
    size_t at = find_token(&all.came, got->token);
    int old = model->op == OP_acquire ? 7 : model->op == OP_share ? 5 : 0;
    if (at < all.came.n)
        return all.came.ticket[at];
    return got->proc == by && old && old <= model->nargs
               ? strtod(model->key[model->nkeys + old - 1].data, NULL)
               : 0;
}

/* Who waited before, and waits on, is there, and came earlier. */
static void check_order(const struct lock *l, const struct view *was, const struct party *got,
                        int by)
{
    double ticket = ticket_of(got, by);
    for (size_t i = 0; i < l->view.nwaiters; i++) {
        const struct party *w = &l->view.waiter[i];
        const struct party *before = among(was->waiter, was->nwaiters, w->token);
        if (before && present(l, w->proc) && (ticket == 0 || before->ticket < ticket))
            judge_wrong(5, "%s was granted before %s, which had waited longer", got->token,
                        w->token);
    }
}

static void check_granted(struct lock *l, const struct view *was, const struct party *got,
                          uint64_t top, int by)
{
    size_t at = find_token(&all.gone, got->token);
    l->grant[l->ngrants % GRANTS_MAX].fence = got->fence;
    l->grant[l->ngrants++ % GRANTS_MAX].proc = got->proc;
    judge_counts.grants++;
    judge_counts.handovers += among(was->waiter, was->nwaiters, got->token) != NULL;
    if (got->fence <= top)
        judge_wrong(1, "number %llu of %s after %llu", (unsigned long long)got->fence, got->token,
                    (unsigned long long)top);
    if (got->fence > l->top)
        l->top = got->fence;
    /* A late copy of a request may have stood in the queue once more: its session refuses what is
     * handed to it, by another process or by another request of its own. */
    if (at < all.gone.n && (got->proc != by || !is_argument(got->token)))
        judge_counts.refused_grants++;
    else if (at < all.gone.n && all.gone.excused[at])
        judge_counts.excused_grants++;
    else if (at < all.gone.n)
        judge_wrong(7, "%s was granted, which had been given up", got->token);
    if (got->proc != by && !present(l, got->proc))
        judge_wrong(4, "%s handed it to %s, which is not there", op_name((enum op_id)model->op),
                    got->token);
    check_order(l, was, got, by);
}

static void check_together(const struct lock *l)
{
    unsigned used = 0;
    size_t alone = 0, n = 0;
    for (size_t i = 0; i < l->view.nholders; i++) {
        if (!valid(&l->view.holder[i]))
            continue;
        n++;
        alone += l->view.holder[i].weight == 0;
        used += l->view.holder[i].weight;
    }
    if ((alone && n > 1) || (l->limit && used > l->limit))
        judge_wrong(2, "the server has %zu holders of %s, %zu alone, %u of %u", n, l->key, alone,
                    used, l->limit);
}

static void compare(struct lock *l, const struct view *was, int by)
{
    uint64_t top = l->top;
    for (size_t i = 0; i < was->nholders; i++) {
        const struct party *old = &was->holder[i], *now = holder(l, old->token);
        if (!valid(old))
            continue;
        if (!now)
            check_removed(l, old, by);
        else
            check_kept(old, now, by);
        if (now)
            check_marks(old, now);
        else if (model->op == OP_ask)
            judge_wrong(3, "a question ended the hold of %s", old->token);
    }
    for (size_t i = 0; i < l->view.nholders; i++) {
        const struct party *now = &l->view.holder[i];
        const struct party *old = among(was->holder, was->nholders, now->token);
        if (valid(now) && (!old || !valid(old) || old->fence != now->fence))
            check_granted(l, was, now, top, by);
    }
    check_together(l);
}

static bool endless(const struct entry *e)
{
    size_t n = e->key.len;
    return (n > 6 && strcmp(e->key.p + n - 6, ":fence") == 0)
           || (n > 6 && strcmp(e->key.p + n - 6, ":reign") == 0);
}

/* A slot that moves brings its reign along; at another server a new one begins with a greeting.
 * What was granted before does not count as granted here. */
static void notice_reign(void)
{
    if (model_nodes == 1 || model->op != OP_hello || model->said != 1)
        return;
    unsigned slot = slot_of(model->key[0].data, model->key[0].len);
    for (int i = 0; i < all.nlocks; i++)
        if (slot_of(all.lock[i].key, strlen(all.lock[i].key)) == slot) {
            int at = (int)(model - model_node);
            all.lock[i].old_top = all.lock[i].top;
            all.lock[i].reign_at = at;
            for (int k = 0; k < WORLD_PROCS; k++) { /* what was seen was in an earlier reign */
                all.session[k].seen[i][at] = all.session[k].proc && present(&all.lock[i], k);
                all.session[k].looked_at[i][at] = false;
                if (all.session[k].proc)
                    begin_absence(i, k, false);
            }
        }
}

/* No key may be on two servers. */
static void check_places(void)
{
    const struct store *s = &model->store, *other = &model_node[model == model_node].store;
    for (size_t i = 0; i < s->n; i++) {
        hf_bytes key = { s->entry[i]->key.p, s->entry[i]->key.len };
        if (store_find((struct store *)s, key, model_now_ms())
            && store_find((struct store *)other, key, model_now_ms()))
            judge_wrong(2, "%s is on both servers after %s", s->entry[i]->key.p,
                        op_name((enum op_id)model->op));
    }
}

static void after_command(int by)
{
    static struct view was;
    watch_sessions();
    if (model->op < 0)
        return;
    notice_reign();
    if (model->errors) {
        judge_wrong(8, "the script %s ended with an error: %s",
                    op_name((enum op_id)model->op), model->error);
        model->errors = 0;
    }
    for (int i = 0; i < all.nlocks; i++) {
        was = all.lock[i].view;
        read_view(&all.lock[i], &all.lock[i].view);
        compare(&all.lock[i], &was, by);
        note_tickets(&all.lock[i].view);
        note_late(&all.lock[i].view, by);
    }
    notice_presence(by);
    if (model_nodes > 1)
        check_places();
    const struct store *s = &model->store;
    for (size_t i = 0; i < s->n; i++)
        if (s->entry[i]->ends_ms == STORE_NO_TTL && !endless(s->entry[i]))
            judge_wrong(6, "%s has no ttl after %s", s->entry[i]->key.p,
                        op_name((enum op_id)model->op));
}

/* ---- faults ---------------------------------------------------------------------------------- */

void judge_before_fault(void)
{
    for (int i = 0; i < all.nlocks; i++)
        read_view(&all.lock[i], &all.lock[i].view);
}

void judge_after_fault(void)
{
    static struct view was;
    all.reign_gone |= model_nodes == 1 && !model_find(hf_str("lock:holdfast:reign"));
    for (int i = 0; i < all.nlocks; i++) {
        struct lock *l = &all.lock[i];
        was = l->view;
        read_view(l, &l->view);
        for (size_t k = 0; k < was.nholders; k++) {
            const struct party *now = holder(l, was.holder[k].token);
            if (!now || now->ends_ms < was.holder[k].ends_ms || now->weight != was.holder[k].weight
                || now->fence != was.holder[k].fence)
                add_token(&all.lost, was.holder[k].token);
        }
        /* What comes back from the past may stand beside what was granted since. */
        for (size_t k = 0; k < l->view.nholders; k++)
            if (!among(was.holder, was.nholders, l->view.holder[k].token))
                add_token(&all.lost, l->view.holder[k].token);
        for (size_t k = 0; k < l->view.nwaiters; k++)
            if (!among(was.waiter, was.nwaiters, l->view.waiter[k].token))
                add_token(&all.lost, l->view.waiter[k].token);
    }
    for (size_t i = 0; i < all.gone.n; i++)
        all.gone.excused[i] = true;
    all.loss_ms = world_now();
    watch_sessions();
}

bool judge_lossy(void)
{
    return all.loss_ms != 0;
}

int judge_granted_to(int lock, uint64_t fence)
{
    const struct lock *l = &all.lock[lock];
    for (size_t i = 0; i < GRANTS_MAX && i < l->ngrants; i++)
        if (l->grant[i].fence == fence)
            return l->grant[i].proc;
    return -1;
}

uint64_t judge_value_term(int lock)
{
    char key[120];
    snprintf(key, sizeof key, "{%s}:v", all.lock[lock].key);
    const struct entry *e = find(key);
    return e ? strtoull(e->string.p, NULL, 10) : 0;
}

uint64_t judge_fence(int lock, uint64_t chance)
{
    const struct view *v = &all.lock[lock].view;
    const struct party *p = v->nholders ? &v->holder[chance % v->nholders] : NULL;
    return p && valid(p) ? p->fence : 0;
}

void judge_excuse(int lock, uint64_t fence)
{
    const struct view *v = &all.lock[lock].view;
    for (size_t i = 0; i < v->nholders; i++)
        if (v->holder[i].fence == fence)
            add_token(&all.lost, v->holder[i].token);
}

static bool believes(const struct handle *h);

void judge_passed(int lock, uint64_t fence)
{
    const struct view *v = &all.lock[lock].view;
    for (size_t i = 0; i < v->nholders; i++)
        if (v->holder[i].fence == fence && valid(&v->holder[i]) && !is_lost(v->holder[i].token))
            judge_wrong(7, "%s was told as passed, and the server has it for %s",
                        all.lock[lock].key, v->holder[i].token);
    for (size_t i = 0; i < all.nhandles; i++)
        if (all.handle[i].lock == lock && believes(&all.handle[i])
            && all.handle[i].m->lease.grant.fence == fence
            && !is_lost(all.handle[i].m->lease.grant.token))
            judge_wrong(2, "%s was told as passed, and client %d believes in it",
                        all.lock[lock].key, all.handle[i].proc->id);
}

void judge_shake(void)
{
    for (int i = 0; i < all.nlocks; i++)
        for (size_t k = 0; k < all.lock[i].view.nholders; k++)
            add_token(&all.lost, all.lock[i].view.holder[k].token);
    for (size_t i = 0; i < all.gone.n; i++)
        all.gone.excused[i] = true;
}

void judge_new_life(int server)
{
    for (int k = 0; k < all.nlocks; k++) {
        bool here = server_of(&all.lock[k]) == server;
        for (int i = 0; i < WORLD_PROCS; i++) {
            all.session[i].seen[k][server] = all.session[i].looked_at[k][server] = false;
            all.session[i].absent_ms[k][server] = here && all.session[i].proc ? world_now() : 0;
        }
        if (here)
            all.lock[k].old_top = all.lock[k].top;
    }
}

void judge_disturbed(int64_t ms)
{
    if (world_now() + ms > all.calm_ms)
        all.calm_ms = world_now() + ms;
}

/* ---- what the clients believe ---------------------------------------------------------------- */

static bool believes(const struct handle *h)
{
    return !h->proc->dead && lease_believed(&h->m->lease, world_local(h->proc, world_now()));
}

static bool net_works(void)
{
    return !world_net.slow && !world_net.cut && !world_net.lose && !world_net.silence;
}

/* A slot that moves disturbs for as long as it does. */
static bool undisturbed(void)
{
    return world_now() >= all.calm_ms && !(model_nodes > 1 && slots_moving());
}

bool judge_calm(void)
{
    return undisturbed() && net_works();
}

bool judge_calm_for(int64_t ms)
{
    return (all.calm_ms == 0 || world_now() >= all.calm_ms + ms) && judge_calm();
}

/* Who is there, and undisturbed, hears soon that its lock was broken: from its session's channel;
 * one that had no session then reads the mark at its next renewal (docs/break.md). */
static void check_told(struct handle *h, const struct party *p)
{
    int64_t now = world_now();
    if (!p || !p->broken || !judge_calm() || h->proc->frozen_until || is_lost(p->token)) {
        h->told_by_ms = 0;
    } else if (!h->told_by_ms) {
        bool there = present(&all.lock[h->lock], h->proc->id);
        h->told_by_ms = now + TOLD_MS + (there ? 0 : h->m->lease.ttl_ms / 3);
    } else if (now > h->told_by_ms) {
        judge_wrong(4, "client %d still believes in %s, which was broken over %d ms ago",
                    h->proc->id, all.lock[h->lock].key, TOLD_MS);
        h->told_by_ms = 0;
    }
}

static void check_belief(struct handle *h)
{
    const struct lock *l = &all.lock[h->lock];
    const char *token = h->m->lease.grant.token;
    const struct party *p = holder(l, token);
    if (h->believed != h->m->lease.grant.fence)
        world_tell("client %d believes that it holds %s, number %llu", h->proc->id, l->key,
                   (unsigned long long)h->m->lease.grant.fence);
    h->believed = h->m->lease.grant.fence;
    check_told(h, p);
    if (p && p->fence == h->believed)
        return;
    if (is_lost(token))
        judge_counts.excused_beliefs++;
    else
        judge_wrong(2, "client %d believes that it holds %s as %s, and the server does not know",
                    h->proc->id, l->key, token);
}

/* Nobody is told that a lock is lost which the server has for it. */
static void check_loss(struct handle *h)
{
    const struct lease *lease = &h->m->lease;
    bool lost = lease_state(lease) == HF_STATE_LOST;
    hf_loss why = (hf_loss)atomic_load(&lease->loss);
    const struct party *p = holder(&all.lock[h->lock], lease->grant.token);
    if (lost && !h->lost && !h->proc->dead && (why == HF_LOSS_TAKEN || why == HF_LOSS_RELEASED) && p
        && !p->broken && p->fence == lease->grant.fence && !is_lost(lease->grant.token))
        judge_wrong(7, "client %d was told that %s is lost, and the server has it for it",
                    h->proc->id, all.lock[h->lock].key);
    h->lost = lost;
}

static void watch_beliefs(void)
{
    unsigned used[JUDGE_LOCKS] = { 0 }, n[JUDGE_LOCKS] = { 0 }, alone[JUDGE_LOCKS] = { 0 };
    for (size_t i = 0; i < all.nhandles; i++) {
        struct handle *h = &all.handle[i];
        check_loss(h);
        if (!believes(h)) {
            if (h->believed)
                world_tell("client %d does not believe any more that it holds %s", h->proc->id,
                           all.lock[h->lock].key);
            h->believed = 0;
            continue;
        }
        check_belief(h);
        if (is_lost(h->m->lease.grant.token))
            continue;
        n[h->lock]++;
        alone[h->lock] += h->weight == 0;
        used[h->lock] += h->weight;
    }
    for (int i = 0; i < all.nlocks; i++)
        if ((alone[i] && n[i] > 1) || (all.lock[i].limit && used[i] > all.lock[i].limit))
            judge_wrong(2, "%u believe at once that they hold %s, %u alone", n[i],
                        all.lock[i].key, alone[i]);
}

/* Since when could somebody who is there see to it that a lock is handed over? The network has kept
 * it waiting before that. WORLD_NEVER: nobody is there. */
static int64_t seen_to_since(const struct lock *l)
{
    int64_t since = WORLD_NEVER;
    for (size_t i = 0; i < l->view.nwaiters; i++) {
        int id = l->view.waiter[i].proc;
        const struct world_proc *p = id < 0 ? NULL : all.session[id].proc;
        if (present(l, id) && !all.session[id].closed && p->frozen_until <= world_now()
            && p->troubled_ms < since)
            since = p->troubled_ms;
    }
    return since;
}

/* Could it be handed over? It is free, or its holders are gone for good, and somebody is there.
 * After FLUSHALL nobody is known to be gone before somebody connects anew (docs/guarantees.md). */
static bool could_be_handed(const struct lock *l)
{
    if (seen_to_since(l) > world_now())
        return false;
    for (size_t i = 0; i < l->view.nholders; i++) {
        const struct party *p = &l->view.holder[i];
        if (valid(p) && (all.reign_gone || !has_to_be_taken_over(l, p) || p->fence == 0))
            return false;
    }
    return true;
}

static void watch_liveness(void)
{
    for (int i = 0; i < all.nlocks; i++) {
        struct lock *l = &all.lock[i];
        if (!undisturbed() || !could_be_handed(l))
            l->idle_ms = 0;
        else if (!l->idle_ms) {
            l->idle_ms = world_now();
            judge_counts.could_be_handed++;
        }
        else if (seen_to_since(l) > l->idle_ms)
            l->idle_ms = seen_to_since(l);
        else if (world_now() - l->idle_ms > SETTLE_MS) {
            judge_wrong(4, "%s could be handed over for %d ms, and is not", l->key, SETTLE_MS);
            l->idle_ms = 0;
        }
    }
}

static void watch(void)
{
    watch_sessions();
    watch_beliefs();
    watch_liveness();
    if (all.also)
        all.also();
}

void judge_watch(void (*fn)(void))
{
    all.also = fn;
}

/* ---- begin and end --------------------------------------------------------------------------- */

void judge_begin(void)
{
    memset(&all, 0, sizeof all);
    memset(&judge_verdict, 0, sizeof judge_verdict);
    world_on_command(after_command);
    world_watch(watch);
}

int judge_add_lock(const char *key, enum judge_kind kind, unsigned limit)
{
    CHECK(all.nlocks < JUDGE_LOCKS);
    struct lock *l = &all.lock[all.nlocks];
    *l = (struct lock){ .kind = kind, .limit = limit };
    snprintf(l->key, sizeof l->key, "%s", key);
    snprintf(l->queue, sizeof l->queue, "{%s}:q", key);
    snprintf(l->own, sizeof l->own, "{%s}:own", key);
    snprintf(l->holders, sizeof l->holders, "{%s}:h", key);
    snprintf(l->details, sizeof l->details, "{%s}:d", key);
    snprintf(l->breaks, sizeof l->breaks, "{%s}:x", key);
    return all.nlocks++;
}

void judge_add_session(const struct world_proc *p, const char *session)
{
    all.session[p->id].proc = p;
    snprintf(all.session[p->id].session, sizeof all.session[0].session, "%s", session);
    world_name_session(p->id, session);
}

void judge_add_channel(const struct world_proc *p, int lock, const char *channel)
{
    snprintf(all.session[p->id].channel[lock], sizeof all.session[0].channel[0], "%s", channel);
}

void judge_close_session(const struct world_proc *p)
{
    all.session[p->id].closed = true;
}

void judge_add_handle(const hf_lock *m, const struct world_proc *p, int lock, unsigned weight)
{
    CHECK(all.nhandles < JUDGE_HANDLES);
    all.handle[all.nhandles++] = (struct handle){ .m = m, .proc = p, .lock = lock,
                                                  .weight = weight };
}

void judge_weigh(const hf_lock *m, unsigned weight)
{
    for (size_t i = 0; i < all.nhandles; i++)
        if (all.handle[i].m == m)
            all.handle[i].weight = weight;
}

void judge_forget(const hf_lock *m)
{
    for (size_t i = all.nhandles; i-- > 0;)
        if (all.handle[i].m == m)
            all.handle[i] = all.handle[--all.nhandles];
}

void judge_end(void)
{
    for (int i = 0; i < all.nlocks; i++)
        if (find(all.lock[i].key))
            judge_wrong(6, "%s is left, and nobody holds it", all.lock[i].key);
    for (int k = 0; k < model_nodes; k++) {
        const struct store *s = &model_node[k].store;
        for (size_t i = 0; i < s->n; i++)
            if (!endless(s->entry[i]) && s->entry[i]->ends_ms > model_now_ms())
                judge_wrong(6, "%s is left at the end", s->entry[i]->key.p);
    }
}
