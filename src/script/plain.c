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

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/random.h"
#include "net/stream.h"

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
};

static const operation timestamp[SCRIPT_COUNT] = {
    [SCRIPT_acquire] = timestamp_acquire,   [SCRIPT_release] = timestamp_release,
    [SCRIPT_cancel] = timestamp_cancel,     [SCRIPT_keep] = timestamp_keep,
    [SCRIPT_by_owner] = timestamp_by_owner, [SCRIPT_inspect] = transaction_inspect,
    [SCRIPT_record] = transaction_record,   [SCRIPT_recall] = transaction_recall,
    [SCRIPT_scan] = transaction_scan,       [SCRIPT_guard] = transaction_guard,
    [SCRIPT_sequence] = transaction_sequence,
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
    pthread_mutex_lock(&p->mu);
    struct channel *ch = p->idle;
    if (ch) {
        p->idle = ch->next;
        p->idle_count--;
    }
    pthread_mutex_unlock(&p->mu);
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

/* ---- commands and replies -------------------------------------------------------------------- */

static bool stopped(const struct script_call *sc)
{
    return sc->stop && atomic_load(sc->stop);
}

static void set_error(struct tx *x, hf_err e)
{
    if (!x->e)
        x->e = e;
}

enum outcome tx_fail(struct tx *x, hf_err e, const char *text)
{
    x->e = err_set(x->reterr, e, "%s", text);
    return TX_FAILED;
}

void tx_next(struct tx *x)
{
    x->stale += x->n - x->read;
    for (size_t i = 0; i < x->n; i++)
        reply_free(x->r[i]);
    mem_free(x->r);
    x->r = NULL;
    x->n = x->read = 0;
    x->exec = NULL;
}

struct reply *tx_keep(struct tx *x, size_t at)
{
    struct reply **grown = mem_resize(x->kept, (x->nkept + 1) * sizeof(struct reply *));
    if (!grown) {
        tx_fail(x, HF_ENOMEM, "out of memory");
        return NULL;
    }
    x->kept = grown;
    grown[x->nkept++] = x->r[at];
    x->r[at] = NULL;
    return grown[x->nkept - 1];
}

/* The attempt is over. */
static void tx_end(struct tx *x)
{
    tx_next(x);
    for (size_t i = 0; i < x->nkept; i++)
        reply_free(x->kept[i]);
    mem_free(x->kept);
}

static bool is_word(hf_bytes b, const char *word)
{
    return b.len == strlen(word) && memcmp(b.data, word, b.len) == 0;
}

size_t tx_send(struct tx *x, int argc, const hf_bytes *argv)
{
    size_t at = x->n;
    if (x->e)
        return at;
    if (at % 16 == 0) {
        struct reply **grown = mem_resize(x->r, (at + 16) * sizeof(struct reply *));
        if (!grown) {
            tx_fail(x, HF_ENOMEM, "out of memory");
            return at;
        }
        x->r = grown;
    }
    if (!x->began_ms)
        x->began_ms = clock_now_ms();
    if (is_word(argv[0], "WATCH"))
        x->used = true;
    hf_err e = link_send(x->l, argc, argv, x->sc->deadline_ms, x->reterr);
    if (e) {
        set_error(x, e);
        return at;
    }
    x->r[x->n++] = NULL;
    return at;
}

/* One reply; looks up now and then whether it is still wanted. */
static hf_err receive(struct tx *x, struct reply **ret)
{
    for (;;) {
        int64_t tick = clock_earlier(x->sc->deadline_ms, clock_now_ms() + STREAM_TICK_MS);
        hf_err e = link_receive(x->l, tick, ret, x->reterr);
        if (e != HF_ECONN || clock_now_ms() < tick)
            return e; /* an ECONN before its time: the connection is over */
        if (stopped(x->sc))
            return err_set(x->reterr, HF_ECANCELED, "cancelled before the request was sent");
        if (clock_now_ms() >= x->sc->deadline_ms)
            return e;
    }
}

static bool read_all(struct tx *x)
{
    while (x->stale && !x->e) {
        struct reply *rp = NULL;
        set_error(x, receive(x, &rp));
        reply_free(rp);
        x->stale--;
    }
    while (x->read < x->n && !x->e) {
        set_error(x, receive(x, &x->r[x->read]));
        x->read += !x->e;
    }
    return !x->e;
}

/* The server refused this command. */
static void refuse(struct tx *x, const struct reply *rp)
{
    hf_err code;
    x->verdict = server_judge(rp, &code);
    x->answered = true;
    set_error(x, server_error(rp, code, x->reterr));
}

static bool is_wrong_type(const struct reply *rp)
{
    return is_error(rp) && strncmp(rp->str, "WRONGTYPE", 9) == 0;
}

bool tx_flush(struct tx *x)
{
    if (!read_all(x))
        return false;
    for (size_t i = 0; i < x->n && !x->e; i++)
        if (is_error(x->r[i]) && !is_wrong_type(x->r[i]))
            refuse(x, x->r[i]);
    return !x->e;
}

void tx_multi(struct tx *x)
{
    tx_next(x);
    tx_ask(x, S("MULTI"));
}

enum outcome tx_exec(struct tx *x)
{
    x->committing = !x->e;
    tx_ask(x, S("EXEC"));
    if (!read_all(x))
        return TX_FAILED;
    x->committing = false;
    x->used = false; /* whatever became of it, nothing is watched any more */
    for (size_t i = 0; i < x->n; i++) {
        if (is_error(x->r[i])) { /* not even put in line: then EXEC did nothing */
            refuse(x, x->r[i]);
            return TX_FAILED;
        }
    }
    x->exec = x->r[x->n - 1];
    if (x->exec->type == REPLY_NIL)
        return TX_CONFLICT;
    for (size_t i = 0; x->exec->type == REPLY_ARRAY && i < x->exec->len; i++) {
        if (is_error(x->exec->item[i])) { /* the others were carried out all the same */
            refuse(x, x->exec->item[i]);
            x->verdict = SERVER_UNKNOWN;
            return TX_FAILED;
        }
    }
    return x->exec->type == REPLY_ARRAY
               ? TX_ANSWERED
               : tx_fail(x, HF_EPROTO, "the answer to EXEC makes no sense");
}

/* ---- reading and giving answers -------------------------------------------------------------- */

bool is_bytes(const struct reply *rp, hf_bytes want)
{
    return rp->type == REPLY_BULK && rp->len == want.len
           && memcmp(rp->str, want.data ? want.data : "", want.len) == 0;
}

bool begins_with(const struct reply *rp, const char *text, char then)
{
    size_t n = strlen(text);
    return rp->type == REPLY_BULK && rp->len > n && memcmp(rp->str, text, n) == 0
           && rp->str[n] == then;
}

long long number_in(const struct reply *rp)
{
    if (rp->type == REPLY_INT)
        return rp->num;
    return rp->type == REPLY_BULK ? strtoll(rp->str, NULL, 10) : 0;
}

int64_t time_us(const struct reply *rp)
{
    if (rp->type != REPLY_ARRAY || rp->len != 2)
        return 0;
    return number_in(rp->item[0]) * INT64_C(1000000) + number_in(rp->item[1]);
}

struct text text_of(long long n)
{
    struct text t;
    snprintf(t.s, sizeof t.s, "%lld", n);
    return t;
}

struct reply *reply_int(long long n)
{
    struct reply *rp = mem_zalloc(sizeof *rp);
    if (rp)
        *rp = (struct reply){ .type = REPLY_INT, .num = n };
    return rp;
}

struct reply *reply_bytes(const void *data, size_t len)
{
    struct reply *rp = mem_zalloc(sizeof *rp + len + 1);
    if (rp) {
        *rp = (struct reply){ .type = REPLY_BULK, .len = len, .str = (char *)(rp + 1) };
        if (len)
            memcpy(rp->str, data, len);
    }
    return rp;
}

struct reply *reply_array(size_t n)
{
    struct reply *rp = mem_zalloc(sizeof *rp + n * sizeof(struct reply *));
    if (rp)
        *rp = (struct reply){ .type = REPLY_ARRAY, .len = n, .item = (struct reply **)(rp + 1) };
    return rp;
}

/* Whether nothing of it is missing, for want of memory. */
static bool complete(const struct reply *rp)
{
    bool whole = rp != NULL;
    for (size_t i = 0; whole && rp->type == REPLY_ARRAY && i < rp->len; i++)
        whole = complete(rp->item[i]);
    return whole;
}

enum outcome answer(struct tx *x, struct reply *rp)
{
    if (!complete(rp)) {
        reply_free(rp);
        return tx_fail(x, HF_ENOMEM, "out of memory");
    }
    x->sc->reply = rp;
    return TX_ANSWERED;
}

enum outcome answer_int(struct tx *x, long long n)
{
    return answer(x, reply_int(n));
}

enum outcome answer_ints(struct tx *x, size_t n, const long long *number)
{
    struct reply *rp = reply_array(n);
    for (size_t i = 0; rp && i < n; i++)
        rp->item[i] = reply_int(number[i]);
    return answer(x, rp);
}

/* ---- the fencing counter --------------------------------------------------------------------- */

#define NUMBER_MIN INT64_C(1600000000000000)
#define NUMBER_MAX INT64_C(9007199254740000)
#define AHEAD_US   INT64_C(60000000)

/* Missing or nonsense: a minute ahead of the server's time. Somebody else may do it meanwhile. */
static enum outcome mend_counter(struct tx *x, hf_bytes counter)
{
    tx_next(x);
    tx_ask(x, S("UNWATCH"));
    tx_ask(x, S("WATCH"), counter);
    size_t now = tx_ask(x, S("TIME")), stands = tx_ask(x, S("GETRANGE"), counter, S("0"), S("31"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (number_in(x->r[stands]) >= NUMBER_MIN)
        return TX_AGAIN;
    struct text n = text_of(time_us(x->r[now]) + AHEAD_US);
    tx_multi(x);
    tx_ask(x, S("SET"), counter, S(n.s));
    enum outcome o = tx_exec(x);
    x->committing = false; /* no grant is in doubt by this */
    return o == TX_FAILED ? o : TX_AGAIN;
}

enum outcome tx_number(struct tx *x, hf_bytes counter, long long *ret)
{
    tx_next(x);
    tx_ask(x, S("INCR"), counter);
    if (!read_all(x))
        return TX_FAILED;
    const struct reply *rp = x->r[0];
    *ret = 0;
    if (is_error(rp) && !is_wrong_type(rp) && !strstr(rp->str, "integer")
        && !strstr(rp->str, "overflow")) {
        refuse(x, rp);
        return TX_FAILED;
    }
    if (is_error(rp))
        return TX_ANSWERED;
    long long n = number_in(rp);
    if (n < NUMBER_MIN)
        return mend_counter(x, counter);
    if (n > NUMBER_MAX) {
        tx_ask(x, S("DECR"), counter);
        return read_all(x) ? TX_ANSWERED : TX_FAILED;
    }
    *ret = n;
    return TX_ANSWERED;
}

/* ---- greeting a server ----------------------------------------------------------------------- */

/* "name:value" of INFO, appended to text; false when it is not there. */
static bool add_field(const struct reply *info, const char *name, char *text, size_t size)
{
    const char *at = info->type == REPLY_BULK ? strstr(info->str, name) : NULL;
    if (!at)
        return false;
    at += strlen(name);
    size_t used = strlen(text), n = 0;
    while (isalnum((unsigned char)at[n]))
        n++;
    if (n == 0 || used + n >= size)
        return false;
    memcpy(text + used, at, n);
    text[used + n] = '\0';
    return true;
}

/* What the stored reign begins with is its name. */
static bool reigns(const struct reply *stored, const char *reign)
{
    return begins_with(stored, reign, ' ');
}

/* A whole number, or nothing at all. */
static bool is_counter(const struct reply *rp)
{
    if (rp->type != REPLY_BULK)
        return false;
    size_t sign = rp->len > 1 && rp->str[0] == '-';
    return sign + strspn(rp->str + sign, "0123456789") == rp->len;
}

/* Store the new reign, and lift the counter past all that the last one can have given. */
static enum outcome begin_reign(struct tx *x, const char *fence_key, const char *reign_key,
                                const char *reign, long long *ret_code)
{
    hf_bytes fence = hf_str(fence_key), key = hf_str(reign_key);
    tx_next(x);
    tx_ask(x, S("WATCH"), fence, key);
    size_t stored = tx_ask(x, S("GETRANGE"), key, S("0"), S("199"));
    size_t count = tx_ask(x, S("GETRANGE"), fence, S("0"), S("31"));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    *ret_code = 0;
    if (reigns(x->r[stored], reign))
        return TX_ANSWERED;
    const struct reply *c = x->r[count];
    *ret_code = -4;
    if (!is_counter(c) || number_in(c) > NUMBER_MAX)
        return TX_ANSWERED;
    long long n = time_us(x->r[now]) + AHEAD_US;
    if (number_in(c) > n)
        n = number_in(c);
    char value[160];
    struct text lifted = text_of(n);
    snprintf(value, sizeof value, "%s %lld", reign, n);
    tx_multi(x);
    tx_ask(x, S("SET"), fence, S(lifted.s));
    tx_ask(x, S("SET"), key, S(value));
    *ret_code = 1;
    return tx_exec(x);
}

static enum outcome hello(struct tx *x, const char *fence_key, const char *reign_key,
                          long long *ret_code)
{
    char reign[128] = "";
    size_t server = tx_ask(x, S("INFO"), S("server"));
    size_t replication = tx_ask(x, S("INFO"), S("replication"));
    size_t stored = tx_ask(x, S("GETRANGE"), hf_str(reign_key), S("0"), S("199"));
    if (!read_all(x))
        return TX_FAILED;
    *ret_code = -5;
    bool known = add_field(x->r[server], "run_id:", reign, sizeof reign - 1);
    strcat(reign, ".");
    if (!known || !add_field(x->r[replication], "master_replid:", reign, sizeof reign))
        return TX_ANSWERED;
    if (is_error(x->r[stored]) && !is_wrong_type(x->r[stored])) {
        refuse(x, x->r[stored]);
        return TX_FAILED;
    }
    *ret_code = 0;
    if (reigns(x->r[stored], reign))
        return TX_ANSWERED;
    return begin_reign(x, fence_key, reign_key, reign, ret_code);
}

hf_err plain_hello(struct link *l, const char *fence_key, const char *reign_key,
                   int64_t deadline_ms, long long *ret_code, hf_error *reterr)
{
    struct script_call sc = { .deadline_ms = deadline_ms };
    for (int tries = 0; tries < CONFLICTS_MAX; tries++) {
        struct tx x = { .l = l, .sc = &sc, .reterr = reterr };
        enum outcome o = hello(&x, fence_key, reign_key, ret_code);
        tx_next(&x);
        if (o == TX_ANSWERED)
            return HF_OK;
        if (o == TX_FAILED)
            return x.answered && x.verdict == SERVER_RETRY ? HF_EBUSY : x.e;
        clock_sleep_until(clock_now_ms() + random_between(0, CONFLICT_MS));
    }
    return err_set(reterr, HF_EBUSY, "others change the fencing counter all the time");
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* False when there is no time left for another attempt. */
static bool back_off(const struct script_call *sc, int64_t *step_ms)
{
    int64_t until = clock_now_ms() + random_between(*step_ms / 2, *step_ms);
    if (until >= sc->deadline_ms || stopped(sc))
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
    if (tries >= CONFLICTS_MAX || until >= sc->deadline_ms || stopped(sc))
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
    if (x->e)
        return TX_FAILED;
    *ret_fresh = ch->fresh;
    x->l = &ch->link;
    if (ch->watches)
        tx_ask(x, S("UNWATCH"));
    enum outcome o = op(x);
    x->sc->sent_ms = x->began_ms - x->skew_ms; /* our own belief ends so much earlier */
    bool usable = o != TX_FAILED || (x->answered && x->verdict != SERVER_RECONNECT);
    leave_channel(p, ch, x, usable);
    return o;
}

hf_err plain_run(struct plain *p, struct script_call *sc, hf_error *reterr)
{
    bool stamps = plain_protocol(p) == PROTOCOL_TIMESTAMP, fresh;
    operation op = stamps ? timestamp[sc->id] : transaction[sc->id];
    int64_t step_ms = RETRY_MIN_MS;
    unsigned conflicts = 0;
    hf_error local;

    sc->reply = NULL;
    sc->in_doubt = 0;
    if (!op)
        return err_set(reterr, HF_ENOTSUP,
                       "the protocol %s cannot do this: it needs scripts on the server, see "
                       "docs/protocols.md", stamps ? "timestamp" : "transaction");
    for (;;) {
        struct tx x = { .sc = sc, .skew_ms = plain_skew_ms(p),
                        .reterr = reterr ? reterr : &local };
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
