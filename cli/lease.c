/* SPDX-License-Identifier: MIT
 * lease.c - when must the work be over? One question over all locks that are held together.
 *
 *   granted ............ renewed ............ renewed .. no answer ......................... end
 *                                                            | reserve: TERM | kill-after | margin
 *
 * The plan is made from our own clock, so that it holds when no server answers. */
#include "lease.h"

#include "clock.h"
#include "message.h"

#include <string.h>

void lease_start(struct lease *l, struct taken *t, const struct opts *o)
{
    *l = (struct lease){ .t = t, .on_lost = o->on_lost, .end_ms = NEVER };
    int64_t full = o->ttl_ms;
    for (size_t i = 0; i < t->n; i++)
        if (hf_mutex_full_time_ms(t->lock[i].m) < full)
            full = hf_mutex_full_time_ms(t->lock[i].m);
    l->margin_ms = lease_margin_ms(full);
    l->reserve_ms = l->margin_ms + (o->on_lost == LOST_TERM ? o->kill_after_ms : 0);
    if (l->reserve_ms > full / 2) /* else every short delay would look like a loss */
        l->reserve_ms = full / 2;
}

static void tell_lost(struct lease *l, const struct taken_lock *tl, hf_loss loss)
{
    char name[TEXT_ESCAPED(1024) + 8];
    l->lost = 1;
    l->loss = loss;
    text_escape(name, sizeof name, tl->name, strlen(tl->name));
    if (loss == HF_LOSS_NONE)
        msg_error("lock %s lost: no answer from the server, and its lease is about to end", name);
    else
        msg_error("lock %s lost: %s", name, hf_loss_text(loss));
}

static void tell_doubt(struct lease *l, int doubt)
{
    if (doubt && !l->doubt)
        msg_verbose("in doubt: no answer from the server for half of the lease");
    if (!doubt && l->doubt)
        msg_verbose("safe again: the server has answered");
    l->doubt = doubt;
}

int lease_look(struct lease *l)
{
    int64_t now = clock_now_ms(), end = NEVER;
    int doubt = 0;
    if (l->lost)
        return 0;
    for (size_t i = 0; i < l->t->n; i++) {
        struct taken_lock *tl = &l->t->lock[i];
        hf_state state = hf_mutex_poll(tl->m);
        int64_t left = hf_mutex_time_left_ms(tl->m);
        doubt |= state == HF_IN_DOUBT;
        if (state == HF_LOST)
            tell_lost(l, tl, hf_mutex_loss(tl->m));
        else if (left <= l->reserve_ms && l->on_lost != LOST_IGNORE)
            tell_lost(l, tl, HF_LOSS_NONE);
        if (l->lost)
            return l->on_lost != LOST_IGNORE;
        if (now + left < end)
            end = now + left;
    }
    tell_doubt(l, doubt);
    l->end_ms = l->on_lost == LOST_IGNORE ? NEVER : end;
    return 0;
}

int64_t lease_next_ms(const struct lease *l)
{
    return l->lost || l->end_ms == NEVER ? NEVER : l->end_ms - l->reserve_ms;
}

int64_t lease_last_ms(const struct lease *l)
{
    return l->end_ms == NEVER ? NEVER : l->end_ms - l->margin_ms / 4;
}

int64_t lease_kill_at_ms(const struct lease *l, int64_t now_ms, int64_t kill_after_ms)
{
    int64_t latest = l->end_ms == NEVER ? NEVER : l->end_ms - l->margin_ms / 2;
    return now_ms + kill_after_ms < latest ? now_ms + kill_after_ms : latest;
}

void lease_renew(struct lease *l, int64_t ttl_ms)
{
    for (size_t i = 0; i < l->t->n; i++) {
        hf_err e = hf_mutex_extend(l->t->lock[i].m, ttl_ms, NULL);
        (void)e; /* without an answer our own clock decides */
    }
}
