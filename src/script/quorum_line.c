/* SPDX-License-Identifier: MIT
 * quorum_line.c - standing in line for a lock on several servers, of which a majority decides.
 *
 * Each server has a line of its own, a companion of the lock, and tells the first in it when the
 * lock is given back there (let_go.lua). That is a hint and no more: who is told asks for the lock
 * as everybody does.
 */
#include <string.h>

#include "base/clock.h"
#include "script/quorum_impl.h"

hf_bytes quorum_companion(hf_bytes queue, char ending, char ret[QUORUM_KEY_MAX])
{
    size_t len = queue.len <= QUORUM_KEY_MAX ? queue.len : QUORUM_KEY_MAX; /* names are shorter */
    memcpy(ret, queue.data, len);
    if (len)
        ret[len - 1] = ending;
    return (hf_bytes){ ret, len };
}

/* An answer of stand.lua. */
static bool is_place(const struct vote *v)
{
    return v->state == VOTE_GIVEN && v->reply->type == REPLY_ARRAY && v->reply->len == 3
           && v->reply->item[1]->type == REPLY_INT && v->reply->item[2]->type == REPLY_INT;
}

static size_t places(const struct ballot *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += is_place(&b->vote[i]);
    return count;
}

static bool looked(const struct ballot *b)
{
    return places(b) >= b->majority;
}

/* The k-th smallest. */
static int64_t kth_smallest(int64_t *number, size_t n, size_t k)
{
    return quorum_kth(number, n, n + 1 - k);
}

/* One answer, made of theirs. */
static void answer(struct ballot *b, struct script_call *sc)
{
    int64_t left[QUORUM_MAX], place[QUORUM_MAX];
    uint64_t unlocked = 0;
    size_t n = 0, some = 0;
    for (size_t i = 0; i < b->n; i++) {
        if (!is_place(&b->vote[i]))
            continue;
        some = i;
        left[n] = b->vote[i].reply->item[1]->num;
        place[n] = b->vote[i].reply->item[2]->num;
        unlocked |= (uint64_t)(left[n] == 0) << i;
        n++;
    }
    sc->reply = quorum_steal(b, some);
    sc->reply->item[0]->num = (long long)unlocked;
    sc->reply->item[1]->num = kth_smallest(left, n, b->majority);
    sc->reply->item[2]->num = kth_smallest(place, n, b->majority);
}

hf_err quorum_stand(struct quorum *q, struct script_call *sc, hf_error *reterr)
{
    struct ballot b;
    char line[QUORUM_KEY_MAX];
    hf_bytes keys[] = { sc->keys[0], quorum_companion(sc->keys[1], 'w', line) };
    struct script_call each = *sc;
    hf_err e = HF_OK;
    each.keys = keys;
    ballot_init(&b, q, &each, NULL, looked);
    quorum_vote(&b);
    ballot_wait_for_stragglers(&b); /* nobody is in a hurry */
    quorum_compare(&b, 0);
    sc->sent_ms = b.begun_ms;
    if (looked(&b))
        answer(&b, sc);
    else
        e = ballot_fail(&b, places(&b), reterr);
    ballot_end(&b);
    return e;
}

void quorum_leave_line(struct quorum *q, const struct line_place *p)
{
    struct ballot b;
    char line[QUORUM_KEY_MAX];
    hf_bytes keys[] = { p->lock, p->own, p->tomb, quorum_companion(p->queue, 'w', line), p->counter };
    hf_bytes args[] = { p->token, hf_str("0"), p->owner };
    hf_bytes zrem[] = { hf_str("ZREM"), keys[3], p->token };
    struct script_call sc = { .id = SCRIPT_let_go, .nkeys = 5, .keys = keys, .nargs = 3,
                              .args = args };
    ballot_init(&b, q, &sc, NULL, looked);
    for (size_t i = 0; i < b.n; i++) {
        if (!p->granted)
            ballot_ask(&b, i);
        else if (conn_begin(b.ask[i].conn, 3, zrem, NULL, &b.ask[i].request))
            b.ask[i].request = NULL;
    }
    ballot_end(&b);
}
