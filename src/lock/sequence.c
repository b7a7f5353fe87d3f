/* SPDX-License-Identifier: MIT
 * sequence.c - increasing ids, taken in blocks.
 *
 *  SEQ1  No id is given twice, whoever asks, as long as the server keeps the counter.
 *  SEQ2  Ids of one handle increase, also over a server that lost its counter.
 *  SEQ3  With a block of 1 they increase in real time over all clients: who asks after another has
 *      got its id gets a larger one.
 *  SEQ4  A lost reply leaves a gap and nothing else.
 *  SEQ5  A key that is no counter, or has come to its end, gives an error and is not changed.
 *  SEQ6  With from_time ids are not repeated either when the counter, or its newest state, was
 *      lost, as long as the server's clock does not go back, and has passed the ids given: each of
 *      a block takes a microsecond of it.
 *  SEQ7  One round trip serves a block, for however many threads: one asks, the others wait for it.
 *
 * Tests: tests/live/sequence.c, thread_sequence.c.
 */
#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/opts.h"
#include "session/client.h"

#define ID_MAX UINT64_C(9007199254740991) /* the largest whole number that Lua keeps exactly */

struct hf_sequence {
    hf_client        *c;
    char             *key; /* key_len bytes; the name is at its end */
    size_t            key_len, name_len;
    hf_sequence_opts  opts;
    struct mutex      mu; /* guards everything below */
    pthread_cond_t    answered;
    uint64_t          last_given, block_end; /* equal: the block is used up */
    bool              asking;   /* somebody fetches the next block */
    unsigned          answers;  /* how many times somebody has asked */
    hf_error          failure;  /* of the last one; code HF_OK: there was none */
};

/* ---- making and freeing ------------------------------------------------------------------- */

static hf_err check_opts(const hf_sequence_opts *opts, hf_sequence_opts *ret, hf_error *reterr)
{
    hf_err e = opts_copy(ret, sizeof *ret, opts, "hf_sequence_opts", reterr);
    if (e)
        return e;
    if (ret->block == 0)
        ret->block = HF_BLOCK_DEFAULT;
    if (ret->start == 0)
        ret->start = 1;
    if (ret->block > HF_BLOCK_MAX)
        return err_set(reterr, HF_EINVAL, "a block of %llu ids: give 1 to %d",
                       (unsigned long long)ret->block, HF_BLOCK_MAX);
    if (ret->start > ID_MAX)
        return err_set(reterr, HF_EINVAL, "a start of %llu: ids end at %llu",
                       (unsigned long long)ret->start, (unsigned long long)ID_MAX);
    return HF_OK;
}

/* Names as of locks, so that what is allowed need not be learned twice. */
static hf_err check_name(const hf_client *c, hf_bytes name, hf_error *reterr)
{
    struct lock_keys *k;
    hf_err e = client_keys(c, name, &k, reterr);
    if (!e)
        keys_free(k);
    return e;
}

/* prefix + "holdfast:seq:" + name */
static char *make_key(const char *prefix, hf_bytes name, size_t *ret_len)
{
    AUTO(mem_freep) char *base = keys_reserved(prefix, "seq:");
    size_t n = base ? strlen(base) : 0;
    char *key = base ? mem_alloc(n + name.len) : NULL;
    if (key) {
        memcpy(key, base, n);
        memcpy(key + n, name.data, name.len);
        *ret_len = n + name.len;
    }
    return key;
}

hf_err hf_sequence_open(hf_client *c, hf_bytes name, const hf_sequence_opts *opts,
                        hf_sequence **ret, hf_error *reterr)
{
    CALL_GUARD;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the new handle, was given");
    hf_sequence_opts o;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = check_opts(opts, &o, reterr);
    if (!e)
        e = check_name(c, name, reterr);
    if (e)
        return e;

    hf_sequence *s = mem_zalloc(sizeof *s);
    char *key = s ? make_key(c->prefix, name, &s->key_len) : NULL;
    if (!key) {
        mem_free(s);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    client_use(c);
    s->c = c;
    s->key = key;
    s->name_len = name.len;
    s->opts = o;
    mutex_init(&s->mu, MUTEX_SEQUENCE);
    pthread_cond_init(&s->answered, NULL);
    *ret = s;
    return HF_OK;
}

hf_sequence *hf_sequence_free(hf_sequence *s)
{
    CALL_GUARD;
    if (!s)
        return NULL;
    if (s->c->generation == forkguard_generation()) {
        pthread_cond_destroy(&s->answered);
        mutex_destroy(&s->mu);
    }
    client_leave(s->c);
    mem_free(s->key);
    mem_free(s);
    return NULL;
}

/* ---- a block ------------------------------------------------------------------------------ */

static hf_err refuse(const hf_sequence *s, const struct op_numbers *got, hf_error *reterr)
{
    char name[120], key[160];
    err_quote(name, sizeof name, s->key + s->key_len - s->name_len, s->name_len);
    err_quote(key, sizeof key, s->key, s->key_len);
    if (got->code == ANSWER_WRONG_TYPE)
        return err_set(reterr, HF_ECOUNTER,
                       "the sequence %s: its key %s holds something that is not a counter; nothing "
                       "was changed. Look at it, and delete it if nobody needs it", name, key);
    return err_set(reterr, HF_ECOUNTER,
                   "the sequence %s stands at %llu, and ids end at %llu: no block of %llu is left; "
                   "nothing was changed", name, (unsigned long long)got->largest,
                   (unsigned long long)ID_MAX, (unsigned long long)s->opts.block);
}

/* Ask the server. seen: the largest id that this handle has given. */
static hf_err fetch(const hf_sequence *s, uint64_t seen, uint64_t *ret_first, uint64_t *ret_last,
                    hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_sequence, .deadline_ms = client_deadline(s->c),
        .sequence = { .key = { s->key, s->key_len }, .count = s->opts.block,
                      .first = s->opts.start, .seen = seen, .timed = s->opts.from_time != 0 },
    };
    hf_err e = exec_run(s->c->exec, &op, reterr);
    if (e)
        return e;
    if (op.got.numbers.code != ANSWER_YES)
        return refuse(s, &op.got.numbers, reterr);
    *ret_first = op.got.numbers.first;
    *ret_last = op.got.numbers.last;
    return HF_OK;
}

/* Holds: mu, released while it asks. */
static void next_block_locked(hf_sequence *s)
{
    mutex_assert_held(&s->mu);
    uint64_t seen = s->last_given, first = 0, last = 0;
    hf_error err = { 0 };
    s->asking = true;
    mutex_unlock(&s->mu);
    hf_err e = fetch(s, seen, &first, &last, &err);
    mutex_lock(&s->mu);
    s->asking = false;
    s->answers++;
    s->failure = err;
    s->failure.code = e;
    if (!e) {
        s->last_given = first - 1;
        s->block_end = last;
    }
    pthread_cond_broadcast(&s->answered);
}

hf_err hf_sequence_next(hf_sequence *s, uint64_t *ret_id, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = handle_enter(s, reterr);
    if (!e && !ret_id)
        e = err_set(reterr, HF_EINVAL, "no place for the id was given");
    if (e)
        return e;
    mutex_lock(&s->mu);
    while (!e && s->last_given == s->block_end) {
        unsigned before = s->answers;
        if (!s->asking)
            next_block_locked(s);
        else
            while (s->asking && s->answers == before)
                mutex_cond_wait(&s->mu, &s->answered);
        /* Who waited for somebody else's question has its answer, though it be a failure: a hundred
         * threads do not ask a dead server one after the other. */
        if (s->last_given == s->block_end && s->answers == before + 1)
            e = s->failure.code;
    }
    if (!e)
        *ret_id = ++s->last_given;
    else if (reterr)
        *reterr = s->failure;
    mutex_unlock(&s->mu);
    return e;
}
