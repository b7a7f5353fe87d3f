/* SPDX-License-Identifier: MIT
 * find.c - many schedules; and of one that fails, the smallest that does, in words.
 */
#include "sim/lib/find.h"

#include <stdio.h>
#include <string.h>

#include "harness/t.h"
#include "sim/lib/judge.h"
#include "sim/lib/world.h"

bool find_wrong(struct search *s, int64_t ms, struct play_counts *counts, struct finding *ret)
{
    int64_t until = t_now_ms() + ms;
    while (s->most > 0 && t_now_ms() < until) {
        uint64_t seed = s->next++;
        if (s->kinds && (play_kinds(seed) & s->kinds) != s->kinds)
            continue;
        s->most--;
        if (play(seed, NULL, counts))
            continue;
        *ret = (struct finding){ .seed = seed, .rule = judge_verdict.rule };
        snprintf(ret->text, sizeof ret->text, "%s", judge_verdict.first);
        return true;
    }
    return false;
}

/* Does it fail in the same way without that? */
static bool still(struct finding *f, struct play_without w)
{
    struct play_counts counts = { 0 };
    if (play(f->seed, &w, &counts) || judge_verdict.rule != f->rule)
        return false;
    f->without = w;
    snprintf(f->text, sizeof f->text, "%s", judge_verdict.first);
    return true;
}

void find_smallest(struct finding *f)
{
    char plan[1000];
    int faults, clients;
    play_plan(f->seed, NULL, &faults, &clients, plan, sizeof plan);
    struct play_without w = f->without;
    w.network = true;
    (void)still(f, w);
    for (int i = 0; i < clients; i++) {
        w = f->without;
        w.clients |= 1u << i;
        (void)still(f, w);
    }
    for (int i = 0; i < faults; i++) {
        w = f->without;
        w.faults |= 1u << i;
        (void)still(f, w);
    }
}

void find_tell(const struct finding *f)
{
    char plan[1000];
    int faults, clients;
    struct play_counts counts = { 0 };
    play_plan(f->seed, &f->without, &faults, &clients, plan, sizeof plan);
    t_note("seed %llu: %s", (unsigned long long)f->seed, f->text);
    t_note("%s", plan);
    world_tells = true;
    (void)play(f->seed, &f->without, &counts);
    world_tells = false;
}

void find_counts(const struct play_counts *c, int64_t ms)
{
#define N(x) (unsigned long long)c->x
    char text[600];
    size_t n = 0;
    int64_t cpu = t_cpu_ms();
    t_note("%llu schedules in %lld s: %llu for each second of a core; %llu s of their time",
           N(schedules), (long long)ms / 1000,
           N(schedules) * 1000 / (unsigned long long)(cpu ? cpu : 1),
           (unsigned long long)c->virtual_ms / 1000);
    t_note("%llu events, %llu commands, %llu connections, %llu calls, %llu grants, %llu of them "
           "handed over, %llu takeovers, %llu losses", N(events), N(commands), N(connections),
           N(calls), N(grants), N(handovers), N(takeovers), N(losses));
    t_note("%llu locks broken, %llu answered questions, %llu holders heard them; %llu circles of "
           "waits, %llu ended by a deadlock's verdict", N(broken), N(asked), N(heard), N(circles),
           N(deadlocks));
    t_note("%llu schedules in a cluster: %llu keys moved; refused: %llu MOVED, %llu ASK, %llu "
           "TRYAGAIN; %llu times a lock could be handed over, and had to be", N(clusters),
           N(keys_moved), N(moved), N(ask), N(tryagain), N(could_be_handed));
    t_note("%llu times somebody died when all was calm, and %llu locks were taken over",
           N(late_deaths), N(late_takeovers));
    t_note("%llu campaigns that won, %llu leaders seen with their values", N(elections), N(led));
    t_note("%llu cuts, %llu lost answers, %llu silences, %llu slow packets, %llu late copies",
           N(cuts), N(lost_replies), N(silences), N(slow), N(late_copies));
    for (int i = 0; i < FAULTS; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s %llu", i ? ", " : "",
                              play_fault_name[i], N(faults[i]));
    t_note("faults: %s", text);
    t_note("not judged, after a fault that no promise covers: %llu moments of belief, %llu grants",
           N(excused_beliefs), N(excused_grants));
#undef N
}
