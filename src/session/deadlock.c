/* SPDX-License-Identifier: MIT
 * deadlock.c - a wait that would never end is found, and one of those in the circle gives up.
 *
 *      wait -> say             [say]     every second: beside each lock that is held
 *      say -> look -> wait     [look]    no circle, or others are to give up
 *      look -> look -> found   [look]    twice the same
 */
#include "session/deadlock.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "session/waitgraph.h"

#define FIRST_MS   1000 /* nobody is asked before */
#define AGAIN_MS   60   /* between two looks that have to agree */
#define OFTEN_MS   10000 /* so long every second, then */
#define SELDOM_MS  5000
#define VALID_MS   3000 /* past the next time that it is said */
#define ASK_MS     1000 /* for one question */
#define HELD_MAX   200  /* locks that are held */
#define PAGE       500  /* waiters in one answer */
#define STEPS_MAX  1000 /* questions in one look */
#define TOLD_MAX   6    /* of a circle in words */
#define LAST_WORDS 180  /* room for the last of them */
#define KNOWN_MS   200  /* then a session has said who it is */

/* A lock that whoever waits has. */
struct holding {
    struct lock_keys *keys;
    char              holder[TOKEN_SIZE]; /* its token, or # and its number */
    bool              said;
};

struct deadlock {
    struct deadlock_of of;
    step_at            at, look_at;
    int64_t            next_ms, pause_until_ms;
    unsigned           rounds;
    atomic_int         stop;     /* what is under way is of no interest any more */
    bool               off, found, ending;
    bool               itself;   /* it waits for what it has */
    int64_t            farewell_ms;

    struct holding    *held;
    size_t             nheld, from, to;
    int64_t            since_ms; /* by the server's clock; 0: not known yet */
    char               token[TOKEN_SIZE];

    struct op         *op;       /* under way: so many */
    size_t             nops;

    struct waitgraph  *graph;
    size_t             lock, page, steps;
    struct lock_keys  *keys;     /* of the lock that is asked about */
    unsigned           looks;
    uint64_t           signature;
    struct waitgraph_verdict verdict;
    bool               circle;

    struct record_reading record;
    bool               reading, waited;
    size_t             hop;
    hf_party          *party[TOLD_MAX];
    char               words[sizeof ((hf_error *)0)->message];
};

/* ---- beginning ---------------------------------------------------------------------------- */

static hf_bytes wanted_key(const struct deadlock *d)
{
    return d->of.a->take.keys->key[KEY_LOCK];
}

static bool inherits(const struct deadlock_of *of)
{
    return of->thread && exec_can(of->c->exec, EXEC_EDGES)
           && inherited_has(of->c->inherited, of->a->take.keys->key[KEY_LOCK]);
}

int64_t deadlock_due(const struct deadlock_of *of)
{
    if (of->c->no_deadlock || (!of->thread && !of->owner.len))
        return CLOCK_NEVER;
    return inherits(of) ? of->begun_ms : clock_add(of->begun_ms, FIRST_MS);
}

struct deadlock *deadlock_new(const struct deadlock_of *of)
{
    struct deadlock *d = mem_zalloc(sizeof *d);
    if (d)
        d->of = *of;
    return d;
}

/* ---- asking ------------------------------------------------------------------------------- */

/* No question outlasts the wait, by its deadline or by who ends it: whoever asks may be the one who
 * connects to the server, and does nothing else meanwhile. */
static int64_t ask_until(const struct deadlock *d)
{
    return clock_earlier(clock_now_ms() + ASK_MS, d->of.deadline_ms);
}

static void ask(struct deadlock *d, struct op *op, size_t n)
{
    d->op = op;
    d->nops = n;
    exec_begin_all(d->of.c->exec, op, n, d->of.task);
}

static bool answered(struct deadlock *d)
{
    return exec_step_all(d->of.c->exec, d->op, d->nops);
}

static void asked(struct deadlock *d)
{
    for (size_t i = 0; i < d->nops; i++)
        op_clear(&d->op[i]);
    mem_free(d->op);
    d->op = NULL;
    d->nops = 0;
}

bool deadlock_asks(const struct deadlock *d)
{
    return d->nops > 0 || d->reading;
}

static bool paused(struct deadlock *d)
{
    task_due(d->of.task, d->pause_until_ms);
    return clock_now_ms() < d->pause_until_ms;
}

/* ---- what is held ------------------------------------------------------------------------- */

static void forget_held(struct deadlock *d)
{
    for (size_t i = 0; i < d->nheld; i++)
        keys_free(d->held[i].keys);
    mem_free(d->held);
    d->held = NULL;
    d->nheld = 0;
}

static void add_held(struct deadlock *d, hf_bytes name, const char *token, uint64_t fence)
{
    struct holding *h = &d->held[d->nheld];
    *h = (struct holding){ 0 };
    if (client_keys(d->of.c, name, &h->keys, NULL))
        return;
    if (token)
        memcpy(h->holder, token, sizeof h->holder);
    else
        snprintf(h->holder, sizeof h->holder, "#%llu", (unsigned long long)fence);
    d->nheld++;
}

/* By us: and whether what we wait for is among it, so that nobody has to be asked. */
static bool list_own(struct deadlock *d)
{
    AUTO(mem_freep) struct keeper_holding *own = mem_alloc(HELD_MAX * sizeof *own);
    const struct op_take *take = &d->of.a->take;
    hf_bytes wanted = take->keys->name;
    bool itself = false;
    size_t n = own ? keeper_held(d->of.c->keeper, d->of.thread, d->of.owner, false, own, HELD_MAX)
                   : 0;
    for (size_t i = 0; i < n; i++) {
        hf_bytes name = { own[i].name, own[i].name_len };
        itself |= name.len == wanted.len && memcmp(name.data, wanted.data, name.len) == 0
                  && (!own[i].shared || take->weight == 0);
        add_held(d, name, own[i].token, 0);
        mem_free(own[i].name);
    }
    return itself;
}

static void list_inherited(struct deadlock *d)
{
    const struct inherited *in = d->of.thread ? d->of.c->inherited : NULL;
    const char *prefix = d->of.c->prefix;
    size_t skip = strlen(prefix);
    for (size_t i = 0; in && i < in->n; i++) {
        hf_bytes key = in->lock[i].key;
        if (key.len > skip && memcmp(key.data, prefix, skip) == 0)
            add_held(d, (hf_bytes){ (const char *)key.data + skip, key.len - skip }, NULL,
                     in->lock[i].fence);
    }
}

static bool list_held(struct deadlock *d)
{
    forget_held(d);
    d->held = mem_alloc((HELD_MAX + INHERITED_MAX) * sizeof *d->held);
    if (!d->held)
        return false;
    bool itself = list_own(d);
    list_inherited(d);
    return itself;
}

/* ---- saying so ---------------------------------------------------------------------------- */

static int64_t period_ms(const struct deadlock *d)
{
    static const int64_t first[] = { 250, 250, 500 };
    if (d->rounds < sizeof first / sizeof first[0])
        return first[d->rounds];
    return clock_now_ms() - d->of.begun_ms < OFTEN_MS ? 1000 : SELDOM_MS;
}

static struct op edge_op(struct deadlock *d, const struct holding *h, int64_t valid_ms)
{
    int64_t now = clock_now_ms();
    return (struct op){ .id = OP_edge,
                        .edge = { .keys = h->keys, .holder = h->holder, .token = d->token,
                                  .key = wanted_key(d), .valid_ms = valid_ms,
                                  .waited_ms = now - d->of.begun_ms, .since_ms = d->since_ms },
                        .deadline_ms = valid_ms ? ask_until(d) : now + d->farewell_ms,
                        .stop = valid_ms ? d->of.a->stop : NULL };
}

/* Beside held[from] to held[to]. */
static void say(struct deadlock *d, int64_t valid_ms)
{
    size_t n = 0;
    struct op *op = d->to > d->from ? mem_alloc((d->to - d->from) * sizeof *op) : NULL;
    for (size_t i = d->from; op && i < d->to; i++) {
        if (!valid_ms && !d->held[i].said)
            continue;
        d->held[i].said = true;
        op[n++] = edge_op(d, &d->held[i], valid_ms);
    }
    ask(d, op, n);
}

/* Whoever may not say so, or not look, is of no use to anybody. */
static void note_refusal(struct deadlock *d, const struct op *op)
{
    bool refused = op->result == HF_EAUTH || op->result == HF_ENOTSUP;
    if (refused && !d->off)
        log_to(&d->of.c->log, HF_LOG_INFO, "deadlocks are not found: %s",
               hf_err_text(op->result));
    d->off |= refused;
}

static void heard(struct deadlock *d)
{
    for (size_t i = 0; i < d->nops; i++) {
        const struct op *op = &d->op[i];
        struct holding *h = &d->held[d->from + i];
        h->said = op->result == HF_EUNSURE || (!op->result && op->got.edged.held);
        if (!op->result && op->got.edged.held && !d->since_ms)
            d->since_ms = op->got.edged.since_ms;
        note_refusal(d, op);
    }
    asked(d);
}

/* ---- looking ------------------------------------------------------------------------------ */

static bool begin_look(struct deadlock *d)
{
    waitgraph_free(d->graph);
    d->verdict = (struct waitgraph_verdict){ 0 };
    d->circle = false;
    d->lock = d->page = d->steps = 0;
    d->graph = waitgraph_new();
    return d->graph && waitgraph_lock(d->graph, wanted_key(d)) == 0;
}

/* The next one, if its key can be a lock of ours. What is on the server may be anything. */
static bool ask_edges(struct deadlock *d)
{
    hf_bytes key = waitgraph_key(d->graph, d->lock);
    size_t skip = strlen(d->of.c->prefix);
    struct op *op = NULL;
    if (keys_is_lock(d->of.c->prefix, key)
        && client_keys(d->of.c, (hf_bytes){ (const char *)key.data + skip, key.len - skip },
                       &d->keys, NULL) == HF_OK)
        op = mem_zalloc(sizeof *op);
    if (!op) {
        d->keys = keys_free(d->keys);
        return false;
    }
    *op = (struct op){ .id = OP_edges,
                       .edges = { .keys = d->keys, .from = d->page * PAGE, .max = PAGE },
                       .deadline_ms = ask_until(d), .stop = d->of.a->stop };
    ask(d, op, 1);
    return true;
}

/* What was told; true: of this lock there is more. */
static bool take_edges(struct deadlock *d)
{
    const struct op_edges_found *got = &d->op->got.edges_found;
    bool more = false;
    if (!d->op->result) {
        size_t edges = d->page == 0 ? op_list_len(got->edges) : 0;
        waitgraph_limit(d->graph, d->lock, got->limit);
        for (size_t i = 0; i + 2 < edges; i += 3)
            waitgraph_edge(d->graph, d->lock, op_list_at(got->edges, i).data,
                           op_list_at(got->edges, i + 1).data, op_list_at(got->edges, i + 2));
        for (size_t i = 0; i < op_list_len(got->waiters); i++)
            waitgraph_waiter(d->graph, d->lock, op_list_at(got->waiters, i).data);
        more = got->nwaiters > (long long)(d->page + 1) * PAGE;
    }
    note_refusal(d, d->op);
    asked(d);
    d->keys = keys_free(d->keys);
    return more;
}

/* Once through the graph. */
static bool look(struct deadlock *d)
{
    STEP_BEGIN(d->look_at);
    if (!begin_look(d))
        STEP_RETURN(d->look_at);
    for (; d->lock < waitgraph_locks(d->graph) && d->steps < STEPS_MAX; d->lock++) {
        for (d->page = 0; d->steps++ < STEPS_MAX && ask_edges(d); d->page++) {
            STEP_UNTIL(d->look_at, answered(d));
            if (!take_edges(d))
                break;
        }
    }
    d->circle = waitgraph_judge(d->graph, d->token, &d->verdict);
    STEP_END(d->look_at);
}

/* ---- in words ----------------------------------------------------------------------------- */

/* By which session a hop is known to people. */
static const char *token_of(const struct waitgraph_hop *h)
{
    return h->holder ? h->holder : h->waiter;
}

static bool is_ours(const struct deadlock *d, const char *token)
{
    return client_sequence_of(d->of.c, token) != 0;
}

/* Where it is kept who the party of a hop is: of the first ones, and of the last. */
static size_t kept_at(size_t hop)
{
    return hop < TOLD_MAX - 1 ? hop : TOLD_MAX - 1;
}

static bool ask_who(struct deadlock *d)
{
    char session[33];
    const char *token = token_of(&d->verdict.hop[d->hop]);
    bool told = d->hop < TOLD_MAX - 1 || d->hop + 1 == d->verdict.nhops;
    hf_party **party = &d->party[kept_at(d->hop)];
    if (!told || is_ours(d, token) || strcspn(token, ".") != 32
        || !(*party = mem_zalloc(sizeof **party)))
        return false;
    memcpy(session, token, 32);
    session[32] = '\0';
    if (record_read_begin(&d->record, d->of.c->prefix, session, 0, false, 0, *party,
                          ask_until(d), NULL))
        return false;
    d->record.op.task = d->of.task;
    d->record.op.stop = d->of.a->stop;
    exec_begin(d->of.c->exec, &d->record.op);
    return d->reading = true;
}

/* False: it may be too early for that. Once; then its session's digits have to do. */
static bool told_who(struct deadlock *d)
{
    d->reading = false;
    hf_err e = record_read_end(&d->record);
    hf_party **party = &d->party[kept_at(d->hop)];
    if (e || (*party)->host || d->waited)
        return true;
    d->waited = true;
    record_party_free(*party);
    *party = NULL;
    return false;
}

/* Anybody may have written it. */
static void plain(char *ret, size_t size, const char *text)
{
    snprintf(ret, size, "%.60s", text);
    for (char *p = ret; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
}

static void name_party(const struct deadlock *d, size_t hop, char *ret, size_t size)
{
    const hf_party *p = d->party[kept_at(hop)];
    char program[64], host[64];
    bool last = hop + 1 == d->verdict.nhops;
    if (is_ours(d, token_of(&d->verdict.hop[hop]))) {
        snprintf(ret, size, "%sthis process", last ? "" : "another thread of ");
    } else if (p && p->program && p->host) {
        plain(program, sizeof program, p->program);
        plain(host, sizeof host, p->host);
        snprintf(ret, size, "%s (pid %lld on %s)", program, (long long)p->pid, host);
    } else {
        snprintf(ret, size, "session %.8s", token_of(&d->verdict.hop[hop]));
    }
}

static const char *name_lock(const struct deadlock *d, size_t lock, char *ret, size_t size)
{
    hf_bytes key = waitgraph_key(d->graph, lock);
    size_t skip = strlen(d->of.c->prefix);
    return err_quote(ret, size, (const char *)key.data + skip, key.len - skip);
}

/* Behind what is there, if there is room. */
static bool add(char *words, size_t size, const char *more)
{
    size_t used = strlen(words), len = strlen(more);
    bool fits = used + len < size;
    if (fits)
        memcpy(words + used, more, len + 1);
    return fits;
}

/* "b", held by sh (pid 7 on h) */
static bool add_hop(struct deadlock *d, size_t hop, size_t room)
{
    const struct waitgraph_hop *h = &d->verdict.hop[hop];
    bool last = hop + 1 == d->verdict.nhops;
    char part[400], who[160], name[80];
    name_party(d, hop, who, sizeof who);
    bool under = last && !is_ours(d, token_of(h));
    snprintf(part, sizeof part, "%s%s, %s by %s%s%s", name_lock(d, h->lock, name, sizeof name),
             h->behind && h->holder ? " behind others" : "",
             h->holder ? "held" : "first asked for", who, under ? ", under which it runs" : "",
             last ? "" : ", which waits for ");
    return add(d->words, room, part);
}

/* Of a long circle the beginning and the end. */
static void write_words(struct deadlock *d)
{
    static const char end[] = "; this wait began last, and is given up";
    size_t n = d->verdict.nhops, told = 0, most = sizeof d->words - sizeof end;
    char part[80];
    snprintf(d->words, sizeof d->words, "a deadlock: this process waits for ");
    while (told + 1 < n && told < TOLD_MAX - 1 && add_hop(d, told, most - LAST_WORDS))
        told++;
    if (told + 1 < n) {
        snprintf(part, sizeof part, "... (%zu more, the last of which waits for) ", n - told - 1);
        (void)add(d->words, most, part);
    }
    (void)add_hop(d, n - 1, most);
    (void)add(d->words, sizeof d->words, end);
}

/* It waits for what it has itself: nobody has to be asked. */
static void write_own_words(struct deadlock *d)
{
    char name[120];
    hf_bytes wanted = d->of.a->take.keys->name;
    snprintf(d->words, sizeof d->words, "a deadlock: this thread waits for %s, which it holds "
             "itself with another handle", err_quote(name, sizeof name, wanted.data, wanted.len));
}

hf_err deadlock_tell(const struct deadlock *d, hf_error *reterr)
{
    return err_set(reterr, HF_EDEADLK, "%s", d->words);
}

/* ---- step by step ------------------------------------------------------------------------- */

/* Two looks, the second when the first is complete: do they agree? */
static bool agree(struct deadlock *d)
{
    bool same = d->looks > 0 && d->verdict.signature == d->signature;
    d->signature = d->verdict.signature;
    return same;
}

static bool round_step(struct deadlock *d)
{
    STEP_BEGIN(d->at);
    d->itself = list_held(d);
    if (!exec_can(d->of.c->exec, EXEC_EDGES)) {
        d->found = d->itself;
        write_own_words(d);
        STEP_RETURN(d->at);
    }
    memcpy(d->token, d->of.a->take.token, sizeof d->token);
    for (d->from = 0; d->from < d->nheld && !d->off; d->from = d->to) {
        d->to = d->since_ms ? d->nheld : d->from + 1; /* the first one learns since when */
        say(d, period_ms(d) + VALID_MS);
        STEP_UNTIL(d->at, answered(d));
        heard(d);
    }
    if (!d->since_ms || d->off)
        STEP_RETURN(d->at); /* nothing is held */
    for (d->looks = 0; d->looks < 2; d->looks++) {
        d->pause_until_ms = clock_now_ms() + (d->looks ? AGAIN_MS : 0);
        STEP_UNTIL(d->at, !paused(d));
        STEP_UNTIL(d->at, look(d));
        if (!d->circle)
            STEP_RETURN(d->at);
        d->found = agree(d);
    }
    if (!d->found)
        STEP_RETURN(d->at);
    d->found = false;
    for (d->hop = 0; d->hop < d->verdict.nhops; d->hop++) {
        while (ask_who(d)) {
            STEP_UNTIL(d->at, exec_step(d->of.c->exec, &d->record.op));
            if (told_who(d))
                break;
            d->pause_until_ms = clock_now_ms() + KNOWN_MS;
            STEP_UNTIL(d->at, !paused(d));
        }
    }
    write_words(d);
    d->found = true;
    STEP_END(d->at);
}

bool deadlock_step(struct deadlock *d)
{
    if (d->found || d->off)
        return d->found;
    if (d->at == 0 && clock_now_ms() < d->next_ms) {
        task_due(d->of.task, d->next_ms);
        return false;
    }
    if (!round_step(d))
        return false;
    d->next_ms = clock_now_ms() + period_ms(d);
    d->rounds++;
    if (!d->found)
        task_due(d->of.task, d->next_ms);
    return d->found;
}

static void clear(struct deadlock *d)
{
    forget_held(d);
    waitgraph_free(d->graph);
    keys_free(d->keys);
    for (size_t i = 0; i < TOLD_MAX; i++)
        record_party_free(d->party[i]);
    mem_free(d);
}

/* Whoever steps it is told: that is us. */
static void stop_asking(struct deadlock *d)
{
    atomic_store(&d->stop, 1);
    for (size_t i = 0; i < d->nops; i++)
        d->op[i].stop = &d->stop;
    if (d->reading)
        d->record.op.stop = &d->stop;
}

/* What is under way is ended, then what was said is taken back. */
static bool farewell(struct deadlock *d)
{
    if (!d->ending) {
        d->ending = true;
        d->at = 0;
        stop_asking(d);
    }
    STEP_BEGIN(d->at);
    if (d->nops) {
        STEP_UNTIL(d->at, answered(d));
        asked(d);
    }
    if (d->reading) {
        STEP_UNTIL(d->at, exec_step(d->of.c->exec, &d->record.op));
        (void)told_who(d);
    }
    if (d->farewell_ms) {
        d->from = 0;
        d->to = d->nheld;
        say(d, 0);
        STEP_UNTIL(d->at, answered(d));
        asked(d);
    }
    STEP_END(d->at);
}

bool deadlock_end(struct deadlock **d, int64_t within_ms)
{
    if (!*d)
        return true;
    (*d)->farewell_ms = within_ms;
    if (!farewell(*d))
        return false;
    clear(*d);
    *d = NULL;
    return true;
}
