/* SPDX-License-Identifier: MIT
 * scene.c - what top, graph and web show: a look at all locks, and what changed since the last. */
#include "scene.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, size_t an, const void *b, size_t bn)
{
    int order = memcmp(a, b, an < bn ? an : bn);
    return order ? order : (an > bn) - (an < bn);
}

unsigned scene_newest(const struct scene *s)
{
    return s->looks ? (s->looks - 1) % SCENE_RING : 0;
}

int scene_seen(const struct scene *s, const struct scene_lock *l, unsigned back)
{
    if (back >= SCENE_RING || back >= s->looks)
        return -1;
    unsigned at = (s->looks - 1 - back) % SCENE_RING;
    return l ? l->ring[at] : s->ring[at];
}

struct scene_lock *scene_find(const struct scene *s, const void *name, size_t len)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        struct scene_lock *l = &s->lock[mid];
        int order = compare(l->name, l->name_len, name, len);
        if (order == 0)
            return l;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

uint64_t scene_fence(const struct scene_lock *l)
{
    return l->info && l->info->holders ? l->info->holder[0]->fence : 0;
}

/* ---- hand-overs ---------------------------------------------------------------------------- */

/* Each grant of a lock has a larger number than all before it. */
static unsigned count_new(struct scene_lock *l, int known)
{
    const hf_inspect_info *info = l->info;
    uint64_t before = l->newest;
    unsigned n = 0;
    for (size_t i = 0; info && i < info->holders; i++) {
        uint64_t fence = info->holder[i]->fence;
        n += fence > before;
        if (fence > l->newest)
            l->newest = fence;
    }
    return known ? n : 0;
}

/* A look counts what came since the one before it; the first has nothing to compare with. */
static double mean(const struct scene *s, const struct scene_lock *l)
{
    unsigned sum = 0, n = s->looks ? s->looks - 1 : 0;
    if (n > SCENE_MEAN)
        n = SCENE_MEAN;
    for (unsigned back = 0; back < n; back++)
        sum += (unsigned)scene_seen(s, l, back);
    int64_t ms = n ? s->at_ms[scene_newest(s)] - s->at_ms[(s->looks - 1 - n) % SCENE_RING] : 0;
    return ms > 0 ? 1000.0 * sum / (double)ms : 0;
}

static void count(struct scene *s, struct scene_lock *l)
{
    unsigned at = scene_newest(s);
    /* What was not there before is new, unless it could not be seen. */
    unsigned n = count_new(l, s->looks > 1 && (l->newest || !s->was_partial));
    l->ring[at] = n < UINT8_MAX ? (uint8_t)n : UINT8_MAX;
    s->ring[at] = s->ring[at] + n < UINT16_MAX ? (uint16_t)(s->ring[at] + n) : UINT16_MAX;
    l->rate = mean(s, l);
}

static int64_t longest(hf_party *const *party, size_t n)
{
    int64_t ms = -1;
    for (size_t i = 0; i < n; i++)
        if (party[i]->age_ms > ms)
            ms = party[i]->age_ms;
    return ms;
}

static void sum_up(struct scene *s)
{
    s->held = s->waiting = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct scene_lock *l = &s->lock[i];
        count(s, l);
        l->hold_ms = l->info ? longest(l->info->holder, l->info->holders) : -1;
        l->wait_ms = l->info ? longest(l->info->waiter, l->info->waiters) : -1;
        s->held += l->info && l->info->holders > 0;
        s->waiting += l->info ? l->info->waiters_total : 0;
    }
    s->rate = mean(s, NULL);
}

/* ---- deadlocks ----------------------------------------------------------------------------- */

/* The lock that its i-th holder waits for; NULL: it is not known to wait. */
static struct scene_lock *waits_for(const struct scene *s, const struct scene_lock *l, size_t i)
{
    const char *name = l->info->holder[i]->waits_for;
    return name ? scene_find(s, name, strlen(name)) : NULL;
}

/* Each of its holders is known, and waits for a lock that is stuck: nobody will release it. */
static int still_stuck(const struct scene *s, const struct scene_lock *l)
{
    const hf_inspect_info *info = l->info;
    if (info->holders == 0 || info->holders < info->holders_total
        || (info->slots && info->used < info->slots))
        return 0;
    for (size_t i = 0; i < info->holders; i++) {
        const struct scene_lock *to = waits_for(s, l, i);
        if (!to || to->stuck == STUCK_NOT)
            return 0;
    }
    return 1;
}

/* A stuck lock that some holder of a stuck lock in the cycle waits for. */
static void mark_waited_for(struct scene *s, uint8_t *waited)
{
    memset(waited, 0, s->n);
    for (size_t k = 0; k < s->n; k++)
        for (size_t i = 0; s->lock[k].stuck == STUCK_CYCLE && i < s->lock[k].info->holders; i++)
            waited[waits_for(s, &s->lock[k], i) - s->lock] = 1;
}

/* First all that could be stuck, then without those that are not, as often as one is found; of what
 * is left, a cycle is what somebody in it waits for. 0, or -1: out of memory. */
static int find_deadlocks(struct scene *s)
{
    int again = 0;
    s->stuck = 0;
    for (size_t k = 0; k < s->n; k++) {
        struct scene_lock *l = &s->lock[k];
        l->stuck = l->info && l->info->holders && waits_for(s, l, 0) ? STUCK_CYCLE : STUCK_NOT;
        again |= l->stuck != STUCK_NOT;
    }
    while (again) {
        again = 0;
        for (size_t k = 0; k < s->n; k++) {
            struct scene_lock *l = &s->lock[k];
            if (l->stuck == STUCK_NOT || still_stuck(s, l))
                continue;
            l->stuck = STUCK_NOT;
            again = 1;
        }
    }
    for (size_t k = 0; k < s->n; k++)
        s->stuck += s->lock[k].stuck != STUCK_NOT;
    if (!s->stuck)
        return 0;
    uint8_t *waited = malloc(s->n);
    for (again = waited != NULL; again;) {
        again = 0;
        mark_waited_for(s, waited);
        for (size_t k = 0; k < s->n; k++) {
            if (s->lock[k].stuck != STUCK_CYCLE || waited[k])
                continue;
            s->lock[k].stuck = STUCK_BEHIND;
            again = 1;
        }
    }
    free(waited);
    return waited ? 0 : -1;
}

/* ---- from one look to the next ------------------------------------------------------------- */

static int fresh(struct scene_lock *l, const hf_inspect_info *info)
{
    *l = (struct scene_lock){ .name_len = info->name_len, .info = info };
    l->name = malloc(info->name_len + 1);
    if (!l->name)
        return -1;
    memcpy(l->name, info->name, info->name_len);
    l->name[info->name_len] = '\0';
    return 0;
}

/* One that is not there now stays for a while if it has been passed on lately: a hot lock is often
 * free. */
static int stays(const struct scene_lock *l, size_t already)
{
    return l->gone < SCENE_STAYS && l->rate > 0 && already < SCENE_GONE;
}

static void keep(struct scene_lock *to, struct scene_lock *old, const hf_inspect_info *info)
{
    *to = *old;
    to->info = info;
    to->gone = info ? 0 : old->gone + 1;
    old->name = NULL; /* it has moved */
}

/* SCAN may say a name twice: the next one in the list that has another. */
static size_t skip_same(const struct lock_list *list, size_t i)
{
    size_t k = i + 1;
    while (k < list->n && compare(list->lock[k]->name, list->lock[k]->name_len,
                                  list->lock[i]->name, list->lock[i]->name_len) == 0)
        k++;
    return k;
}

/* Both lists are in the order of names. The old names move to `to` as far as they stay. Returns how
 * many there are, or -1: out of memory. */
static int64_t join(struct scene *s, const struct lock_list *list, struct scene_lock *to)
{
    size_t n = 0, old = 0, i = 0, gone = 0;
    while (old < s->n || i < list->n) {
        struct scene_lock *o = old < s->n ? &s->lock[old] : NULL;
        const hf_inspect_info *info = i < list->n ? list->lock[i] : NULL;
        int order = !o || !info ? 0 : compare(o->name, o->name_len, info->name, info->name_len);
        if (info && (!o || order > 0)) {
            if (fresh(&to[n], info) != 0)
                return -1;
            n++;
            i = skip_same(list, i);
        } else if (o && (!info || order < 0)) {
            if (stays(o, gone)) {
                keep(&to[n++], o, NULL);
                gone++;
            }
            old++;
        } else if (o && info) {
            keep(&to[n++], o, info);
            old++;
            i = skip_same(list, i);
        }
    }
    return (int64_t)n;
}

static void free_locks(struct scene_lock *lock, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(lock[i].name);
    free(lock);
}

int scene_look(struct scene *s, struct lock_list *list, int partial, int64_t now_ms)
{
    size_t room = s->n + list->n;
    lock_list_sort(list);
    struct scene_lock *to = calloc(room ? room : 1, sizeof *to);
    int64_t n = to ? join(s, list, to) : -1;
    if (n < 0) {
        /* what was moved is in both: the new one is complete up to where it ended */
        if (to)
            free_locks(to, room);
        free_locks(s->lock, s->n);
        lock_list_free(list);
        lock_list_free(&s->list);
        *s = (struct scene){ 0 };
        return -1;
    }
    free_locks(s->lock, s->n);
    lock_list_free(&s->list);
    s->lock = to;
    s->n = (size_t)n;
    s->list = *list;
    *list = (struct lock_list){ 0 };
    s->looks++;
    s->was_partial = s->partial;
    s->partial = partial;
    s->at_ms[scene_newest(s)] = now_ms;
    s->ring[scene_newest(s)] = 0;
    sum_up(s);
    return find_deadlocks(s);
}

void scene_free(struct scene *s)
{
    free_locks(s->lock, s->n);
    lock_list_free(&s->list);
    *s = (struct scene){ 0 };
}
