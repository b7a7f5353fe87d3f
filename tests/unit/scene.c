/* SPDX-License-Identifier: MIT
 * scene.c - what top, graph and web make of looks at the locks: rates, deadlocks, who waits.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"

#include "../../cli/graph.c"
#include "../../cli/scene.c"

/* ---- looks that were never taken ----------------------------------------------------------- */

static hf_party *party(const char *who, uint64_t fence, const char *waits_for)
{
    hf_party *p = calloc(1, sizeof *p);
    p->owner = strdup(who);
    p->session = strdup(who);
    p->host = strdup("web1");
    p->pid = 100 + who[0];
    p->fence = fence;
    p->age_ms = 5000;
    p->waits_for = waits_for ? strdup(waits_for) : NULL;
    return p;
}

static void party_free(hf_party *p)
{
    free(p->owner);
    free(p->session);
    free(p->host);
    free(p->waits_for);
    free(p);
}

void lock_list_free(struct lock_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        hf_inspect_info *info = l->lock[i];
        for (size_t k = 0; k < info->holders; k++)
            party_free(info->holder[k]);
        for (size_t k = 0; k < info->waiters; k++)
            party_free(info->waiter[k]);
        free(info->holder);
        free(info->waiter);
        free(info->name);
        free(info);
    }
    free(l->lock);
    *l = (struct lock_list){ 0 };
}

static int by_name(const void *a, const void *b)
{
    const hf_inspect_info *x = *(hf_inspect_info *const *)a, *y = *(hf_inspect_info *const *)b;
    return strcmp(x->name, y->name);
}

void lock_list_sort(struct lock_list *l)
{
    if (l->n)
        qsort(l->lock, l->n, sizeof *l->lock, by_name);
}

static hf_inspect_info *lock(struct lock_list *l, const char *name)
{
    hf_inspect_info *info = calloc(1, sizeof *info);
    info->name = strdup(name);
    info->name_len = strlen(name);
    l->lock = realloc(l->lock, (l->n + 1) * sizeof *l->lock);
    l->lock[l->n++] = info;
    return info;
}

static void holds(hf_inspect_info *info, const char *who, uint64_t fence, const char *waits_for)
{
    info->holder = realloc(info->holder, (info->holders + 1) * sizeof *info->holder);
    info->holder[info->holders++] = party(who, fence, waits_for);
    info->holders_total = info->holders;
}

static void waits(hf_inspect_info *info, const char *who)
{
    info->waiter = realloc(info->waiter, (info->waiters + 1) * sizeof *info->waiter);
    info->waiter[info->waiters++] = party(who, 0, NULL);
    info->waiters_total = info->waiters;
}

static int stuck(const struct scene *s, const char *name)
{
    const struct scene_lock *l = scene_find(s, name, strlen(name));
    CHECK(l != NULL);
    return (int)l->stuck;
}

/* ---- rates --------------------------------------------------------------------------------- */

static void look_at(struct scene *s, int64_t now_ms, uint64_t fence_a, uint64_t fence_b)
{
    struct lock_list list = { 0 };
    if (fence_b)
        holds(lock(&list, "b"), "s2", fence_b, NULL);
    if (fence_a)
        holds(lock(&list, "a"), "s1", fence_a, NULL);
    CHECK_INT(scene_look(s, &list, 0, now_ms), 0);
    CHECK_INT((long long)list.n, 0);
}

TEST(a_new_number_is_a_hand_over_and_the_first_look_counts_nothing)
{
    struct scene s = { 0 };
    look_at(&s, 1000, 10, 11);
    CHECK(s.rate == 0);
    look_at(&s, 2000, 12, 11);
    look_at(&s, 3000, 15, 11);
    look_at(&s, 5000, 15, 11);
    const struct scene_lock *a = scene_find(&s, "a", 1), *b = scene_find(&s, "b", 1);
    CHECK(a->rate == 0.5); /* two in four seconds */
    CHECK(b->rate == 0);
    CHECK(s.rate == 0.5);
    CHECK_INT(scene_seen(&s, a, 0), 0);
    CHECK_INT(scene_seen(&s, a, 1), 1);
    CHECK_INT(scene_seen(&s, a, 2), 1);
    CHECK_INT(scene_seen(&s, a, 3), 0);
    CHECK_INT(scene_seen(&s, a, 4), -1);
    CHECK_INT((long long)s.held, 2);
    scene_free(&s);
}

TEST(a_lock_that_appears_was_granted_and_a_hot_one_stays_for_a_while)
{
    struct scene s = { 0 };
    look_at(&s, 1000, 0, 11);
    look_at(&s, 2000, 20, 11);
    CHECK(scene_find(&s, "a", 1)->rate == 1);
    look_at(&s, 3000, 0, 11);
    const struct scene_lock *a = scene_find(&s, "a", 1);
    CHECK(a && !a->info);
    CHECK_INT((long long)s.held, 1);
    look_at(&s, 4000, 20, 11); /* the same grant as before */
    CHECK_INT(scene_seen(&s, scene_find(&s, "a", 1), 0), 0);
    for (int i = 5; i < 30; i++)
        look_at(&s, 1000 * i, 0, 11);
    CHECK(!scene_find(&s, "a", 1));
    look_at(&s, 30000, 0, 0);
    CHECK(!scene_find(&s, "b", 1)); /* it was never passed on */
    scene_free(&s);
}

TEST(what_could_not_be_seen_was_not_granted_since)
{
    struct scene s = { 0 };
    struct lock_list none = { 0 };
    look_at(&s, 1000, 10, 11);
    CHECK_INT(scene_look(&s, &none, 1, 2000), 0);
    CHECK_INT((long long)s.n, 0);
    look_at(&s, 3000, 10, 11);
    CHECK(s.rate == 0);
    look_at(&s, 4000, 12, 11);
    CHECK(s.rate > 0);
    scene_free(&s);
}

TEST(the_ring_goes_round)
{
    struct scene s = { 0 };
    for (int i = 1; i < 3 * SCENE_RING; i++)
        look_at(&s, 1000 * i, i % 2 ? 1000u + (unsigned)i : 1000u + (unsigned)i - 1, 5);
    const struct scene_lock *a = scene_find(&s, "a", 1);
    CHECK(a->rate == 0.5);
    CHECK_INT(scene_seen(&s, a, 0), 1);
    CHECK_INT(scene_seen(&s, a, 1), 0);
    CHECK_INT(scene_seen(&s, a, SCENE_RING), -1);
    scene_free(&s);
}

TEST(a_name_that_is_told_twice_is_one_lock)
{
    struct scene s = { 0 };
    struct lock_list list = { 0 };
    for (int i = 0; i < 3; i++)
        holds(lock(&list, "a"), "s1", 7, NULL);
    CHECK_INT(scene_look(&s, &list, 0, 1000), 0);
    CHECK_INT((long long)s.n, 1);
    for (int i = 0; i < 3; i++)
        holds(lock(&list, "a"), "s1", 7, NULL);
    CHECK_INT(scene_look(&s, &list, 0, 2000), 0);
    CHECK_INT((long long)s.n, 1);
    scene_free(&s);
}

/* ---- deadlocks ----------------------------------------------------------------------------- */

/* a -> b -> c -> a; d's holder waits for a. */
static void look_deadlock(struct scene *s, int reader, int slots)
{
    struct lock_list list = { 0 };
    holds(lock(&list, "a"), "s1", 1, "b");
    holds(lock(&list, "b"), "s2", 2, "c");
    holds(lock(&list, "c"), "s3", 3, "a");
    holds(lock(&list, "d"), "s4", 4, "a");
    holds(lock(&list, "e"), "s5", 5, NULL);
    holds(lock(&list, "f"), "s6", 6, "e");
    if (reader)
        holds(list.lock[1], "s7", 7, NULL);
    if (slots) {
        list.lock[1]->slots = 3;
        list.lock[1]->used = (unsigned)slots;
    }
    waits(list.lock[0], "s3");
    waits(list.lock[0], "s4");
    waits(list.lock[1], "s1");
    waits(list.lock[2], "s2");
    waits(list.lock[4], "s6");
    CHECK_INT(scene_look(s, &list, 0, 1000), 0);
}

TEST(a_cycle_is_told_from_what_waits_for_it)
{
    struct scene s = { 0 };
    look_deadlock(&s, 0, 0);
    CHECK_INT(stuck(&s, "a"), STUCK_CYCLE);
    CHECK_INT(stuck(&s, "b"), STUCK_CYCLE);
    CHECK_INT(stuck(&s, "c"), STUCK_CYCLE);
    CHECK_INT(stuck(&s, "d"), STUCK_BEHIND);
    CHECK_INT(stuck(&s, "e"), STUCK_NOT);
    CHECK_INT(stuck(&s, "f"), STUCK_NOT);
    CHECK_INT((long long)s.stuck, 4);
    scene_free(&s);
}

TEST(who_can_still_release_breaks_the_cycle)
{
    struct scene s = { 0 };
    look_deadlock(&s, 1, 0);
    CHECK_INT((long long)s.stuck, 0);
    scene_free(&s);
    look_deadlock(&s, 0, 1); /* slots are left */
    CHECK_INT((long long)s.stuck, 0);
    scene_free(&s);
    look_deadlock(&s, 0, 3);
    CHECK_INT((long long)s.stuck, 4);
    scene_free(&s);
}

TEST(a_lock_that_waits_for_itself)
{
    struct scene s = { 0 };
    struct lock_list list = { 0 };
    holds(lock(&list, "a"), "s1", 1, "a");
    waits(list.lock[0], "s2");
    CHECK_INT(scene_look(&s, &list, 0, 1000), 0);
    CHECK_INT(stuck(&s, "a"), STUCK_CYCLE);
    scene_free(&s);
}

/* ---- the graph ----------------------------------------------------------------------------- */

static size_t lines_of(const struct graph *g, enum graph_line_kind kind, int deadlock)
{
    size_t n = 0;
    for (size_t i = 0; i < g->lines; i++)
        n += g->line[i].kind == kind && g->line[i].deadlock == deadlock;
    return n;
}

static void check_arranged(const struct graph *g)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct graph_node *node = &g->node[i];
        CHECK(node->depth >= 0 && node->depth < g->depth);
        CHECK(node->row >= 0 && node->row < g->rows);
        for (size_t k = 0; k < g->n; k++)
            CHECK(i == k || g->node[k].depth != node->depth || g->node[k].row != node->row);
    }
}

TEST(the_graph_has_who_waits_and_what_it_holds)
{
    struct scene s = { 0 };
    struct graph g;
    look_deadlock(&s, 0, 0);
    CHECK_INT(graph_build(&g, &s), 0);
    CHECK_INT((long long)g.n, 6 + 6);
    CHECK_INT((long long)lines_of(&g, LINE_HELD, 1), 3);
    CHECK_INT((long long)lines_of(&g, LINE_WAITS, 1), 3);
    CHECK_INT((long long)lines_of(&g, LINE_HELD, 0), 3);
    CHECK_INT((long long)lines_of(&g, LINE_WAITS, 0), 2);
    CHECK_INT((long long)lines_of(&g, LINE_BELOW, 0), 0);
    check_arranged(&g);
    graph_free(&g);
    scene_free(&s);
}

TEST(what_nobody_waits_for_is_left_out)
{
    struct scene s = { 0 };
    struct graph g;
    look_at(&s, 1000, 1, 2);
    CHECK_INT(graph_build(&g, &s), 0);
    CHECK_INT((long long)g.n, 0);
    graph_free(&g);
    scene_free(&s);
    CHECK_INT(graph_build(&g, &s), 0); /* of nothing at all */
    graph_free(&g);
}

TEST(a_holder_whose_child_waits)
{
    struct scene s = { 0 };
    struct graph g;
    struct lock_list list = { 0 };
    holds(lock(&list, "a"), "s1", 1, "b");
    holds(lock(&list, "b"), "s2", 2, NULL);
    waits(list.lock[1], "s3");
    CHECK_INT(scene_look(&s, &list, 0, 1000), 0);
    CHECK_INT(graph_build(&g, &s), 0);
    CHECK_INT((long long)lines_of(&g, LINE_BELOW, 0), 1);
    check_arranged(&g);
    graph_free(&g);
    scene_free(&s);
}

TEST(a_long_queue_is_counted)
{
    struct scene s = { 0 };
    struct graph g;
    struct lock_list list = { 0 };
    char who[8];
    hf_inspect_info *a = lock(&list, "a");
    for (int i = 0; i < 100; i++) {
        snprintf(who, sizeof who, "w%d", i);
        waits(a, who);
    }
    a->waiters_total = 5000;
    holds(a, "s1", 1, NULL);
    holds(lock(&list, "b"), "w99", 2, NULL); /* the last one shown holds another lock */
    CHECK_INT(scene_look(&s, &list, 0, 1000), 0);
    CHECK_INT(graph_build(&g, &s), 0);
    size_t more = 0;
    for (size_t i = 0; i < g.n; i++)
        more += g.node[i].more;
    CHECK_INT((long long)more, 5000 - 21);
    CHECK_INT((long long)g.n, 2 + 1 + 21 + 1);
    check_arranged(&g);
    graph_free(&g);
    scene_free(&s);
}

TEST(a_chain_of_any_length_is_drawn)
{
    struct scene s = { 0 };
    struct graph g;
    struct lock_list list = { 0 };
    char name[16], who[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "l%05d", i);
        snprintf(who, sizeof who, "s%d", i);
        holds(lock(&list, name), who, 1u + (unsigned)i, NULL);
        snprintf(who, sizeof who, "s%d", i + 1);
        waits(list.lock[i], who);
    }
    CHECK_INT(scene_look(&s, &list, 0, 1000), 0);
    CHECK_INT(graph_build(&g, &s), 0);
    CHECK_INT((long long)g.n, 4001);
    CHECK(g.depth <= GRAPH_DEPTH + 1);
    graph_free(&g);
    scene_free(&s);
}
