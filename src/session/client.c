/* SPDX-License-Identifier: MIT
 * client.c - opening and closing a client, and what every call of it needs.
 */
#include "session/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/random.h"
#include "session/listener.h"
#include "session/waiter.h"
#include "topo/slot.h"

#define TIMEOUT_DEFAULT_MS 5000
#define TIMEOUT_MIN_MS     10
#define TIMEOUT_MAX_MS     600000
#define PREFIX_DEFAULT     "lock:"
#define PREFIX_MAX         256
#define REPLICAS_MAX       100
#define PRESENT_MS         1000 /* to be subscribed and seen; else without */

/* ---- what every call needs ---------------------------------------------------------------- */

hf_err client_enter(const hf_client *c, hf_error *reterr)
{
    if (c->generation != forkguard_generation())
        return err_set(reterr, HF_EFORK,
                       "this handle was made before fork(): open a client of its own in the child");
    if (atomic_load_explicit(&c->closed, memory_order_relaxed))
        return err_set(reterr, HF_EINVAL, "the client of this handle has been freed");
    return HF_OK;
}

uint64_t client_token(hf_client *c, char *ret, size_t size)
{
    uint64_t n = atomic_fetch_add(&c->sequence, 1) + 1;
    snprintf(ret, size, "%s.%llu", c->session, (unsigned long long)n);
    return n;
}

uint64_t client_sequence_of(const hf_client *c, const char *token)
{
    size_t n = strlen(c->session);
    if (strncmp(token, c->session, n) != 0 || token[n] != '.'
        || strspn(token + n + 1, "0123456789") != strlen(token + n + 1))
        return 0;
    uint64_t sequence = strtoull(token + n + 1, NULL, 10);
    return sequence <= atomic_load(&c->sequence) ? sequence : 0;
}

int64_t client_deadline(const hf_client *c)
{
    int64_t deadline = clock_add(clock_now_ms(), c->timeout_ms);
    int64_t closing = atomic_load_explicit(&c->closing_ms, memory_order_relaxed);
    return closing && closing < deadline ? closing : deadline;
}

int64_t client_default_grace(const hf_client *c)
{
    return topo_default_grace_ms(c->topo);
}

int client_cancel_off(void)
{
    int before = PTHREAD_CANCEL_ENABLE;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

void client_cancel_restore(const int *state)
{
    pthread_setcancelstate(*state, NULL);
}

const char *hf_client_url(const hf_client *c)
{
    return topo_shown(c->topo);
}

hf_err hf_client_unlock_all(hf_client *c, size_t *ret_count, hf_error *reterr)
{
    CALL_GUARD;
    struct lease *held[64];
    size_t count = 0, n;
    hf_err first = client_enter(c, reterr);
    if (first)
        return first;
    while ((n = keeper_list(c->keeper, held, sizeof held / sizeof held[0])) > 0) {
        for (size_t i = 0; i < n; i++) {
            hf_err e = held[i]->release(held[i], first ? NULL : reterr);
            if (!e)
                count++;
            else if (!first)
                first = e;
        }
    }
    if (ret_count)
        *ret_count = count;
    return first;
}

/* ---- being present --------------------------------------------------------------------------- */

hf_err client_keys(const hf_client *c, hf_bytes name, struct lock_keys **ret, hf_error *reterr)
{
    hf_err e = keys_new(c->prefix, name, ret, reterr);
    if (!e && !((*ret)->home = homes_of(c->homes, (*ret)->key[KEY_LOCK]))) {
        *ret = keys_free(*ret);
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    }
    return e;
}

static void on_up(void *arg, struct subscription *sub, unsigned epoch)
{
    hf_client *c = arg;
    keeper_subscribed(c->keeper, sub->arg, epoch);
    waiters_rejoin(c->waiters, sub->arg, epoch);
    listeners_ring_all(c->listeners);
}

static void on_proved(void *arg, const struct inbox *in, int64_t sent_ms)
{
    keeper_present(((hf_client *)arg)->keeper, in, sent_ms);
}

static void on_message(void *arg, const char *text, size_t len)
{
    hf_client *c = arg;
    waiters_message(c->waiters, text, len);
    listeners_message(c, text);
}

static void on_astray(void *arg, struct subscription *sub);

/* Holds: session_mu. The inbox at a server, opened if there is none; NULL: it cannot be. */
static struct inbox *inbox_at(hf_client *c, const void *server)
{
    struct inbox_events events = { on_up, on_proved, on_message, on_astray, c, &c->expectant };
    for (size_t i = 0; i < c->ninboxes; i++)
        if (inbox_server(c->inboxes[i]) == server)
            return c->inboxes[i];
    if (c->inboxes_closed || c->ninboxes == CLIENT_INBOXES_MAX
        || inbox_open(c->topo, server, &events, &c->log, &c->inboxes[c->ninboxes], NULL))
        return NULL;
    if (c->prove_for_ms) /* what is held at other servers may be the first that is held here */
        inbox_prove_for(c->inboxes[c->ninboxes], c->prove_for_ms);
    return c->inboxes[c->ninboxes++];
}

/* Holds: session_mu. Subscribe to the channel of h where its keys are now. */
static void settle_in(hf_client *c, struct home *h)
{
    h->inbox = inbox_at(c, topo_server(c->topo, hf_str(h->sub.channel)));
    if (h->inbox)
        inbox_add(h->inbox, &h->sub);
}

static struct inbox *get_inbox(hf_client *c, struct home *h)
{
    pthread_mutex_lock(&c->session_mu);
    if (!h->inbox)
        settle_in(c, h);
    struct inbox *in = h->inbox;
    pthread_mutex_unlock(&c->session_mu);
    return in;
}

/* Thread: an inbox's. */
static void on_astray(void *arg, struct subscription *sub)
{
    hf_client *c = arg;
    pthread_mutex_lock(&c->session_mu);
    settle_in(c, sub->arg);
    pthread_mutex_unlock(&c->session_mu);
}

static void warn_about_info(hf_client *c)
{
    log_to(&c->log, HF_LOG_WARNING,
           "this user may not run INFO: a restart of the server cannot be noticed, fencing "
           "numbers rest on its clock and counter alone (see docs/acl.md)");
}

/* Ask the server, over the command connection, whether it sees our subscription. */
static enum inbox_answer seen(hf_client *c, struct home *h, unsigned inbox_epoch, int64_t deadline_ms,
                              const atomic_int *stop)
{
    struct greeting *g = &h->greeting;
    unsigned conn = conn_epoch(topo_conn(c->topo, hf_str(g->counter)));
    pthread_mutex_lock(&c->session_mu);
    bool known = conn && conn == h->seen_conn && inbox_epoch == h->seen_epoch;
    pthread_mutex_unlock(&c->session_mu);
    if (known)
        return INBOX_READY;

    hf_bytes keys[] = { hf_str(g->counter), hf_str(g->reign) }, args[] = { hf_str(h->sub.channel) };
    struct script_call sc = { .id = SCRIPT_hello, .nkeys = 2, .keys = keys, .nargs = 1,
                              .args = args, .deadline_ms = deadline_ms, .stop = stop };
    unsigned moves = topo_moves_of(c->topo, keys[0]);
    if (script_run(c->topo, &sc, NULL))
        return INBOX_NOT_YET;
    const struct reply *rp = sc.reply;
    long long listeners = rp->type == REPLY_ARRAY && rp->len == 2 ? rp->item[1]->num : 0;
    bool listening = listeners > 0;
    if (rp->type == REPLY_ARRAY && rp->len == 2)
        atomic_store(&g->done[LANE_PLAIN], greeting_mark(sc.epoch, moves));
    if (topo_cluster(c->topo) && rp->type == REPLY_ARRAY && rp->len && rp->item[0]->num == -5
        && !atomic_exchange(&c->warned_info, true))
        warn_about_info(c);
    reply_free(sc.reply);
    if (listeners < 0 && !atomic_exchange(&c->warned_numsub, true))
        log_to(&c->log, HF_LOG_WARNING,
               "this user may not run PUBSUB %s: waiting is by polling, and a crash costs the "
               "ttl (see docs/acl.md)", topo_cluster(c->topo) ? "SHARDNUMSUB" : "NUMSUB");
    pthread_mutex_lock(&c->session_mu);
    h->seen_conn = listening ? conn : 0;
    h->seen_epoch = inbox_epoch;
    pthread_mutex_unlock(&c->session_mu);
    return listening ? INBOX_READY : listeners < 0 ? INBOX_REFUSED : INBOX_NOT_YET;
}

enum inbox_answer client_present(hf_client *c, struct home *h, int64_t grace_ms, int64_t deadline_ms,
                                 const atomic_int *stop, struct lease_terms *ret_terms)
{
    /* Without scripts nobody could prove that the server sees us; on a quorum there is no one
     * server to be seen by. */
    bool provable = plain_protocol(c->plain) == PROTOCOL_SCRIPT && !topo_quorum(c->topo);
    int64_t now = clock_now_ms(), limit = now + PRESENT_MS;
    if (deadline_ms < CLOCK_NEVER && now + (deadline_ms - now) / 2 < limit)
        limit = now + (deadline_ms - now) / 2; /* the other half is for the lock itself */
    int64_t age = grace_ms > 0 ? grace_ms / 3 : CLOCK_NEVER;
    enum inbox_answer a;
    do {
        struct inbox *in = provable ? get_inbox(c, h) : NULL;
        if (!in)
            return INBOX_REFUSED;
        a = inbox_ready(in, &h->sub, age, limit, stop, &ret_terms->epoch, &ret_terms->present_ms);
        if (a == INBOX_ASTRAY) /* on its way from one server to another */
            clock_sleep_until(clock_now_ms() + 1);
    } while (a == INBOX_ASTRAY && clock_now_ms() < limit);
    if (a == INBOX_ASTRAY)
        return INBOX_NOT_YET;
    return a == INBOX_READY ? seen(c, h, ret_terms->epoch, limit, stop) : a;
}

bool client_still_present(hf_client *c, struct home *h, int64_t grace_ms, int64_t deadline_ms,
                          const atomic_int *stop, struct lease_terms *terms)
{
    struct lease_terms now;
    if (client_present(c, h, grace_ms, deadline_ms, stop, &now) != INBOX_READY
        || now.epoch != terms->epoch)
        return false;
    terms->present_ms = now.present_ms;
    return true;
}

/* Holds: session_mu. Call fn for each inbox that there is. */
static void each_inbox_locked(hf_client *c, void (*fn)(struct inbox *in, int64_t arg), int64_t arg)
{
    for (size_t i = 0; i < c->ninboxes; i++) /* none when the client is being freed: nobody asks then */
        fn(c->inboxes[i], arg);
}

static void each_inbox(hf_client *c, void (*fn)(struct inbox *in, int64_t arg), int64_t arg)
{
    pthread_mutex_lock(&c->session_mu);
    each_inbox_locked(c, fn, arg);
    pthread_mutex_unlock(&c->session_mu);
}

void client_prove_for(hf_client *c, int64_t grace_ms)
{
    pthread_mutex_lock(&c->session_mu);
    c->prove_for_ms = grace_ms;
    each_inbox_locked(c, inbox_prove_for, grace_ms);
    pthread_mutex_unlock(&c->session_mu);
}

void client_wait(hf_client *c, struct home *h, struct park *p, int64_t until_ms)
{
    pthread_mutex_lock(&c->session_mu);
    struct inbox *in = h->inbox;
    pthread_mutex_unlock(&c->session_mu);
    if (in)
        inbox_wait(in, p, until_ms);
    else
        park_wait(p, until_ms);
}

static void expect(struct inbox *in, int64_t arg)
{
    (void)arg;
    inbox_expect(in);
}

void client_expect(hf_client *c, bool more)
{
    if (!more) {
        atomic_fetch_sub(&c->expectant, 1);
        return;
    }
    atomic_fetch_add(&c->expectant, 1);
    each_inbox(c, expect, 0);
}

/* ---- what the topology asks and tells -------------------------------------------------------- */

/* Thread: the topology's. */
static enum topo_use in_use(void *arg)
{
    hf_client *c = arg;
    if (keeper_any(c->keeper))
        return TOPO_HOLDS;
    return waiters_any(c->waiters) || listeners_any(c->listeners) ? TOPO_WAITS : TOPO_IDLE;
}

static void moved(struct inbox *in, int64_t arg)
{
    (void)arg;
    inbox_moved(in);
}

/* Thread: any. The inbox subscribes anew, at the right server; then waiters join again, and what is
 * held counts when it has been found there. */
static void on_moved(void *arg)
{
    hf_client *c = arg;
    keeper_moved(c->keeper);
    each_inbox(c, moved, 0);
}

/* ---- requests without blocking --------------------------------------------------------------- */

hf_err client_worker(hf_client *c, struct worker **ret, hf_error *reterr)
{
    hf_err e = HF_OK;
    pthread_mutex_lock(&c->session_mu);
    if (!c->worker)
        e = worker_open(&c->worker, reterr);
    *ret = c->worker;
    pthread_mutex_unlock(&c->session_mu);
    return e;
}

hf_err hf_client_fd(hf_client *c, int *ret_fd, hf_error *reterr)
{
    struct worker *w;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_worker(c, &w, reterr);
    if (!e)
        *ret_fd = worker_fd(w);
    return e;
}

size_t hf_client_dispatch(hf_client *c)
{
    if (client_enter(c, NULL))
        return 0;
    pthread_mutex_lock(&c->session_mu);
    struct worker *w = c->worker;
    pthread_mutex_unlock(&c->session_mu);
    return w ? worker_dispatch(w) : 0;
}

/* ---- greeting a server --------------------------------------------------------------------- */

/* An evicting policy throws away exactly the keys with a TTL: the locks. Said once. */
static hf_err warn_about_settings(hf_client *c, struct link *l, int64_t deadline_ms,
                                  hf_error *reterr)
{
    struct reply *rp;
    hf_bytes argv[] = { hf_str("INFO"), hf_str("memory") };
    if (atomic_load(&c->warned))
        return HF_OK;
    hf_err e = link_exchange(l, 2, argv, deadline_ms, &rp, reterr);
    if (e)
        return e; /* its reply may still come: the connection cannot be used */
    atomic_store(&c->warned, true);
    const char *policy = rp->type == REPLY_BULK ? strstr(rp->str, "maxmemory_policy:") : NULL;
    const char *limit = rp->type == REPLY_BULK ? strstr(rp->str, "\nmaxmemory:") : NULL;
    if (policy && limit && strtoull(limit + 11, NULL, 10) > 0
        && strncmp(policy + 17, "noeviction", 10) != 0)
        log_to(&c->log, HF_LOG_WARNING,
               "the server may evict locks when its memory is full (maxmemory-policy %.*s): set "
               "maxmemory-policy noeviction", (int)strcspn(policy + 17, "\r\n"), policy + 17);
    reply_free(rp);
    return HF_OK;
}

static hf_err greet(void *arg, struct link *l, int64_t deadline_ms, hf_error *reterr)
{
    hf_client *c = arg;
    long long code = -1;
    if (topo_cluster(c->topo)) /* each slot is greeted by itself */
        return warn_about_settings(c, l, deadline_ms, reterr);
    const struct greeting *g = &c->home->greeting;
    hf_err e = client_hello(c, l, deadline_ms, &code, reterr);
    if (e)
        return e;
    if (code == -4)
        return err_set(reterr, HF_ECOUNTER,
                       "the key %s, the fencing counter, holds something else: look at it, and "
                       "delete it if nobody else needs it", g->counter);
    if (code == -5)
        warn_about_info(c);
    else if (code < 0)
        return err_set(reterr, HF_EPROTO, "the server's answer to the greeting makes no sense");
    return warn_about_settings(c, l, deadline_ms, reterr);
}

/* ---- opening and closing ------------------------------------------------------------------- */

hf_err client_opts_of(const hf_client_opts *opts, hf_client_opts *ret, hf_error *reterr)
{
    memset(ret, 0, sizeof *ret);
    ret->size = sizeof *ret;
    if (!opts)
        return HF_OK;
    if (opts->size < sizeof opts->size || opts->size > 4096)
        return err_set(reterr, HF_EINVAL,
                       "hf_client_opts.size is %zu: set it to sizeof(hf_client_opts)", opts->size);
    memcpy(ret, opts, opts->size < sizeof *ret ? opts->size : sizeof *ret);
    ret->size = sizeof *ret;
    return HF_OK;
}

hf_err client_url_of(const char *text, const hf_client_opts *o, struct url **ret, hf_error *reterr)
{
    if (!text || !*text)
        text = getenv("HOLDFAST_URL");
    if (!text || !*text)
        text = "embedded:";
    hf_err e = url_parse(text, ret, reterr);
    if (e)
        return e;
    if (o->password) {
        url_set_password(*ret, o->password);
        e = (*ret)->password ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
    } else {
        /* The embedded server has none: the folder's permissions guard it. */
        const char *fallback = (*ret)->topology == URL_EMBEDDED ? NULL : getenv("HOLDFAST_PASSWORD");
        e = url_resolve_password(*ret, fallback, reterr);
    }
    if (o->replicas < HF_MAJORITY || o->replicas == -1 || o->replicas > REPLICAS_MAX)
        e = err_set(reterr, HF_EINVAL, "%d replicas: give 1 to %d, HF_MAJORITY, or 0", o->replicas,
                    REPLICAS_MAX);
    if (o->replicas)
        (*ret)->replicas = o->replicas;
    if (!e && (*ret)->topology == URL_SENTINEL)
        e = url_resolve_sentinel_password(*ret, getenv("HOLDFAST_SENTINEL_PASSWORD"), reterr);
    if (e)
        *ret = url_free(*ret);
    return e;
}

const char *client_prefix_of(const struct url *u, const hf_client_opts *o)
{
    return o->prefix ? o->prefix : u->prefix ? u->prefix : PREFIX_DEFAULT;
}

static hf_err set_names(hf_client *c, const char *prefix, bool slotted, hf_error *reterr)
{
    size_t begin, end;
    const char *brace = strchr(prefix, '{');
    if (slotted && brace && !slot_tag(prefix, strlen(prefix), &begin, &end))
        return err_set(reterr, HF_ECONFIG,
                       "the prefix has a { without a tag behind it, so that what follows would decide "
                       "the cluster's slot: close it, or leave it out");
    if (strlen(prefix) > PREFIX_MAX)
        return err_set(reterr, HF_ECONFIG, "the prefix has %zu bytes: at most %d are allowed",
                       strlen(prefix), PREFIX_MAX);
    if (random_id(c->session) < 0)
        return err_set(reterr, HF_ESYS, "no random numbers from the kernel: %s", strerror(errno));
    char tail[64];
    snprintf(tail, sizeof tail, "session:%s", c->session);
    c->prefix = mem_copy(prefix, strlen(prefix));
    c->record_key = keys_reserved(prefix, tail);
    c->names = names_new(c);
    c->homes = homes_new(prefix, c->session, slotted);
    if (!slotted && c->homes)
        c->home = homes_of(c->homes, hf_str(""));
    if (!c->prefix || !c->record_key || !c->names || !c->homes || (!slotted && !c->home))
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return HF_OK;
}

void client_use(hf_client *c)
{
    atomic_fetch_add(&c->users, 1);
}

void client_leave(hf_client *c)
{
    if (atomic_fetch_sub(&c->users, 1) > 1)
        return;
    names_free(c->names);
    identity_clear(&c->identity);
    mem_free(c->prefix);
    mem_free(c->record_key);
    homes_free(c->homes);
    mem_free(c);
}

static hf_err build(hf_client *c, const char *url, const hf_client_opts *o, hf_error *reterr)
{
    struct url *u;
    hf_err e = client_url_of(url, o, &u, reterr);
    if (e)
        return e;
    c->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms
                    : u->timeout_ms > 0 ? u->timeout_ms : TIMEOUT_DEFAULT_MS;
    const char *prefix = client_prefix_of(u, o);
    if (c->timeout_ms < TIMEOUT_MIN_MS || c->timeout_ms > TIMEOUT_MAX_MS)
        e = err_set(reterr, HF_ECONFIG, "a time-out of %lld ms: give 10 ms to 10 minutes",
                    (long long)c->timeout_ms);
    if (!e)
        e = set_names(c, prefix, u->topology == URL_CLUSTER, reterr);
    if (!e && identity_init(&c->identity, o->program, o->info) < 0)
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    if (e) {
        url_free(u);
        return e;
    }
    e = topo_open(u, c->timeout_ms, greet, c, &c->log, &c->topo, reterr);
    if (!e)
        e = client_choose_protocol(c, o->protocol, u, reterr);
    if (!e)
        e = topo_connect(c->topo, client_deadline(c), reterr);
    if (!e && (!(c->waiters = waiters_new(c)) || !(c->listeners = listeners_new())))
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    if (!e)
        e = keeper_open(c, &c->keeper, reterr);
    struct topo_events events = { in_use, on_moved, c };
    return e ? e : topo_attend(c->topo, &events, reterr);
}

hf_err hf_client_open(const char *url, const hf_client_opts *opts, hf_client **ret,
                      hf_error *reterr)
{
    CALL_GUARD;
    hf_client_opts o;
    if (!ret)
        return err_set(reterr, HF_EINVAL, "no place for the new client was given");
    hf_err e = client_opts_of(opts, &o, reterr);
    if (e)
        return e;
    hf_client *c = mem_zalloc(sizeof *c);
    if (!c)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    c->generation = forkguard_generation();
    atomic_init(&c->users, 1);
    pthread_mutex_init(&c->session_mu, NULL);
    c->log = (struct log){ .fn = o.log, .arg = o.log_arg };
    e = build(c, url, &o, reterr);
    if (e) {
        keeper_free(c->keeper, 0);
        waiters_free(c->waiters);
        listeners_free(c->listeners);
        topo_free(c->topo); /* its threads may be greeting a server */
        plain_free(c->plain);
        client_leave(c);
        return e;
    }
    *ret = c;
    return HF_OK;
}

static void forget_inbox(struct home *h, void *arg)
{
    (void)arg;
    h->inbox = NULL;
}

/* A move, noticed by who still talks, must not find them; nor may one that ends send its channels
 * to another. */
static void close_inboxes(hf_client *c)
{
    pthread_mutex_lock(&c->session_mu);
    size_t n = c->ninboxes;
    c->ninboxes = 0;
    c->inboxes_closed = true;
    homes_each(c->homes, forget_inbox, NULL);
    pthread_mutex_unlock(&c->session_mu);
    for (size_t i = 0; i < n; i++)
        inbox_stop(c->inboxes[i]);
    for (size_t i = 0; i < n; i++)
        inbox_free(c->inboxes[i]);
}

hf_client *hf_client_free(hf_client *c)
{
    CALL_GUARD;
    if (!c)
        return NULL;
    if (client_enter(c, NULL)) { /* a forked child: the connections are the parent's */
        side_free(c->side);
        worker_forget(c->worker);
        for (size_t i = 0; i < c->ninboxes; i++)
            inbox_forget(c->inboxes[i]);
        keeper_forget(c->keeper);
        topo_forget(c->topo);
    } else {
        atomic_store(&c->closing_ms, client_deadline(c)); /* one for all that is left to do */
        atomic_store(&c->stopping, 1); /* ends every wait */
        worker_free(c->worker);
        (void)!hf_client_unlock_all(c, NULL, NULL);
        topo_unattend(c->topo);
        close_inboxes(c);
        side_free(c->side);
        keeper_free(c->keeper, client_deadline(c));
        topo_free(c->topo);
        pthread_mutex_destroy(&c->session_mu);
    }
    c->plain = plain_free(c->plain);
    waiters_free(c->waiters);
    listeners_free(c->listeners);
    atomic_store(&c->closed, true);
    client_leave(c);
    return NULL;
}
