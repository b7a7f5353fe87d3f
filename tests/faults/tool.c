/* SPDX-License-Identifier: MIT
 * tool.c - rows about holdfast(1): `holdfast run` is signalled or killed at every stage, or loses
 * its lock while its command runs.
 *
 * Each process of the crowd starts the tool again and again (lib/tool_run.c). The command is this
 * program itself (lib/tool.c).
 */
#include "faults/lib/matrix.h"
#include "faults/lib/tool.h"

#define MS INT64_C(1000000)

enum { BATCH = 20, STUCK_MS = 60000 };

/* In the environment of the command: this program is it. */
__attribute__((constructor)) static void be_the_command(void)
{
    const char *note = getenv(TOOL_NOTE), *witness = getenv(TOOL_WITNESS);
    if (note && witness)
        tool_command(note, witness);
}

/* The crowd does it by itself, all the time: wait for some of that. */
static int let_signals(struct run *r)
{
    int wanted = r->quick ? r->row->quick : r->row->whole;
    long before = atomic_load(&tool->proven), seen = before;
    long enough = before + BATCH < wanted ? before + BATCH : wanted;
    int64_t until = t_now_ms() + STUCK_MS;
    while ((seen = atomic_load(&tool->proven)) < enough && t_now_ms() < until)
        t_sleep_ms(5);
    if (seen == r->injected)
        return 0;
    r->injected = (int)seen - 1;
    return 1;
}

/* Runs that the driver has chosen, one for each lock. */
struct chosen {
    int  who[LOCKS]; /* -1: nobody */
    long run[LOCKS]; /* its number, from 1 on */
};

static int is_over(const struct chosen *c, int k)
{
    return atomic_load(&tool->one[c->who[k]].over) >= c->run[k];
}

/* Who runs its command under this lock, and does so until told otherwise. */
static int choose(struct run *r, struct chosen *c, int k)
{
    int i = c->who[k] = crowd_hold(r, k);
    int64_t until = t_now_ms() + 5000;
    if (i < 0)
        return 0;
    const struct note *n = tool->note[i];
    c->run[k] = atomic_load(&tool->one[i].over) + 1;
    while (!(atomic_load(&n->hold) && atomic_load(&n->ready)) && t_now_ms() < until)
        t_sleep_ms(1);
    int64_t told = t_now_ns(); /* it has seen that if it goes on after this */
    while (atomic_load(&n->beat_ns) <= told && t_now_ms() < until)
        t_sleep_ms(1);
    if (!atomic_load(&n->hold) || atomic_load(&n->beat_ns) <= told || is_over(c, k)
        || crowd_phase(r, i) != HOLDING || crowd_lock(r, i) != k)
        c->who[k] = -1;
    return c->who[k] >= 0;
}

/* From now on this run of it has to end with a loss; or not, after all. */
static void expect_loss(const struct chosen *c, int k, int so)
{
    atomic_store(&tool->one[c->who[k]].taken_away_ns, t_now_ns());
    atomic_store(&tool->one[c->who[k]].of_run, so ? c->run[k] : 0);
}

/* How many of them have ended meanwhile; waits for them. */
static int wait_for_ends(const struct chosen *c, int64_t ms)
{
    int64_t until = t_now_ms() + ms;
    int n = 0;
    for (int k = 0; k < LOCKS; k++) {
        while (c->who[k] >= 0 && !is_over(c, k) && t_now_ms() < until)
            t_sleep_ms(2);
        n += c->who[k] >= 0 && is_over(c, k);
    }
    return n;
}

static int count_in(struct run *r, int n)
{
    r->injected += n > 1 ? n - 1 : 0;
    return n > 0;
}

/* By a foreign hand: the keys are deleted, or end at once. */
static int take_away(struct run *r)
{
    struct chosen c;
    for (int k = 0; k < LOCKS; k++) {
        if (!choose(r, &c, k))
            continue;
        const char *how = t_random(2) ? "DEL %s" : "PEXPIRE %s 1";
        expect_loss(&c, k, 1);
        if (server_int(run_server(r, k), how, run_key(r, k)) == 1)
            continue;
        expect_loss(&c, k, 0); /* it was lost already */
        c.who[k] = -1;
    }
    return count_in(r, wait_for_ends(&c, STUCK_MS));
}

/* The server stands still until all of them have ended. */
static int freeze(struct run *r)
{
    struct server *s = run_server(r, 0);
    struct chosen c;
    for (int k = 0; k < LOCKS; k++)
        choose(r, &c, k);
    for (int k = 0; k < LOCKS; k++) {
        if (c.who[k] >= 0 && is_over(&c, k))
            c.who[k] = -1; /* lost by itself */
        if (c.who[k] >= 0)
            expect_loss(&c, k, 1);
    }
    server_freeze(s);
    int n = wait_for_ends(&c, 10 * r->want.ttl_ms);
    server_thaw(s);
    return count_in(r, n);
}

static void tell_signals(void)
{
    static const char *const names[TOOL_SIGNALS] = { "TERM", "INT", "HUP", "QUIT", "KILL" };
    t_note("it was hit as it starts  waits  has the lock  runs CMD  ends");
    for (int s = 0; s < TOOL_SIGNALS; s++)
        t_note("  by %-5s %14ld %6ld %13ld %9ld %5ld", names[s], tool->hit[s][STARTS],
               tool->hit[s][WAITS], tool->hit[s][TAKEN], tool->hit[s][RUNS], tool->hit[s][ENDS]);
    t_note("and gone after, ms %6lld %6lld %13lld %9lld %5lld", tool->gone_ns[STARTS] / MS,
           tool->gone_ns[WAITS] / MS, tool->gone_ns[TAKEN] / MS, tool->gone_ns[RUNS] / MS,
           tool->gone_ns[ENDS] / MS);
}

static long hits(int stage)
{
    long n = 0;
    for (int s = 0; s < TOOL_SIGNALS; s++)
        n += tool->hit[s][stage];
    return n;
}

static void tell(struct run *r)
{
    int signals = r->row->inject == let_signals;
    t_note("%ld runs of holdfast, %ld ended with 69", tool->runs, tool->unanswered);
    if (signals)
        tell_signals();
    else
        t_note("it was gone %lld ms after the loss at the latest", tool->gone_ns[STAGES] / MS);
    t_note("the command was gone %lld ms after holdfast was %s", tool->command_ns / MS,
           signals ? "killed" : "bereft of its lock");
    for (int k = 0; k < STAGES && signals && !r->quick; k++)
        if (hits(k) < r->row->whole / 20)
            FAIL("only %ld signals hit it at stage %d", hits(k), k);
}

#define TOOL .prepare = tool_prepare, .finish = tell, .may = MAY_PASS | MAY_LOSE
#define SIGNALS "tool_signals", "signals and kill -9 for holdfast run", TOOL, .stall_ms = 12000, \
    .want = { .ttl_ms = 6000, .grace_ms = 2000 }, .turn = tool_signalled_turn, .inject = let_signals
#define LOST "tool_lost", "the key is deleted while its command runs", TOOL, .stall_ms = 9000, \
    .want = { .ttl_ms = 3000 }, .turn = tool_quiet_turn, .inject = take_away, .out = "SF"
#define FROZEN "tool_frozen", "the server stands still while its command runs", TOOL, \
    .stall_ms = 8000, .want = { .ttl_ms = 2000 }, .turn = tool_quiet_turn, .inject = freeze

static const struct row rows[] = {
    { SIGNALS, .topos = "S", .quick_on = "S", .quick = 10, .whole = 500 },
    { SIGNALS, .topos = "F", .quick_on = "", .whole = 200 },
    { LOST, .topos = "S", .quick_on = "S", .quick = 2, .whole = 90 },
    { LOST, .topos = "F", .quick_on = "", .whole = 60 },
    { FROZEN, .topos = "SF", .quick_on = "", .whole = 45 },
};
ROWS(rows)
