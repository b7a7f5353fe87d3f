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
#include "base/opts.h"
#include "base/process.h"
#include "base/random.h"
#include "net/stream.h"
#include "session/call.h"
#include "session/listener.h"
#include "session/waiter.h"
#include "topo/slot.h"

#define TIMEOUT_DEFAULT_MS 5000
#define TIMEOUT_MIN_MS     10
#define TIMEOUT_MAX_MS     600000
#define PREFIX_DEFAULT     "lock:"
#define PREFIX_MAX         256
#define RELEASED_AT_ONCE   256
#define UPDATE_CONNS       1 /* kept for the next update */
#define RETRY_MIN_MS       50 /* between attempts to reach a server that is away */
#define RETRY_MAX_MS       1000

/* ---- what every call needs ---------------------------------------------------------------- */

/* It may be dispatched, and be asked for its descriptor. */
static hf_err check_alive(const hf_client *c, hf_error *reterr)
{
    if (!c)
        return err_set(reterr, HF_EINVAL, "no client or no handle was given, but NULL");
    if (c->generation != forkguard_generation())
        return err_set(reterr, HF_EFORK,
                       "this handle was made before fork(): open a client of its own in the child");
    if (atomic_load_explicit(&c->closed, memory_order_relaxed))
        return err_set(reterr, HF_EINVAL, "the client of this handle has been freed");
    return HF_OK;
}

hf_err client_enter(const hf_client *c, hf_error *reterr)
{
    hf_err e = check_alive(c, reterr);
    if (e)
        return e;
    int state = atomic_load_explicit(&c->state, memory_order_acquire);
    if (state == CLIENT_OPEN)
        return HF_OK;
    return err_set(reterr, HF_EINVAL, "%s",
                   state == CLIENT_OPENING
                       ? "the client is not open yet: dispatch it until its done() was called"
                       : "the client could not be opened: free it, and open another");
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
    return client_deadline_in(c, 0);
}

int64_t client_deadline_in(const hf_client *c, int64_t timeout_ms)
{
    int64_t deadline = clock_add(clock_now_ms(), timeout_ms > 0 ? timeout_ms : c->timeout_ms);
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
    return c && atomic_load(&c->state) == CLIENT_OPEN ? topo_shown(c->topo) : "";
}

hf_err hf_client_release_all(hf_client *c, size_t *ret_count, hf_error *reterr)
{
    CALL_GUARD;
    struct lease *held[RELEASED_AT_ONCE];
    size_t count = 0, n;
    hf_err first = client_enter(c, reterr);
    if (first)
        return first;
    while ((n = keeper_list(c->keeper, held, sizeof held / sizeof held[0])) > 0) {
        hf_err e = held[0]->release(held, n, client_deadline(c), &count, first ? NULL : reterr);
        if (!first)
            first = e;
    }
    if (ret_count)
        *ret_count = count;
    return first;
}

hf_err client_keys(const hf_client *c, hf_bytes name, struct lock_keys **ret, hf_error *reterr)
{
    hf_err e = keys_new(c->prefix, name, ret, reterr);
    if (e)
        return e;
    struct keyspace *h = keyspaces_of(c->keyspaces, (*ret)->key[KEY_LOCK]);
    if (!h) {
        *ret = keys_free(*ret);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    (*ret)->scope = &h->scope;
    return HF_OK;
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

/* Thread: any. The inbox subscribes anew, at the right server; then waiters join again, and what is
 * held counts when it has been found there. */
static void on_moved(void *arg)
{
    hf_client *c = arg;
    keeper_moved(c->keeper);
    client_follow(c);
}

/* ---- requests without blocking --------------------------------------------------------------- */

hf_err client_loop(hf_client *c, struct loop **ret, hf_error *reterr)
{
    hf_err e = HF_OK;
    mutex_lock(&c->session_mu);
    if (!c->loop)
        e = loop_open(&c->loop, reterr);
    *ret = c->loop;
    mutex_unlock(&c->session_mu);
    return e;
}

hf_err hf_client_fd(hf_client *c, int *ret_fd, hf_error *reterr)
{
    struct loop *lp;
    hf_err e = check_alive(c, reterr);
    if (!e && !ret_fd)
        e = err_set(reterr, HF_EINVAL, "no place for the descriptor was given");
    if (!e)
        e = client_loop(c, &lp, reterr);
    if (!e)
        *ret_fd = loop_fd(lp);
    return e;
}

size_t hf_client_dispatch(hf_client *c)
{
    CALL_GUARD;
    if (check_alive(c, NULL))
        return 0;
    mutex_lock(&c->session_mu);
    struct loop *lp = c->loop;
    mutex_unlock(&c->session_mu);
    return lp ? loop_dispatch(lp) : 0;
}

/* They end by themselves, as after a cancellation. */
static void end_requests(hf_client *c)
{
    if (!c->loop)
        return;
    loop_close(c->loop);
    loop_drain(c->loop);
}

/* ---- greeting a server --------------------------------------------------------------------- */

#define INFO_MEMORY "*2\r\n$4\r\nINFO\r\n$6\r\nmemory\r\n"

/* An evicting policy throws away exactly the keys with a TTL: the locks. Said once. */
static void warn_about_settings(hf_client *c, const struct reply *rp)
{
    const char *policy = rp->type == REPLY_BULK ? strstr(rp->str, "maxmemory_policy:") : NULL;
    const char *limit = rp->type == REPLY_BULK ? strstr(rp->str, "\nmaxmemory:") : NULL;
    if (policy && limit && strtoull(limit + 11, NULL, 10) > 0
        && strncmp(policy + 17, "noeviction", 10) != 0)
        log_to(&c->log, HF_LOG_WARNING,
               "the server may evict locks when its memory is full (maxmemory-policy %.*s): set "
               "maxmemory-policy noeviction", (int)strcspn(policy + 17, "\r\n"), policy + 17);
}

/* In a cluster each slot is greeted by itself. Elsewhere the question goes with the greeting. */
static hf_err greet_and_ask(hf_client *c, struct link *l, const struct limit *lim, bool asks,
                            struct greeted *ret, struct reply **ret_info, hf_error *reterr)
{
    if (!c->keyspace)
        return asks ? link_exchange(l, 2, (hf_bytes[]){ hf_str("INFO"), hf_str("memory") }, lim,
                                    ret_info, reterr)
                    : HF_OK;
    if (asks)
        (void)link_ask_ahead(l, INFO_MEMORY);
    hf_err e = client_hello(c, l, lim, ret, reterr);
    *ret_info = link_answer(l);
    return e;
}

static hf_err greet(void *arg, struct link *l, const struct limit *lim, struct greeted *ret,
                    hf_error *reterr)
{
    hf_client *c = arg;
    struct reply *info = NULL;
    bool again = ret->again;
    hf_err e = greet_and_ask(c, l, lim, !atomic_load(&c->warned), ret, &info, reterr);
    if (!e) {
        metrics_add(&c->metrics.connects, 1);
        metrics_add(&c->metrics.reconnects, again);
    }
    if (!e && info && !atomic_exchange(&c->warned, true))
        warn_about_settings(c, info);
    reply_free(info);
    return e;
}

/* ---- opening and closing ------------------------------------------------------------------- */

hf_err client_opts_of(const hf_client_opts *opts, hf_client_opts *ret, hf_error *reterr)
{
    hf_err e = opts_copy(ret, sizeof *ret, opts, "hf_client_opts", reterr);
    ret->size = sizeof *ret;
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
                       "the prefix has a { without a tag behind it, so that what follows would "
                       "decide the cluster's slot: close it, or leave it out");
    if (strlen(prefix) > PREFIX_MAX)
        return err_set(reterr, HF_ECONFIG, "the prefix has %zu bytes: at most %d are allowed",
                       strlen(prefix), PREFIX_MAX);
    if (random_id(c->session) < 0)
        return err_set(reterr, HF_ESYS, "no random numbers from the kernel: %s", strerror(errno));
    char tail[64];
    snprintf(tail, sizeof tail, "session:%s", c->session);
    c->prefix = mem_copy(prefix, strlen(prefix));
    c->record_key = keys_reserved(prefix, tail);
    c->events = keys_reserved(prefix, "s:events");
    c->names = names_new(c);
    c->keyspaces = keyspaces_new(prefix, c->session, slotted);
    if (!slotted && c->keyspaces)
        c->keyspace = keyspaces_of(c->keyspaces, hf_str(""));
    if (!c->prefix || !c->record_key || !c->events || !c->names || !c->keyspaces
        || (!slotted && !c->keyspace))
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
    inherited_free(c->inherited);
    mem_free(c->prefix);
    mem_free(c->record_key);
    mem_free(c->events);
    notes_clear(&c->notes);
    keyspaces_free(c->keyspaces);
    mem_free(c);
}

/* Whoever reads the message shall know which server it is about. */
static void name_server(const struct url *u, const char *shown, hf_error *reterr)
{
    char address[300] = "";
    if (u->topology == URL_EMBEDDED)
        return;
    for (size_t i = 0; i < u->nhosts; i++)
        if (strstr(reterr->message, stream_address(&u->hosts[i], address, sizeof address)))
            return;
    /* Of several it may name one that the URL does not. */
    if (u->nhosts > 1 && strncmp(reterr->message, "the server answered", 19) != 0)
        return;
    size_t used = strlen(reterr->message);
    const char *where = u->nhosts == 1 ? address : shown;
    if (used + strlen(where) + 4 < sizeof reterr->message)
        snprintf(reterr->message + used, sizeof reterr->message - used, " (%s)", where);
}

/* One attempt, or as many as the caller has time for. What no waiting mends is told at once. */
static hf_err connect(hf_client *c, const struct url *u, int64_t wait_ms, hf_error *reterr)
{
    const atomic_int *stop = c->loop ? &c->stopping : NULL; /* opened without blocking */
    bool embedded = u->topology == URL_EMBEDDED;
    int64_t end = wait_ms == HF_WAIT_FOREVER ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms);
    int64_t pause = RETRY_MIN_MS;
    hf_error why = { 0 };
    for (;; pause = 2 * pause < RETRY_MAX_MS ? 2 * pause : RETRY_MAX_MS) {
        bool told = why.code;
        struct limit lim = { .at_ms = wait_ms ? clock_earlier(client_deadline(c), end)
                                              : client_deadline(c), .stop = stop };
        hf_error now = { 0 };
        hf_err e = topo_connect(c->topo, &lim, &now);
        bool away = e == HF_ECONN || e == HF_ENOQUORUM;
        if (e && e != HF_ENOMEM)
            name_server(u, topo_shown(c->topo), &now);
        if (!e && told)
            log_to(&c->log, HF_LOG_WARNING, "the server answers again: %s", topo_shown(c->topo));
        /* An attempt that our own time cut short says less than the one before it. */
        if (reterr && e)
            *reterr = away && told && clock_now_ms() >= end ? why : now;
        if (!away || embedded || !wait_ms || limit_stopped(&lim)
            || clock_now_ms() + RETRY_MIN_MS >= end)
            return e;
        if (!told)
            log_to(&c->log, HF_LOG_WARNING, "%s (trying again)", now.message);
        why = now;
        struct limit until = { end == CLOCK_NEVER ? end : end - RETRY_MIN_MS / 2, stop };
        limit_sleep(&until, pause);
    }
}

static hf_err check_history(const struct url *u, const hf_client_opts *o, unsigned history,
                            hf_error *reterr)
{
    if (o->history < 0 || history > HF_HISTORY_MAX)
        return err_set(reterr, HF_ECONFIG, "a history of %d entries: give 1 to %d, or 0 for none",
                       o->history < 0 ? o->history : (int)history, HF_HISTORY_MAX);
    if (history && u->topology == URL_QUORUM)
        return err_set(reterr, HF_ENOTSUP,
                       "a history has no single place on a quorum: it needs one server, Sentinel "
                       "or Cluster; leave history= out");
    return HF_OK;
}

/* Without talking to anybody: what the caller wants, and is it possible? */
static hf_err configure(hf_client *c, const char *url, const hf_client_opts *o, struct url **ret,
                        hf_error *reterr)
{
    struct url *u;
    hf_err e = client_url_of(url, o, &u, reterr);
    if (e)
        return e;
    c->timeout_ms = o->timeout_ms > 0 ? o->timeout_ms
                    : u->timeout_ms > 0 ? u->timeout_ms : TIMEOUT_DEFAULT_MS;
    const char *prefix = client_prefix_of(u, o);
    c->confirm = o->confirm || u->confirm > 0;
    u->spin = !o->no_spin && u->spin != 0;
    c->no_repair = o->no_repair || u->repair == 0;
    c->no_deadlock = o->no_deadlock || u->deadlock == 0;
    c->inherited = inherited_parse(process_getenv("HOLDFAST_HELD"));
    c->history = o->history > 0 ? (unsigned)o->history : u->history > 0 ? (unsigned)u->history : 0;
    if (c->timeout_ms < TIMEOUT_MIN_MS || c->timeout_ms > TIMEOUT_MAX_MS)
        e = err_set(reterr, HF_ECONFIG, "a time-out of %lld ms: give 10 ms to 10 minutes",
                    (long long)c->timeout_ms);
    if (!e)
        e = check_history(u, o, c->history, reterr);
    if (!e)
        e = set_names(c, prefix, u->topology == URL_CLUSTER, reterr);
    if (e)
        url_free(u);
    else
        *ret = u;
    return e;
}

/* Connect, and begin to work. Takes u over. */
static hf_err establish(hf_client *c, struct url *u, const hf_client_opts *o, hf_error *reterr)
{
    if (identity_init(&c->identity, o->program, o->info) < 0) {
        url_free(u);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    identity_client_name(&c->identity, u->client_name, sizeof u->client_name);
    hf_err e = topo_open(u, c->timeout_ms, greet, c, &c->log, &c->topo, reterr);
    if (!e && !(c->own_conns = own_conns_new(c->topo, UPDATE_CONNS)))
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    if (!e)
        e = client_choose_protocol(c, o->protocol, u, reterr);
    if (!e && o->wait_ms < HF_WAIT_FOREVER)
        e = err_set(reterr, HF_EINVAL, "a wait of %lld ms is out of range", (long long)o->wait_ms);
    if (!e && topo_quorum(c->topo)) /* its members are greeted by threads of their own */
        identity_complete(&c->identity);
    if (!e)
        e = connect(c, u, o->wait_ms, reterr);
    identity_complete(&c->identity);
    if (!e && (!(c->waiters = waiters_new(c)) || !(c->listeners = listeners_new())))
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    if (!e)
        e = keeper_open(c, &c->keeper, reterr);
    struct topo_events events = { in_use, on_moved, c };
    return e ? e : topo_attend(c->topo, &events, reterr);
}

/* Of a client that was never open, as far as it got. */
static void tear_down(hf_client *c)
{
    keeper_free(c->keeper, 0);
    waiters_free(c->waiters);
    listeners_free(c->listeners);
    own_conns_free(c->own_conns);
    topo_free(c->topo); /* its threads may be greeting a server */
    exec_free(c->exec);
    loop_free(c->loop);
    mutex_destroy(&c->session_mu);
    mutex_destroy(&c->notes.mu);
    atomic_store(&c->closed, true);
    client_leave(c);
}

static hf_err make(const char *url, const hf_client_opts *opts, hf_client_opts *ret_opts,
                   struct url **ret_url, hf_client **ret, hf_error *reterr)
{
    hf_err e = client_opts_of(opts, ret_opts, reterr);
    if (e)
        return e;
    hf_client *c = mem_zalloc(sizeof *c);
    if (!c)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    c->generation = forkguard_generation();
    atomic_init(&c->users, 1);
    mutex_init(&c->session_mu, MUTEX_SESSION);
    notes_init(&c->notes);
    c->log = (struct log){ .fn = ret_opts->log, .arg = ret_opts->log_arg };
    e = configure(c, url, ret_opts, ret_url, reterr);
    if (e)
        tear_down(c);
    else
        *ret = c;
    return e;
}

hf_err hf_client_open(const char *url, const hf_client_opts *opts, hf_client **ret,
                      hf_error *reterr)
{
    CALL_GUARD;
    hf_client_opts o;
    hf_client *c;
    struct url *u;
    if (!ret)
        return err_set(reterr, HF_EINVAL, "no place for the new client was given");
    hf_err e = make(url, opts, &o, &u, &c, reterr);
    if (e)
        return e;
    e = establish(c, u, &o, reterr);
    if (e)
        tear_down(c);
    else
        *ret = c;
    return e;
}

/* ---- opening without blocking ---------------------------------------------------------------- */

struct opening {
    struct call        call;
    struct call_thread thread;
    struct url        *url;
    hf_client_opts     opts;
    char              *program, *info, *protocol; /* copies */
};

/* Thread: its own. */
static void open_in_thread(void *arg)
{
    struct opening *o = arg;
    o->call.result = establish(o->call.c, o->url, &o->opts, o->call.reterr);
}

static bool open_step(struct task *t)
{
    struct opening *o = (struct opening *)t;
    hf_err e; /* the result is the thread's from its start on */
    STEP_BEGIN(o->call.at);
    o->thread = (struct call_thread){ .work = open_in_thread, .arg = o, .task = t };
    e = call_thread_start(&o->thread, "hf-open", o->call.reterr);
    if (e) {
        o->call.result = e;
        url_free(o->url);
        STEP_RETURN(o->call.at);
    }
    STEP_UNTIL(o->call.at, call_thread_done(&o->thread));
    if (atomic_load(&o->call.c->stopping))
        o->call.result = err_set(o->call.reterr, HF_ECANCELED,
                                 "the client was freed before it was open");
    STEP_END(o->call.at);
}

static void open_over(struct call *call)
{
    struct opening *o = (struct opening *)call;
    mem_free(o->program);
    mem_free(o->info);
    mem_free(o->protocol);
    atomic_store(&call->c->state, call->result ? CLIENT_FAILED : CLIENT_OPEN);
}

/* The thread has its own. False: no memory. */
static bool copy_text(const char **text, char **ret)
{
    if (!*text)
        return true;
    *ret = mem_copy(*text, strlen(*text));
    *text = *ret;
    return *ret != NULL;
}

static hf_err new_opening(hf_client *c, const hf_client_opts *opts, struct url *u, hf_done_fn done,
                          void *arg, struct opening **ret, hf_error *reterr)
{
    struct opening *o;
    hf_err e = call_new(sizeof *o, c, done, arg, &o, reterr);
    if (e)
        return e;
    o->url = u;
    o->opts = *opts;
    o->call.over = open_over;
    if (!copy_text(&o->opts.program, &o->program) || !copy_text(&o->opts.info, &o->info)
        || !copy_text(&o->opts.protocol, &o->protocol)) {
        open_over(&o->call);
        call_drop(&o->call);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    *ret = o;
    return HF_OK;
}

hf_err hf_client_open_async(const char *url, const hf_client_opts *opts, hf_client **ret,
                            hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    hf_client_opts o;
    hf_client *c;
    struct url *u;
    struct opening *opening;
    if (!ret)
        return err_set(reterr, HF_EINVAL, "no place for the new client was given");
    hf_err e = make(url, opts, &o, &u, &c, reterr);
    if (e)
        return e;
    e = new_opening(c, &o, u, done, arg, &opening, reterr);
    if (!e) {
        atomic_store(&c->state, CLIENT_OPENING);
        e = call_submit(&opening->call, open_step, reterr);
    }
    if (e) {
        url_free(u);
        tear_down(c);
        return e;
    }
    *ret = c;
    return HF_OK;
}

/* ---- closing --------------------------------------------------------------------------------- */

/* A forked child: the connections are the parent's, and what was under way is nobody's. */
static void forget(hf_client *c)
{
    own_conns_free(c->own_conns);
    for (size_t i = 0; i < c->ninboxes; i++)
        inbox_forget(c->inboxes[i]);
    topo_forget(c->topo); /* its queues have requests that are the keeper's */
    keeper_forget(c->keeper);
    loop_forget(c->loop);
}

static hf_err shut(hf_client *c, hf_error *reterr)
{
    hf_err e = hf_client_release_all(c, NULL, reterr);
    topo_unattend(c->topo);
    keeper_stop(c->keeper); /* they end while the inboxes do */
    client_absent(c);
    own_conns_free(c->own_conns);
    keeper_free(c->keeper, client_deadline(c));
    topo_free(c->topo);
    loop_free(c->loop);
    mutex_destroy(&c->session_mu);
    mutex_destroy(&c->notes.mu);
    return e;
}

hf_err hf_client_close(hf_client *c, int64_t timeout_ms, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = HF_OK;
    if (!c || timeout_ms < 0)
        return err_set(reterr, HF_EINVAL, "%s",
                       c ? "a negative time limit" : "no client was given");
    if (check_alive(c, NULL)) {
        if (atomic_load(&c->state) != CLIENT_OPEN)
            return HF_OK; /* half of it is the parent's thread's: its memory stays */
        forget(c);
    } else {
        /* One for all that is left to do. */
        atomic_store(&c->closing_ms, client_deadline_in(c, timeout_ms));
        atomic_store(&c->stopping, 1); /* ends every wait */
        end_requests(c);
        if (atomic_load(&c->state) != CLIENT_OPEN) {
            tear_down(c);
            return HF_OK;
        }
        e = shut(c, reterr);
    }
    c->exec = exec_free(c->exec);
    waiters_free(c->waiters);
    listeners_free(c->listeners);
    atomic_store(&c->closed, true);
    client_leave(c);
    return e;
}

hf_client *hf_client_free(hf_client *c)
{
    (void)hf_client_close(c, 0, NULL);
    return NULL;
}
