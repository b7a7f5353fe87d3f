/* SPDX-License-Identifier: MIT
 * top_lock.c - `holdfast top`: one lock, its holders and waiters, and breaking it. */
#include "top.h"

#include "message.h"
#include "party.h"
#include "platform.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_LINES = 10, PARTY_LINES = 4 };

/* Room for all lines about a lock. -1: out of memory. */
static int reserve(struct top *t, const hf_inspect_info *info)
{
    size_t need = HEAD_LINES + PARTY_LINES * (info ? info->holders + info->waiters : 0);
    t->lines = 0;
    if (need <= t->line_room)
        return 0;
    free(t->line);
    t->line = calloc(need, sizeof *t->line);
    t->line_room = t->line ? need : 0;
    return t->line ? 0 : -1;
}

static void add(struct top *t, enum ink ink, int holder, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void add(struct top *t, enum ink ink, int holder, const char *fmt, ...)
{
    va_list ap;
    if (t->lines == t->line_room)
        return;
    struct top_line *l = &t->line[t->lines++];
    va_start(ap, fmt);
    vsnprintf(l->text, sizeof l->text, fmt, ap);
    va_end(ap);
    l->ink = ink;
    l->holder = holder;
}

static void more(char *buf, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void more(char *buf, size_t size, const char *fmt, ...)
{
    size_t used = strlen(buf);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf + used, size - used, fmt, ap);
    va_end(ap);
}

/* "held 3m12s, fence 17, lease 30.0s, renewed 2.1s ago" */
static void facts(char *buf, size_t size, const hf_party *p, int holds)
{
    char d[32];
    buf[0] = '\0';
    if (p->age_ms >= 0)
        more(buf, size, "%s %s", holds ? "held" : "waits", text_duration(d, sizeof d, p->age_ms));
    if (p->fence)
        more(buf, size, "%sfence %" PRIu64, buf[0] ? ", " : "", p->fence);
    if (p->permits)
        more(buf, size, "%s%u %s", buf[0] ? ", " : "", p->permits,
             p->permits == 1 ? "permit" : "permits");
    else if (p->mode)
        more(buf, size, "%s%s", buf[0] ? ", " : "", p->mode);
    if (p->lease_ms >= 0)
        more(buf, size, "%slease %s", buf[0] ? ", " : "", text_duration(d, sizeof d, p->lease_ms));
    if (p->renewed_ms >= 0)
        more(buf, size, "%srenewed %s ago", buf[0] ? ", " : "",
             text_duration(d, sizeof d, p->renewed_ms));
}

static void party_lines(struct top *t, const hf_party *p, size_t place, int holder)
{
    char who[PARTY_WORDS], text[300], name[300];
    facts(text, sizeof text, p, holder >= 0);
    add(t, INK_PLAIN, holder, " %2zu. %s", place, party_words(who, sizeof who, p));
    if (text[0])
        add(t, INK_DIM, holder, "     %s", text);
    if (p->waits_for)
        add(t, INK_WARN, holder, "     waits for %s",
            text_escape(name, sizeof name, p->waits_for, strnlen(p->waits_for, 70)));
    if (p->present == 0)
        add(t, INK_WARN, holder, "     the server does not see its session: it is gone, or cannot "
                                 "reach the server");
}

static void head_lines(struct top *t, const struct scene_lock *l)
{
    char name[TEXT_ESCAPED(HF_NAME_MAX)], kind[80], d[32], spark[4 * SCENE_RING + 1];
    const hf_inspect_info *info = l->info;
    add(t, INK_BOLD, -1, "%s", text_escape(name, sizeof name, l->name, l->name_len));
    top_spark(&t->gather.scene, l, SCENE_RING, spark, sizeof spark);
    add(t, INK_NOTE, -1, "%.1f hand-overs/s  %s", l->rate, spark);
    if (!info)
        add(t, INK_DIM, -1, "free");
    else if (info->holders)
        add(t, INK_PLAIN, -1, "%s, %s%s", party_kind(kind, sizeof kind, info),
            info->ttl_ms < 0 ? "held for ever" : "lease left: ",
            info->ttl_ms < 0 ? "" : text_duration(d, sizeof d, info->ttl_ms));
    else
        add(t, INK_PLAIN, -1, "%s", party_kind(kind, sizeof kind, info));
    if (l->stuck == STUCK_CYCLE)
        add(t, INK_BAD, -1, "DEADLOCK: its holder waits for a lock whose holder waits for this "
                            "one, directly or through others");
    else if (l->stuck == STUCK_BEHIND)
        add(t, INK_BAD, -1, "its holder waits for a deadlock");
}

int top_lock_lines(struct top *t, const struct scene_lock *l)
{
    char name[TEXT_ESCAPED(HF_NAME_MAX)];
    const hf_inspect_info *info = l ? l->info : NULL;
    if (reserve(t, info) != 0)
        return -1;
    if (!l) {
        add(t, INK_BOLD, -1, "%s", text_escape(name, sizeof name, t->chosen, t->chosen_len));
        add(t, INK_DIM, -1, "free");
        return 0;
    }
    head_lines(t, l);
    if (!info)
        return 0;
    if (info->holders)
        add(t, INK_NOTE, -1, "HOLDERS (%zu)", info->holders_total);
    for (size_t i = 0; i < info->holders; i++)
        party_lines(t, info->holder[i], i + 1, (int)i);
    if (info->holders_total > info->holders)
        add(t, INK_DIM, -1, "     and %zu more", info->holders_total - info->holders);
    add(t, INK_NOTE, -1, "WAITERS (%zu)%s", info->waiters_total,
        info->waiters_total ? "" : ": none");
    for (size_t i = 0; i < info->waiters; i++)
        party_lines(t, info->waiter[i], i + 1, -1);
    if (info->waiters_total > info->waiters)
        add(t, INK_DIM, -1, "     and %zu more", info->waiters_total - info->waiters);
    return 0;
}

void top_lock_draw(struct top *t, int from, int to)
{
    size_t fit = to > from ? (size_t)(to - from) : 0;
    if (t->line_at >= t->lines)
        t->line_at = t->lines ? t->lines - 1 : 0;
    if (t->line_at < t->line_first)
        t->line_first = t->line_at;
    if (fit && t->line_at >= t->line_first + fit)
        t->line_first = t->line_at - fit + 1;
    for (size_t i = 0; i < fit && t->line_first + i < t->lines; i++) {
        const struct top_line *l = &t->line[t->line_first + i];
        screen_put(from + (int)i, 0, screen_columns,
                   t->line_first + i == t->line_at ? INK_BAR : l->ink, l->text);
    }
}

const hf_party *top_holder(const struct top *t)
{
    const struct scene_lock *l = top_chosen(t);
    const hf_inspect_info *info = l ? l->info : NULL;
    if (!info || !info->holders)
        return NULL;
    if (info->holders_total == 1)
        return info->holder[0];
    if (t->view != VIEW_LOCK || t->line_at >= t->lines || t->line[t->line_at].holder < 0
        || (size_t)t->line[t->line_at].holder >= info->holders)
        return NULL;
    return info->holder[t->line[t->line_at].holder];
}

/* ---- breaking it ----------------------------------------------------------------------------- */

/* Thread: of this break. */
static void *break_run(void *arg)
{
    struct top_break *b = arg;
    hf_bytes name = { b->name, b->name_len };
    b->result = break_call(b->c, name, b->fence, "from holdfast top", b->said);
    atomic_store(&b->done, 1);
    platform_bell_ring(b->bell_fd);
    return NULL;
}

void top_break_begin(struct top *t)
{
    struct top_break *b = &t->breaking;
    b->c = t->gather.c;
    b->bell_fd = t->bell_fd;
    b->name = malloc(t->chosen_len + 1);
    b->name_len = t->chosen_len;
    atomic_store(&b->done, 0);
    if (b->name)
        memcpy(b->name, t->chosen, t->chosen_len + 1);
    b->started = b->name && pthread_create(&b->thread, NULL, break_run, b) == 0;
    if (b->started) {
        top_say(t, INK_WARN, "breaking ...");
        return;
    }
    free(b->name);
    b->name = NULL;
    top_say(t, INK_BAD, "not broken: out of memory, or of threads");
}

void top_break_look(struct top *t)
{
    struct top_break *b = &t->breaking;
    char name[TEXT_ESCAPED(HF_NAME_MAX)], said[TEXT_ESCAPED(BREAK_SAID)];
    if (!b->started || !atomic_load(&b->done))
        return;
    pthread_join(b->thread, NULL);
    b->started = 0;
    text_escape(name, sizeof name, b->name, b->name_len);
    top_say(t, b->result ? INK_BAD : INK_GOOD, "%.60s: %.500s", name,
            text_escape(said, sizeof said, b->said, strlen(b->said)));
    free(b->name);
    b->name = NULL;
}
