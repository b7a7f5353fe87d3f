/* SPDX-License-Identifier: MIT
 * plain.c - running operations by plain commands: connections of their own, attempts, conflicts.
 *
 * An operation watches what it depends on, reads it, and writes by one EXEC, which the server
 * carries out only if nothing of what was watched has been touched since. What is left of it when a
 * reply is lost is the same as with scripts: the request is repeated and finds what the first one
 * did. A copy of an EXEC that arrives late does nothing once what it watched has changed, which the
 * cancellation of its token sees to.
 */
#include "script/plain.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/random.h"
#include "script/transaction.h"

#define RETRY_MIN_MS  5
#define RETRY_MAX_MS  200
#define CONFLICTS_MAX 64 /* then somebody else shall think about it */
#define CONFLICT_MS   32 /* the longest pause between two tries */
#define IDLE_MAX      8  /* connections kept for the next operation */

/* A connection for one operation at a time. */
struct channel {
    struct channel *next;
    struct link     link;
    bool            watches; /* something is still watched on it */
    bool            fresh;
    unsigned        moves; /* of the topology, when it was opened */
};

struct plain {
    struct topo    *topo;
    const char     *fence_key, *reign_key;
    int64_t         skew_ms;
    unsigned        generation; /* of forkguard */
    atomic_int      protocol;
    pthread_mutex_t mu;
    struct channel *idle;
    size_t          idle_count;
};

typedef enum outcome (*operation)(struct tx *x);

static const operation transaction[SCRIPT_COUNT] = {
    [SCRIPT_acquire] = transaction_acquire,     [SCRIPT_release] = transaction_release,
    [SCRIPT_cancel] = transaction_cancel,       [SCRIPT_keep] = transaction_keep,
    [SCRIPT_by_owner] = transaction_by_owner,   [SCRIPT_acquire_all] = transaction_acquire_all,
    [SCRIPT_share] = transaction_share,         [SCRIPT_unshare] = transaction_unshare,
    [SCRIPT_downgrade] = transaction_downgrade, [SCRIPT_resize] = transaction_resize,
    [SCRIPT_inspect] = transaction_inspect,     [SCRIPT_record] = transaction_record,
    [SCRIPT_recall] = transaction_recall,       [SCRIPT_scan] = transaction_scan,
    [SCRIPT_guard] = transaction_guard,         [SCRIPT_sequence] = transaction_sequence,
    [SCRIPT_store] = transaction_store,         [SCRIPT_value] = transaction_value,
    [SCRIPT_settle] = transaction_settle,
};

static const operation timestamp[SCRIPT_COUNT] = {
    [SCRIPT_acquire] = timestamp_acquire,   [SCRIPT_release] = timestamp_release,
    [SCRIPT_cancel] = timestamp_cancel,     [SCRIPT_keep] = timestamp_keep,
    [SCRIPT_by_owner] = timestamp_by_owner, [SCRIPT_inspect] = transaction_inspect,
    [SCRIPT_record] = transaction_record,   [SCRIPT_recall] = transaction_recall,
    [SCRIPT_scan] = transaction_scan,       [SCRIPT_guard] = transaction_guard,
    [SCRIPT_sequence] = transaction_sequence, [SCRIPT_settle] = transaction_settle,
};

struct plain *plain_new(struct topo *t, const char *fence_key, const char *reign_key,
                        int64_t skew_ms)
{
    struct plain *p = mem_zalloc(sizeof *p);
    if (!p)
        return NULL;
    p->topo = t;
    p->fence_key = fence_key;
    p->reign_key = reign_key;
    p->skew_ms = skew_ms;
    p->generation = forkguard_generation();
    atomic_init(&p->protocol, PROTOCOL_SCRIPT);
    pthread_mutex_init(&p->mu, NULL);
    return p;
}

static void channel_free(struct channel *ch, bool reset)
{
    link_close(&ch->link, reset);
    link_clear(&ch->link);
    mem_free(ch);
}

struct plain *plain_free(struct plain *p)
{
    if (!p)
        return NULL;
    while (p->idle) {
        struct channel *ch = p->idle;
        p->idle = ch->next;
        channel_free(ch, false);
    }
    if (p->generation == forkguard_generation())
        pthread_mutex_destroy(&p->mu);
    mem_free(p);
    return NULL;
}

void plain_choose(struct plain *p, enum protocol protocol)
{
    atomic_store(&p->protocol, (int)protocol);
}

enum protocol plain_protocol(const struct plain *p)
{
    return (enum protocol)atomic_load(&p->protocol);
}

int64_t plain_skew_ms(const struct plain *p)
{
    return plain_protocol(p) == PROTOCOL_TIMESTAMP ? p->skew_ms : 0;
}

/* ---- connections ----------------------------------------------------------------------------- */

static hf_err open_channel(struct plain *p, const struct script_call *sc, struct channel **ret,
                           hf_error *reterr)
{
    struct channel *ch = mem_zalloc(sizeof *ch);
    if (!ch || link_init(&ch->link) < 0) {
        mem_free(ch);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    long long code = 0;
    ch->moves = topo_moves(p->topo);
    hf_err e = topo_link(p->topo, sc->keys[0], &ch->link, sc->deadline_ms, reterr);
    if (!e)
        e = plain_hello(&ch->link, p->fence_key, p->reign_key, sc->deadline_ms, &code, reterr);
    if (!e && code == -4)
        e = err_set(reterr, HF_ECOUNTER,
                    "the key %s, the fencing counter, holds something else: look at it, and "
                    "delete it if nobody else needs it", p->fence_key);
    if (e) {
        channel_free(ch, false);
        /* To callers HF_EBUSY is a lock's word, not a server's. */
        return e == HF_EBUSY ? err_known(reterr, HF_ECONN, HF_UNCHANGED) : e;
    }
    ch->fresh = true;
    ch->watches = true; /* the greeting may have */
    *ret = ch;
    return HF_OK;
}

static hf_err take_channel(struct plain *p, const struct script_call *sc, struct channel **ret,
                           hf_error *reterr)
{
    (void)topo_conn(p->topo, sc->keys[0]); /* notices a move */
    unsigned moves = topo_moves(p->topo);
    struct channel *ch, *stale = NULL;
    pthread_mutex_lock(&p->mu);
    while ((ch = p->idle)) {
        p->idle = ch->next;
        p->idle_count--;
        if (ch->moves == moves)
            break;
        ch->next = stale;
        stale = ch;
    }
    pthread_mutex_unlock(&p->mu);
    while (stale) {
        struct channel *next = stale->next;
        channel_free(stale, false);
        stale = next;
    }
    if (!ch)
        return open_channel(p, sc, ret, reterr);
    ch->fresh = false;
    *ret = ch;
    return HF_OK;
}

/* Back into the pool, or closed when it is of no use any more. */
static void leave_channel(struct plain *p, struct channel *ch, const struct tx *x, bool usable)
{
    ch->watches = x->used;
    pthread_mutex_lock(&p->mu);
    bool kept = usable && p->idle_count < IDLE_MAX;
    if (kept) {
        ch->next = p->idle;
        p->idle = ch;
        p->idle_count++;
    }
    pthread_mutex_unlock(&p->mu);
    if (!kept)
        channel_free(ch, x->committing);
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* False when there is no time left for another attempt. */
static bool back_off(const struct script_call *sc, int64_t *step_ms)
{
    int64_t until = clock_now_ms() + random_between(*step_ms / 2, *step_ms);
    if (until >= sc->deadline_ms || tx_stopped(sc))
        return false;
    clock_sleep_until(until);
    *step_ms = 2 * *step_ms < RETRY_MAX_MS ? 2 * *step_ms : RETRY_MAX_MS;
    return true;
}

/* Others were faster: the more often, the longer the pause. False: enough of it. */
static bool after_conflict(const struct script_call *sc, unsigned tries)
{
    int64_t most = tries < 5 ? INT64_C(1) << tries : CONFLICT_MS;
    int64_t until = clock_now_ms() + random_between(0, most);
    if (tries >= CONFLICTS_MAX || until >= sc->deadline_ms || tx_stopped(sc))
        return false;
    clock_sleep_until(until);
    return true;
}

/* An attempt has failed. HF_OK: try again. */
static hf_err judge(struct tx *x, bool fresh, int64_t *step_ms)
{
    struct script_call *sc = x->sc;
    if (x->committing) {
        sc->in_doubt++;
        err_prefix(x->reterr, "a request was sent and no reply came");
        bool again = (x->e == HF_ECONN || x->e == HF_EPROTO) && back_off(sc, step_ms);
        return again ? HF_OK : err_known(x->reterr, HF_EUNSURE, HF_UNKNOWN);
    }
    if (!x->answered && x->e == HF_ECONN && !fresh && clock_now_ms() < sc->deadline_ms)
        return HF_OK; /* an old connection that had ended unnoticed */
    bool passes = x->answered ? x->verdict == SERVER_RETRY || x->verdict == SERVER_RECONNECT
                              : x->e == HF_ECONN;
    if (passes && back_off(sc, step_ms))
        return HF_OK;
    if (x->answered && x->verdict == SERVER_UNKNOWN && x->exec) {
        sc->in_doubt++; /* it may have done half of its work */
        return err_known(x->reterr, x->e, HF_UNKNOWN);
    }
    return x->e;
}

/* One attempt on a connection of its own. *ret_fresh: it had just been opened. */
static enum outcome attempt(struct plain *p, operation op, struct tx *x, bool *ret_fresh)
{
    struct channel *ch = NULL;
    *ret_fresh = true;
    x->e = take_channel(p, x->sc, &ch, x->reterr);
    if (x->e || !ch)
        return TX_FAILED;
    *ret_fresh = ch->fresh;
    x->l = &ch->link;
    if (ch->watches)
        tx_ask(x, S("UNWATCH"));
    enum outcome o = op(x);
    x->sc->sent_ms = x->began_ms - x->skew_ms; /* our own belief ends so much earlier */
    bool well = o != TX_FAILED || (x->answered && x->verdict != SERVER_RECONNECT);
    bool idle = x->read == x->n && !x->stale && !x->out_len; /* nothing more will come on it */
    leave_channel(p, ch, x, well && idle);
    return o;
}

hf_err plain_run(struct plain *p, struct script_call *sc, hf_error *reterr)
{
    bool stamps = plain_protocol(p) == PROTOCOL_TIMESTAMP, fresh;
    operation op = stamps ? timestamp[sc->id] : transaction[sc->id];
    int64_t step_ms = RETRY_MIN_MS;
    unsigned conflicts = 0;

    sc->reply = NULL;
    sc->in_doubt = 0;
    if (!op)
        return err_set(reterr, HF_ENOTSUP,
                       "the protocol %s cannot do this: it needs scripts on the server, see "
                       "docs/protocols.md", stamps ? "timestamp" : "transaction");
    for (;;) {
        struct tx x = { .sc = sc, .skew_ms = plain_skew_ms(p), .reterr = reterr };
        enum outcome o = attempt(p, op, &x, &fresh);
        hf_err e = o == TX_FAILED ? judge(&x, fresh, &step_ms) : HF_OK;
        tx_end(&x);
        if (o == TX_ANSWERED || e)
            return e;
        if (o == TX_CONFLICT && !after_conflict(sc, ++conflicts))
            return err_set(reterr, HF_ECONFLICT,
                           "others changed it at each of %u tries: try again later", conflicts);
        if (o == TX_AGAIN && clock_now_ms() >= sc->deadline_ms)
            return err_set(reterr, HF_ECONN, "no time was left to put the lock right");
    }
}
