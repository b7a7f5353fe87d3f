/* SPDX-License-Identifier: MIT
 * waiter.c - waiting for one's turn.
 *
 *      join -> queued            [join]     refused, with a ticket
 *      queued -> claim           [step]     a message, a look or a repeated join says: yours
 *      claim -> granted          [claim]    confirmed; or at once, if the refusal is fresh enough
 *      claim -> join             [claim]    too late: a new ticket, a wider window
 *      queued -> join            [look]     not in the queue any more; or the inbox broke
 */
#include "session/waiter.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "session/giveup.h"
#include "session/hint.h"
#include "session/renew.h"

#define CLAIM_MS      1000
#define CLAIM_MAX_MS  10000
#define POLL_MIN_MS   10
#define POLL_MAX_MS   250
#define LOOK_MS       250
#define SERVED        256

/* ---- the registry: whom a message is for, and who looks ------------------------------------- */

struct group { /* the waiters of one lock; in a tree by its key */
    hf_bytes       key;
    struct waiter *youngest;
};

struct waiters {
    hf_client      *c;
    pthread_mutex_t mu;
    void           *by_sequence; /* tsearch(3) of struct waiter */
    void           *by_key;      /* of struct group */
    struct {
        uint64_t sequence, number;
    } served[SERVED]; /* the last that needed no message: theirs may still come */
    size_t          next_served;
};

static int compare_sequence(const void *a, const void *b)
{
    uint64_t x = ((const struct waiter *)a)->sequence, y = ((const struct waiter *)b)->sequence;
    return x < y ? -1 : x > y;
}

static int compare_key(const void *a, const void *b)
{
    hf_bytes x = ((const struct group *)a)->key, y = ((const struct group *)b)->key;
    int d = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return d ? d : x.len < y.len ? -1 : x.len > y.len;
}

struct waiters *waiters_new(hf_client *c)
{
    struct waiters *ws = mem_zalloc(sizeof *ws);
    if (ws) {
        ws->c = c;
        pthread_mutex_init(&ws->mu, NULL);
    }
    return ws;
}

struct waiters *waiters_free(struct waiters *ws)
{
    mem_free(ws); /* whoever waits must be gone: nothing is in the trees */
    return NULL;
}

static struct group *find_group(struct waiters *ws, const struct waiter *w)
{
    struct group probe = { .key = w->a.keys->key[KEY_LOCK] };
    struct group **found = tfind(&probe, &ws->by_key, compare_key);
    return found ? *found : NULL;
}

/* Holds: mu. NULL: no memory. */
static struct group *get_group(struct waiters *ws, const struct waiter *w)
{
    struct group *g = find_group(ws, w);
    if (g || !(g = mem_zalloc(sizeof *g)))
        return g;
    g->key = w->a.keys->key[KEY_LOCK];
    if (tsearch(g, &ws->by_key, compare_key))
        return g;
    mem_free(g);
    return NULL;
}

static void drop_group(struct waiters *ws, struct group *g)
{
    tdelete(g, &ws->by_key, compare_key);
    mem_free(g);
}

hf_err waiter_begin(hf_client *c, struct waiter *w, hf_error *reterr)
{
    struct waiters *ws = c->waiters;
    char random[33];
    if (random_id(random) < 0)
        return err_set(reterr, HF_ESYS, "no random numbers from the kernel");
    memcpy(w->a.nonce, random, sizeof w->a.nonce - 1);
    w->claim_ms = CLAIM_MS;

    pthread_mutex_lock(&ws->mu);
    struct group *g = get_group(ws, w);
    bool ok = g && tsearch(w, &ws->by_sequence, compare_sequence);
    if (ok) {
        w->older = g->youngest;
        if (w->older)
            w->older->younger = w;
        g->youngest = w;
        w->since_ms = clock_now_ms();
        w->registered = true;
    } else if (g && !g->youngest) {
        drop_group(ws, g);
    }
    pthread_mutex_unlock(&ws->mu);
    if (ok && !w->reads)
        client_expect(c, true);
    return ok ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

static void unregister(struct waiters *ws, struct waiter *w)
{
    struct waiter *next = NULL;
    pthread_mutex_lock(&ws->mu);
    if (w->registered) {
        struct group *g = find_group(ws, w);
        tdelete(w, &ws->by_sequence, compare_sequence);
        if (w->older)
            w->older->younger = w->younger;
        if (w->younger)
            w->younger->older = w->older;
        else if ((g->youngest = next = w->older))
            next->look_now = true; /* it looks for all of them from now on */
        if (!g->youngest)
            drop_group(ws, g);
        else if (g->key.data == w->a.keys->key[KEY_LOCK].data)
            g->key = g->youngest->a.keys->key[KEY_LOCK]; /* the same bytes, of one who stays */
        w->registered = false;
        if (!w->reads)
            client_expect(ws->c, false);
        ws->served[ws->next_served % SERVED].sequence = w->sequence;
        ws->served[ws->next_served++ % SERVED].number = w->a.fence;
        if (next)
            next->wake(next);
    }
    pthread_mutex_unlock(&ws->mu);
}

/* twalk(3) hands nothing on: this is who is being listed. */
static _Thread_local struct {
    struct record_entry *entry;
    size_t               n, max, young;
    int64_t              now_ms, age_ms;
} listing;

static void list_one(const void *node, VISIT visit, int depth)
{
    const struct waiter *w = *(struct waiter *const *)node;
    (void)depth;
    if (visit != postorder && visit != leaf)
        return;
    int64_t age = listing.now_ms - w->since_ms;
    if (age < listing.age_ms)
        listing.young++;
    else if (listing.n < listing.max)
        listing.entry[listing.n++] = (struct record_entry){ w->sequence, age, true };
}

size_t waiters_list(struct waiters *ws, int64_t age_ms, struct record_entry *ret, size_t max,
                    size_t *ret_young)
{
    pthread_mutex_lock(&ws->mu);
    listing.entry = ret;
    listing.n = listing.young = 0;
    listing.max = max;
    listing.age_ms = age_ms;
    listing.now_ms = clock_now_ms();
    twalk(ws->by_sequence, list_one);
    *ret_young = listing.young;
    pthread_mutex_unlock(&ws->mu);
    return listing.n;
}

bool waiters_any(struct waiters *ws)
{
    pthread_mutex_lock(&ws->mu);
    bool any = ws->by_sequence != NULL;
    pthread_mutex_unlock(&ws->mu);
    return any;
}

static bool is_youngest(struct waiters *ws, const struct waiter *w)
{
    pthread_mutex_lock(&ws->mu);
    bool youngest = !w->younger;
    pthread_mutex_unlock(&ws->mu);
    return youngest;
}

/* As listing: whose subscription was made anew. */
static _Thread_local struct {
    struct home *home;
    unsigned     epoch;
} rejoining;

static void rejoin_one(const void *node, VISIT visit, int depth)
{
    struct waiter *w = *(struct waiter *const *)node;
    (void)depth;
    if ((visit == preorder || visit == leaf) && w->a.keys->home == rejoining.home) {
        w->rejoin = true;
        w->new_epoch = rejoining.epoch;
        w->wake(w);
    }
}

void waiters_rejoin(struct waiters *ws, struct home *h, unsigned epoch)
{
    pthread_mutex_lock(&ws->mu);
    rejoining.home = h;
    rejoining.epoch = epoch;
    twalk(ws->by_sequence, rejoin_one);
    pthread_mutex_unlock(&ws->mu);
}

/* The queue is gone, or we were dropped from it: so were the others of this client. */
static void rejoin_group(struct waiters *ws, const struct waiter *w)
{
    pthread_mutex_lock(&ws->mu);
    for (struct waiter *other = w->older; other; other = other->older) {
        other->dropped = true;
        other->wake(other);
    }
    pthread_mutex_unlock(&ws->mu);
}

/* Holds: mu. Whether a message for this token, for which nobody waits, is only late. Under a
 * larger number it is a new grant: by a server that does not know that the token was served (a
 * failover). */
static bool was_served(const struct waiters *ws, uint64_t sequence, uint64_t number)
{
    for (size_t i = 0; i < SERVED; i++)
        if (ws->served[i].sequence == sequence && number <= ws->served[i].number)
            return true;
    return false;
}

/* A grant for a token that nobody here waits for: it must not stay with us. */
static void refuse_grant(struct waiters *ws, const char *token, const char *key, size_t key_len)
{
    size_t skip = strlen(ws->c->prefix);
    struct lock_keys *keys;
    if (key_len <= skip
        || client_keys(ws->c, (hf_bytes){ key + skip, key_len - skip }, &keys, NULL))
        return;
    struct cancel what = { .keys = keys, .token = token, .remember = true };
    keeper_give_up(ws->c->keeper, &what, CLAIM_MAX_MS);
    keys_free(keys);
}

/* Cut the next word off *text. sscanf() would do, in several times the time, on every handover. */
static bool word(const char **text, char *ret, size_t size)
{
    size_t n = strcspn(*text, " ");
    if (n == 0 || n >= size)
        return false;
    memcpy(ret, *text, n);
    ret[n] = '\0';
    *text += n + ((*text)[n] == ' ');
    return true;
}

/* "granted TOKEN NUMBER NONCE KEY" or "watch TOKEN". Anybody may publish to our channel: only who
 * knows the nonce of our place is believed; anything else makes us look. */
void waiters_message(struct waiters *ws, const char *text, size_t len)
{
    char kind[8], token[LEASE_TOKEN_SIZE], number[24] = "", nonce[17] = "";
    const char *rest = text;
    if (!word(&rest, kind, sizeof kind) || !word(&rest, token, sizeof token))
        return;
    bool grant = strcmp(kind, "granted") == 0;
    if (grant ? !word(&rest, number, sizeof number) || !word(&rest, nonce, sizeof nonce)
              : strcmp(kind, "watch") != 0)
        return;
    struct waiter probe = { .sequence = client_sequence_of(ws->c, token) };
    if (!probe.sequence)
        return;
    hf_bytes key = { rest, grant ? len - (size_t)(rest - text) : 0 };

    pthread_mutex_lock(&ws->mu);
    struct waiter **found = tfind(&probe, &ws->by_sequence, compare_sequence);
    if (found) {
        struct waiter *w = *found;
        hf_bytes ours = w->a.keys->key[KEY_LOCK];
        if (grant && strcmp(nonce, w->a.nonce) == 0 && key.len == ours.len
            && memcmp(key.data, ours.data, key.len) == 0)
            w->granted = strtoull(number, NULL, 10);
        else
            w->look_now = true;
        w->wake(w);
    }
    bool late = !found && was_served(ws, probe.sequence, strtoull(number, NULL, 10));
    pthread_mutex_unlock(&ws->mu);
    if (!found && grant && !late && !keeper_holds(ws->c->keeper, probe.sequence))
        refuse_grant(ws, token, key.data, key.len);
}

void waiters_hint(struct waiters *ws, uint64_t sequence, size_t member)
{
    struct waiter probe = { .sequence = sequence };
    pthread_mutex_lock(&ws->mu);
    struct waiter **found = tfind(&probe, &ws->by_sequence, compare_sequence);
    if (found) {
        (*found)->hints |= UINT64_C(1) << member;
        (*found)->wake(*found);
    }
    pthread_mutex_unlock(&ws->mu);
}

uint64_t waiters_hints(struct waiters *ws, struct waiter *w)
{
    pthread_mutex_lock(&ws->mu);
    uint64_t hints = w->hints;
    w->hints = 0;
    pthread_mutex_unlock(&ws->mu);
    return hints;
}

/* ---- one waiter ------------------------------------------------------------------------------ */

/* Under which terms we ask: in the queue and with our grace if the server sees us, else by polling
 * and with the ttl alone. One token, one set of terms: they stay as soon as something may stand on
 * the server under them. */
static hf_err choose_terms(hf_client *c, struct waiter *w, int64_t deadline_ms, hf_error *reterr)
{
    bool fixed = w->a.in_doubt > 0 || w->ticket != 0;
    enum inbox_answer a = client_present(c, w->a.keys->home, w->wanted_grace_ms, deadline_ms,
                                         w->a.stop, &w->terms);
    if (fixed && w->a.claim_ms == 0)
        return HF_OK;
    if (fixed && a != INBOX_READY) {
        w->restart = a == INBOX_REFUSED;
        return err_set(reterr, HF_ECONN, "the session's connection cannot be made");
    }
    w->a.grace_ms = a == INBOX_READY ? w->wanted_grace_ms : 0;
    w->a.claim_ms = a == INBOX_READY ? w->claim_ms : 0;
    w->join_epoch = w->terms.epoch;
    return HF_OK;
}

/* Granted with a grace: by the server that sees us? Else nobody may believe in it. */
static hf_err check_present(hf_client *c, struct waiter *w, int64_t deadline_ms, hf_error *reterr)
{
    if (w->a.grace_ms == 0
        || client_still_present(c, w->a.keys->home, w->a.grace_ms, deadline_ms, w->a.stop, &w->terms))
        return HF_OK;
    w->a.in_doubt++;
    w->restart = true;
    return err_set(reterr, HF_ECONN, "the server that granted the lock does not see our session");
}

/* Ask for the lock and, if it is another's, for a place in the queue. */
static hf_err join(hf_client *c, struct waiter *w, int64_t deadline_ms, hf_error *reterr)
{
    bool old_place = w->ticket != 0;
    w->retry_at_ms = clock_now_ms() + random_between(POLL_MIN_MS, POLL_MAX_MS);
    hf_err e = choose_terms(c, w, deadline_ms, reterr);
    if (e)
        return e;
    w->a.ticket = w->ticket;
    e = attempt_run(c, &w->a, deadline_ms, reterr);
    if (!e) {
        w->terms.sent_ms = w->a.sent_ms;
        w->terms.ttl_ms = w->a.ttl_ms;
        return check_present(c, w, deadline_ms, reterr);
    }
    if (e == HF_EBUSY && w->a.claim_ms > 0) {
        w->queued = w->a.ticket != 0;
        w->ticket = w->a.ticket;
        /* A refusal that gave us a fresh ticket is older than every grant with a larger number.
         * With an old ticket an old grant may still be on its way to us: it must be confirmed. */
        w->refused_ms = old_place || w->a.named ? 0 : w->a.sent_ms;
        w->look_at_ms = clock_now_ms() + random_between(LOOK_MS, LOOK_MS + LOOK_MS / 5);
        keeper_announce(c->keeper);
    }
    return e;
}

/* May we hold at once what was handed over with this number? It was granted after our refusal was
 * sent, so it lasts at least until that plus the claim window; the keeper confirms it in time. */
static bool at_once(const struct waiter *w, uint64_t number)
{
    return w->refused_ms && !w->confirm && number > w->ticket && w->terms.epoch == w->join_epoch
           && clock_now_ms() - w->refused_ms < CLAIM_MS / 2;
}

/* The lock was handed over with this number. Make it ours, or learn that it was too late. */
static hf_err claim(hf_client *c, struct waiter *w, uint64_t number, int64_t deadline_ms,
                    hf_error *reterr)
{
    if (number < w->ticket)
        return HF_EBUSY; /* of an earlier place: this one stands */
    w->a.fence = number;
    w->queued = false;
    if (w->a.grace_ms > 0
        && client_present(c, w->a.keys->home, w->a.grace_ms, deadline_ms, w->a.stop, &w->terms)
               != INBOX_READY) {
        w->retry_at_ms = clock_now_ms() + POLL_MIN_MS;
        return HF_EBUSY; /* nobody sees us: we must not believe what others may take from us */
    }
    if (at_once(w, number)) {
        w->terms.sent_ms = w->refused_ms;
        w->terms.ttl_ms = CLAIM_MS;
        return HF_OK;
    }
    struct renew_answer got;
    hf_err e = attempt_claim(c, &w->a, &got, reterr);
    if (e)
        return e;
    w->terms.sent_ms = got.sent_ms;
    w->terms.ttl_ms = w->a.ttl_ms;
    if (got.loss == HF_LOSS_NONE)
        return check_present(c, w, deadline_ms, reterr);
    w->ticket = 0; /* we lost our turn, and get a wider window for the next one */
    w->retry_at_ms = 0;
    w->claim_ms = 2 * w->claim_ms < CLAIM_MAX_MS ? 2 * w->claim_ms : CLAIM_MAX_MS;
    return HF_EBUSY;
}

/* How long to the next look, with so many younger waiters of other clients behind us. */
static int64_t pause_ms(long long younger)
{
    int64_t pause = younger == 0 ? LOOK_MS : younger < 4 ? 2000 * younger * younger : 20000;
    return random_between(pause, pause + pause / 5);
}

static hf_err look(hf_client *c, struct waiter *w, int64_t deadline_ms, uint64_t *ret_named,
                   hf_error *reterr)
{
    char member[ATTEMPT_MEMBER_MAX], text[ABSENCES_MAX][24];
    int64_t now = clock_now_ms();
    const hf_bytes *key = w->a.keys->key;
    struct greeting *g = &w->a.keys->home->greeting;
    hf_bytes keys[] = { key[KEY_LOCK], hf_str(g->counter), key[KEY_QUEUE], hf_str(g->reign),
                        key[KEY_ABSENT], key[KEY_OWN] };
    hf_bytes args[1 + ABSENCES_ARGS_MAX] = { { member, attempt_member(&w->a, member) } };
    struct script_call sc = { .id = SCRIPT_look, .nkeys = 6, .keys = keys, .args = args,
                              .nargs = 1 + absences_args(w->absent, now, args + 1, text),
                              .deadline_ms = deadline_ms, .stop = w->a.stop, .greeting = g };
    w->look_at_ms = now + random_between(LOOK_MS, LOOK_MS + LOOK_MS / 5);
    hf_err e = script_run(c->topo, &sc, reterr);
    if (e)
        return e;
    struct reply *rp = sc.reply;
    if (rp->type != REPLY_ARRAY || rp->len != 5 || rp->item[0]->type != REPLY_INT
        || rp->item[1]->type != REPLY_INT || rp->item[3]->type != REPLY_ARRAY) {
        reply_free(rp);
        return err_set(reterr, HF_EPROTO, "the answer to a look makes no sense");
    }
    long long what = rp->item[0]->num, next = rp->item[1]->num;
    w->called = false;
    now = clock_now_ms();
    w->look_at_ms = now + pause_ms(rp->item[2]->num);
    if (what != 4 && next > 0 && now + next < w->look_at_ms)
        w->look_at_ms = now + next;
    w->absent = absences_update(w->absent, rp->item[3], now);
    w->queued = what != 3;
    if (!w->queued) {
        w->retry_at_ms = 0;
        rejoin_group(c->waiters, w);
    }
    *ret_named = what == 4 ? (uint64_t)next : 0;
    reply_free(rp);
    return HF_EBUSY;
}

/* What others told us since the last step. */
static uint64_t take_news(struct waiters *ws, struct waiter *w)
{
    pthread_mutex_lock(&ws->mu);
    uint64_t granted = w->granted;
    w->granted = 0;
    /* Who joined after the subscription was made is not concerned by it. */
    if (w->dropped || (w->rejoin && w->join_epoch != w->new_epoch)) {
        w->queued = false;
        w->retry_at_ms = w->refused_ms = 0;
    }
    if (w->look_now) {
        w->look_at_ms = 0;
        w->called = true;
    }
    w->rejoin = w->dropped = w->look_now = false;
    pthread_mutex_unlock(&ws->mu);
    return granted;
}

/* Of one client's waiters the youngest looks for all, and whoever was told to. */
static bool looks(struct waiters *ws, const struct waiter *w)
{
    return w->called || is_youngest(ws, w);
}

/* One thing at the most; HF_EBUSY when there was nothing to do, or nothing came of it. */
static hf_err act(hf_client *c, struct waiter *w, int64_t deadline_ms, hf_error *reterr)
{
    uint64_t named = take_news(c->waiters, w);
    int64_t now = clock_now_ms();
    hf_err e = HF_EBUSY;
    if (named)
        return claim(c, w, named, deadline_ms, reterr);
    if (!w->queued && now >= w->retry_at_ms) {
        e = join(c, w, deadline_ms, reterr);
        named = e == HF_EBUSY ? w->a.named : 0;
    } else if (w->queued && now >= w->look_at_ms && looks(c->waiters, w)) {
        e = look(c, w, deadline_ms, &named, reterr);
    } else {
        return w->trouble ? w->trouble : HF_EBUSY;
    }
    w->trouble = e == HF_EBUSY ? HF_OK : e;
    return named ? claim(c, w, named, deadline_ms, reterr) : e;
}

hf_err waiter_step(hf_client *c, struct waiter *w, int64_t deadline_ms, int64_t *ret_until_ms,
                   hf_error *reterr)
{
    int64_t limit = clock_earlier(deadline_ms, client_deadline(c));
    if (topo_quorum(c->topo))
        return hint_step(c, w, limit, ret_until_ms, reterr);
    hf_err e = act(c, w, limit, reterr);

    int64_t now = clock_now_ms();
    if (w->a.claim_ms == 0 && !w->queued) { /* by polling */
        int64_t step = w->round < 5 ? (int64_t)POLL_MIN_MS << w->round : POLL_MAX_MS;
        w->round++;
        *ret_until_ms = w->retry_at_ms = now + random_between(step / 2, step);
    } else if (!w->queued) {
        *ret_until_ms = w->retry_at_ms;
    } else {
        *ret_until_ms = looks(c->waiters, w) ? w->look_at_ms : CLOCK_NEVER;
    }
    return e;
}

hf_err waiter_end(hf_client *c, struct waiter *w, hf_err e, hf_error *reterr)
{
    unregister(c->waiters, w);
    if (topo_quorum(c->topo))
        hint_leave(c, w, e == HF_OK);
    w->absent = absences_free(w->absent);
    if (e == HF_OK)
        return HF_OK;
    w->a.named = w->granted ? w->granted : w->a.named;
    if (w->ticket)
        w->a.ticket = w->ticket;
    return attempt_abandon(c, &w->a, e, reterr);
}
