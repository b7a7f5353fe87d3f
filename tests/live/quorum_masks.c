/* SPDX-License-Identifier: MIT
 * quorum_masks.c - members of a quorum that are slow, refuse, or are away, in every mixture: who
 * has a majority of members that can vote gets the lock, in its first try; nobody else does; and
 * what is given back was not lost.
 */
#include "harness/quorum.h"
#include "harness/waiting.h"

#define LEFT_OVER "0123456789abcdef0123456789abcdef.1:5:0"

enum state { WELL, SLOW, REFUSES, AWAY, STATES };
enum refusal { WRONG_TYPE, HELD_BY_ANOTHER, NO_MEMORY, NO_REPLICAS, READ_ONLY, REFUSALS };
enum { SLOW_MS = 20, TIMEOUT_MS = 1000 };

struct mask {
    enum state   state[MEMBERS_MAX];
    enum refusal how[MEMBERS_MAX]; /* of those who refuse */
    int          dead[MEMBERS_MAX]; /* of those who are away; else silent */
    char         text[64];
};

static void refuse(struct server *s, enum refusal how)
{
    static const char *const command[] = {
        [HELD_BY_ANOTHER] = "SET lock:a " LEFT_OVER " PX 60000",
        [NO_MEMORY] = "CONFIG SET maxmemory 1",
        [NO_REPLICAS] = "CONFIG SET min-replicas-to-write 1",
        [READ_ONLY] = "REPLICAOF 127.0.0.1 1",
    };
    if (how == WRONG_TYPE)
        CHECK_INT(server_int(s, "RPUSH lock:a x"), 1);
    else
        CHECK_STR(server_ask(s, command[how]), "OK");
}

static void be_well(struct server *s)
{
    server_ask(s, "REPLICAOF NO ONE");
    server_ask(s, "CONFIG SET maxmemory 0");
    server_ask(s, "CONFIG SET min-replicas-to-write 0");
    server_ask(s, "DEL lock:a");
}

static void impose(struct wires *w, const struct mask *k)
{
    for (int i = 0; i < w->q.n; i++) {
        if (k->state[i] == SLOW)
            proxy_delay(w->p[i], SLOW_MS);
        else if (k->state[i] == REFUSES)
            refuse(w->q.s[i], k->how[i]);
        else if (k->state[i] == AWAY && k->dead[i])
            proxy_refuse(w->p[i]);
        else if (k->state[i] == AWAY)
            proxy_hold(w->p[i]);
    }
}

static void heal(struct wires *w)
{
    for (int i = 0; i < w->q.n; i++) {
        proxy_break(w->p[i]); /* what is held is lost: whoever sent it is gone */
        proxy_pass(w->p[i]);
        be_well(w->q.s[i]);
    }
}

static int can_vote(const struct mask *k, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += k->state[i] == WELL || k->state[i] == SLOW;
    return count;
}

/* Nothing of anybody that has asked. */
static int is_clean(struct wires *w)
{
    for (int i = 0; i < w->q.n; i++) {
        const char *type = server_ask(w->q.s[i], "TYPE lock:a");
        if (strcmp(type, "string") == 0
            && strcmp(server_ask(w->q.s[i], "GET lock:a"), LEFT_OVER) != 0)
            return 0;
    }
    return 1;
}

/* A client of its own, as every call of the tool is. wait_ms 0: it tries once. Where it is to be
 * granted, its time limit is far above what that takes. */
static hf_err ask(struct wires *w, int granted, int wait_ms, hf_client **ret_c, hf_lock **ret_m)
{
    hf_client_opts o = { .size = sizeof o, .timeout_ms = granted ? 10 * TIMEOUT_MS : TIMEOUT_MS };
    *ret_c = NULL;
    *ret_m = NULL;
    hf_err e = hf_client_open(w->q.url, &o, ret_c, &err);
    if (e)
        return e;
    *ret_m = lock_of(*ret_c, "a", 60000);
    return wait_ms ? hf_lock_acquire(*ret_m, wait_ms, NULL, &err)
                   : hf_lock_try(*ret_m, NULL, &err);
}

static void let_go(hf_client *c, hf_lock *m)
{
    hf_lock_free(m);
    hf_client_free(c);
}

/* One mask: a first try, or a first wait. */
static void try_mask(struct wires *w, const struct mask *k, int wait_ms)
{
    hf_client *c, *d;
    hf_lock *m, *other;
    int majority = can_vote(k, w->q.n) > w->q.n / 2;
    int64_t begun = t_now_ms();
    hf_err e = ask(w, majority, wait_ms, &c, &m);
    int64_t took = t_now_ms() - begun;
    if (majority != (e == HF_OK))
        FAIL("%s, waiting %d ms: %s (%s) after %lld ms", k->text, wait_ms, hf_err_name(e),
             e ? err.message : "", (long long)took);
    CHECK_TOOK(took, 0, 5 * TIMEOUT_MS + wait_ms);
    if (majority) {
        CHECK(members_with(&w->q, "lock:a", hf_lock_owner(m), ALL_MEMBERS) > w->q.n / 2);
        if (ask(w, 0, 0, &d, &other) == HF_OK)
            FAIL("%s: two holders", k->text);
        let_go(d, other);
        e = hf_lock_release(m, &err);
        if (e)
            FAIL("%s: released: %s (%s)", k->text, hf_err_name(e), err.message);
    }
    let_go(c, m);
    CHECK_EVENTUALLY(is_clean(w), 5000);
}

static void mask_text(struct mask *k, int n)
{
    static const char *const states[] = { "well", "slow", "refuses", "away" };
    static const char *const hows[] = { "type", "held", "oom", "noreplicas", "readonly" };
    size_t used = 0;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(k->text + used, sizeof k->text - used, "%s%.3s%s%.5s",
                                 i ? " " : "", states[k->state[i]],
                                 k->state[i] == REFUSES ? "-" : "",
                                 k->state[i] == REFUSES ? hows[k->how[i]] : "");
}

/* Masks by number: each state of each member, and the ways to refuse in turn. */
static struct mask mask_of(int n, int number)
{
    struct mask k = { .text = "" };
    for (int i = 0, rest = number; i < n; i++, rest /= STATES) {
        k.state[i] = (enum state)(rest % STATES);
        k.how[i] = (enum refusal)((number + i) % REFUSALS);
        k.dead[i] = (number / STATES + i) % 2;
    }
    mask_text(&k, n);
    return k;
}

static void run_mask(struct wires *w, int number)
{
    struct mask k = mask_of(w->q.n, number);
    impose(w, &k);
    try_mask(w, &k, 0);
    if (number % 2 == 0 && can_vote(&k, w->q.n) > w->q.n / 2)
        try_mask(w, &k, 3000);
    heal(w);
}

/* Counters and reigns are there: what refuses to write refuses the lock, not the greeting. */
static struct wires used_wires(int n)
{
    struct wires w = wires_start(n);
    hf_client *c = client_at(w.q.url, 0);
    hf_lock *m = lock_of(c, "first", 5000);
    lock_now(m);
    for (int i = 0; i < n; i++)
        CHECK_EVENTUALLY(server_int(w.q.s[i], "EXISTS " REIGN_KEY) == 1, 2000);
    unlock_now(m);
    let_go(c, m);
    return w;
}

/* A fresh client counted who was still being connected to as a no; who waited did not see that a
 * majority was free. */
TEST_TIMEOUT(Q6_every_mixture_of_three_slow_refusing_and_absent_members, 300)
{
    struct wires w = used_wires(3);
    for (int number = 0; number < STATES * STATES * STATES; number++)
        run_mask(&w, number);
}

TEST_TIMEOUT(Q6_mixtures_of_five_slow_refusing_and_absent_members, 300)
{
    struct wires w = used_wires(5);
    for (int i = 0; i < 20; i++)
        run_mask(&w, (int)t_random(STATES * STATES * STATES * STATES * STATES));
}

/* Left over on one, another one far away: free on a majority, and that is seen long before the rest
 * of somebody's lease is over. */
TEST(Q6_a_left_over_on_one_and_another_one_far_away)
{
    struct wires w = used_wires(3);
    struct mask k = { .state = { REFUSES, WELL, SLOW }, .how = { HELD_BY_ANOTHER },
                      .text = "left-over, well, far" };
    impose(&w, &k);
    for (int far = 5; far <= 120; far *= 2) {
        proxy_delay(w.p[2], far);
        try_mask(&w, &k, 0);
        try_mask(&w, &k, 3000);
        CHECK(proxy_delayed(w.p[2]) > 0);
    }
}

/* ---- giving back ---- */

static int reaches(struct wires *w, hf_client *c)
{
    hf_lock *m = lock_of(c, "reach", 5000);
    hf_err e = hf_lock_try(m, NULL, &err);
    t_sleep_ms(20);
    int all = e == HF_OK && members_having(&w->q, "lock:reach", ALL_MEMBERS) == w->q.n;
    if (!e)
        CHECK_HF(hf_lock_release(m, &err), HF_OK);
    hf_lock_free(m);
    return all;
}

/* Granted without those of away; they are back when it is given back, and know nothing of it; and
 * those of silent do not answer. Nobody else had it. */
static void give_back(struct wires *w, hf_client *c, unsigned away, unsigned silent)
{
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .no_renew = 1,
                                                   .timeout_ms = 300 });
    for (int i = 0; i < w->q.n; i++) {
        if (away >> i & 1) {
            proxy_refuse(w->p[i]);
            proxy_break(w->p[i]);
        }
    }
    CHECK_HF(hf_lock_acquire(m, 20000, NULL, &err), HF_OK);
    CHECK_INT(members_having(&w->q, "lock:a", away), 0);
    for (int i = 0; i < w->q.n; i++)
        proxy_pass(w->p[i]);
    CHECK_EVENTUALLY(reaches(w, c), 10000);
    members_each(&w->q, away, be_well); /* should it have been taken there meanwhile */
    for (int i = 0; i < w->q.n; i++)
        if (silent >> i & 1)
            proxy_hold(w->p[i]);
    hf_err e = hf_lock_release(m, &err);
    if (e != HF_OK && e != HF_ENOQUORUM)
        FAIL("away %#x, silent %#x: %s (%s)", away, silent, hf_err_name(e), err.message);
    for (int i = 0; i < w->q.n; i++)
        CHECK(!(silent >> i & 1) || proxy_held(w->p[i]) > 0);
    heal(w);
    hf_lock_free(m);
    CHECK_EVENTUALLY(is_clean(w) && reaches(w, c), 10000);
}

/* One server's "not here" beside silence is no proof that it was lost. */
TEST_TIMEOUT(Q6_given_back_is_not_lost_whoever_was_away_and_is_silent, 240)
{
    for (int n = 3; n <= 5; n += 2) {
        struct wires w = used_wires(n);
        hf_client *c = client_at(w.q.url, 1000);
        int scenes = 0;
        for (unsigned away = 1; away < 1u << n; away++) {
            if (__builtin_popcount(away) != n / 2)
                continue;
            for (int times = 0; times < 2; times++) {
                unsigned silent = 0;
                while (!silent || __builtin_popcount(silent) > n / 2)
                    silent = (unsigned)t_random(1u << n) & ~away;
                give_back(&w, c, away, silent);
                scenes++;
            }
        }
        CHECK_INT(scenes, n == 3 ? 6 : 20);
        hf_client_free(c);
    }
}
