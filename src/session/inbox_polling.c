/* SPDX-License-Identifier: MIT
 * inbox_polling.c - when a channel does not stand: what can be hoped for, and who is told.
 *
 * It is never given up. Until it stands waiting is by polling, and locks are granted without a
 * grace.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "session/inbox_impl.h"

#define HOPEFUL_MS 1000 /* for longer nobody is made to wait for it */

bool inbox_is_refusal(hf_err e)
{
    return e == HF_EAUTH || e == HF_ECONFIG;
}

int64_t inbox_next_pause(int64_t pause_ms, int64_t least_ms, int64_t most_ms)
{
    return 2 * pause_ms < least_ms ? least_ms : clock_earlier(2 * pause_ms, most_ms);
}

void inbox_why_locked(struct inbox *in, const char *why)
{
    mutex_assert_held(&in->mu);
    snprintf(in->why, sizeof in->why, "%s", why);
}

/* A server that cannot be reached may come back with everything as it was: who stands in the queue
 * keeps its place. One that is there and does not give us the channel will not let us hear of our
 * turn. */
enum inbox_answer inbox_hope_locked(const struct inbox *in, const struct subscription *sub,
                                    int64_t now)
{
    mutex_assert_held(&in->mu);
    if (in->refused || sub->refused)
        return INBOX_REFUSED;
    if (!in->up)
        return now - in->down_since_ms > HOPEFUL_MS ? INBOX_NOT_YET : INBOX_WAIT;
    int64_t since = sub->wanted_ms > in->up_since_ms ? sub->wanted_ms : in->up_since_ms;
    if (now - since > INBOX_POLLING_MS)
        return INBOX_REFUSED;
    return now - since > HOPEFUL_MS ? INBOX_NOT_YET : INBOX_WAIT;
}

bool inbox_unheard_locked(const struct inbox *in, const struct subscription *sub, int64_t now)
{
    mutex_assert_held(&in->mu);
    int64_t since = sub->wanted_ms > in->up_since_ms ? sub->wanted_ms : in->up_since_ms;
    int64_t proof = atomic_load(&in->proof_ms);
    return sub->state != SUB_STANDS && in->up && !in->refused && !sub->refused
           && now - since > HOPEFUL_MS && now - proof > HOPEFUL_MS;
}

/* Whether a server that is there has not given us a channel for long; *ret_due_ms: else, when that
 * will be so. Of a server that is away others tell. */
static bool lacking_locked(const struct inbox *in, int64_t now, bool *ret_any, int64_t *ret_due_ms)
{
    mutex_assert_held(&in->mu);
    bool lacking = false;
    *ret_any = false;
    *ret_due_ms = CLOCK_NEVER;
    for (const struct subscription *s = in->subs; s; s = s->next) {
        if (s->state == SUB_STANDS)
            continue;
        *ret_any = true;
        int64_t since = s->wanted_ms > in->up_since_ms ? s->wanted_ms : in->up_since_ms;
        if (in->refused || s->refused || (in->up && now - since >= INBOX_POLLING_MS))
            lacking = true;
        else if (in->up)
            *ret_due_ms = clock_earlier(*ret_due_ms, since + INBOX_POLLING_MS);
    }
    return lacking;
}

int64_t inbox_tell_polling(struct inbox *in)
{
    char why[sizeof in->why];
    int64_t due;
    bool any;
    mutex_lock(&in->mu);
    bool lacking = lacking_locked(in, clock_now_ms(), &any, &due);
    bool begins = lacking && !in->polling, ends = in->polling && !any && in->subs;
    snprintf(why, sizeof why, "%s", *in->why ? in->why : "the server does not answer to it");
    in->polling = any && (in->polling || lacking);
    if (in->polling)
        due = CLOCK_NEVER; /* nothing more to be said before it is over */
    mutex_unlock(&in->mu);
    if (begins)
        log_to(in->log, HF_LOG_WARNING,
               "no subscription: %s; waiting is by polling, and a crash costs the ttl", why);
    if (ends)
        log_to(in->log, HF_LOG_INFO,
               "the subscription stands again: waiting is in a queue, and a crash costs the grace");
    return due;
}
