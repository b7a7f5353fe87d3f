/* SPDX-License-Identifier: MIT
 * quorum_exec.c - the operations on several independent servers, of which a majority decides.
 *
 *  Q1  A lock is granted when a majority has it for the same token, with one agreed number and
 *      enough of the lease left by our own clock. Two majorities share a server, so nobody else has
 *      one. (P1)
 *  Q2  The agreed number is above every number agreed before: it is the largest of a majority's,
 *      and counts only when a majority has written it back. (P4)
 *  Q3  What fails is undone on all servers, also on those that did not answer. (P8)
 *  Q4  A server that is dead or slow costs nobody time while a majority answers.
 *  Q5  A server that restarted without its data does not vote until what it forgot is over. (P1)
 *  Q6  What a majority says counts, and nothing less: a lock is free when a majority is free, lost
 *      when a majority says so. Answers that are still possible are waited for when they decide.
 *      (P3)
 *
 * The same operation is asked of all of them, and one answer is made of theirs. Taking is in
 * quorum_take.c, keeping in quorum_keep.c, waiting in quorum_queue.c, listing in quorum_scan.c.
 */
#include "exec/quorum_exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "exec/exec_impl.h"
#include "exec/quorum_impl.h"

/* ---- what several need -------------------------------------------------------------------- */

static int largest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

int64_t quorum_kth(int64_t *number, size_t n, size_t k)
{
    qsort(number, n, sizeof *number, largest_first);
    return number[k - 1];
}

bool quorum_same_bytes(hf_bytes a, hf_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* How many bytes of a value name its holder: a random token in front of its number, or all of
 * it. */
static size_t holder_len(hf_bytes value)
{
    const char *p = value.data;
    bool token = value.len > 33 && p[32] == '.' && strspn(p, "0123456789abcdef") == 32;
    const char *end = token ? memchr(p, ':', value.len) : NULL;
    return end ? (size_t)(end - p) : value.len;
}

bool quorum_same_holder(hf_bytes a, hf_bytes b)
{
    return quorum_same_bytes((hf_bytes){ a.data, holder_len(a) },
                             (hf_bytes){ b.data, holder_len(b) });
}

void quorum_compare(const struct ballot *b, int64_t (*time_of)(const struct op *op), int64_t ttl_ms)
{
    for (size_t i = 0; i < b->n; i++)
        if (ballot_given(b, i))
            quorum_compare_clocks(b->q, i, time_of(&b->vote[i].op), b->begun_ms, ttl_ms);
}

struct undo *quorum_undo_of(const struct lock_keys *keys, const char *token, hf_bytes owner)
{
    struct op op = { .id = OP_quorum_release,
                     .quorum_release = { .keys = keys, .token = token, .owner = owner,
                                 .remember_ms = BALLOT_TOMBSTONE_MS } };
    struct command cmd = { 0 };
    return op_pack(&op, true, &cmd) ? NULL : quorum_undo(&cmd);
}

bool quorum_told_by_most(const struct ballot *b)
{
    return ballot_count(b, VOTE_GIVEN) >= b->majority;
}

/* ---- giving back -------------------------------------------------------------------------- */

/* Members that say whether the token held the lock. */
static size_t said(const struct ballot *b, bool held)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += ballot_given(b, i) && b->vote[i].op.got.held == held;
    return count;
}

static bool released(const struct ballot *b)
{
    return said(b, true) >= b->majority || b->n - said(b, false) < b->majority;
}

/* Where a majority has answered the token holds nothing any more. It had lost the lock before only
 * if a majority says so: who was away at the grant says no as well, and one that broke off may have
 * held it, whatever it says now. */
static bool was_held(const struct ballot *b)
{
    size_t no = said(b, false);
    no -= no < b->lost ? no : b->lost;
    return b->n - no >= b->majority;
}

static void let_go_answer(struct quorum_op *x)
{
    struct ballot *b = &x->first;
    struct op *op = x->op;
    for (size_t i = 0; i < b->n; i++)
        if (b->vote[i].state == VOTE_FAILED)
            ballot_owe(b, i);
    op->in_doubt = b->lost;
    op->sent_ms = b->begun_ms;
    if (b->decided(b) || quorum_told_by_most(b))
        op->got.held = was_held(b);
    else
        op->result = ballot_fail(b, ballot_count(b, VOTE_GIVEN), op->reterr);
}

/* quorum_release.lua on all of them; those that cannot be reached owe it. False: no memory. */
static bool begin_let_go(struct quorum_op *x, const struct op_quorum_release *what,
                         bool (*decided)(const struct ballot *b))
{
    struct op each = { .id = OP_quorum_release, .quorum_release = *what,
                       .deadline_ms = x->op->deadline_ms, .stop = x->op->stop };
    each.quorum_release.tell = true;
    x->undo = quorum_undo_of(what->keys, what->token, what->owner);
    if (!x->undo) {
        x->op->result = err_set(x->op->reterr, HF_ENOMEM, "out of memory");
        return false;
    }
    ballot_begin(&x->first, &each, decided);
    x->first.undo = x->undo;
    return true;
}

/* release.lua compares the whole value, number included; where a member missed the agreement the
 * number is another. The token is what it holds by. */
static bool release(struct quorum_op *x)
{
    struct op *op = x->op;
    STEP_BEGIN(op->run.at);
    {
        const struct grant *g = op->release.grant;
        struct op_quorum_release what = { .keys = g->keys, .token = g->token, .owner = g->owner };
        if (!begin_let_go(x, &what, released))
            STEP_RETURN(op->run.at);
    }
    STEP_UNTIL(op->run.at, ballot_vote(&x->first));
    let_go_answer(x);
    STEP_END(op->run.at);
}

static bool cancel(struct quorum_op *x)
{
    struct op *op = x->op;
    STEP_BEGIN(op->run.at);
    {
        const struct op_cancel *c = &op->cancel;
        struct op_quorum_release what = { .keys = c->keys, .token = c->token, .owner = c->owner,
                                  .remember_ms = c->remember_ms };
        if (!begin_let_go(x, &what, quorum_told_by_most))
            STEP_RETURN(op->run.at);
    }
    STEP_UNTIL(op->run.at, ballot_vote(&x->first));
    let_go_answer(x);
    STEP_END(op->run.at);
}

/* ---- one question as it is, and one answer ------------------------------------------------ */

static bool simple(struct quorum_op *x, bool (*decided)(const struct ballot *b),
                   void (*answer)(struct ballot *b, struct op *op))
{
    struct op *op = x->op;
    struct ballot *b = &x->first;
    STEP_BEGIN(op->run.at);
    ballot_begin(b, op, decided);
    STEP_UNTIL(op->run.at, ballot_vote(b));
    op->in_doubt = b->lost;
    op->sent_ms = b->begun_ms;
    if (decided(b))
        answer(b, op);
    else if (op_stopped(op))
        op->result = err_set(op->reterr, HF_ECANCELED, "cancelled");
    else
        op->result = ballot_fail(b, ballot_count(b, VOTE_GIVEN), op->reterr);
    STEP_END(op->run.at);
}

/* ---- by owner id -------------------------------------------------------------------------- */

static size_t owned(const struct ballot *b, bool ours)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += ballot_given(b, i) && b->vote[i].op.got.owned.ours == ours;
    return count;
}

static bool owner_known(const struct ballot *b)
{
    return owned(b, true) >= b->majority || b->n - owned(b, false) < b->majority;
}

static void owner_answer(struct ballot *b, struct op *op)
{
    int64_t left[QUORUM_MAX];
    size_t yes = 0;
    op->got.owned = (struct op_owned){ .ours = owned(b, true) >= b->majority };
    for (size_t i = 0; i < b->n && op->got.owned.ours; i++) {
        const struct op_owned *one = &b->vote[i].op.got.owned;
        if (!ballot_given(b, i) || !one->ours)
            continue;
        if (!yes)
            op->got.owned.fence = one->fence;
        left[yes++] = one->left_ms;
    }
    if (yes) /* as long as a majority has it */
        op->got.owned.left_ms = quorum_kth(left, yes, b->majority);
}

/* After a release the first in line is told. Nothing of anybody's is to be let go with that, and an
 * id may begin like another: so it is done for a token that nobody has. */
static bool by_owner(struct quorum_op *x)
{
    const struct op_by_owner *o = &x->op->by_owner;
    if (!simple(x, owner_known, owner_answer))
        return false;
    if (!x->op->result && o->act == OWNER_RELEASE)
        quorum_leave_line(x->q, o->keys, "", o->id, false);
    return true;
}

/* ---- breaking, and asking ------------------------------------------------------------------ */

static enum break_answer break_said(const struct ballot *b, size_t i)
{
    const struct op *op = &b->vote[i].op;
    return op->id == OP_break ? op->got.broken.what : op->got.asked.what;
}

static size_t break_count(const struct ballot *b, enum break_answer what)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += ballot_given(b, i) && break_said(b, i) == what;
    return count;
}

/* So many say that it is not held under that number that nobody can have a majority under it; or a
 * majority has it, and each of these has the mark: so no renewal finds one. */
static bool break_known(const struct ballot *b)
{
    size_t marked = break_count(b, BREAK_MARKED);
    return marked >= b->majority
           || b->n - (ballot_count(b, VOTE_GIVEN) - marked) < b->majority;
}

/* Of those that are not marked, what most say. */
static enum break_answer break_most(const struct ballot *b)
{
    static const enum break_answer order[] = { BREAK_DONE, BREAK_OTHER, BREAK_UNNUMBERED,
                                               BREAK_NOT_A_LOCK, BREAK_FREE };
    enum break_answer best = BREAK_FREE;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (break_count(b, order[i]) > break_count(b, best)
            || (order[i] == BREAK_DONE && break_count(b, order[i])))
            best = order[i];
    return break_count(b, BREAK_DONE) ? BREAK_DONE : best;
}

static void break_answer(struct ballot *b, struct op *op)
{
    int64_t left[QUORUM_MAX];
    size_t yes = 0;
    bool marked = break_count(b, BREAK_MARKED) >= b->majority;
    op->got.broken = (struct op_broken){ .what = marked ? BREAK_MARKED : break_most(b),
                                         .present = -1 };
    for (size_t i = 0; i < b->n; i++) {
        const struct op_broken *one = &b->vote[i].op.got.broken;
        if (!ballot_given(b, i) || one->what != op->got.broken.what)
            continue;
        op->got.broken.fence = one->fence;
        op->got.broken.told |= one->told;
        left[yes++] = one->left_ms;
    }
    if (marked)
        op->got.broken.left_ms = quorum_kth(left, yes, b->majority);
}

/* At once: the first in line is told, as after a release by owner id. */
static bool break_it(struct quorum_op *x)
{
    const struct op_break *k = &x->op->breaking;
    if (!simple(x, break_known, break_answer))
        return false;
    if (!x->op->result && x->op->got.broken.what == BREAK_DONE)
        quorum_leave_line(x->q, k->keys, "", k->value, false);
    return true;
}

/* The holder reads it on whichever of them it renews. */
static void ask_answer(struct ballot *b, struct op *op)
{
    op->got.asked = (struct op_asked){ .what = break_most(b) };
    if (break_count(b, BREAK_MARKED))
        op->got.asked = (struct op_asked){ .what = BREAK_MARKED, .asked = 1 };
}

static bool ask(struct quorum_op *x)
{
    return simple(x, quorum_told_by_most, ask_answer);
}

/* ---- looking ------------------------------------------------------------------------------ */

/* What a member says; NULL: nothing. One that may have lost its data cannot say that the lock is
 * free: it counts as silent. */
static const struct op_inspected *inspection(const struct ballot *b, size_t i)
{
    const struct op_inspected *one = &b->vote[i].op.got.inspected;
    bool lost = false;
    if (!ballot_given(b, i))
        return NULL;
    if (quorum_same_bytes(one->type, hf_str("none")))
        (void)quorum_young_ms(b->q, i, 0, &lost);
    return lost ? NULL : one;
}

static bool calls_it_free(const struct ballot *b, size_t i)
{
    const struct op_inspected *one = inspection(b, i);
    return one && quorum_same_bytes(one->type, hf_str("none"));
}

/* How many say the same as member i. */
static size_t same_as(const struct ballot *b, size_t i)
{
    const struct op_inspected *one = inspection(b, i), *other;
    size_t count = 0;
    for (size_t j = 0; one && j < b->n; j++)
        count += (other = inspection(b, j)) && quorum_same_bytes(one->type, other->type)
                 && quorum_same_holder(one->value, other->value);
    return count;
}

/* A majority says the same; or the lock is free on so many that nobody can have one; or that is all
 * that can be seen. */
static bool looked(const struct ballot *b)
{
    if (ballot_all_said(b))
        return true;
    size_t nobody = 0;
    for (size_t i = 0; i < b->n; i++) {
        nobody += calls_it_free(b, i);
        if (same_as(b, i) >= b->majority)
            return true;
    }
    return b->n - nobody < b->majority;
}

/* More say what i says than what best does; of as many, who does not call it free: the rest may
 * know of a holder, too. */
static bool more_likely(const struct ballot *b, size_t i, size_t best)
{
    size_t mine = same_as(b, i), its = same_as(b, best);
    return mine > its || (mine == its && calls_it_free(b, best));
}

static void look_answer(struct ballot *b, struct op *op)
{
    int64_t left[QUORUM_MAX];
    size_t held = 0, best = b->n, given = 0;
    for (size_t i = 0; i < b->n; i++) {
        given += inspection(b, i) != NULL;
        if (inspection(b, i) && (best == b->n || more_likely(b, i, best)))
            best = i;
    }
    if (best == b->n) {
        op->result = err_set(op->reterr, HF_ENOQUORUM,
                             "those who answer started lately without the data that others have: "
                             "who holds the lock is not known");
        return;
    }
    const struct op_inspected *chosen = inspection(b, best), *other;
    for (size_t i = 0; chosen && i < b->n; i++)
        if ((other = inspection(b, i)) && quorum_same_holder(chosen->value, other->value))
            left[held++] = other->left_ms;
    ballot_steal(b, best);
    struct op_inspected *got = &op->got.inspected;
    if (held >= b->majority) {
        got->left_ms = quorum_kth(left, held, b->majority);
    } else if (held + b->n - given < b->majority) {
        /* a candidate that cannot have a majority holds nothing */
        got->type = hf_str("none");
        got->value = hf_str("");
        got->left_ms = PTTL_NO_KEY;
    }
}

static bool inspect(struct quorum_op *x)
{
    return simple(x, looked, look_answer);
}

/* ---- may they vote? ----------------------------------------------------------------------- */

/* When a member may vote for a lock of such a ttl: 0 now, CLOCK_NEVER not as far as is known. */
static int64_t votes_in_ms(const struct ballot *b, size_t i)
{
    bool lost;
    const struct op_state *s = &b->vote[i].op.got.state;
    if (!ballot_given(b, i) || s->replica || s->full || s->no_disk || s->few_replicas)
        return CLOCK_NEVER;
    return quorum_young_ms(b->q, i, b->op->health.ttl_ms, &lost);
}

static size_t may_vote(const struct ballot *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        n += votes_in_ms(b, i) == 0;
    return n;
}

static bool enough_may_vote(const struct ballot *b)
{
    return may_vote(b) >= b->majority || ballot_all_said(b);
}

/* The k-th largest of what is left to wait is the majority-th smallest. */
static void state_answer(struct ballot *b, struct op *op)
{
    int64_t in_ms[QUORUM_MAX] = { 0 };
    struct op_state all = { .servers = b->n, .usable = may_vote(b) };
    for (size_t i = 0; i < b->n; i++) {
        const struct op_state *one = &b->vote[i].op.got.state;
        in_ms[i] = votes_in_ms(b, i);
        if (!ballot_given(b, i))
            continue;
        all.replica |= one->replica;
        all.full |= one->full;
        all.no_disk |= one->no_disk;
        all.few_replicas |= one->few_replicas;
    }
    int64_t enough = quorum_kth(in_ms, b->n, b->n - b->majority + 1);
    all.young_ms = enough == CLOCK_NEVER ? 0 : enough;
    op->got.state = all;
}

static bool health(struct quorum_op *x)
{
    return simple(x, enough_may_vote, state_answer);
}

/* ---- who a session is --------------------------------------------------------------------- */

static void recorded(struct ballot *b, struct op *op)
{
    (void)b;
    op->got.done.code = ANSWER_YES;
}

static bool record(struct quorum_op *x)
{
    return simple(x, quorum_told_by_most, recorded);
}

static bool told_by_one(const struct ballot *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (ballot_given(b, i) && op_list_len(b->vote[i].op.got.list) > 0)
            return true;
    return quorum_told_by_most(b);
}

/* The longest: a member that was away may know nothing. */
static void longest(struct ballot *b, struct op *op)
{
    size_t best = b->n;
    (void)op;
    for (size_t i = 0; i < b->n; i++)
        if (ballot_given(b, i)
            && (best == b->n || op_list_len(b->vote[i].op.got.list)
                                    > op_list_len(b->vote[best].op.got.list)))
            best = i;
    ballot_steal(b, best);
}

static bool recall(struct quorum_op *x)
{
    return simple(x, told_by_one, longest);
}

/* ---- the whole ---------------------------------------------------------------------------- */

#define ONE_SERVER "need one server, Sentinel or Cluster"
static const char permits[] = "permits counted by majorities can be given out twice: shared locks "
                              "and semaphores " ONE_SERVER;
static const char counts[] = "a count kept by majorities can be counted twice: latches and "
                             "barriers " ONE_SERVER;
static const char leaders[] = "the value of a leader has no single place: elections " ONE_SERVER;
static const char numbers[] = "numbers given by majorities can repeat: sequences " ONE_SERVER;
static const char values[] = "a value has no single place: once needs one server, Sentinel or "
                             "Cluster";
static const char counters[] = "each server has a fencing counter of its own: repair it there, "
                               "with the URL of that server alone";
static const char logs[] = "a history has no single place: it needs one server, Sentinel or "
                           "Cluster";
static const char guards[] = "a guard belongs to the resource: use a client of the resource's own "
                             "server";
static const char single[] = "it needs one server";

/* How each is done, or why a majority of servers cannot do it. */
static const struct way {
    bool      (*step)(struct quorum_op *x);
    const char *unsound;
} ways[OP_COUNT] = {
    [OP_acquire] = { quorum_acquire, NULL },
    [OP_keep] = { quorum_keep, NULL },
    [OP_release] = { release, NULL },
    [OP_cancel] = { cancel, NULL },
    [OP_quorum_queue] = { quorum_stand, NULL },
    [OP_by_owner] = { by_owner, NULL },
    [OP_inspect] = { inspect, NULL },
    [OP_health] = { health, NULL },
    [OP_break] = { break_it, NULL },
    [OP_ask] = { ask, NULL },
    [OP_record] = { record, NULL },
    [OP_recall] = { recall, NULL },
    [OP_scan] = { quorum_scan, NULL },
    [OP_share] = { NULL, permits },
    [OP_unshare] = { NULL, permits },
    [OP_downgrade] = { NULL, permits },
    [OP_resize] = { NULL, permits },
    [OP_latch_set] = { NULL, counts },
    [OP_latch_down] = { NULL, counts },
    [OP_latch_look] = { NULL, counts },
    [OP_barrier_open] = { NULL, counts },
    [OP_barrier_meet] = { NULL, counts },
    [OP_barrier_judge] = { NULL, counts },
    [OP_barrier_quit] = { NULL, counts },
    [OP_leader] = { NULL, leaders },
    [OP_proclaim] = { NULL, leaders },
    [OP_sequence] = { NULL, numbers },
    [OP_store] = { NULL, values },
    [OP_value] = { NULL, values },
    [OP_repair] = { NULL, counters },
    [OP_guard] = { NULL, guards },
    [OP_note] = { NULL, logs },
    [OP_past] = { NULL, logs },
};

/* NULL: it is over already, op->result tells why. */
static struct quorum_op *begin(struct exec *ex, struct op *op)
{
    const struct way *w = &ways[op->id];
    struct quorum *q = ex->quorum;
    size_t n = quorum_size(q);
    size_t verdicts = op->id == OP_keep ? n * op->keep.n * sizeof(enum verdict) : 0;
    struct quorum_op *x = NULL;
    if (!w->step)
        op->result = err_set(op->reterr, HF_ENOTSUP, "not on a quorum: %s",
                             w->unsound ? w->unsound : single);
    else if (!(x = mem_zalloc(sizeof *x + 2 * n * sizeof x->vote[0] + verdicts)))
        op->result = err_set(op->reterr, HF_ENOMEM, "out of memory");
    if (!x)
        return NULL;
    x->op = op;
    x->q = q;
    ballot_init(&x->first, q, op, x->vote);
    ballot_init(&x->second, q, op, x->vote + n);
    op->run.more = x;
    return x;
}

static bool step(struct exec *ex, struct op *op)
{
    if (!op->run.more && op_scope(op) && ways[op->id].step)
        (void)scope_due(op_scope(op)); /* whoever connects from now on lets its reign begin */
    struct quorum_op *x = op->run.more ? op->run.more : begin(ex, op);
    if (!x)
        return true;
    if (!ways[op->id].step(x))
        return false;
    ballot_end(&x->first);
    ballot_end(&x->second);
    quorum_undo_free(x->undo);
    mem_free(x);
    op->run.more = NULL;
    return true;
}

const struct executor exec_quorum = { .step = step };
