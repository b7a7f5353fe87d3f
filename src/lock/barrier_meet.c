/* SPDX-License-Identifier: MIT
 * barrier_meet.c - one meeting of a barrier, for one party.
 *
 *      open -> arrive            [find_round]  which generation is open; or wait at the door
 *      arrive -> waiting         [ask]         counted
 *      arrive -> open            [ask]         that generation was complete before we came
 *      waiting -> done           [ask]         all have met, or it is broken
 *
 * While they wait the parties look after one another: the youngest a few times a second, those
 * before it ever more rarely. Who is missing for its grace breaks the meeting.
 */
#include "lock/barrier.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "session/kind.h"

#define LOOK_MS   250
#define QUIT_MS   1000     /* to tell the others that we give up */
#define INSIDE_MS 86400000 /* how long those inside are remembered if nobody looks after them */

/* ---- answers --------------------------------------------------------------------------------- */

static const char *shown(const hf_barrier *b, char *buf, size_t size)
{
    return err_quote(buf, size, b->keys->name.data, b->keys->name.len);
}

/* "absent MEMBER" and its like, in words. */
static hf_err broken(const hf_barrier *b, const char *why, hf_error *reterr)
{
    static const struct {
        const char *why, *text;
    } reasons[] = {
        { "absent ", "is gone" },
        { "silent ", "has not been heard of for half a minute" },
        { "timeout ", "did not want to wait any longer" },
        { "cancel ", "gave up waiting" },
        { "error ", "could not go on waiting" },
        { "desert ", "went away without leaving with the others" },
    };
    char name[120], host[80];
    shown(b, name, sizeof name);
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        size_t n = strlen(reasons[i].why);
        long long pid;
        int at = 0;
        if (strncmp(why, reasons[i].why, n) == 0
            && sscanf(why + n, "%*55[^:]:%*[0-9]:%lld:%n", &pid, &at) == 1 && at)
            return err_set(reterr, HF_EBROKEN, "the barrier %s was broken: process %lld on %s %s",
                           name, pid,
                           err_quote(host, sizeof host, why + n + at, strlen(why + n + at)),
                           reasons[i].text);
    }
    return err_set(reterr, HF_EBROKEN, "the barrier %s was broken: it went from the server "
                   "(deleted, or lost in a restart)", name);
}

static hf_err refused(const hf_barrier *b, const struct op_met *got, hf_error *reterr)
{
    char name[120];
    if (got->code == MEET_WRONG_TYPE)
        return kind_refuse(b->keys, got->text, "a barrier", reterr);
    if (got->code == MEET_BAD_COUNTER)
        return op_bad_counter(b->keys->scope, reterr);
    return err_set(reterr, HF_EINVAL,
                   "the barrier %s is for %lld parties, of which %lld wait: it cannot be for %u",
                   shown(b, name, sizeof name), got->total, got->arrived, b->parties);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int64_t limit(const struct party *p)
{
    return p->once ? client_deadline(p->b->c) : listener_limit(&p->ln);
}

static void forget_absence(struct party *p)
{
    mem_free(p->absence);
    p->absence = NULL;
}

/* It is missing, by this absence, which breaks the meeting in so long. */
static void note_absence(struct party *p, const struct op_met *got)
{
    if (!p->absence || strcmp(p->absence, got->text.data) != 0) {
        forget_absence(p);
        p->absence = mem_copy(got->text.data, strlen(got->text.data));
        p->absent_since_ms = clock_now_ms();
    }
    if (got->breaks_ms < p->next_ms)
        p->next_ms = got->breaks_ms;
}

/* Begin a question of the party; by the party's own limit. */
static void ask_server(struct party *p, struct op *op)
{
    op->deadline_ms = limit(p);
    op->stop = &p->b->seat.cancelled;
    op->task = p->ln.task;
    op->reterr = p->reterr;
    exec_begin(p->b->c->exec, op);
}

static bool answered(struct party *p, struct op *op)
{
    return exec_step(p->b->c->exec, op);
}

static hf_err judged(struct party *p)
{
    const struct op_met *got = &p->judging.got.met;
    if (p->judging.result)
        return p->judging.result;
    if (got->code == MEET_BROKEN)
        return broken(p->b, got->text.data, p->reterr);
    if (got->code == MEET_MISSING)
        note_absence(p, got);
    else if (got->code == MEET_WAIT || got->code == MEET_MET) /* the next question tells us */
        forget_absence(p);
    else
        return refused(p->b, got, p->reterr);
    return HF_EBUSY;
}

/* Somebody is missing, says the answer in op: for how long, and is that the end? HF_EBUSY: wait
 * on. */
static bool request_verdict(struct party *p, const struct meeting_keys *at, uint64_t generation)
{
    STEP_BEGIN(p->judge_at);
    p->judging = (struct op){
        .id = OP_barrier_judge,
        .barrier = { .at = at, .generation = generation, .member = p->op.got.met.text.data,
                     .absence = p->absence ? p->absence : "",
                     .seen_ms = p->absence ? clock_now_ms() - p->absent_since_ms : 0 },
    };
    ask_server(p, &p->judging);
    STEP_UNTIL(p->judge_at, answered(p, &p->judging));
    p->e = judged(p);
    op_clear(&p->judging);
    STEP_END(p->judge_at);
}

/* Who we are among the parties, from here on. */
static void name_member(struct party *p)
{
    const struct identity *id = &p->b->c->identity;
    long long grace = p->ln.heard ? (long long)p->b->grace_ms : 0;
    snprintf(p->member, sizeof p->member, "%s:%lld:%s:%.255s", p->ln.token, grace, id->pid,
             id->host);
}

/* How long the server has to know a request of ours again: longer than we repeat it, and than a
 * copy of it can linger. */
static int64_t remember_ms(const hf_barrier *b)
{
    return b->c->timeout_ms + CLIENT_TOMBSTONE_MS;
}

/* The question of a party, or (token "") of an onlooker. */
static void ask_meeting(struct party *p, const struct meeting_keys *at, uint64_t generation,
                        const char *token, enum barrier_mode mode)
{
    p->op = (struct op){ .id = OP_barrier_meet,
                         .barrier = { .at = at, .generation = generation, .token = token,
                                      .member = p->member, .mode = mode,
                                      .remember_ms = remember_ms(p->b),
                                      .inside_ms = INSIDE_MS } };
    ask_server(p, &p->op);
}

static hf_err looked_on(struct party *p)
{
    const struct op_met *got = &p->op.got.met;
    if (p->op.result)
        return p->op.result;
    if (got->code == MEET_BROKEN)
        return broken(p->b, got->text.data, p->reterr);
    return got->code == MEET_MET ? HF_OK : HF_EBUSY;
}

/* As somebody who is not counted: is all well there? HF_EBUSY: yes. HF_OK: they have met. */
static bool look_on(struct party *p, const struct meeting_keys *at, uint64_t generation)
{
    STEP_BEGIN(p->look_at);
    op_clear(&p->op);
    ask_meeting(p, at, generation, "", BARRIER_LOOK);
    STEP_UNTIL(p->look_at, answered(p, &p->op));
    p->e = looked_on(p);
    if (p->e == HF_EBUSY && p->op.got.met.code == MEET_MISSING)
        STEP_UNTIL(p->look_at, request_verdict(p, at, generation));
    op_clear(&p->op);
    STEP_END(p->look_at);
}

/* ---- step by step ---------------------------------------------------------------------------- */

/* HF_EBUSY: there is none to arrive at yet; leaving: of those who still have to leave. */
static hf_err opened(struct party *p)
{
    const struct op_met *got = &p->op.got.met;
    if (p->op.result)
        return p->op.result;
    if (got->code == MEET_CLOSED) {
        p->leaving = got->generation;
        p->next_ms = random_between(LOOK_MS, LOOK_MS + LOOK_MS / 5);
        return HF_EBUSY;
    }
    if (got->code != MEET_WAIT)
        return refused(p->b, got, p->reterr);
    p->generation = got->generation;
    p->arrived = got->arrived;
    p->total = p->b->parties;
    return HF_OK;
}

/* Which generation can be arrived at? */
static bool find_round(struct party *p)
{
    STEP_BEGIN(p->find_at);
    p->leaving = 0;
    p->op = (struct op){ .id = OP_barrier_open,
                         .barrier = { .at = p->at, .parties = p->b->parties,
                                      .token = p->ln.token } };
    ask_server(p, &p->op);
    STEP_UNTIL(p->find_at, answered(p, &p->op));
    p->e = opened(p);
    op_clear(&p->op);
    if (p->leaving) { /* those inside may all be dead: who waits at the door looks after them */
        STEP_UNTIL(p->find_at, look_on(p, &p->b->at[LEAVE], p->leaving));
        if (p->e == HF_EBROKEN || p->e == HF_OK) {
            p->next_ms = 0;
            p->e = HF_EBUSY;
        }
    }
    STEP_END(p->find_at);
}

/* How long to the next question, with so many who came after us. */
static int64_t pause_ms(long long younger)
{
    int64_t pause = younger == 0 ? LOOK_MS : younger == 1 ? 1000 : younger == 2 ? 2000 : 0;
    return pause ? random_between(pause, pause + pause / 5) : CLOCK_NEVER;
}

/* "wait", and perhaps somebody is missing. */
static hf_err wait_on(struct party *p, const struct op_met *got)
{
    p->counted = true;
    p->index = got->index;
    p->arrived = got->arrived;
    p->total = got->total;
    p->next_ms = pause_ms(p->arrived - 1 - p->index);
    if (got->code != MEET_MISSING)
        forget_absence(p);
    return HF_EBUSY;
}

/* Our arrival is not counted. */
static hf_err not_counted(struct party *p, const struct op_met *got)
{
    p->sent = false;
    if (got->code == MEET_BROKEN)
        return broken(p->b, got->text.data, p->reterr);
    if (got->code == MEET_OVER && !p->inside) { /* complete before we came: the next one */
        p->next_ms = 0;
        p->generation = 0;
    } else if (got->code == MEET_NOT_ALL) {
        p->arrived = got->arrived;
        p->total = got->total;
    } else if (got->code != MEET_OVER) {
        return refused(p->b, got, p->reterr);
    }
    return HF_EBUSY;
}

static hf_err asked(struct party *p)
{
    const struct op_met *got = &p->op.got.met;
    if (p->op.result)
        return p->op.result;
    if (got->code == MEET_WAIT || got->code == MEET_MISSING)
        return wait_on(p, got);
    if (got->code != MEET_MET)
        return not_counted(p, got);
    p->index = got->index;
    return HF_OK;
}

static bool answer_was(const struct party *p, enum meet_answer code)
{
    return !p->op.result && p->op.got.met.code == code;
}

/* Arrive, or ask how it stands. HF_EBUSY: wait. */
static bool request_meeting(struct party *p)
{
    STEP_BEGIN(p->ask_at);
    ask_meeting(p, p->at, p->generation, p->ln.token,
                p->counted ? BARRIER_LOOK : p->once ? BARRIER_TRY : BARRIER_ARRIVE);
    p->sent = true;
    STEP_UNTIL(p->ask_at, answered(p, &p->op));
    p->e = asked(p);
    if (answer_was(p, MEET_MISSING))
        STEP_UNTIL(p->ask_at, request_verdict(p, p->at, p->generation));
    else if (answer_was(p, MEET_OVER) && p->inside) /* who is inside has no next one */
        STEP_UNTIL(p->ask_at, look_on(p, p->at, p->generation));
    op_clear(&p->op);
    STEP_END(p->ask_at);
}

/* ---- having given up, unheard ---------------------------------------------------------------- */

/* An arrival of ours may be counted, and we are seen: the others would wait for us, or count us
 * twice when we come again. */
static void remember_that_we_gave_up(struct party *p)
{
    hf_barrier *b = p->b;
    b->unheard.generation = p->generation;
    b->unheard.which = p->at == &b->at[ENTER] ? ENTER : LEAVE;
    b->unheard.inside = p->inside;
    memcpy(b->unheard.token, p->ln.token, sizeof b->unheard.token);
    memcpy(b->member, p->member, sizeof b->member);
}

/* What tells it, with the token of then: a late copy of its arrival does not count any more. */
static struct op last_word(const hf_barrier *b)
{
    return (struct op){
        .id = OP_barrier_quit, .deadline_ms = clock_now_ms() + QUIT_MS,
        .barrier = { .at = &b->at[b->unheard.which], .generation = b->unheard.generation,
                     .token = b->unheard.token, .member = b->member,
                     .why = b->unheard.inside ? "desert" : "error",
                     .remember_ms = remember_ms(b), .inside = b->unheard.inside },
    };
}

/* They have heard it. Had all met before, then we are inside. False: so another word is due. */
static bool has_heard(hf_barrier *b, const struct op *op)
{
    bool met = op->got.met.code == MEET_MET;
    if (b->together && b->unheard.which == ENTER && met) {
        b->unheard.which = LEAVE;
        b->unheard.inside = true;
        return false;
    }
    b->unheard.generation = 0;
    return true;
}

/* Before we come again. */
static bool desert(struct party *p)
{
    STEP_BEGIN(p->find_at);
    while (!p->e && p->b->unheard.generation) {
        p->op = last_word(p->b);
        p->op.task = p->ln.task;
        p->op.reterr = p->reterr;
        exec_begin(p->b->c->exec, &p->op);
        STEP_UNTIL(p->find_at, answered(p, &p->op));
        p->e = p->op.result;
        if (!p->e)
            (void)has_heard(p->b, &p->op);
        op_clear(&p->op);
    }
    STEP_END(p->find_at);
}

/* ---- a question ------------------------------------------------------------------------------ */

static bool question(struct party *p)
{
    STEP_BEGIN(p->round_at);
    p->next_ms = random_between(LOOK_MS, LOOK_MS + LOOK_MS / 5);
    STEP_UNTIL(p->round_at, listener_ready(&p->ln));
    p->e = HF_OK;
    if (p->b->unheard.generation)
        STEP_UNTIL(p->round_at, desert(p));
    if (!p->e && !p->generation)
        STEP_UNTIL(p->round_at, find_round(p));
    if (!p->e && !p->sent && !p->inside)
        name_member(p);
    if (!p->e)
        STEP_UNTIL(p->round_at, request_meeting(p));
    STEP_END(p->round_at);
}

static void begin_quit(struct party *p, const char *why)
{
    p->op = (struct op){
        .id = OP_barrier_quit, .deadline_ms = clock_now_ms() + QUIT_MS, .task = p->ln.task,
        .barrier = { .at = p->at, .generation = p->generation, .token = p->ln.token,
                     .member = p->member, .why = why, .remember_ms = remember_ms(p->b),
                     .inside = p->inside },
    };
    exec_begin(p->b->c->exec, &p->op);
}

/* Gave up with the verdict e: the others are told, unless all have met meanwhile: then so have
 * we. */
static hf_err has_quit(struct party *p)
{
    const struct op_met *got = &p->op.got.met;
    if (p->op.result) {
        remember_that_we_gave_up(p);
        return err_known(p->reterr, p->e, HF_KNOWN_NOTHING);
    }
    if (got->code == MEET_MET) {
        p->index = got->index;
        return HF_OK;
    }
    if (got->code == MEET_BROKEN && p->op.in_doubt == 0 && !strstr(got->text.data, p->member))
        return broken(p->b, got->text.data, p->reterr); /* by somebody else, before */
    if (p->e == HF_EUNSURE)
        return err_set(p->reterr, HF_ETIMEDOUT,
                       "the server did not answer in time; the arrival was taken back");
    return p->e;
}

/* "not all are there", as an error of the kind that the caller's patience asks for. */
static hf_err not_yet(const struct party *p, hf_err code)
{
    char name[120], waited[48] = "";
    if (code == HF_ETIMEDOUT)
        snprintf(waited, sizeof waited, " after %lld ms", (long long)p->wait_ms);
    shown(p->b, name, sizeof name);
    if (!p->generation)
        return err_set(p->reterr, code, "the last meeting at the barrier %s is not over yet%s",
                       name, waited);
    return err_set(p->reterr, code, "%lld of %lld are at the barrier %s%s", p->arrived, p->total,
                   name, waited);
}

/* After a question that did not end it. HF_EBUSY: wait on. *ret_over: it is decided. */
static hf_err judge_wait(struct party *p, bool *ret_over)
{
    *ret_over = true;
    if (p->once)
        return p->e == HF_EBUSY ? not_yet(p, HF_EBUSY) : p->e;
    hf_err e = listener_judge(&p->ln, p->e, p->reterr);
    *ret_over = e != HF_EBUSY;
    return e == HF_ETIMEDOUT ? not_yet(p, e) : e;
}

bool party_step(struct party *p)
{
    bool over;
    STEP_BEGIN(p->step_at);
    listener_begin(&p->ln);
    for (;;) {
        STEP_UNTIL(p->step_at, question(p));
        if (!p->e)
            break;
        p->e = judge_wait(p, &over);
        if (over)
            break;
        STEP_UNTIL(p->step_at, listener_wait(&p->ln, p->next_ms));
    }
    if (p->e && p->e != HF_EBROKEN && (p->sent || (p->inside && p->e != HF_EBUSY))) {
        begin_quit(p, p->e == HF_ETIMEDOUT   ? "timeout"
                      : p->e == HF_ECANCELED ? "cancel"
                                             : "error");
        STEP_UNTIL(p->step_at, answered(p, &p->op));
        p->e = has_quit(p);
        op_clear(&p->op);
    }
    if (!p->e)
        p->ln.listed = false;
    STEP_UNTIL(p->step_at, listener_end(&p->ln));
    forget_absence(p);
    if (!p->e)
        memcpy(p->b->member, p->member, sizeof p->member);
    STEP_END(p->step_at);
}

void party_begin(struct party *p, struct call *call, hf_barrier *b, const struct meeting_keys *at,
                 bool inside, int64_t wait_ms)
{
    *p = (struct party){ .b = b, .at = at, .inside = inside, .once = wait_ms == 0,
                         .wait_ms = wait_ms, .generation = inside ? b->inside : 0,
                         .reterr = call->reterr };
    p->ln = (struct listener){
        .c = b->c, .keyspace = keyspace_of(b->keys), .key = at->listeners, .task = &call->task,
        .stop = &b->seat.cancelled,
        .deadline_ms = wait_ms <= 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms),
    };
    memcpy(p->member, b->member, sizeof p->member);
}

void barrier_desert(hf_barrier *b)
{
    if (!b->unheard.generation) {
        b->unheard.generation = b->inside;
        b->unheard.which = LEAVE;
        b->unheard.inside = true;
        client_token(b->c, b->unheard.token, sizeof b->unheard.token);
    }
    for (bool heard = false; !heard;) {
        struct op op = last_word(b);
        heard = exec_run(b->c->exec, &op, NULL) || has_heard(b, &op);
        op_clear(&op);
    }
}
