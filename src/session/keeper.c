/* SPDX-License-Identifier: MIT
 * keeper.c - what goes on in the background while locks are held.
 *
 *      SAFE -> IN_DOUBT  [watch]               half of the lease is gone without an answer
 *      IN_DOUBT -> SAFE  [keeper_mark_proved]  a request was answered with yes
 *      any -> LOST       [watch]               the lease ended by our own clock
 *                        [keeper_mark_lost]    the server says that it is not ours
 * Events are told by the watchdog alone, so they come in order and one at a time.
 */
#include "session/keeper.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/keeper_impl.h"
#include "session/waiter.h"

#define RECORD_TTL_MS     60000
#define GIVEUP_ATTEMPT_MS 1000
#define GIVEUP_PAUSE_MS   200
#define PATIENCE_MS       50 /* at least, for any request of the keeper */

static struct lease *of_watch(struct heap_node *n)
{
    return (struct lease *)((char *)n - offsetof(struct lease, watch));
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A wake-up that is planned already is kept though nothing may be due then: who locks and unlocks
 * all the time would otherwise have to ring for each lock anew. */
static int64_t next_wake(int64_t planned_ms, int64_t due_ms, int64_t now)
{
    return planned_ms > now ? earlier(planned_ms, due_ms) : due_ms;
}

/* ---- planning: who has to wake up when (all hold mu) ------------------------------------- */

bool keeper_renewable(const struct lease *l)
{
    return l->renew && lease_state(l) != HF_LOST && !l->exclusive
           && lease_end(l->proven_ms, l->lease_ms) < l->hold_until_ms;
}

/* What to ask for, and to believe in. While a copy of a request for a shorter lease may still
 * arrive, no more than that: whenever it does, we have not counted on a longer one. */
int64_t keeper_ttl(const struct lease *l, int64_t now_ms)
{
    return now_ms < l->cap_until_ms ? earlier(l->ttl_ms, l->cap_ms) : l->ttl_ms;
}

/* The keeper has one hand: nothing that it waits for may cost a lease its renewal. */
int64_t keeper_deadline(const struct keeper *k, int64_t now_ms, int64_t wanted_ms)
{
    const struct heap_node *n = heap_first(&k->renewals);
    int64_t deadline = n ? earlier(wanted_ms, n->due_ms) : wanted_ms;
    return deadline > now_ms + PATIENCE_MS ? deadline : now_ms + PATIENCE_MS;
}

/* Which subscription we have makes no difference to a lock that nobody takes over. */
bool keeper_unverified(const struct keeper *k, const struct lease *l)
{
    return l->grace_ms > 0 && l->epoch != k->epoch && lease_state(l) != HF_LOST && !l->exclusive;
}

static void wake_keeper(struct keeper *k, int64_t at_ms)
{
    if (at_ms < k->keeper_wakes_ms) {
        k->keeper_wakes_ms = at_ms;
        alarm_ring(&k->keeper_alarm);
    }
}

void keeper_plan_renewal(struct keeper *k, struct lease *l, int64_t not_before_ms)
{
    int64_t due = CLOCK_NEVER;
    if (keeper_renewable(l))
        due = l->proven_ms + l->lease_ms / 3;
    if (keeper_unverified(k, l))
        due = 0; /* only when the server has found it ours again are we back */
    if (due < not_before_ms)
        due = not_before_ms;
    if (!l->published && lease_state(l) != HF_LOST)
        due = earlier(due, l->granted_ms + KEEPER_PUBLISH_AFTER_MS);
    if (due == CLOCK_NEVER) {
        heap_remove(&k->renewals, &l->renewal);
        return;
    }
    heap_put(&k->renewals, &l->renewal, due);
    wake_keeper(k, due);
}

static void plan_watch(struct keeper *k, struct lease *l, int64_t due_ms)
{
    heap_put(&k->watches, &l->watch, due_ms);
    if (due_ms < k->watch_wakes_ms) {
        k->watch_wakes_ms = due_ms;
        alarm_ring(&k->watch_alarm);
    }
}

/* When the watchdog has to look at it next: when half of what it lives on is gone, then at its end.
 * Nobody doubts a lease that is not to be renewed. */
static int64_t next_watch(const struct lease *l)
{
    int64_t due = atomic_load(&l->until_ms);
    if (lease_state(l) == HF_LOST)
        return CLOCK_NEVER;
    if (lease_state(l) != HF_SAFE)
        return due;
    if (keeper_renewable(l))
        due = earlier(due, l->proven_ms + l->lease_ms / 2);
    if (l->grace_ms > 0)
        due = earlier(due, l->present_ms + l->grace_ms / 2);
    return due;
}

static void count_until(struct lease *l)
{
    int64_t until = earlier(lease_end(l->proven_ms, l->lease_ms), l->hold_until_ms);
    if (l->grace_ms > 0)
        until = earlier(until, lease_end(l->present_ms, l->grace_ms));
    atomic_store_explicit(&l->until_ms, until, memory_order_release);
}

/* Good news: what it lives on was proven anew. */
static void mark_safe(struct keeper *k, struct lease *l)
{
    count_until(l);
    atomic_store(&l->state, HF_SAFE);
    if (clock_now_ms() >= next_watch(l)) /* the other half of it still is in doubt */
        atomic_store(&l->state, HF_IN_DOUBT);
    plan_watch(k, l, lease_state(l) == l->told ? next_watch(l) : clock_now_ms());
}

void keeper_mark_proved(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms)
{
    if (lease_state(l) == HF_LOST)
        return; /* what was said cannot be unsaid */
    l->proven_ms = sent_ms;
    l->lease_ms = earlier(ttl_ms, keeper_ttl(l, clock_now_ms()));
    mark_safe(k, l);
    keeper_plan_renewal(k, l, 0);
}

/* The server found the lock ours after this subscription was made: its proofs count from now on. */
void keeper_mark_back(struct keeper *k, struct lease *l, unsigned epoch, int64_t sent_ms)
{
    if (l->grace_ms == 0 || epoch != k->epoch || l->epoch == epoch || lease_state(l) == HF_LOST)
        return;
    l->epoch = epoch;
    l->present_ms = sent_ms;
}

void keeper_subscribed(struct keeper *k, unsigned epoch)
{
    pthread_mutex_lock(&k->mu);
    k->epoch = epoch;
    for (size_t i = 0; i < k->watches.len; i++) {
        struct lease *l = of_watch(k->watches.node[i]);
        if (l->grace_ms > 0 && !l->in_use)
            keeper_plan_renewal(k, l, 0);
    }
    pthread_mutex_unlock(&k->mu);
}

void keeper_present(struct keeper *k, unsigned epoch, int64_t proof_ms)
{
    bool any = false;
    pthread_mutex_lock(&k->mu);
    int64_t now = clock_now_ms();
    for (size_t i = 0; i < k->watches.len; i++) {
        struct lease *l = of_watch(k->watches.node[i]);
        if (l->grace_ms == 0 || lease_state(l) == HF_LOST)
            continue;
        any = true;
        if (l->epoch != epoch || !lease_believed(l, now))
            continue; /* what has ended has ended, though the watchdog may not have said so yet */
        l->present_ms = proof_ms;
        count_until(l);
    }
    for (size_t i = 0; i < k->watches.len; i++) {
        struct lease *l = of_watch(k->watches.node[i]);
        if (lease_state(l) != HF_IN_DOUBT || !lease_believed(l, now))
            continue;
        mark_safe(k, l);
        if (lease_state(l) == HF_SAFE)
            i = (size_t)-1; /* the heap was rearranged: once more from the beginning */
    }
    if (!any && k->min_grace_ms != CLOCK_NEVER) {
        k->min_grace_ms = CLOCK_NEVER;
        inbox_prove_for(k->c->inbox, CLOCK_NEVER);
    }
    pthread_mutex_unlock(&k->mu);
}

void keeper_mark_lost(struct keeper *k, struct lease *l, hf_loss loss)
{
    if (lease_state(l) == HF_LOST)
        return;
    atomic_store(&l->loss, loss);
    atomic_store_explicit(&l->until_ms, 0, memory_order_release);
    atomic_store(&l->state, HF_LOST);
    heap_remove(&k->renewals, &l->renewal);
    plan_watch(k, l, clock_now_ms());
}

/* ---- the watchdog ------------------------------------------------------------------------ */

/* Holds: mu, released while the event is told. */
static void tell(struct keeper *k, struct lease *l)
{
    l->told = lease_state(l);
    l->in_use++;
    pthread_mutex_unlock(&k->mu);
    l->changed(l, l->told);
    pthread_mutex_lock(&k->mu);
    l->in_use--;
    pthread_cond_broadcast(&k->unused);
}

/* Holds: mu. A lease is due: say what is to be said, plan the next look. */
static void watch(struct keeper *k, struct lease *l, int64_t now)
{
    if (lease_state(l) != HF_LOST && !lease_believed(l, now))
        keeper_mark_lost(k, l, now >= l->hold_until_ms ? HF_LOSS_MAX_HOLD : HF_LOSS_EXPIRED);
    else if (lease_state(l) == HF_SAFE && now >= next_watch(l))
        atomic_store(&l->state, HF_IN_DOUBT);
    heap_put(&k->watches, &l->watch, next_watch(l));
    if (lease_state(l) != l->told)
        tell(k, l);
}

static void *watchdog_main(void *arg)
{
    struct keeper *k = arg;
    pthread_mutex_lock(&k->mu);
    while (!k->stopping) {
        struct heap_node *n = heap_first(&k->watches);
        int64_t now = clock_now_ms();
        if (n && n->due_ms <= now) {
            watch(k, of_watch(n), now);
            continue;
        }
        int64_t due = n ? n->due_ms : CLOCK_NEVER;
        int64_t until = k->watch_wakes_ms = next_wake(k->watch_wakes_ms, due, now);
        pthread_mutex_unlock(&k->mu);
        alarm_wait(&k->watch_alarm, until);
        pthread_mutex_lock(&k->mu);
    }
    pthread_mutex_unlock(&k->mu);
    return NULL;
}

/* ---- the keeper -------------------------------------------------------------------------- */

/* Holds: mu. */
static size_t list_published(struct keeper *k, struct record_entry *entry, int64_t *ret_ttl_ms)
{
    size_t n = 0;
    int64_t now = clock_now_ms();
    *ret_ttl_ms = RECORD_TTL_MS;
    for (size_t i = 0; i < k->watches.len; i++) {
        const struct lease *l = of_watch(k->watches.node[i]);
        if (2 * l->ttl_ms > *ret_ttl_ms)
            *ret_ttl_ms = 2 * l->ttl_ms;
        if (l->published && n < RECORD_ENTRIES_MAX)
            entry[n++] = (struct record_entry){ l->sequence, now - l->granted_ms };
    }
    return n;
}

/* Thread: keeper. Holds: mu, released while it talks. */
static bool refresh_record(struct keeper *k, int64_t now)
{
    struct record_entry entry[RECORD_ENTRIES_MAX];
    hf_error err;
    int64_t ttl_ms;

    bool due = k->record_due || now >= k->announce_at_ms
               || (k->published > 0 && now >= k->record_fresh_until_ms);
    if (!due)
        return false;
    k->record_due = false;
    size_t n = list_published(k, entry, &ttl_ms);
    size_t waiting = waiters_list(k->c->waiters, entry + n, RECORD_ENTRIES_MAX - n);
    n += waiting;
    k->announce_at_ms = waiting ? now + ttl_ms / 3 : CLOCK_NEVER;
    if (n == 0)
        return true; /* whoever waited waits no more */
    k->record_fresh_until_ms = now + ttl_ms / 3;
    int64_t deadline = keeper_deadline(k, now, client_deadline(k->c));
    pthread_mutex_unlock(&k->mu);
    if (record_write(k->c->topo, k->c->record_key, &k->c->identity, entry, n, ttl_ms, deadline,
                     &err))
        log_to(&k->c->log, HF_LOG_INFO, "session record not written: %s", err.message);
    pthread_mutex_lock(&k->mu);
    return true;
}

/* Holds: mu, released while it talks. Try one token that was given up; false: none is due. */
static bool finish_given_up(struct keeper *k, int64_t now)
{
    for (struct giveup **p = &k->given_up; *p; p = &(*p)->next) {
        struct giveup *g = *p;
        if (g->try_at_ms > now)
            continue;
        *p = g->next;
        int64_t deadline = keeper_deadline(k, now, now + GIVEUP_ATTEMPT_MS);
        pthread_mutex_unlock(&k->mu);
        hf_err e = giveup_cancel(k->c, &g->what, deadline, NULL, NULL);
        pthread_mutex_lock(&k->mu);
        if (!e || e == HF_EAUTH || clock_now_ms() >= g->until_ms) {
            giveup_free(g);
        } else {
            g->try_at_ms = clock_now_ms() + GIVEUP_PAUSE_MS;
            g->next = k->given_up;
            k->given_up = g;
        }
        return true;
    }
    return false;
}

/* Holds: mu. */
static int64_t next_due(const struct keeper *k)
{
    const struct heap_node *n = heap_first(&k->renewals);
    int64_t due = n ? n->due_ms : CLOCK_NEVER;
    for (const struct giveup *g = k->given_up; g; g = g->next)
        due = earlier(due, g->try_at_ms);
    if (k->published)
        due = earlier(due, k->record_fresh_until_ms);
    return earlier(due, k->announce_at_ms);
}

static void *keeper_main(void *arg)
{
    struct keeper *k = arg;
    pthread_mutex_lock(&k->mu);
    while (!k->stopping) {
        int64_t now = clock_now_ms();
        if (renew_due(k, now) || finish_given_up(k, now) || refresh_record(k, now))
            continue; /* renewals always go first */
        int64_t until = k->keeper_wakes_ms = next_wake(k->keeper_wakes_ms, next_due(k), now);
        pthread_mutex_unlock(&k->mu);
        alarm_wait(&k->keeper_alarm, until);
        pthread_mutex_lock(&k->mu);
    }
    pthread_mutex_unlock(&k->mu);
    return NULL;
}

/* ---- open and close ---------------------------------------------------------------------- */

/* The library's threads take no signals: they are the program's. */
static int start_thread(pthread_t *ret, void *(*main_fn)(void *), struct keeper *k)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(ret, NULL, main_fn, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

static void stop(struct keeper *k)
{
    pthread_mutex_lock(&k->mu);
    k->stopping = true;
    pthread_mutex_unlock(&k->mu);
    alarm_ring(&k->keeper_alarm);
    alarm_ring(&k->watch_alarm);
}

hf_err keeper_open(struct hf_client *c, struct keeper **ret, hf_error *reterr)
{
    struct keeper *k = mem_zalloc(sizeof *k);
    if (!k)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    k->c = c;
    k->keeper_wakes_ms = k->watch_wakes_ms = k->min_grace_ms = CLOCK_NEVER;
    k->announce_at_ms = CLOCK_NEVER;
    k->keeper_alarm = k->watch_alarm = (struct alarm){ -1, -1 };
    pthread_mutex_init(&k->mu, NULL);
    pthread_cond_init(&k->unused, NULL);

    int e = 0;
    if (alarm_open(&k->keeper_alarm) < 0 || alarm_open(&k->watch_alarm) < 0)
        e = errno;
    else if ((e = start_thread(&k->watch_thread, watchdog_main, k)) == 0
             && (e = start_thread(&k->keeper_thread, keeper_main, k)) != 0) {
        stop(k);
        pthread_join(k->watch_thread, NULL);
    }
    if (e) {
        keeper_forget(k);
        return err_set(reterr, e == ENOMEM ? HF_ENOMEM : HF_ESYS,
                       "cannot start the background threads: %s", strerror(e));
    }
    *ret = k;
    return HF_OK;
}

struct keeper *keeper_forget(struct keeper *k)
{
    if (!k)
        return NULL;
    while (k->given_up) {
        struct giveup *g = k->given_up;
        k->given_up = g->next;
        giveup_free(g);
    }
    heap_clear(&k->renewals);
    heap_clear(&k->watches);
    if (k->c->generation == forkguard_generation()) {
        alarm_close(&k->keeper_alarm);
        alarm_close(&k->watch_alarm);
        pthread_mutex_destroy(&k->mu);
        pthread_cond_destroy(&k->unused);
    }
    mem_free(k);
    return NULL;
}

struct keeper *keeper_free(struct keeper *k, int64_t deadline_ms)
{
    if (!k)
        return NULL;
    stop(k);
    pthread_join(k->keeper_thread, NULL);
    pthread_join(k->watch_thread, NULL);
    for (struct giveup *g = k->given_up; g; g = g->next)
        if (giveup_cancel(k->c, &g->what, deadline_ms, NULL, NULL))
            break; /* the others would fare no better */
    if (k->record_fresh_until_ms && !k->record_stays)
        (void)record_delete(k->c->topo, k->c->record_key, deadline_ms);
    return keeper_forget(k);
}

/* ---- leases ------------------------------------------------------------------------------ */

hf_err keeper_reserve(struct keeper *k, hf_error *reterr)
{
    pthread_mutex_lock(&k->mu);
    int short_of_memory = heap_reserve(&k->renewals, k->reserved + 1) < 0
                          || heap_reserve(&k->watches, k->reserved + 1) < 0;
    if (!short_of_memory)
        k->reserved++;
    pthread_mutex_unlock(&k->mu);
    return short_of_memory ? err_set(reterr, HF_ENOMEM, "out of memory") : HF_OK;
}

void keeper_unreserve(struct keeper *k)
{
    pthread_mutex_lock(&k->mu);
    k->reserved--;
    pthread_mutex_unlock(&k->mu);
}

void keeper_add(struct keeper *k, struct lease *l, const struct lease_terms *terms,
                int64_t ttl_ms)
{
    pthread_mutex_lock(&k->mu);
    l->ttl_ms = ttl_ms;
    l->granted_ms = terms->sent_ms;
    l->present_ms = terms->present_ms;
    l->epoch = terms->epoch;
    atomic_store(&l->loss, HF_LOSS_NONE);
    l->told = HF_SAFE;
    l->published = l->exclusive = false;
    l->cap_until_ms = 0;
    atomic_store(&l->state, HF_SAFE);
    keeper_mark_proved(k, l, terms->sent_ms, terms->ttl_ms);
    if (l->grace_ms > 0 && l->grace_ms < k->min_grace_ms) {
        k->min_grace_ms = l->grace_ms;
        inbox_prove_for(k->c->inbox, l->grace_ms);
    }
    pthread_mutex_unlock(&k->mu);
}

hf_state keeper_remove(struct keeper *k, struct lease *l)
{
    pthread_mutex_lock(&k->mu);
    l->exclusive = true; /* nothing new begins */
    while (l->in_use)
        pthread_cond_wait(&k->unused, &k->mu);
    hf_state was = lease_state(l);
    if (was != HF_LOST && !lease_believed(l, clock_now_ms())) {
        was = HF_LOST;
        atomic_store(&l->loss, HF_LOSS_EXPIRED);
    }
    heap_remove(&k->renewals, &l->renewal);
    heap_remove(&k->watches, &l->watch);
    if (l->published)
        k->published--;
    l->published = false;
    atomic_store(&l->until_ms, 0);
    atomic_store(&l->state, HF_FREE);
    pthread_mutex_unlock(&k->mu);
    return was;
}

bool keeper_begin(struct keeper *k, struct lease *l, int64_t ttl_ms)
{
    pthread_mutex_lock(&k->mu);
    while (l->in_use)
        pthread_cond_wait(&k->unused, &k->mu);
    int64_t now = clock_now_ms();
    bool held = lease_believed(l, now);
    if (held) {
        l->exclusive = true;
        int64_t end = lease_end(now, ttl_ms);
        if (ttl_ms && end < atomic_load(&l->until_ms)) {
            atomic_store(&l->until_ms, end);
            plan_watch(k, l, end);
        }
        keeper_plan_renewal(k, l, 0);
    }
    pthread_mutex_unlock(&k->mu);
    return held;
}

/* Holds: mu. A request for ttl_ms may be under way somewhere, and arrive when we do not expect it. */
static void beware_of(struct lease *l, int64_t ttl_ms)
{
    int64_t now = clock_now_ms();
    l->cap_ms = now < l->cap_until_ms ? earlier(l->cap_ms, ttl_ms) : ttl_ms;
    l->cap_until_ms = now + CLIENT_TOMBSTONE_MS;
}

void keeper_proved(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms,
                   bool in_doubt)
{
    pthread_mutex_lock(&k->mu);
    l->exclusive = false;
    if (ttl_ms) {
        l->ttl_ms = ttl_ms;
        if (in_doubt)
            beware_of(l, ttl_ms);
        keeper_mark_proved(k, l, sent_ms, ttl_ms);
    } else {
        keeper_plan_renewal(k, l, 0);
    }
    pthread_mutex_unlock(&k->mu);
}

void keeper_denied(struct keeper *k, struct lease *l, hf_loss loss)
{
    pthread_mutex_lock(&k->mu);
    l->exclusive = false;
    keeper_mark_lost(k, l, loss);
    pthread_mutex_unlock(&k->mu);
}

void keeper_unsure(struct keeper *k, struct lease *l, int64_t ttl_ms, bool in_doubt)
{
    pthread_mutex_lock(&k->mu);
    l->exclusive = false;
    if (lease_state(l) != HF_LOST && lease_believed(l, clock_now_ms())) {
        if (ttl_ms && in_doubt) {
            int64_t shortest = clock_now_ms() - l->proven_ms + ttl_ms;
            beware_of(l, ttl_ms);
            l->lease_ms = earlier(l->lease_ms, shortest);
        }
        count_until(l); /* what never left has changed nothing */
        plan_watch(k, l, next_watch(l));
        keeper_plan_renewal(k, l, 0);
        if (in_doubt && keeper_renewable(l)) {
            heap_put(&k->renewals, &l->renewal, 0); /* an answer, soon: the short lease counts */
            wake_keeper(k, 0);
        }
    }
    pthread_mutex_unlock(&k->mu);
}

void keeper_give_up(struct keeper *k, const struct cancel *what, int64_t ttl_ms)
{
    int64_t until = clock_add(clock_now_ms(), ttl_ms + CLIENT_TOMBSTONE_MS);
    struct giveup *g = giveup_new(k->c->prefix, what, until);
    if (!g)
        return;
    pthread_mutex_lock(&k->mu);
    g->next = k->given_up;
    k->given_up = g;
    wake_keeper(k, g->try_at_ms);
    pthread_mutex_unlock(&k->mu);
}

size_t keeper_list(struct keeper *k, struct lease **ret, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&k->mu);
    for (size_t i = 0; i < k->watches.len && n < max; i++)
        ret[n++] = of_watch(k->watches.node[i]);
    pthread_mutex_unlock(&k->mu);
    return n;
}

void keeper_announce(struct keeper *k)
{
    int64_t at = clock_now_ms() + KEEPER_PUBLISH_AFTER_MS;
    pthread_mutex_lock(&k->mu);
    if (at < k->announce_at_ms) {
        k->announce_at_ms = at;
        wake_keeper(k, at);
    }
    pthread_mutex_unlock(&k->mu);
}

bool keeper_holds(struct keeper *k, uint64_t sequence)
{
    bool held = false;
    pthread_mutex_lock(&k->mu);
    for (size_t i = 0; i < k->watches.len && !held; i++)
        held = of_watch(k->watches.node[i])->sequence == sequence;
    pthread_mutex_unlock(&k->mu);
    return held;
}

hf_err keeper_publish(struct keeper *k, const struct lease *l, int64_t ttl_ms, hf_error *reterr)
{
    struct record_entry entry[RECORD_ENTRIES_MAX];
    int64_t ttl;

    pthread_mutex_lock(&k->mu);
    size_t n = list_published(k, entry, &ttl);
    k->record_stays = true;
    if (!l->published && n < RECORD_ENTRIES_MAX)
        entry[n++] = (struct record_entry){ l->sequence, clock_now_ms() - l->granted_ms };
    pthread_mutex_unlock(&k->mu);
    return record_write(k->c->topo, k->c->record_key, &k->c->identity, entry, n,
                        ttl > 2 * ttl_ms ? ttl : 2 * ttl_ms, client_deadline(k->c), reterr);
}
