/* SPDX-License-Identifier: MIT
 * waiter_quorum.c - waiting for a lock on a quorum: in line on each server, woken by whoever gives
 * it back.
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
#include "session/waiter_quorum.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/random.h"
#include "exec/quorum_exec.h"

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
        waiters_told(c->waiters, client_sequence_of(c, text + 5), member);
}

static struct quorum *quorum_of(const hf_client *c)
{
    return topo_quorum(c->topo);
}

static bool enough(const hf_client *c, uint64_t members)
{
    return (size_t)__builtin_popcountll(members) >= quorum_majority(quorum_of(c));
}

/* What was told since the last time. */
static void heed(hf_client *c, struct waiter *w, int64_t now)
{
    struct waiter_line *l = &w->line;
    uint64_t told = waiters_take_told(c->waiters, w);
    if (!told)
        return;
    l->told |= told;
    if (enough(c, l->told | l->unlocked)) {
        l->ask_at_ms = now;
        l->vain = 0;
    } else {
        l->look_at_ms = clock_earlier(l->look_at_ms,
                                      now + random_between(SOON_MIN_MS, SOON_MAX_MS));
    }
}

static void asked(struct waiter *w)
{
    struct waiter_line *l = &w->line;
    if (w->e == HF_ECANCELED && !(w->a.stop && atomic_load(w->a.stop))) {
        w->restart = true; /* a server had to undo an earlier try of this token for good */
        w->e = HF_EBUSY;
    } else if (!w->e) {
        w->terms.sent_ms = w->a.sent_ms;
        w->terms.ttl_ms = w->a.take.ttl_ms;
    } else if (w->e != HF_EBUSY) {
        l->ask_at_ms = clock_now_ms() + pause_ms(&w->round);
        l->look_at_ms = CLOCK_NEVER;
    }
}

static bool request_place(hf_client *c, struct waiter *w, hf_error *reterr)
{
    STEP_BEGIN(w->inner_at);
    w->line.ask_at_ms = CLOCK_NEVER;
    w->line.look_at_ms = 0;
    w->op = attempt_op(&w->a, w->limit_ms, w->task, reterr);
    exec_begin(c->exec, &w->op);
    STEP_UNTIL(w->inner_at, exec_step(c->exec, &w->op));
    w->e = attempt_taken(&w->a, &w->op, reterr);
    asked(w);
    STEP_END(w->inner_at);
}

static void ask_to_stand(hf_client *c, struct waiter *w, hf_error *reterr)
{
    struct quorum *q = quorum_of(c);
    (void)quorum_listen(q, keyspace_of(w->a.take.keys)->sub.channel, heard, c);
    w->line.hears = quorum_hears(q); /* before we stand: else nobody need tell us */
    w->line.stands = true;
    w->line.told = 0;
    w->op = (struct op){ .id = OP_quorum_queue,
                         .quorum_queue = { .keys = w->a.take.keys, .token = w->a.take.token,
                                    .waited_ms = clock_now_ms() - w->since_ms },
                         .deadline_ms = w->limit_ms, .stop = w->a.stop, .task = w->task,
                         .reterr = reterr };
    exec_begin(c->exec, &w->op);
}

static void stood(const hf_client *c, struct waiter *w)
{
    struct waiter_line *l = &w->line;
    const struct op_quorum_queued *got = &w->op.got.quorum_queued;
    int64_t now = clock_now_ms(), before = got->before;
    l->unlocked = got->unlocked;
    if (enough(c, l->unlocked)) { /* one who only seems free must not keep us busy */
        l->ask_at_ms = now + (l->vain ? pause_ms(&l->vain) : 0);
        l->vain += !l->vain;
        l->look_at_ms = CLOCK_NEVER;
        return;
    }
    int64_t pause = before < LOOK_MAX_MS / LOOK_MS ? LOOK_MS * (1 + before) : LOOK_MAX_MS;
    pause = l->hears ? random_between(pause, pause + pause / 4) : pause_ms(&w->round);
    l->look_at_ms = now + clock_earlier(pause, got->left_ms + 1 + before * SOON_MIN_MS);
}

/* Stand in line, or stand on, and see how long the lock is taken for. */
static bool check_queue(hf_client *c, struct waiter *w, hf_error *reterr)
{
    STEP_BEGIN(w->inner_at);
    ask_to_stand(c, w, reterr);
    STEP_UNTIL(w->inner_at, exec_step(c->exec, &w->op));
    w->e = w->op.result;
    if (w->e) {
        w->line.ask_at_ms = clock_now_ms() + pause_ms(&w->round);
        w->line.look_at_ms = CLOCK_NEVER;
    } else {
        stood(c, w);
        w->e = HF_EBUSY;
    }
    op_clear(&w->op);
    STEP_END(w->inner_at);
}

bool waiter_quorum_step(hf_client *c, struct waiter *w, int64_t *ret_until_ms, hf_error *reterr)
{
    STEP_BEGIN(w->at);
    w->e = w->trouble ? w->trouble : HF_EBUSY;
    heed(c, w, clock_now_ms());
    if (clock_now_ms() >= w->line.ask_at_ms) {
        STEP_UNTIL(w->at, request_place(c, w, reterr));
        w->trouble = w->e;
    }
    if (w->e == HF_EBUSY && !w->restart && clock_now_ms() >= w->line.look_at_ms) {
        STEP_UNTIL(w->at, check_queue(c, w, reterr));
        w->trouble = w->e;
    }
    *ret_until_ms = clock_earlier(w->line.ask_at_ms, w->line.look_at_ms);
    STEP_END(w->at);
}

void waiter_quorum_leave(hf_client *c, const struct waiter *w, bool granted)
{
    if (w->line.stands)
        quorum_leave_line(quorum_of(c), w->a.take.keys, w->a.take.token, w->a.take.owner,
                          granted);
}
