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
    struct listener       ln;
    hf_barrier           *b;
    const struct meeting *at;
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

static long long number_at(const struct reply *rp, size_t i)
{
    return rp->type == REPLY_ARRAY && i < rp->len && rp->item[i]->type == REPLY_INT
               ? rp->item[i]->num : 0;
}

static const char *text_at(const struct reply *rp, size_t i)
{
    return rp->type == REPLY_ARRAY && i < rp->len && rp->item[i]->str ? rp->item[i]->str : "";
}

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

static hf_err refused(const hf_barrier *b, const struct reply *rp, hf_error *reterr)
{
    char name[120];
    switch (number_at(rp, 0)) {
    case -3: return kind_refuse(b->keys, rp, "a barrier", reterr);
    case -4:
        return err_set(reterr, HF_ECOUNTER,
                       "the key %s, the fencing counter, holds something else; look at it, and "
                       "delete it if nobody else needs it", b->keys->home->greeting.counter);
    case -5:
        return err_set(reterr, HF_EINVAL,
                       "the barrier %s is for %lld parties, of which %lld wait: it cannot be for "
                       "%u", shown(b, name, sizeof name), number_at(rp, 1), number_at(rp, 2),
                       b->parties);
    default: return err_set(reterr, HF_EPROTO, "the answer about a barrier makes no sense");
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static hf_err run(const struct meeting *at, hf_barrier *b, struct script_call *sc, hf_error *reterr)
{
    sc->keys = at->key;
    sc->nkeys = at->nkeys;
    sc->greeting = &b->keys->home->greeting;
    return script_run(b->c->topo, sc, reterr);
}

static int64_t limit(const struct party *p)
{
    return p->once ? client_deadline(p->b->c) : listener_limit(&p->ln);
}

static void forget_absence(struct party *p)
{
    mem_free(p->absence);
    p->absence = NULL;
}

/* Somebody is missing: for how long, and is that the end? HF_EBUSY: wait on. */
static hf_err judge(struct party *p, const struct meeting *at, const char *generation,
                    const char *member, hf_error *reterr)
{
    char seen[24] = "0";
    int64_t now = clock_now_ms();
    if (p->absence)
        snprintf(seen, sizeof seen, "%lld", (long long)(now - p->absent_since_ms));
    hf_bytes args[] = { hf_str(generation), hf_str(at->phase), hf_str(member),
                        hf_str(p->absence ? p->absence : ""), hf_str(seen) };
    struct script_call sc = { .id = SCRIPT_barrier_judge, .nargs = 5, .args = args,
                              .deadline_ms = limit(p), .stop = &p->b->cancelled };
    hf_err e = run(at, p->b, &sc, reterr);
    if (e)
        return e;
    const struct reply *rp = sc.reply;
    switch (number_at(rp, 0)) {
    case 1:
    case 3: /* the next question tells us */
        forget_absence(p);
        e = HF_EBUSY;
        break;
    case 2:
        if (!p->absence || strcmp(p->absence, text_at(rp, 1)) != 0) {
            forget_absence(p);
            p->absence = mem_copy(text_at(rp, 1), strlen(text_at(rp, 1)));
            p->absent_since_ms = clock_now_ms();
        }
        if (number_at(rp, 2) < p->next_ms)
            p->next_ms = number_at(rp, 2);
        e = HF_EBUSY;
        break;
    case 4: e = broken(p->b, text_at(rp, 1), reterr); break;
    default: e = refused(p->b, rp, reterr);
    }
    reply_free(sc.reply);
    return e;
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
static void write_remember(const hf_barrier *b, char ret[24])
{
    int64_t ms = b->c->timeout_ms + CLIENT_TOMBSTONE_MS;
    snprintf(ret, 24, "%lld", (long long)ms);
}

/* The script, for a party or (token "") for an onlooker. */
static hf_err ask_meeting(struct party *p, const struct meeting *at, const char *generation,
                          const char *token, const char *mode, struct script_call *sc,
                          hf_error *reterr)
{
    char remember[24], inside[24];
    write_remember(p->b, remember);
    snprintf(inside, sizeof inside, "%d", INSIDE_MS);
    hf_bytes args[] = { hf_str(generation), hf_str(at->phase), hf_str(token), hf_str(p->member),
                        hf_str(mode), hf_str(remember), hf_str(inside) };
    *sc = (struct script_call){ .id = SCRIPT_barrier_meet, .nargs = 7, .args = args,
                                .deadline_ms = limit(p), .stop = &p->b->cancelled };
    hf_err e = run(at, p->b, sc, reterr);
    sc->args = NULL;
    return e;
}

/* As somebody who is not counted: is all well there? HF_EBUSY: yes. HF_OK: they have met. */
static hf_err look_on(struct party *p, const struct meeting *at, uint64_t round, hf_error *reterr)
{
    struct script_call sc;
    char generation[24];
    snprintf(generation, sizeof generation, "%llu", (unsigned long long)round);
    hf_err e = ask_meeting(p, at, generation, "", "look", &sc, reterr);
    if (e)
        return e;
    long long what = number_at(sc.reply, 0);
    if (what == 2)
        e = judge(p, at, generation, text_at(sc.reply, 4), reterr);
    else if (what == 4)
        e = broken(p->b, text_at(sc.reply, 1), reterr);
    else if (what != 3)
        e = HF_EBUSY;
    reply_free(sc.reply);
    return e;
}

/* ---- step by step ---------------------------------------------------------------------------- */

/* Which generation can be arrived at? HF_EBUSY: none yet. */
static hf_err find_round(struct party *p, hf_error *reterr)
{
    char parties[16];
    snprintf(parties, sizeof parties, "%u", p->b->parties);
    hf_bytes args[] = { hf_str(parties), hf_str(p->ln.token) };
    struct script_call sc = { .id = SCRIPT_barrier_open, .nargs = 2, .args = args,
                              .deadline_ms = limit(p), .stop = &p->b->cancelled };
    hf_err e = run(p->at, p->b, &sc, reterr);
    if (e)
        return e;
    uint64_t leaving = 0;
    if (number_at(sc.reply, 0) == 1) {
        p->generation = (uint64_t)number_at(sc.reply, 1);
        p->arrived = number_at(sc.reply, 2);
        p->total = p->b->parties;
    } else if (sc.reply->type == REPLY_ARRAY && number_at(sc.reply, 0) == 0) {
        leaving = (uint64_t)number_at(sc.reply, 1);
        p->next_ms = random_between(LOOK_MS, LOOK_MS + LOOK_MS / 5);
        e = HF_EBUSY;
    } else {
        e = refused(p->b, sc.reply, reterr);
    }
    reply_free(sc.reply);
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
static hf_err wait_on(struct party *p, const struct reply *rp, const char *generation,
                      hf_error *reterr)
{
    p->counted = true;
    p->index = number_at(rp, 1);
    p->arrived = number_at(rp, 2);
    p->total = number_at(rp, 3);
    p->next_ms = pause_ms(p->arrived - 1 - p->index);
    if (number_at(rp, 0) == 2)
        return judge(p, p->at, generation, text_at(rp, 4), reterr);
    forget_absence(p);
    return HF_EBUSY;
}

/* Arrive, or ask how it stands. HF_EBUSY: wait. */
static hf_err ask(struct party *p, hf_error *reterr)
{
    struct script_call sc;
    char generation[24];
    const char *mode = p->counted ? "look" : p->once ? "try" : "arrive";
    snprintf(generation, sizeof generation, "%llu", (unsigned long long)p->generation);
    p->sent = true;
    hf_err e = ask_meeting(p, p->at, generation, p->ln.token, mode, &sc, reterr);
    if (e)
        return e;
    switch (number_at(sc.reply, 0)) {
    case 1:
    case 2: e = wait_on(p, sc.reply, generation, reterr); break;
    case 3: p->index = number_at(sc.reply, 1); break;
    case 4:
        p->sent = false;
        e = broken(p->b, text_at(sc.reply, 1), reterr);
        break;
    case 5: /* complete before we came: the next one */
        p->sent = false;
        if (p->inside) {
            e = look_on(p, p->at, p->generation, reterr);
        } else {
            p->next_ms = 0;
            p->generation = 0;
            e = HF_EBUSY;
        }
        break;
    case 6:
        p->sent = false;
        p->arrived = number_at(sc.reply, 1);
        p->total = number_at(sc.reply, 2);
        e = HF_EBUSY;
        break;
    default:
        p->sent = false;
        e = refused(p->b, sc.reply, reterr);
    }
    reply_free(sc.reply);
    return e;
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
    char generation[24], remember[24];
    snprintf(generation, sizeof generation, "%llu", (unsigned long long)p->generation);
    write_remember(p->b, remember);
    hf_bytes args[] = { hf_str(generation), hf_str(p->at->phase), hf_str(p->ln.token),
                        hf_str(p->member), hf_str(why), hf_str(remember),
                        hf_str(p->inside ? "1" : "0") };
    struct script_call sc = { .id = SCRIPT_barrier_quit, .nargs = 7, .args = args,
                              .deadline_ms = clock_now_ms() + QUIT_MS };
    if (run(p->at, p->b, &sc, NULL))
        return err_known(reterr, e, HF_UNKNOWN);
    long long what = number_at(sc.reply, 0);
    const char *text = text_at(sc.reply, 1);
    if (what == 3) {
        p->index = number_at(sc.reply, 1);
        e = HF_OK;
    } else if (what == 4 && sc.in_doubt == 0 && !strstr(text, p->member)) {
        e = broken(p->b, text, reterr); /* by somebody else, before */
    } else if (e == HF_EUNSURE) {
        e = err_set(reterr, HF_ETIMEDOUT,
                    "the server did not answer in time; the arrival was taken back");
    }
    reply_free(sc.reply);
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

hf_err barrier_meet(hf_barrier *b, const struct meeting *at, bool inside, int64_t wait_ms,
                    uint32_t *ret_index, uint64_t *ret_generation, hf_error *reterr)
{
    struct party p = { .b = b, .at = at, .inside = inside, .once = wait_ms == 0,
                       .generation = inside ? b->inside : 0 };
    p.ln = (struct listener){
        .c = b->c, .home = b->keys->home, .key = at->key[3], .seat = &b->seat, .stop = &b->cancelled,
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
