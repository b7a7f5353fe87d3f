/* SPDX-License-Identifier: MIT
 * shared_random.c - read-write locks and semaphores at random: one driver against a model in
 * memory, step by step; and processes behind a network that fails, whose history is judged
 * afterwards.
 */
#include "harness/history.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/sharing.h"

static int soak(int normal, int long_one)
{
    return getenv("HF_SOAK") ? long_one : normal;
}

/* ---- against a model ---- */

/* Time moves in steps of the server's clock, so that a lease ends exactly when the model says so;
 * what the test itself takes is nothing against them. */
#define STEP_MS (10 * 60 * 1000)
#define HANDLES 14
#define CLIENTS 3

struct handle {
    hf_lock *m;
    unsigned  slots, permits; /* 0 slots: a reader, or alone */
    int       locked;         /* the handle believes so */
    int       alone;
    int64_t   ttl;            /* what it asked for last */
    int64_t   until;          /* model: its lease on the server ends; 0: it is no holder there */
};

struct model {
    struct server *s;
    hf_client     *c[CLIENTS];
    struct handle  h[HANDLES];
    int64_t        now;
    unsigned       limit;           /* of the present holders: 0 readers */
    unsigned       changed, named;  /* a resize that is remembered; changed 0: none */
    long           did[8], results[32];
};

static int living(const struct model *x, const struct handle *h)
{
    return h->until > x->now;
}

static unsigned used(const struct model *x)
{
    unsigned n = 0;
    for (int i = 0; i < HANDLES; i++)
        n += living(x, &x->h[i]) ? x->h[i].permits : 0;
    return n;
}

static const struct handle *any_holder(const struct model *x)
{
    for (int i = 0; i < HANDLES; i++)
        if (living(x, &x->h[i]))
            return &x->h[i];
    return NULL;
}

static int agree(const struct model *x, unsigned limit, unsigned named)
{
    return limit == named
           || (limit && named && x->changed && (!x->named || x->named == named));
}

/* What a try of this handle must answer, and the limit that holds then. */
static hf_err expected(const struct model *x, const struct handle *h, int alone,
                       unsigned *ret_limit)
{
    const struct handle *holder = any_holder(x);
    if (holder && (holder->alone || alone))
        return HF_EBUSY;
    if (alone)
        return HF_OK;
    unsigned limit = holder ? x->limit : h->slots && x->changed ? x->changed : h->slots;
    if (!agree(x, limit, h->slots) || (limit && h->permits > limit))
        return HF_ELIMIT;
    *ret_limit = limit;
    return !limit || used(x) + h->permits <= limit ? HF_OK : HF_EBUSY;
}

static int64_t random_ttl(void)
{
    return STEP_MS * (1 + (int64_t)t_random(6)) - STEP_MS / 2;
}

static void tries(struct model *x, struct handle *h)
{
    int alone = !h->slots && t_random(any_holder(x) ? 6 : 2) == 0;
    unsigned limit = x->limit;
    hf_err want = expected(x, h, alone, &limit);
    uint64_t fence = 0;
    hf_err got = alone ? hf_lock_try(h->m, &fence, &err)
                 : h->slots ? hf_lock_acquire(h->m, 0, &fence, &err)
                            : hf_lock_acquire_shared(h->m, 0, &fence, &err);
    if (got != want)
        FAIL("a try of %u of %u%s: got %s (%s), want %s; %u used of %u, changed %u named %u, value "
             "%s", h->permits, h->slots, alone ? " alone" : "", hf_err_name(got), err.message,
             hf_err_name(want), used(x), x->limit, x->changed, x->named,
             server_ask(x->s, "GET lock:a"));
    x->results[-got]++;
    if (got)
        return;
    x->limit = limit;
    h->locked = 1;
    h->alone = alone;
    h->ttl = random_ttl();
    CHECK_HF(hf_lock_extend(h->m, h->ttl, &err), HF_OK);
    h->until = x->now + h->ttl;
}

static void unlocks(struct model *x, struct handle *h)
{
    hf_err want = living(x, h) ? HF_OK : HF_ELOST;
    CHECK_HF(hf_lock_release(h->m, &err), want);
    x->results[-want]++;
    h->until = 0;
    h->locked = h->alone = 0;
}

static void extends(struct model *x, struct handle *h)
{
    int64_t ttl = random_ttl();
    hf_err want = living(x, h) ? HF_OK : HF_ELOST;
    CHECK_HF(hf_lock_extend(h->m, ttl, &err), want);
    if (want)
        unlocks(x, h);
    else
        h->until = x->now + (h->ttl = ttl);
}

static void downgrades(struct model *x, struct handle *h)
{
    hf_err want = living(x, h) ? HF_OK : HF_ELOST;
    CHECK_HF(hf_lock_downgrade(h->m, &err), want);
    if (want) {
        unlocks(x, h);
        return;
    }
    h->alone = 0;
    x->limit = 0;
    if (h->until < x->now + h->ttl) /* it asks for the ttl once more, and never shortens */
        h->until = x->now + h->ttl;
}

static void resizes(struct model *x, unsigned to)
{
    const struct handle *holder = any_holder(x);
    unsigned old = 12345;
    int none = holder && (holder->alone || !x->limit);
    CHECK_HF(hf_semaphore_resize(x->c[t_random(CLIENTS)], hf_str("a"), to, &old, &err),
             none ? HF_EBUSY : HF_OK);
    x->results[none ? -HF_EBUSY : 0]++;
    if (none) {
        CHECK_INT(old, 12345);
        return;
    }
    CHECK_INT(old, holder ? x->limit : x->changed);
    unsigned named = x->changed ? x->named : holder ? x->limit : 0;
    x->changed = to == named ? 0 : to;
    x->named = x->changed ? named : 0;
    if (holder)
        x->limit = to;
}

static void passes_time(struct model *x, unsigned steps)
{
    x->now += (int64_t)steps * STEP_MS;
    server_clock_shift(x->s, x->now);
    CHECK_STR(server_ask(x->s, "PING"), "PONG");
}

static void foreign_delete(struct model *x)
{
    server_ask(x->s, "DEL lock:a");
    for (int i = 0; i < HANDLES; i++)
        x->h[i].until = 0;
}

static void everybody_leaves(struct model *x)
{
    for (int i = 0; i < HANDLES; i++)
        if (x->h[i].locked)
            unlocks(x, &x->h[i]);
}

enum { EMPTY, TRY, UNLOCK, EXTEND, DOWNGRADE, RESIZE, PASS_TIME, DELETE };

static void step(struct model *x, int semaphores)
{
    struct handle *h = &x->h[t_random(HANDLES)];
    for (int i = 0; i < HANDLES; i++)
        if (x->h[i].alone && t_random(4) == 0)
            h = &x->h[i]; /* one who has it alone makes the others' tries dull */
    int what = (int)t_random(100);
    int op = what < 6 ? PASS_TIME : what < 7 ? DELETE : what < 10 ? EMPTY
             : what < 16 && semaphores ? RESIZE
             : !h->locked ? TRY : h->alone && what < 50 ? DOWNGRADE : what < 40 ? EXTEND : UNLOCK;
    x->did[op]++;
    switch (op) {
    case EMPTY: everybody_leaves(x); break;
    case TRY: tries(x, h); break;
    case UNLOCK: unlocks(x, h); break;
    case EXTEND: extends(x, h); break;
    case DOWNGRADE: downgrades(x, h); break;
    case RESIZE: resizes(x, 1 + (unsigned)t_random(9)); break;
    case PASS_TIME: passes_time(x, 1 + (unsigned)t_random(2)); break;
    case DELETE: foreign_delete(x); break;
    }
    if (x->limit && any_holder(x) && !any_holder(x)->alone && t_random(10) == 0)
        CHECK_CONTAINS(server_ask(x->s, "GET lock:a"), "shared.");
}

/* Of 14 handles so many are of a semaphore: most name 5 slots, some 3. */
static void run_model(int semaphores, int steps)
{
    static struct model x;
    x.s = server_start_opts(&(struct server_opts){ .clockshim = 1 });
    t_note("seed %llu", (unsigned long long)t_seed());
    for (int i = 0; i < CLIENTS; i++)
        x.c[i] = client_at(server_url(x.s), 0);
    for (int i = 0; i < HANDLES; i++) {
        struct handle *h = &x.h[i];
        int one = i < semaphores;
        h->slots = !one ? 0 : i % 5 ? 5 : 3;
        h->permits = !one ? 1 : 1 + (unsigned)i % 3;
        h->m = lock_with(x.c[i % CLIENTS], "a",
                         (hf_lock_opts){ .ttl_ms = STEP_MS / 2, .no_renew = 1, .slots = h->slots,
                                           .permits = one ? h->permits : 0 });
    }
    for (int i = 0; i < steps; i++)
        step(&x, semaphores);
    t_note("%d steps: %ld tries, %ld unlocks, %ld extends, %ld downgrades, %ld resizes, %ld jumps "
           "of time, %ld deletes; %ld OK, %ld EBUSY, %ld ELIMIT, %ld ELOST", steps, x.did[TRY],
           x.did[UNLOCK], x.did[EXTEND], x.did[DOWNGRADE], x.did[RESIZE], x.did[PASS_TIME],
           x.did[DELETE],
           x.results[0], x.results[-HF_EBUSY], x.results[-HF_ELIMIT], x.results[-HF_ELOST]);
    CHECK(x.results[0] > steps / 10 && x.results[-HF_EBUSY] > steps / 100
          && x.results[-HF_ELOST] > steps / 100);
    CHECK(!semaphores || x.results[-HF_ELIMIT] > steps / 100);
    everybody_leaves(&x);
    for (int i = 0; i < HANDLES; i++)
        hf_lock_free(x.h[i].m);
    for (int i = 0; i < CLIENTS; i++)
        hf_client_free(x.c[i]);
    server_ask(x.s, "DEL {lock:a}:s");
    CHECK_INT(server_int(x.s, "EXISTS lock:a {lock:a}:q"), 0);
    check_only_ttls(x.s);
}

TEST_TIMEOUT(SEM1_SEM3_SEM4_a_semaphore_does_what_a_model_of_it_does, 300)
{
    run_model(HANDLES, soak(8000, 400000));
}

TEST_TIMEOUT(R1_R2_R4_a_read_write_lock_does_what_a_model_of_it_does, 300)
{
    run_model(0, soak(6000, 300000));
}

TEST_TIMEOUT(R1_SEM3_both_kinds_on_one_name_do_what_a_model_of_them_does, 300)
{
    run_model(8, soak(6000, 300000));
}

/* ---- a network that cuts, drops, holds and breaks ---- */

#define ALL 1000 /* more readers than there are */

struct chaos {
    struct server  *s;
    struct proxy   *p;
    struct history *h;
    unsigned        slots;
    struct {
        atomic_int  go, stop;
        atomic_long downgraded, unsure, grants;
    } *mem;
};

enum { INJECTIONS = 20, GRANTS = 50 }; /* at least */

/* Whether each kind of trouble was felt, and often enough. */
static int troubled(const struct chaos *ch, int injected)
{
    return injected >= INJECTIONS && atomic_load(&ch->mem->grants) > GRANTS
           && proxy_cuts(ch->p) > 0 && proxy_dropped(ch->p) > 0;
}

static int in_trouble(hf_err e)
{
    return e == HF_EUNSURE || e == HF_ECONN || e == HF_ELOST;
}

static void downgrade_in_chaos(struct chaos *ch, int index, hf_lock *m, uint64_t fence,
                               int64_t invoke)
{
    hf_err e = hf_lock_downgrade(m, &err);
    if (e && !in_trouble(e))
        FAIL("downgrade: %s: %s", hf_err_name(e), err.message);
    atomic_fetch_add(e ? &ch->mem->unsure : &ch->mem->downgraded, 1);
    if (e == HF_EUNSURE && t_random(2))
        e = hf_lock_downgrade(m, &err);
    if (e == HF_OK || e == HF_EUNSURE) {
        struct grant *g = history_share(ch->h, 0, (uint32_t)index, fence, invoke,
                                        BELIEVED_UNTIL(m), 1);
        t_sleep_ms((int64_t)t_random(3));
        history_release(g);
    }
}

static void chaotic(int index, void *arg)
{
    struct chaos *ch = arg;
    hf_client *c = NULL;
    /* ASan's allocator is not for forking while another thread, here the proxy's, is in it. */
    CHECK_EVENTUALLY(atomic_load(&ch->mem->go), 10000);
    for (int i = 0; !c && i < 100; i++)
        (void)!hf_client_open(proxy_url(ch->p), &(hf_client_opts){ .size = sizeof(hf_client_opts),
                              .timeout_ms = 500 }, &c, &err);
    CHECK(c);
    hf_lock *m[3];
    for (unsigned i = 0; i < 3; i++)
        m[i] = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 1000,
                                                   .grace_ms = index % 2 ? 0 : HF_NO_TAKEOVER,
                                                   .slots = ch->slots,
                                                   .permits = ch->slots ? i + 1 : 0,
                                                   .shared = !ch->slots && i == 1 });
    while (!atomic_load(&ch->mem->stop)) {
        uint64_t fence;
        int64_t invoke = t_now_ns();
        unsigned weight = ch->slots ? 1 + (unsigned)t_random(3) : t_random(2) ? 1 : 0;
        hf_lock *one = m[ch->slots ? weight - 1 : weight];
        hf_err e = hf_lock_acquire(one, (int64_t)t_random(400), &fence, &err);
        if (e && e != HF_EBUSY && e != HF_ETIMEDOUT && !in_trouble(e))
            FAIL("lock: %s: %s", hf_err_name(e), err.message);
        if (e)
            continue;
        struct grant *g = history_share(ch->h, 0, (uint32_t)index, fence, invoke,
                                        BELIEVED_UNTIL(one), weight);
        t_sleep_ms((int64_t)t_random(3));
        history_release(g);
        atomic_fetch_add(&ch->mem->grants, 1);
        if (!weight && t_random(2))
            downgrade_in_chaos(ch, index, one, fence, invoke);
        e = hf_lock_release(one, &err);
        CHECK(e == HF_OK || in_trouble(e));
    }
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

static void run_chaos(unsigned slots)
{
    struct chaos ch = { .s = server_start(NULL), .h = history_new(100000), .slots = slots,
                        .mem = shared_memory(sizeof *ch.mem) };
    struct history_report r;
    int injected = 0;
    ch.p = proxy_start(ch.s);
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(6, chaotic, &ch);
    atomic_store(&ch.mem->go, 1);
    for (int64_t until = t_now_ms() + 4500; t_now_ms() < until || !troubled(&ch, injected);)
        proxy_trouble(ch.p), injected++;
    atomic_store(&ch.mem->stop, 1);
    workers_join(w, 20000);
    CHECK_INT((long long)history_check_shared(ch.h, slots ? slots : ALL, &r), 0);
    t_note("%d faults, %ld cuts, %ld bytes dropped; %ld downgrades and %ld in trouble", injected,
           proxy_cuts(ch.p), proxy_dropped(ch.p), atomic_load(&ch.mem->downgraded),
           atomic_load(&ch.mem->unsure));
    CHECK(troubled(&ch, injected) && r.grants > GRANTS);
    CHECK_EVENTUALLY(server_int(ch.s, "EXISTS lock:a {lock:a}:h {lock:a}:d") == 0, 3000);
    check_only_ttls(ch.s);
}

TEST(SEM1_SEM6_cuts_drops_holds_and_breaks_at_random_never_give_too_many)
{
    run_chaos(4);
}

TEST(R1_R6_cuts_drops_holds_and_breaks_at_random_let_nobody_overlap)
{
    run_chaos(0);
}
