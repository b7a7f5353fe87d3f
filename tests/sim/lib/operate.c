/* SPDX-License-Identifier: MIT
 * operate.c - an operator in the simulated world.
 */
#include "sim/lib/operate.h"

#include "sim/lib/judge.h"
#include "sim/lib/pool.h"

struct operate_counts operate_counts;

static bool is_outage(hf_err e)
{
    return e == HF_ECONN || e == HF_EUNSURE || e == HF_ETIMEDOUT || e == HF_ECANCELED;
}

/* A lock of which a part was lost has no number any more; a clock that was set back prolongs what
 * was broken, and so does a holder that repeats the request that got it. */
static bool is_refusal(hf_err e)
{
    bool excused = judge_lossy() || world_clock_shift() || !judge_calm();
    return e == HF_ENOTOWNER || (e == HF_ENOTSUP && excused);
}

static void ask(const struct operate_order *o)
{
    size_t asked = 0, heard = 0;
    hf_err e = hf_ask(o->c, hf_str(o->name), o->fence, "please", &asked, &heard, NULL);
    world_tell("client %d: ask for %s: %s, %zu of them, %zu are there", o->proc->id, o->name,
               hf_err_name(e), asked, heard);
    operate_counts.asked += !is_outage(e);
    if (e && !is_outage(e) && !is_refusal(e) && e != HF_ENOTSET)
        judge_wrong(7, "ask: %s", hf_err_name(e));
    if (heard > asked)
        judge_wrong(7, "ask: %zu of %zu are there", heard, asked);
}

/* Who is told that a lock has passed may rely on it. */
static void break_it(const struct operate_order *o)
{
    hf_break_opts opts = { .size = sizeof opts, .reason = "it has to be", .now = o->now,
                           .wait_ms = o->wait_ms };
    hf_break_info info = { 0 };
    hf_err e = hf_break(o->c, hf_str(o->name), o->fence, &opts, &info, NULL);
    world_tell("client %d: break %s, number %llu: %s, %d", o->proc->id, o->name,
               (unsigned long long)o->fence, hf_err_name(e), (int)info.how);
    operate_counts.broken += e == HF_OK;
    if (e && !is_outage(e) && !is_refusal(e))
        judge_wrong(7, "break: %s", hf_err_name(e));
    if (!e && !o->now && !o->proc->dead)
        judge_passed(o->lock, o->fence);
}

/* The value of a leader is the number of its client, and never that of another term. */
static void ask_leader(const struct operate_order *o)
{
    hf_leader *l = NULL;
    hf_err e = hf_election_leader(o->c, hf_str(o->name), &l, NULL);
    world_tell("client %d: who leads %s: %s, term %llu, value %s", o->proc->id, o->name,
               hf_err_name(e), l ? (unsigned long long)l->term : 0,
               l && l->value ? l->value : "none");
    if (e && !is_outage(e))
        judge_wrong(7, "leader: %s", hf_err_name(e));
    if (!e && l->leads && l->value) {
        operate_counts.led++;
        int to = judge_granted_to(o->lock, l->term);
        if (to >= 0 && l->value[0] - '0' != to)
            judge_wrong(7, "client %d leads %s in term %llu, and is seen with the value %s", to,
                        o->name, (unsigned long long)l->term, l->value);
    }
    hf_leader_free(l);
}

static void run(void *arg)
{
    struct operate_order *o = arg;
    if (o->leads)
        ask_leader(o);
    else if (o->ask)
        ask(o);
    else
        break_it(o);
    --*o->threads;
    pool_free(o);
}

void operate(const struct operate_order *o)
{
    struct operate_order *copy = pool_get(sizeof *copy);
    *copy = *o;
    ++*o->threads;
    world_start(o->proc, run, copy);
}
