/* SPDX-License-Identifier: MIT
 * request.c - the queues of requests: where the first stands that somebody waits for, whatever came
 * and went before it.
 */
#include "net/request.h"

#include "harness/t.h"

#define MANY 40

static struct request all[MANY];
static struct request *model[MANY]; /* what the queue should hold */
static size_t n;

static void remove_at(size_t at)
{
    n--;
    for (size_t i = at; i < n; i++)
        model[i] = model[i + 1];
}

static void check(struct queue *q)
{
    size_t i = 0;
    struct request *first = NULL;
    for (const struct request *r = q->head; r; r = r->next, i++)
        CHECK(i < n && r == model[i]);
    CHECK_INT(i, n);
    for (i = n; i-- > 0;)
        if (!model[i]->orphan)
            first = model[i];
    CHECK(*queue_wanted(q) == first);
    CHECK(*q->tail == NULL);
}

static struct request *unused(void)
{
    for (size_t i = 0; i < MANY; i++) {
        size_t at = 0;
        while (at < n && model[at] != &all[i])
            at++;
        if (at == n)
            return &all[i];
    }
    return NULL;
}

TEST(orphans_are_passed_whatever_comes_and_goes)
{
    struct queue q;
    queue_init(&q);
    for (int turn = 0; turn < 20000; turn++) {
        struct request *r = t_random(5) < 3 ? unused() : NULL;
        if (r) {
            r->orphan = t_random(3) > 0;
            queue_add(&q, r);
            model[n++] = r;
        } else if (n && t_random(2)) {
            CHECK(queue_take(&q) == model[0]);
            remove_at(0);
        } else if (n) {
            size_t at = t_random((unsigned)n);
            r = model[at];
            CHECK(queue_unlink(&q, r));
            CHECK(!queue_unlink(&q, r));
            remove_at(at);
        }
        if (t_random(4))
            check(&q);
    }
}
