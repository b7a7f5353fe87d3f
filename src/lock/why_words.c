/* SPDX-License-Identifier: MIT
 * why_words.c - what is the matter with a lock, as far as a look at it tells: a word, a sentence.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "lock/why.h"

/* ---- the word ------------------------------------------------------------------------------- */

static const char *holder_cause(const hf_inspect_info *i, const hf_party *p)
{
    if (p->claiming)
        return CAUSE_CLAIM;
    if (p->present == 0 || (i->absent_ms >= 0 && i->holders_total == 1))
        return CAUSE_ABSENT;
    if (p->renews == 0)
        return CAUSE_LEFT;
    return p->lease_ms > 0 && p->renewed_ms > p->lease_ms / 2 ? CAUSE_SILENT : CAUSE_HELD;
}

static bool is_kind(const hf_inspect_info *i, const char *kind)
{
    return strcmp(i->kind, kind) == 0;
}

/* Of several holders one that is well is enough: it is what keeps the lock. */
const char *hf_inspect_cause(const hf_inspect_info *i)
{
    if (!i || is_kind(i, "unknown"))
        return CAUSE_UNKNOWN;
    if (is_kind(i, "wrong type") || is_kind(i, "latch") || is_kind(i, "barrier"))
        return CAUSE_NOT_A_LOCK;
    if (i->holders == 0 || (i->used < i->slots && i->waiters_total == 0))
        return CAUSE_FREE;
    if (i->ttl_ms < 0)
        return CAUSE_NO_TTL;
    if (is_kind(i, "foreign") || is_kind(i, "timestamp"))
        return CAUSE_FOREIGN;
    for (size_t n = 0; n < i->holders; n++)
        if (strcmp(holder_cause(i, i->holder[n]), CAUSE_HELD) == 0)
            return CAUSE_HELD;
    return holder_cause(i, i->holder[0]);
}

int64_t why_free_ms(const hf_inspect_info *i, const char *cause)
{
    int64_t grace_ms = i->holders ? i->holder[0]->grace_ms : -1;
    if (strcmp(cause, CAUSE_FREE) == 0)
        return 0;
    if (strcmp(cause, CAUSE_ABSENT) == 0 && i->absent_ms >= 0 && grace_ms > 0)
        return clock_earlier(i->ttl_ms, grace_ms > i->absent_ms ? grace_ms - i->absent_ms : 0);
    bool ends = strcmp(cause, CAUSE_SILENT) == 0 || strcmp(cause, CAUSE_LEFT) == 0
                || strcmp(cause, CAUSE_ABSENT) == 0 || strcmp(cause, CAUSE_CLAIM) == 0
                || strcmp(cause, CAUSE_FOREIGN) == 0;
    return ends ? i->ttl_ms : -1;
}

/* ---- the sentence --------------------------------------------------------------------------- */

void words_add(struct words *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (w->used < w->size) {
        int n = vsnprintf(w->buf + w->used, w->size - w->used, fmt, ap);
        w->used += n > 0 ? (size_t)n : 0;
    }
    va_end(ap);
}

void words_time(struct words *w, int64_t ms)
{
    long long s = ms / 1000;
    if (ms < 1000)
        words_add(w, "%lldms", (long long)ms);
    else if (s < 60)
        words_add(w, "%lld.%llds", s, (long long)ms % 1000 / 100);
    else if (s < 3600)
        words_add(w, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        words_add(w, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        words_add(w, "%lldd%02lldh", s / 86400, s / 3600 % 24);
}

void words_party(struct words *w, const hf_party *p)
{
    if (p->host)
        words_add(w, "%.64s%s%.255s", p->user ? p->user : "", p->user ? "@" : "", p->host);
    else
        words_add(w, "owner %.64s", p->owner);
}

static void add_since(struct words *w, const char *before, const hf_party *p)
{
    if (p->age_ms >= 0) {
        words_add(w, "%s", before);
        words_time(w, p->age_ms);
    }
    if (p->info && p->info[0])
        words_add(w, " (%.200s)", p->info);
}

/* What is known beyond that: last, as it may be cut off. */
static void add_process(struct words *w, const hf_inspect_info *i)
{
    const hf_party *p = i->holder[0];
    if (p->pid > 0)
        words_add(w, ", pid %lld", (long long)p->pid);
    if (p->program)
        words_add(w, ", %.64s", p->program);
    if (i->holders_total > 1)
        words_add(w, " and %zu more", i->holders_total - 1);
}

static void add_free_in(struct words *w, const char *before, int64_t ms, const char *after)
{
    words_add(w, "%s", before);
    words_time(w, ms > 0 ? ms : 0);
    words_add(w, "%s", after);
}

static void say_free(struct words *w, const hf_inspect_info *i)
{
    if (i->slots && i->holders)
        words_add(w, "%u of %u slots are free", i->slots - i->used, i->slots);
    else if (i->waiters_total)
        words_add(w, "free, and about to be given to the first of %zu who wait",
                  i->waiters_total);
    else
        words_add(w, "free now");
}

static void say_absent(struct words *w, const hf_inspect_info *i)
{
    const hf_party *p = i->holder[0];
    words_add(w, "its holder ");
    words_party(w, p);
    words_add(w, " is gone: ");
    if (i->absent_ms >= 0) {
        add_free_in(w, "free in ", why_free_ms(i, CAUSE_ABSENT), ", when its grace is over");
    } else {
        add_free_in(w, "free in ", i->ttl_ms, "");
        if (p->grace_ms > 0 && p->grace_ms < i->ttl_ms)
            add_free_in(w, ", or ", p->grace_ms, " after somebody begins to wait");
    }
}

static void say_held(struct words *w, const hf_inspect_info *i)
{
    const hf_party *p = i->holder[0];
    words_add(w, "held by ");
    words_party(w, p);
    add_since(w, " for ", p);
    if (p->renewed_ms >= 0)
        add_free_in(w, ", renewed ", p->renewed_ms, " ago");
}

/* What is wrong goes before since when. */
static void say_stuck(struct words *w, const hf_inspect_info *i, const char *cause)
{
    const hf_party *p = i->holder[0];
    bool left = strcmp(cause, CAUSE_LEFT) == 0;
    words_add(w, left ? "left behind by " : "its holder ");
    words_party(w, p);
    if (left) {
        add_free_in(w, ": nobody renews it, free in ", i->ttl_ms, "");
    } else {
        add_free_in(w, " is silent: not renewed for ", p->renewed_ms, "");
        add_free_in(w, ", free in ", i->ttl_ms, " at the latest");
    }
    add_since(w, ", held for ", p);
}

static void say_claim(struct words *w, const hf_inspect_info *i)
{
    words_add(w, "handed to ");
    words_party(w, i->holder[0]);
    add_free_in(w, ", which does not take it: passed on in ", i->ttl_ms, "");
}

static void say_foreign(struct words *w, const hf_inspect_info *i, const char *cause)
{
    const char *owner = i->holder[0]->owner;
    if (is_kind(i, "foreign") || is_kind(i, "timestamp"))
        words_add(w, "held by another program (\"%.64s\")", owner);
    else
        say_held(w, i);
    if (strcmp(cause, CAUSE_NO_TTL) == 0)
        words_add(w, ": its key has no time to live");
    else
        add_free_in(w, ", free in ", i->ttl_ms, " if it does not renew it");
}

void words_inspected(struct words *w, const hf_inspect_info *i, const char *cause)
{
    if (strcmp(cause, CAUSE_UNKNOWN) == 0)
        words_add(w, "not known: its server does not tell");
    else if (strcmp(cause, CAUSE_NOT_A_LOCK) == 0 && is_kind(i, "wrong type"))
        words_add(w, "not a lock: its key holds data of another type");
    else if (strcmp(cause, CAUSE_NOT_A_LOCK) == 0)
        words_add(w, "a %s, not a lock", i->kind);
    else if (strcmp(cause, CAUSE_FREE) == 0)
        say_free(w, i);
    else if (strcmp(cause, CAUSE_NO_TTL) == 0 || strcmp(cause, CAUSE_FOREIGN) == 0)
        say_foreign(w, i, cause);
    else if (strcmp(cause, CAUSE_CLAIM) == 0)
        say_claim(w, i);
    else if (strcmp(cause, CAUSE_ABSENT) == 0)
        say_absent(w, i);
    else if (strcmp(cause, CAUSE_HELD) == 0)
        say_held(w, i);
    else
        say_stuck(w, i, cause);
    if (i->holders && strcmp(cause, CAUSE_FREE) != 0)
        add_process(w, i);
}

char *hf_inspect_words(const hf_inspect_info *info, char *buf, size_t size)
{
    struct words w = { buf, size, 0 };
    buf[0] = '\0';
    words_inspected(&w, info, hf_inspect_cause(info));
    return buf;
}
