/* SPDX-License-Identifier: MIT
 * deadline.c - when must the work be over? One question over all locks that are held together.
 *
 *   granted ............ renewed ............ renewed .. no answer ......................... end
 *                                                            | reserve: TERM | kill-after | margin
 *
 * The plan is made from our own clock, so that it holds when no server answers. What it counts down
 * is the ttl, or the grace where that is shorter: without a word from us others may take over then.
 *
 * Who looks late has been kept from the processor, and so have the threads of the library: the
 * answer may lie in the socket, or be there a moment after they ask. So they get a part of the
 * reserve for it; CMD has that much less time for TERM. The end stays where it is. */
#include "deadline.h"

#include "clock.h"
#include "message.h"

#include <string.h>

#define LATE_MS 25 /* later than planned: more than a busy scheduler does now and then */
#define SOON_MS 5
#define STOOD_MS 100 /* later than that: we have stood still */
#define EARLY_MS 2000 /* a suspended job ends so long before its lease, or an eighth of that */

/* How long it takes to stop the work: what the user said, or a share of what there is. Of a grace
 * it is less than of a ttl: what is kept for this is missing when the server is silent. */
static int64_t kill_after(const struct opts *o, int64_t full_ms)
{
    int64_t share = full_ms < o->ttl_ms ? full_ms / 10 : full_ms / 4;
    if (o->on_lost != LOST_TERM)
        return 0;
    return o->kill_after_given || o->kill_after_ms < share ? o->kill_after_ms : share;
}

/* Of the lock that has least. */
static int64_t time_left(const struct taken *t)
{
    int64_t least = NEVER;
    for (size_t i = 0; i < t->n; i++) {
        int64_t left = hf_lock_time_left_ms(t->lock[i].m);
        least = left < least ? left : least;
    }
    return least;
}

void deadline_start(struct deadline *l, struct taken *t, const struct opts *o)
{
    *l = (struct deadline){ .t = t, .on_lost = o->on_lost, .end_ms = NEVER, .next_ms = NEVER };
    int64_t full = o->ttl_ms;
    for (size_t i = 0; i < t->n; i++) {
        int64_t full_i = hf_lock_full_time_ms(t->lock[i].m);
        full = full_i < full ? full_i : full;
    }
    l->ttl_ms = o->ttl_ms;
    l->full_ms = full;
    l->full_name = full < o->ttl_ms ? "grace" : "lease";
    l->every_ms = full / 16;
    l->margin_ms = deadline_margin_ms(full);
    l->reserve_ms = l->margin_ms + kill_after(o, full);
    if (l->reserve_ms > full / 2) { /* else every short delay would look like a loss */
        char after[32], of[32];
        l->reserve_ms = full / 2;
        if (o->on_lost == LOST_TERM)
            msg_verbose("should the lock be lost, KILL follows TERM after %s and not later: the "
                        "grace is %s", text_duration(after, sizeof after, full / 2 - l->margin_ms),
                        text_duration(of, sizeof of, full));
    }
    /* A lock that was handed over to us may have only a short lease so far. */
    if (time_left(t) <= l->reserve_ms)
        deadline_renew(l, o->ttl_ms);
    if (o->on_lost != LOST_IGNORE)
        l->end_ms = clock_now_ms() + time_left(t);
}

void deadline_woke(struct deadline *l)
{
    int64_t now = clock_now_ms();
    if (l->next_ms == NEVER || now <= l->next_ms + STOOD_MS)
        return;
    l->stood_ms = now - l->next_ms; /* at least; every_ms more at most */
    l->stood_at_ms = now;
}

/* It is about to end: by our own pause, or because nobody answers? */
static void why_short(const struct deadline *l, int64_t left, char *ret, size_t size)
{
    char t[32], of[32];
    int64_t silent = l->full_ms > left ? l->full_ms - left : 0;
    int64_t since = clock_now_ms() - l->stood_at_ms; /* we woke up */
    text_duration(of, sizeof of, l->full_ms);
    if (l->stood_ms && since < silent && silent - l->stood_ms < l->full_ms / 2)
        snprintf(ret, size, "this process stood still for %s, and its %s of %s is about to end",
                 text_duration(t, sizeof t, l->stood_ms / 100 * 100), l->full_name, of);
    else
        snprintf(ret, size, "no answer from %s for %s, and its %s of %s is about to end",
                 hf_client_url(l->t->c), text_duration(t, sizeof t, silent / 100 * 100),
                 l->full_name, of);
}

void deadline_tell_killed(const struct deadline *l)
{
    char t[32], of[32];
    int lease = l->stood_ms >= l->ttl_ms / 2; /* stopped on purpose, it outlives its grace */
    if (l->stood_ms)
        msg_error("CMD was killed when its time ended: this process stood still for %s, too long "
                  "for the %s of %s", text_duration(t, sizeof t, l->stood_ms / 100 * 100),
                  lease ? "lease" : l->full_name,
                  text_duration(of, sizeof of, lease ? l->ttl_ms : l->full_ms));
    else
        msg_error("CMD was killed when its time ended: holdfast had no processor time, and could "
                  "not renew the lock before the end of its %s of %s", l->full_name,
                  text_duration(of, sizeof of, l->full_ms));
}

static void tell_lost(struct deadline *l, struct taken_lock *tl, hf_loss loss, int64_t left)
{
    char name[TEXT_ESCAPED(1024) + 8], why[400];
    l->lost = 1;
    l->loss = loss;
    tl->told_lost = 1;
    text_escape(name, sizeof name, tl->name, strlen(tl->name));
    if (loss == HF_LOSS_NONE)
        why_short(l, left, why, sizeof why);
    else
        hf_lock_loss_text(tl->m, why, sizeof why);
    msg_error("lock %s lost: %s", name, why);
}

static void tell_doubt(struct deadline *l, int doubt)
{
    if (doubt && !l->doubt)
        msg_verbose("in doubt: half of the time is gone without an answer from the server");
    if (!doubt && l->doubt)
        msg_verbose("safe again: the server has answered");
    l->doubt = doubt;
}

/* Less than the reserve is left. Is it too late, or may the threads of the library catch up first?
 * They have half of what there is, once. Who looks for the first time is late, too: CMD took long
 * to start. */
static int too_late(struct deadline *l, int64_t now, int64_t left)
{
    int late = l->next_ms == NEVER || now > l->next_ms + LATE_MS;
    if (!l->catch_up_ms && late && left > l->margin_ms)
        l->catch_up_ms = now + (left - l->margin_ms) / 2;
    return now >= l->catch_up_ms;
}

void deadline_ignore(struct deadline *l)
{
    for (size_t i = 0; i < l->t->n; i++)
        hf_lock_poll(l->t->lock[i].m);
}

int deadline_check(struct deadline *l)
{
    int64_t now = clock_now_ms(), end = NEVER;
    int doubt = 0, short_of_time = 0;
    if (l->lost) {
        deadline_ignore(l);
        return 0;
    }
    for (size_t i = 0; i < l->t->n; i++) {
        struct taken_lock *tl = &l->t->lock[i];
        hf_state state = hf_lock_poll(tl->m);
        int64_t left = hf_lock_time_left_ms(tl->m);
        doubt |= state == HF_STATE_IN_DOUBT;
        short_of_time |= left <= l->reserve_ms;
        if (state == HF_STATE_LOST)
            tell_lost(l, tl, hf_lock_loss(tl->m), 0);
        else if (left <= l->reserve_ms && l->on_lost != LOST_IGNORE && too_late(l, now, left))
            tell_lost(l, tl, HF_LOSS_NONE, left);
        if (l->lost)
            return l->on_lost != LOST_IGNORE;
        if (now + left < end)
            end = now + left;
    }
    if (!short_of_time)
        l->catch_up_ms = 0;
    tell_doubt(l, doubt);
    l->end_ms = l->on_lost == LOST_IGNORE ? NEVER : end;
    return 0;
}

int64_t deadline_next_ms(struct deadline *l)
{
    int64_t now = clock_now_ms();
    l->next_ms = NEVER;
    if (!l->lost && l->end_ms != NEVER) {
        l->next_ms = l->catch_up_ms ? now + SOON_MS : l->end_ms - l->reserve_ms;
        if (now + l->every_ms < l->next_ms)
            l->next_ms = now + l->every_ms;
    }
    return l->next_ms;
}

int64_t deadline_last_ms(const struct deadline *l)
{
    return l->end_ms == NEVER ? NEVER : l->end_ms - l->margin_ms / 4;
}

int64_t deadline_kill_at_ms(const struct deadline *l, int64_t now_ms, int64_t kill_after_ms)
{
    int64_t latest = l->end_ms == NEVER ? NEVER : l->end_ms - l->margin_ms / 2;
    return now_ms + kill_after_ms < latest ? now_ms + kill_after_ms : latest;
}

/* The guardian may get no processor for a while, and nothing of the job runs that could use the
 * rest. */
int64_t deadline_suspended_ms(struct deadline *l, int64_t ttl_ms)
{
    int64_t now = clock_now_ms(), early = ttl_ms / 8 < EARLY_MS ? ttl_ms / 8 : EARLY_MS;
    if (l->lost || l->doubt || l->end_ms == NEVER)
        return 0; /* who is silent now is not waited for */
    for (size_t i = 0; i < l->t->n; i++)
        if (hf_lock_extend(l->t->lock[i].m, ttl_ms, NULL) != HF_OK)
            return 0;
    return now + ttl_ms - ttl_ms / 100 - (early > l->margin_ms ? early : l->margin_ms);
}

void deadline_renew(struct deadline *l, int64_t ttl_ms)
{
    for (size_t i = 0; i < l->t->n; i++) {
        hf_err e = hf_lock_extend(l->t->lock[i].m, ttl_ms, NULL);
        (void)e; /* without an answer our own clock decides */
    }
}
