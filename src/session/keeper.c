/* SPDX-License-Identifier: MIT
 * keeper.c - the thread that talks to the server in the background while locks are held.
 *
 * It renews leases (renew.c), gives up tokens (cancel_queue.c), and makes known who we are;
 * renewals always go first. What its results mean for a holder is decided in validity.c.
 */
#include "session/keeper.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"
#include "session/keeper_impl.h"
#include "session/waiter.h"

#define RECORD_TTL_MS     60000
#define RECORD_RETRY_MS   1000
#define CANCEL_ATTEMPT_MS 1000
#define NOTES_ATTEMPT_MS  1000

/* ---- the record --------------------------------------------------------------------------- */

static struct lease *of_naming(struct heap_node *n)
{
    return (struct lease *)((char *)n - offsetof(struct lease, naming));
}

/* It outlives by far what it names. */
static int64_t record_ttl(int64_t longest_ttl_ms)
{
    return 2 * longest_ttl_ms > RECORD_TTL_MS ? 2 * longest_ttl_ms : RECORD_TTL_MS;
}

static int64_t record_refresh_at(int64_t now_ms, int64_t record_ttl_ms)
{
    return now_ms + record_ttl_ms / 3;
}

static struct record_entry entry_of(const struct lease *l, int64_t now_ms)
{
    return (struct record_entry){ .sequence = l->grant.sequence,
                                  .age_ms = now_ms - l->granted_ms, .lease_ms = l->ttl_ms,
                                  .left = !l->renew };
}

static size_t list_named_locked(const struct keeper *k, struct record_entry *entry,
                                int64_t *ret_ttl_ms)
{
    mutex_assert_held(&k->mu);
    size_t n = 0;
    int64_t now = clock_now_ms();
    for (; n < k->named.len && n < RECORD_ENTRIES_MAX; n++)
        entry[n] = entry_of(of_naming(k->named.node[n]), now);
    *ret_ttl_ms = record_ttl(n ? of_naming(heap_first(&k->named))->ttl_ms : 0);
    return n;
}

/* What it says from now on, and when it is to be written again. 0: nothing; whoever waited waits no
 * more. */
static size_t compose_record_locked(struct keeper *k, int64_t now, struct record_entry *entry,
                                    int64_t *ret_ttl_ms)
{
    mutex_assert_held(&k->mu);
    k->record_due = false;
    size_t n = list_named_locked(k, entry, ret_ttl_ms);
    size_t young, named = waiters_list(k->c->waiters, KEEPER_PUBLISH_AFTER_MS, entry + n,
                                       RECORD_ENTRIES_MAX - n, &young);
    n += named;
    k->announce_at_ms = young   ? now + KEEPER_PUBLISH_AFTER_MS
                        : named ? record_refresh_at(now, *ret_ttl_ms)
                                : CLOCK_NEVER;
    if (n)
        k->record_fresh_until_ms = record_refresh_at(now, *ret_ttl_ms);
    return n;
}

/* Holds: mu, released while it talks. */
static bool refresh_record_locked(struct keeper *k, int64_t now)
{
    mutex_assert_held(&k->mu);
    struct record_entry entry[RECORD_ENTRIES_MAX];
    hf_error err;
    int64_t ttl_ms;

    bool due = k->record_due || now >= k->announce_at_ms
               || (k->named.len > 0 && now >= k->record_fresh_until_ms);
    if (!due)
        return false;
    size_t n = compose_record_locked(k, now, entry, &ttl_ms);
    if (n == 0)
        return true;
    int64_t deadline = keeper_deadline_locked(k, now, client_deadline(k->c));
    atomic_store(&k->hurry, 0);
    keeper_unlock(k);
    hf_err e = record_write(k->c->exec, k->c->record_key, &k->c->identity, entry, n, ttl_ms,
                            deadline, &k->hurry, &err);
    if (e)
        log_to(&k->c->log, HF_LOG_INFO, "session record not written: %s", err.message);
    keeper_lock(k);
    /* A renewal that was due may have cut it short. What a server refuses, it refuses again. */
    if (e && e != HF_EAUTH && e != HF_ESERVER && e != HF_ENOTSUP)
        k->announce_at_ms = clock_earlier(k->announce_at_ms, clock_now_ms() + RECORD_RETRY_MS);
    return true;
}

/* ---- the keeper --------------------------------------------------------------------------- */

/* How long the next master may turn out not to know of what was done now: it is known seconds after
 * the last one died, or a minute. 0: there is no other one. */
static int64_t lately_until(const struct keeper *k, int64_t now)
{
    return topo_can_move(k->c->topo) ? now + topo_outage_ms(k->c->topo) : 0;
}

/* Holds: mu, released while it talks. Try tokens that were given up; false: none is due. */
static bool finish_cancels_locked(struct keeper *k, int64_t now)
{
    mutex_assert_held(&k->mu);
    struct cancel_entry *some[CANCELS_AT_ONCE];
    size_t n = cancel_queue_take(&k->cancels, now, some, CANCELS_AT_ONCE);
    if (n == 0)
        return false;
    int64_t wanted = clock_earlier(now + CANCEL_ATTEMPT_MS, client_deadline(k->c));
    int64_t deadline = keeper_deadline_locked(k, now, wanted);
    keeper_unlock(k);
    cancel_entries_run(k->c, some, n, deadline);
    keeper_lock(k);
    now = clock_now_ms();
    for (size_t i = 0; i < n; i++)
        cancel_queue_settle(&k->cancels, some[i], now, lately_until(k, now));
    (void)cancel_queue_repeat(&k->cancels, k->c->topo, now);
    return true;
}

/* Holds: mu, released while it talks. Tell what has happened; false: there is nothing to tell. */
static bool tell_notes_locked(struct keeper *k, int64_t now)
{
    mutex_assert_held(&k->mu);
    struct notes *q = &k->c->notes;
    if (now < notes_due(q))
        return false;
    int64_t wanted = clock_earlier(now + NOTES_ATTEMPT_MS, client_deadline(k->c));
    int64_t deadline = keeper_deadline_locked(k, now, wanted);
    keeper_unlock(k);
    (void)notes_run(k->c, q, deadline, false);
    keeper_lock(k);
    return true;
}

static int64_t next_due_locked(const struct keeper *k)
{
    mutex_assert_held(&k->mu);
    const struct heap_node *n = heap_first(&k->renewals);
    int64_t due = clock_earlier(n ? n->due_ms : CLOCK_NEVER, cancel_queue_due(&k->cancels));
    due = clock_earlier(due, held_next_ms(k));
    due = clock_earlier(due, notes_due(&k->c->notes));
    if (k->named.len)
        due = clock_earlier(due, k->record_fresh_until_ms);
    return clock_earlier(due, k->announce_at_ms);
}

static void *keeper_main(void *arg)
{
    struct keeper *k = arg;
    keeper_lock(k);
    while (!k->stopping) {
        keeper_verify_locked(k);
        int64_t now = clock_now_ms();
        if (renew_due_locked(k, now) || held_due_locked(k, now) || finish_cancels_locked(k, now)
            || refresh_record_locked(k, now) || tell_notes_locked(k, now))
            continue; /* renewals always go first */
        int64_t due = next_due_locked(k);
        int64_t until = k->keeper_wakes_ms = keeper_next_wake(k->keeper_wakes_ms, due, now);
        k->keeper_sleeps_ms = until;
        keeper_unlock(k);
        alarm_wait(&k->keeper_alarm, until);
        keeper_lock(k);
        keeper_awake_locked(k, clock_now_ms());
        k->keeper_sleeps_ms = CLOCK_NEVER;
    }
    keeper_unlock(k);
    return NULL;
}

/* ---- open and close ---------------------------------------------------------------------- */

void keeper_stop(struct keeper *k)
{
    keeper_lock(k);
    k->stopping = true;
    atomic_store(&k->hurry, 1); /* nothing that it asks now is worth waiting for */
    keeper_unlock(k);
    alarm_ring(&k->keeper_alarm);
    alarm_ring(&k->watch_alarm);
}

static struct keeper *new_keeper(struct hf_client *c)
{
    struct keeper *k = mem_zalloc(sizeof *k);
    if (!k || !(k->round = renew_new()) || !(k->sweep = held_new())) {
        if (k)
            mem_free(k->round);
        mem_free(k);
        return NULL;
    }
    k->c = c;
    k->keeper_wakes_ms = k->watch_wakes_ms = k->min_grace_ms = CLOCK_NEVER;
    k->announce_at_ms = k->keeper_sleeps_ms = k->watch_sleeps_ms = CLOCK_NEVER;
    k->awake_ms = clock_now_ms();
    cancel_queue_init(&k->cancels);
    k->keeper_alarm = k->watch_alarm = (struct alarm){ -1, -1 };
    mutex_init(&k->turn, MUTEX_KEEPER_TURN);
    mutex_init(&k->mu, MUTEX_KEEPER);
    return k;
}

hf_err keeper_open(struct hf_client *c, struct keeper **ret, hf_error *reterr)
{
    struct keeper *k = new_keeper(c);
    if (!k)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    int e = 0;
    if (alarm_open(&k->keeper_alarm) < 0 || alarm_open(&k->watch_alarm) < 0)
        e = errno;
    else if ((e = thread_start(&k->watch_thread, "hf-watchdog", keeper_watchdog, k)) == 0
             && (e = thread_start(&k->keeper_thread, "hf-keeper", keeper_main, k)) != 0) {
        keeper_stop(k);
        thread_join(k->watch_thread);
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
    cancel_queue_clear(&k->cancels);
    lease_set_clear(&k->leases);
    heap_clear(&k->renewals);
    heap_clear(&k->watches);
    heap_clear(&k->lengths);
    heap_clear(&k->named);
    if (k->c->generation == forkguard_generation()) {
        alarm_close(&k->keeper_alarm);
        alarm_close(&k->watch_alarm);
        mutex_destroy(&k->mu);
        mutex_destroy(&k->turn);
    }
    mem_free(k->sweep);
    mem_free(k->round);
    mem_free(k);
    return NULL;
}

/* One last attempt for each, as long as they fare well: else the others would fare no better. */
static void finish_all_cancels(struct keeper *k, int64_t deadline_ms)
{
    struct cancel_entry *some[CANCELS_AT_ONCE];
    size_t n;
    bool failed = false;
    while (!failed
           && (n = cancel_queue_take(&k->cancels, CLOCK_NEVER, some, CANCELS_AT_ONCE)) > 0) {
        cancel_entries_run(k->c, some, n, deadline_ms);
        for (size_t i = 0; i < n; i++) {
            failed |= some[i]->result != HF_OK;
            cancel_queue_drop(&k->cancels, some[i]);
        }
    }
}

struct keeper *keeper_free(struct keeper *k, int64_t deadline_ms)
{
    if (!k)
        return NULL;
    keeper_stop(k);
    thread_join(k->keeper_thread);
    thread_join(k->watch_thread);
    finish_all_cancels(k, deadline_ms);
    while (notes_due(&k->c->notes) != CLOCK_NEVER)
        (void)notes_run(k->c, &k->c->notes, deadline_ms, true);
    if (k->record_fresh_until_ms && !k->record_stays)
        (void)record_delete(k->c->exec, k->c->record_key, deadline_ms);
    return keeper_forget(k);
}

/* ---- leases ------------------------------------------------------------------------------ */

hf_err keeper_reserve(struct keeper *k, hf_error *reterr)
{
    keeper_lock(k);
    size_t n = k->reserved + 1;
    bool short_of_memory = lease_set_reserve(&k->leases, n) < 0 || heap_reserve(&k->renewals, n) < 0
                           || heap_reserve(&k->watches, n) < 0 || heap_reserve(&k->lengths, n) < 0
                           || heap_reserve(&k->named, n) < 0;
    if (!short_of_memory)
        k->reserved = n;
    keeper_unlock(k);
    return short_of_memory ? err_set(reterr, HF_ENOMEM, "out of memory") : HF_OK;
}

void keeper_unreserve(struct keeper *k)
{
    keeper_lock(k);
    k->reserved--;
    keeper_unlock(k);
}

void keeper_give_up(struct keeper *k, const struct op_cancel *what, int64_t ttl_ms)
{
    struct op_cancel remembered = *what;
    remembered.remember_ms = CLIENT_TOMBSTONE_MS;
    int64_t until = clock_add(clock_now_ms(), ttl_ms + CLIENT_TOMBSTONE_MS);
    struct cancel_entry *en = cancel_entry_new(k->c, &remembered, until);
    if (!en)
        return;
    keeper_lock(k);
    bool added = cancel_queue_add(&k->cancels, en);
    if (added)
        keeper_wake_locked(k, 0);
    keeper_unlock(k);
    if (!added)
        cancel_entry_free(en);
}

bool keeper_gives_up(struct keeper *k, hf_bytes name, uint64_t first)
{
    bool found = false;
    keeper_lock(k);
    for (const struct cancel_entry *en = k->cancels.newest; en && !found; en = en->older)
        found = en->keys->name.len == name.len
                && memcmp(en->keys->name.data, name.data, name.len) == 0
                && client_sequence_of(k->c, en->what.token) >= first;
    keeper_unlock(k);
    return found;
}

void keeper_released(struct keeper *k, const struct op_cancel *what, unsigned moves)
{
    int64_t now = clock_now_ms(), until = lately_until(k, now);
    struct cancel_entry *en = until ? cancel_entry_new(k->c, what, until) : NULL;
    if (!en)
        return; /* the ttl has to do */
    en->moves = moves;
    keeper_lock(k);
    bool added = cancel_queue_released(&k->cancels, en, now);
    if (added && moves != topo_moves_of(k->c->topo, en->keys->key[KEY_LOCK])) {
        (void)cancel_queue_repeat(&k->cancels, k->c->topo, now);
        keeper_wake_locked(k, now);
    }
    keeper_unlock(k);
    if (!added)
        cancel_entry_free(en);
}

size_t keeper_list(struct keeper *k, struct lease **ret, size_t max)
{
    size_t n = 0;
    keeper_lock(k);
    for (; n < k->leases.n && n < max; n++)
        ret[n] = k->leases.row[n];
    keeper_unlock(k);
    return n;
}

static bool is_held_by(const struct lease *l, uint64_t thread, hf_bytes owner)
{
    hf_bytes id = l->grant.owner;
    return (thread && l->thread == thread)
           || (owner.len && id.len == owner.len && memcmp(id.data, owner.data, id.len) == 0);
}

size_t keeper_held(struct keeper *k, uint64_t thread, hf_bytes owner, bool all,
                   struct keeper_holding *ret, size_t max)
{
    size_t n = 0;
    int64_t now = clock_now_ms();
    keeper_lock(k);
    for (size_t i = 0; i < k->leases.n && n < max; i++) {
        const struct lease *l = k->leases.row[i];
        hf_bytes name = l->grant.keys->name;
        /* One that nobody renews ends by itself. */
        bool wanted = all || (l->renew && is_held_by(l, thread, owner));
        if (!lease_believed(l, now) || !wanted)
            continue;
        struct keeper_holding *h = &ret[n];
        /* A request that is under way may be about to share it. */
        *h = (struct keeper_holding){ .fence = l->grant.fence,
                                      .shared = l->exclusive || l->grant.shared,
                                      .name = mem_copy(name.data, name.len),
                                      .name_len = name.len };
        memcpy(h->token, l->grant.token, sizeof h->token);
        n += h->name != NULL;
    }
    keeper_unlock(k);
    return n;
}

bool keeper_any(struct keeper *k)
{
    keeper_lock(k);
    bool any = k->leases.n > 0;
    keeper_unlock(k);
    return any;
}

void keeper_nudge(struct keeper *k)
{
    keeper_lock(k);
    keeper_wake_locked(k, 0);
    keeper_unlock(k);
}

void keeper_announce(struct keeper *k)
{
    int64_t at = clock_now_ms() + KEEPER_PUBLISH_AFTER_MS;
    keeper_lock(k);
    if (at < k->announce_at_ms) {
        k->announce_at_ms = at;
        keeper_wake_locked(k, at);
    }
    keeper_unlock(k);
}

bool keeper_holds(struct keeper *k, uint64_t sequence)
{
    keeper_lock(k);
    bool held = lease_set_find(&k->leases, sequence) != NULL;
    keeper_unlock(k);
    return held;
}

enum keeper_turn keeper_follow(struct keeper *k, const char *token, hf_bytes key, struct task *t,
                               struct record_writing **ret)
{
    struct record_entry entry[RECORD_ENTRIES_MAX];
    int64_t ttl_ms, now = clock_now_ms();
    keeper_lock(k);
    struct lease *l = lease_set_find(&k->leases, client_sequence_of(k->c, token));
    if (!l || !lease_idle_locked(l, t)) {
        keeper_unlock(k);
        return l ? TURN_WAIT : TURN_LOST;
    }
    l->follower = key;
    keeper_name_locked(k, l);
    size_t n = compose_record_locked(k, now, entry, &ttl_ms);
    int64_t deadline = keeper_deadline_locked(k, now, client_deadline(k->c));
    keeper_unlock(k);
    *ret = record_writing_new(k->c->exec, k->c->record_key, &k->c->identity, entry, n, ttl_ms,
                              deadline, t);
    return TURN_HELD;
}

struct record_writing *keeper_publish(struct keeper *k, const struct lease *l, int64_t ttl_ms,
                                      struct task *t)
{
    struct record_entry entry[RECORD_ENTRIES_MAX];
    int64_t ttl;

    keeper_lock(k);
    size_t n = list_named_locked(k, entry, &ttl);
    k->record_stays = true;
    if (!l->naming.at && n < RECORD_ENTRIES_MAX) {
        entry[n] = entry_of(l, clock_now_ms());
        entry[n].lease_ms = ttl_ms;
        entry[n++].left = true;
    }
    keeper_unlock(k);
    int64_t left = record_ttl(ttl_ms);
    return record_writing_new(k->c->exec, k->c->record_key, &k->c->identity, entry, n,
                              ttl > left ? ttl : left, client_deadline(k->c), t);
}
