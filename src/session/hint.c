/* SPDX-License-Identifier: MIT
 * hint.c - waiting for a lock on a quorum: in line on each server, woken by whoever gives it back.
 *
 *      ask -> stand      [ask]     refused
 *      stand -> ask      [look]    it is free on a majority, after all
 *      stand -> ask      [heed]    a majority of the servers tell that it was given back
 *      stand -> stand    [look]    now and then: a hint may be lost, a holder may be gone
 *
 * No majority can keep one queue, so nothing is handed over: a hint only says that asking is worth
 * while. Each server tells one waiter, the first in its line. The lines are the same where all
 * waiters were heard of, so mostly one of them hears of a majority, and asks; who hears of fewer
 * looks again in a little while. The further behind, the longer until the next look by oneself.
 */
#include "session/hint.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/random.h"
#include "script/quorum.h"

#define POLL_MIN_MS  10
#define POLL_MAX_MS  250
#define LOOK_MS      400  /* of the first in line; the second twice that, and so on */
#define LOOK_MAX_MS  5000
#define SOON_MIN_MS  10   /* some have told, but no majority */
#define SOON_MAX_MS  40

/* A random pause that grows. */
static int64_t pause_ms(unsigned *round)
{
    int64_t step = *round < 5 ? (int64_t)POLL_MIN_MS << *round : POLL_MAX_MS;
    ++*round;
    return random_between(step / 2, step);
}

/* Thread: a member's. "free TOKEN". Anybody may publish to our channel: all that comes of it is
 * that we ask. */
static void heard(void *arg, size_t member, const char *text)
{
    hf_client *c = arg;
    if (strncmp(text, "free ", 5) == 0)
        waiters_hint(c->waiters, client_sequence_of(c, text + 5), member);
}

static bool enough(const hf_client *c, uint64_t members)
{
    return (size_t)__builtin_popcountll(members) >= quorum_majority(topo_quorum(c->topo));
}

/* What was told since the last time. */
static void heed(hf_client *c, struct waiter *w, int64_t now)
{
    struct waiter_line *l = &w->line;
    uint64_t told = waiters_hints(c->waiters, w);
    if (!told)
        return;
    l->told |= told;
    if (enough(c, l->told | l->unlocked)) {
        l->ask_at_ms = now;
        l->vain = 0;
    } else {
        l->look_at_ms = clock_earlier(l->look_at_ms, now + random_between(SOON_MIN_MS, SOON_MAX_MS));
    }
}

static hf_err ask(hf_client *c, struct waiter *w, int64_t deadline_ms, hf_error *reterr)
{
    struct waiter_line *l = &w->line;
    l->ask_at_ms = CLOCK_NEVER;
    l->look_at_ms = 0;
    hf_err e = attempt_run(c, &w->a, deadline_ms, reterr);
    if (e == HF_ECANCELED && !(w->a.stop && atomic_load(w->a.stop))) {
        w->restart = true; /* a server had to undo an earlier try of this token for good */
        return HF_EBUSY;
    }
    if (!e) {
        w->terms.sent_ms = w->a.sent_ms;
        w->terms.ttl_ms = w->a.ttl_ms;
    } else if (e != HF_EBUSY) {
        l->ask_at_ms = clock_now_ms() + pause_ms(&w->round);
        l->look_at_ms = CLOCK_NEVER;
    }
    return e;
}

/* Stand in line, or stand on, and see how long the lock is taken for. */
static hf_err look(hf_client *c, struct waiter *w, int64_t deadline_ms, hf_error *reterr)
{
    struct waiter_line *l = &w->line;
    struct quorum *q = topo_quorum(c->topo);
    char age[24];
    (void)quorum_listen(q, w->a.keys->home->sub.channel, heard, c);
    bool hears = quorum_hears(q); /* before we stand: else nobody need tell us */
    snprintf(age, sizeof age, "%lld", (long long)(clock_now_ms() - w->since_ms));
    hf_bytes keys[] = { w->a.keys->key[KEY_LOCK], w->a.keys->key[KEY_QUEUE] };
    hf_bytes args[] = { hf_str(w->a.token), hf_str(age) };
    struct script_call sc = { .id = SCRIPT_stand, .nkeys = 2, .keys = keys, .nargs = 2,
                              .args = args, .deadline_ms = deadline_ms, .stop = w->a.stop };
    l->stands = true;
    l->told = 0;
    hf_err e = script_run(c->topo, &sc, reterr);
    int64_t now = clock_now_ms();
    if (e) {
        l->ask_at_ms = now + pause_ms(&w->round);
        l->look_at_ms = CLOCK_NEVER;
        return e;
    }
    l->unlocked = (uint64_t)sc.reply->item[0]->num;
    int64_t left = sc.reply->item[1]->num, before = sc.reply->item[2]->num;
    reply_free(sc.reply);
    if (enough(c, l->unlocked)) { /* one who only seems free must not keep us busy */
        l->ask_at_ms = now + (l->vain ? pause_ms(&l->vain) : 0);
        l->vain += !l->vain;
        l->look_at_ms = CLOCK_NEVER;
        return HF_EBUSY;
    }
    int64_t pause = before < LOOK_MAX_MS / LOOK_MS ? LOOK_MS * (1 + before) : LOOK_MAX_MS;
    pause = hears ? random_between(pause, pause + pause / 4) : pause_ms(&w->round);
    l->look_at_ms = now + clock_earlier(pause, left + 1 + before * SOON_MIN_MS);
    return HF_EBUSY;
}

hf_err hint_step(hf_client *c, struct waiter *w, int64_t deadline_ms, int64_t *ret_until_ms,
                 hf_error *reterr)
{
    struct waiter_line *l = &w->line;
    hf_err e = w->trouble ? w->trouble : HF_EBUSY;
    int64_t now = clock_now_ms();
    heed(c, w, now);
    if (now >= l->ask_at_ms)
        e = w->trouble = ask(c, w, deadline_ms, reterr);
    if (e == HF_EBUSY && !w->restart && now >= l->look_at_ms)
        e = w->trouble = look(c, w, deadline_ms, reterr);
    *ret_until_ms = clock_earlier(l->ask_at_ms, l->look_at_ms);
    return e;
}

void hint_leave(hf_client *c, const struct waiter *w, bool granted)
{
    if (!w->line.stands)
        return;
    const hf_bytes *key = w->a.keys->key;
    struct line_place p = { .lock = key[KEY_LOCK], .own = key[KEY_OWN], .tomb = key[KEY_TOMB],
                            .queue = key[KEY_QUEUE],
                            .counter = hf_str(w->a.keys->home->greeting.counter),
                            .token = hf_str(w->a.token), .owner = w->a.owner, .granted = granted };
    quorum_leave_line(topo_quorum(c->topo), &p);
}
