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

/* One call of one party. */
struct party {
    struct listener ln;
    hf_barrier     *b;
    const struct meeting_keys *at;
    bool     inside;
    bool     once;         /* only if that makes it complete */
    uint64_t generation;   /* 0: not known yet */
    bool     sent;         /* an arrival may be counted */
    bool     counted;      /* it is */
    char     member[MEMBER_SIZE];
    long long index, arrived, total;
    char    *absence;      /* the one absence that we have been seeing, or NULL */
    int64_t  absent_since_ms; /* by our own clock */
    int64_t  next_ms;      /* how long to the next question at the most */
};

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

/* Somebody is missing: for how long, and is that the end? HF_EBUSY: wait on. */
static hf_err judge(struct party *p, const struct meeting_keys *at, uint64_t generation,
                    const char *member, hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_barrier_judge, .deadline_ms = limit(p), .stop = &p->b->cancelled,
        .barrier = { .at = at, .generation = generation, .member = member,
                     .absence = p->absence ? p->absence : "",
                     .seen_ms = p->absence ? clock_now_ms() - p->absent_since_ms : 0 },
    };
    hf_err e = exec_run(p->b->c->exec, &op, reterr);
    const struct op_met *got = &op.got.met;
    if (e)
        return e;
    if (got->code == MEET_BROKEN)
        return broken(p->b, got->text.data, reterr);
    if (got->code == MEET_MISSING)
        note_absence(p, got);
    else if (got->code == MEET_WAIT || got->code == MEET_MET) /* the next question tells us */
        forget_absence(p);
    else
        return refused(p->b, got, reterr);
    return HF_EBUSY;
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
static struct op_barrier question(const struct party *p, const struct meeting_keys *at,
                                  uint64_t generation, const char *token, enum barrier_mode mode)
{
    return (struct op_barrier){ .at = at, .generation = generation, .token = token,
                                .member = p->member, .mode = mode,
                                .remember_ms = remember_ms(p->b), .inside_ms = INSIDE_MS };
}

/* As somebody who is not counted: is all well there? HF_EBUSY: yes. HF_OK: they have met. */
static hf_err look_on(struct party *p, const struct meeting_keys *at, uint64_t generation,
                      hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_barrier_meet, .deadline_ms = limit(p), .stop = &p->b->cancelled,
        .barrier = question(p, at, generation, "", BARRIER_LOOK),
    };
    hf_err e = exec_run(p->b->c->exec, &op, reterr);
    const struct op_met *got = &op.got.met;
    if (e)
        return e;
    if (got->code == MEET_MISSING)
        return judge(p, at, generation, got->text.data, reterr);
    if (got->code == MEET_BROKEN)
        return broken(p->b, got->text.data, reterr);
    return got->code == MEET_MET ? HF_OK : HF_EBUSY;
}

/* ---- step by step ---------------------------------------------------------------------------- */

/* Which generation can be arrived at? HF_EBUSY: none yet; *ret_leaving: of those who still have to
 * leave. */
static hf_err open_round(struct party *p, uint64_t *ret_leaving, hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_barrier_open, .deadline_ms = limit(p), .stop = &p->b->cancelled,
        .barrier = { .at = p->at, .parties = p->b->parties, .token = p->ln.token },
    };
    hf_err e = exec_run(p->b->c->exec, &op, reterr);
    const struct op_met *got = &op.got.met;
    if (e)
        return e;
    if (got->code == MEET_CLOSED) {
        *ret_leaving = got->generation;
        p->next_ms = random_between(LOOK_MS, LOOK_MS + LOOK_MS / 5);
        return HF_EBUSY;
    }
    if (got->code != MEET_WAIT)
        return refused(p->b, got, reterr);
    p->generation = got->generation;
    p->arrived = got->arrived;
    p->total = p->b->parties;
    return HF_OK;
}

static hf_err find_round(struct party *p, hf_error *reterr)
{
    uint64_t leaving = 0;
    hf_err e = open_round(p, &leaving, reterr);
    if (leaving) { /* those inside may all be dead: who waits at the door looks after them */
        e = look_on(p, &p->b->at[LEAVE], leaving, reterr);
        if (e == HF_EBROKEN || e == HF_OK) {
            p->next_ms = 0;
            e = HF_EBUSY;
        }
    }
    return e;
}

/* How long to the next question, with so many who came after us. */
static int64_t pause_ms(long long younger)
{
    int64_t pause = younger == 0 ? LOOK_MS : younger == 1 ? 1000 : younger == 2 ? 2000 : 0;
    return pause ? random_between(pause, pause + pause / 5) : CLOCK_NEVER;
}

/* "wait", and perhaps somebody is missing. */
static hf_err wait_on(struct party *p, const struct op_met *got, hf_error *reterr)
{
    p->counted = true;
    p->index = got->index;
    p->arrived = got->arrived;
    p->total = got->total;
    p->next_ms = pause_ms(p->arrived - 1 - p->index);
    if (got->code == MEET_MISSING)
        return judge(p, p->at, p->generation, got->text.data, reterr);
    forget_absence(p);
    return HF_EBUSY;
}

/* It was complete before we came: the next one. Who is inside has no next one. */
static hf_err too_late(struct party *p, hf_error *reterr)
{
    if (p->inside)
        return look_on(p, p->at, p->generation, reterr);
    p->next_ms = 0;
    p->generation = 0;
    return HF_EBUSY;
}

/* Our arrival is not counted. */
static hf_err not_counted(struct party *p, const struct op_met *got, hf_error *reterr)
{
    p->sent = false;
    if (got->code == MEET_BROKEN)
        return broken(p->b, got->text.data, reterr);
    if (got->code == MEET_OVER)
        return too_late(p, reterr);
    if (got->code != MEET_NOT_ALL)
        return refused(p->b, got, reterr);
    p->arrived = got->arrived;
    p->total = got->total;
    return HF_EBUSY;
}

/* Arrive, or ask how it stands. HF_EBUSY: wait. */
static hf_err ask(struct party *p, hf_error *reterr)
{
    enum barrier_mode mode = p->counted ? BARRIER_LOOK : p->once ? BARRIER_TRY : BARRIER_ARRIVE;
    AUTO(op_clear) struct op op = {
        .id = OP_barrier_meet, .deadline_ms = limit(p), .stop = &p->b->cancelled,
        .barrier = question(p, p->at, p->generation, p->ln.token, mode),
    };
    p->sent = true;
    hf_err e = exec_run(p->b->c->exec, &op, reterr);
    const struct op_met *got = &op.got.met;
    if (e)
        return e;
    if (got->code == MEET_WAIT || got->code == MEET_MISSING)
        return wait_on(p, got, reterr);
    if (got->code != MEET_MET)
        return not_counted(p, got, reterr);
    p->index = got->index;
    return HF_OK;
}

static hf_err step(struct party *p, hf_error *reterr)
{
    p->next_ms = random_between(LOOK_MS, LOOK_MS + LOOK_MS / 5);
    listener_ready(&p->ln);
    hf_err e = p->generation ? HF_OK : find_round(p, reterr);
    if (!e && !p->sent && !p->inside)
        name_member(p);
    return e ? e : ask(p, reterr);
}

/* Give up with verdict e: the others are told, unless all have met meanwhile: then so have we. */
static hf_err quit(struct party *p, hf_err e, const char *why, hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_barrier_quit, .deadline_ms = clock_now_ms() + QUIT_MS,
        .barrier = { .at = p->at, .generation = p->generation, .token = p->ln.token,
                     .member = p->member, .why = why, .remember_ms = remember_ms(p->b),
                     .inside = p->inside },
    };
    const struct op_met *got = &op.got.met;
    if (exec_run(p->b->c->exec, &op, NULL))
        return err_known(reterr, e, HF_KNOWN_NOTHING);
    if (got->code == MEET_MET) {
        p->index = got->index;
        return HF_OK;
    }
    if (got->code == MEET_BROKEN && op.in_doubt == 0 && !strstr(got->text.data, p->member))
        return broken(p->b, got->text.data, reterr); /* by somebody else, before */
    if (e == HF_EUNSURE)
        return err_set(reterr, HF_ETIMEDOUT,
                       "the server did not answer in time; the arrival was taken back");
    return e;
}

/* "not all are there", as an error of the kind that the caller's patience asks for. */
static hf_err not_yet(const struct party *p, hf_err code, int64_t wait_ms, hf_error *reterr)
{
    char name[120], waited[48] = "";
    if (code == HF_ETIMEDOUT)
        snprintf(waited, sizeof waited, " after %lld ms", (long long)wait_ms);
    shown(p->b, name, sizeof name);
    if (!p->generation)
        return err_set(reterr, code, "the last meeting at the barrier %s is not over yet%s", name,
                       waited);
    return err_set(reterr, code, "%lld of %lld are at the barrier %s%s", p->arrived, p->total, name,
                   waited);
}

static hf_err wait_for_all(struct party *p, int64_t wait_ms, hf_error *reterr)
{
    for (;;) {
        hf_err e = step(p, reterr);
        if (!e)
            return HF_OK;
        if (p->once)
            return e == HF_EBUSY ? not_yet(p, e, 0, reterr) : e;
        e = listener_judge(&p->ln, e, reterr);
        if (e == HF_ETIMEDOUT)
            e = not_yet(p, e, wait_ms, reterr);
        if (e != HF_EBUSY)
            return e;
        listener_wait(&p->ln, p->next_ms);
    }
}

hf_err barrier_meet(hf_barrier *b, const struct meeting_keys *at, bool inside, int64_t wait_ms,
                    uint32_t *ret_index, uint64_t *ret_generation, hf_error *reterr)
{
    struct party p = { .b = b, .at = at, .inside = inside, .once = wait_ms == 0,
                       .generation = inside ? b->inside : 0 };
    p.ln = (struct listener){
        .c = b->c, .keyspace = keyspace_of(b->keys), .key = at->listeners, .seat = &b->seat,
        .stop = &b->cancelled,
        .deadline_ms = wait_ms <= 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms),
    };
    memcpy(p.member, b->member, sizeof p.member);
    hf_err e = listener_begin(&p.ln, reterr);
    if (!e)
        e = wait_for_all(&p, wait_ms, reterr);
    if (e && e != HF_EBROKEN && (p.sent || (inside && e != HF_EBUSY)))
        e = quit(&p, e, e == HF_ETIMEDOUT ? "timeout" : e == HF_ECANCELED ? "cancel" : "error",
                 reterr);
    if (!e)
        p.ln.listed = false;
    listener_end(&p.ln);
    forget_absence(&p);
    if (e)
        return e;
    memcpy(b->member, p.member, sizeof b->member);
    *ret_index = (uint32_t)p.index;
    *ret_generation = p.generation;
    return HF_OK;
}

void barrier_desert(hf_barrier *b)
{
    struct party p = { .b = b, .at = &b->at[LEAVE], .inside = true, .generation = b->inside };
    client_token(b->c, p.ln.token, sizeof p.ln.token);
    memcpy(p.member, b->member, sizeof p.member);
    (void)quit(&p, HF_OK, "desert", NULL);
}
