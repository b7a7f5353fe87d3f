/* SPDX-License-Identifier: MIT
 * cancel_queue.c - tokens that were given up and of which the server does not know yet.
 */
#include "session/cancel_queue.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/client.h"

#define PAUSE_MS     200
#define PENDING_MAX  100000 /* beyond that the ttl has to do */
#define RELEASED_MAX 1000

/* ---- one of them ----------------------------------------------------------------------------- */

static hf_bytes put(char **p, hf_bytes b)
{
    char *start = *p;
    if (b.len)
        memcpy(start, b.data, b.len);
    start[b.len] = '\0';
    *p += b.len + 1;
    return (hf_bytes){ start, b.len };
}

struct cancel_entry *cancel_entry_new(hf_client *c, const struct op_cancel *what, int64_t until_ms)
{
    char text[OP_MEMBER_MAX];
    hf_bytes token = hf_str(what->token), member = op_cancel_member(what, text);
    size_t bytes = token.len + what->owner.len + member.len + 3;
    struct cancel_entry *en = mem_zalloc(sizeof *en + bytes);
    if (!en)
        return NULL;
    char *p = en->bytes;
    en->until_ms = until_ms;
    en->what = *what;
    en->what.token = put(&p, token).data;
    en->what.owner = put(&p, what->owner);
    en->what.member = put(&p, member);
    en->what.place = NULL;
    if (client_keys(c, what->keys->name, &en->keys, NULL))
        return cancel_entry_free(en);
    en->what.keys = en->keys;
    en->moves = topo_moves_of(c->topo, en->keys->key[KEY_LOCK]);
    return en;
}

struct cancel_entry *cancel_entry_free(struct cancel_entry *en)
{
    if (!en)
        return NULL;
    keys_free(en->keys);
    mem_free(en);
    return NULL;
}

/* All at once, so that one whose server is silent does not keep the others waiting. */
void cancel_entries_run(hf_client *c, struct cancel_entry *const *some, size_t n,
                        int64_t deadline_ms)
{
    struct op op[CANCELS_AT_ONCE] = { 0 };
    for (size_t i = 0; i < n; i++) {
        op[i].id = OP_cancel;
        op[i].cancel = some[i]->what;
        op[i].deadline_ms = deadline_ms;
    }
    exec_run_all(c->exec, op, n);
    for (size_t i = 0; i < n; i++) {
        some[i]->result = op[i].result;
        some[i]->moves = op[i].moves;
        op_clear(&op[i]);
    }
}

/* ---- the queue ------------------------------------------------------------------------------- */

void cancel_queue_init(struct cancel_queue *q)
{
    *q = (struct cancel_queue){ 0 };
    q->released_end = &q->released;
}

static struct cancel_entry *of_turn(struct heap_node *n)
{
    return (struct cancel_entry *)((char *)n - offsetof(struct cancel_entry, turn));
}

/* For all that may ever stand in the heap: those that are under way, or were released, may come
 * back to it, and must find their place. */
static bool has_room(struct cancel_queue *q)
{
    return heap_reserve(&q->turns, q->pending + q->nreleased + 1) == 0;
}

static void begin(struct cancel_queue *q, struct cancel_entry *en)
{
    q->pending++;
    en->newer = NULL;
    en->older = q->newest;
    if (q->newest)
        q->newest->newer = en;
    q->newest = en;
    heap_put(&q->turns, &en->turn, 0);
}

static void unlist(struct cancel_queue *q, struct cancel_entry *en)
{
    q->pending--;
    if (en->newer)
        en->newer->older = en->older;
    else
        q->newest = en->older;
    if (en->older)
        en->older->newer = en->newer;
}

void cancel_queue_drop(struct cancel_queue *q, struct cancel_entry *en)
{
    unlist(q, en);
    cancel_entry_free(en);
}

bool cancel_queue_add(struct cancel_queue *q, struct cancel_entry *en)
{
    if (q->pending >= PENDING_MAX || !has_room(q))
        return false;
    begin(q, en);
    return true;
}

static struct cancel_entry *take_released(struct cancel_queue *q, struct cancel_entry **p)
{
    struct cancel_entry *en = *p;
    if (!(*p = en->next))
        q->released_end = p;
    q->nreleased--;
    return en;
}

/* Forget those that were released too long ago, or more than max of them. */
static void forget_released(struct cancel_queue *q, int64_t now_ms, size_t max)
{
    while (q->released && (q->nreleased > max || q->released->until_ms <= now_ms))
        cancel_entry_free(take_released(q, &q->released));
}

bool cancel_queue_released(struct cancel_queue *q, struct cancel_entry *en, int64_t now_ms)
{
    forget_released(q, now_ms, RELEASED_MAX - 1);
    if (!has_room(q))
        return false;
    en->next = NULL;
    *q->released_end = en;
    q->released_end = &en->next;
    q->nreleased++;
    return true;
}

bool cancel_queue_repeat(struct cancel_queue *q, const struct topo *t, int64_t now_ms)
{
    forget_released(q, now_ms, RELEASED_MAX);
    struct cancel_entry **p = &q->released;
    while (*p) {
        if ((*p)->moves == topo_moves_of(t, (*p)->keys->key[KEY_LOCK])) {
            p = &(*p)->next;
            continue;
        }
        struct cancel_entry *en = take_released(q, p);
        en->until_ms = clock_add(now_ms, CLIENT_TOMBSTONE_MS);
        begin(q, en);
    }
    return q->turns.len > 0;
}

int64_t cancel_queue_due(const struct cancel_queue *q)
{
    const struct heap_node *n = heap_first(&q->turns);
    return n ? n->due_ms : CLOCK_NEVER;
}

size_t cancel_queue_take(struct cancel_queue *q, int64_t now_ms, struct cancel_entry **ret,
                         size_t max)
{
    size_t n = 0;
    for (; n < max && q->turns.len && cancel_queue_due(q) <= now_ms; n++) {
        ret[n] = of_turn(heap_first(&q->turns));
        heap_remove(&q->turns, &ret[n]->turn);
    }
    return n;
}

void cancel_queue_settle(struct cancel_queue *q, struct cancel_entry *en, int64_t now_ms,
                         int64_t until_ms)
{
    if (!en->result && now_ms < until_ms) {
        unlist(q, en);
        en->until_ms = until_ms;
        if (!cancel_queue_released(q, en, now_ms))
            cancel_entry_free(en);
    } else if (!en->result || en->result == HF_EAUTH || now_ms >= en->until_ms) {
        cancel_queue_drop(q, en);
    } else {
        heap_put(&q->turns, &en->turn, now_ms + PAUSE_MS);
    }
}

void cancel_queue_clear(struct cancel_queue *q)
{
    forget_released(q, CLOCK_NEVER, 0);
    while (heap_first(&q->turns)) {
        struct cancel_entry *en = of_turn(heap_first(&q->turns));
        heap_remove(&q->turns, &en->turn);
        cancel_queue_drop(q, en);
    }
    heap_clear(&q->turns);
}
