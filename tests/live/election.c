/* SPDX-License-Identifier: MIT
 * election.c - the promises EL1 to EL7 of src/lock/election.c, against real servers.
 */
#include <signal.h>

#define LIVE_SCRIPTS
#include "harness/history.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

static hf_election *election_with(hf_client *c, const char *name, int64_t ttl_ms, int64_t grace_ms)
{
    hf_election *el = NULL;
    hf_election_opts o = { .size = sizeof o, .ttl_ms = ttl_ms, .grace_ms = grace_ms };
    CHECK_HF(hf_election_open(c, hf_str(name), &o, &el, &err), HF_OK);
    CHECK(el);
    return el;
}

static uint64_t campaign(hf_election *el, const char *value)
{
    uint64_t term = 0;
    CHECK_HF(hf_election_campaign(el, hf_str(value), 20000, &term, &err), HF_OK);
    CHECK(term > 0 && hf_election_term(el) == term && hf_election_is_leader(el));
    return term;
}

static void resign(hf_election *el)
{
    CHECK_HF(hf_election_resign(el, &err), HF_OK);
    CHECK(!hf_election_is_leader(el));
    CHECK_INT(hf_election_term(el), 0);
}

static hf_leader *leader_of(hf_client *c, const char *name)
{
    hf_leader *l = NULL;
    CHECK_HF(hf_election_leader(c, hf_str(name), &l, &err), HF_OK);
    CHECK(l);
    return l;
}

/* Who leads has this value; NULL: nobody leads. */
static void check_leader(hf_client *c, const char *name, const char *value)
{
    hf_leader *l = leader_of(c, name);
    CHECK_INT(l->leads, value != NULL);
    CHECK_STR(l->value, value);
    hf_leader_free(l);
}

/* ---- one leader and who looks ---- */

TEST(EL3_what_a_leader_says_is_seen_with_its_term_and_who_it_is)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .program = "p", .info = "i" });
    hf_client *other = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 30000, 0);
    check_leader(other, "a", NULL);
    uint64_t term = campaign(el, "http://host:80/");
    hf_leader *l = leader_of(other, "a");
    CHECK(l->leads && l->term == term && l->party->fence == term);
    CHECK_STR(l->value, "http://host:80/");
    CHECK_RANGE(l->ttl_ms, 25000, 30000);
    CHECK_INT(l->party->pid, getpid()); /* known at once, not after a while */
    CHECK_STR(l->party->program, "p");
    CHECK_STR(l->party->info, "i");
    CHECK(l->party->host && l->party->age_ms >= 0);
    CHECK_INT(strlen(l->party->owner), 8); /* no capability */
    hf_leader_free(l);
    CHECK_HF(hf_election_set_value(el, hf_str("another"), &err), HF_OK);
    check_leader(other, "a", "another");
    uint64_t again = 0; /* who leads already only says something else */
    CHECK_HF(hf_election_campaign(el, hf_str("third"), 0, &again, &err), HF_OK);
    CHECK(again == term);
    check_leader(other, "a", "third");
    resign(el);
    check_leader(other, "a", NULL);
    CHECK_HF(hf_election_resign(el, &err), HF_ENOTHELD);
    CHECK_HF(hf_election_set_value(el, hf_str("x"), &err), HF_ENOTHELD);
    CHECK(campaign(el, "") > term); /* EL2 */
    check_leader(other, "a", "");
    hf_election_free(el);
    hf_client_free(c);
    hf_client_free(other);
    CHECK_STR(server_keys(s), ONLY_OURS); /* EL7 */
}

TEST(EL3_values_are_bytes_up_to_their_limit)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 30000, 0);
    static char big[HF_LEADER_VALUE_MAX + 1];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)t_random(256);
    static const size_t size[] = { 0, 1, 3, 1000, HF_LEADER_VALUE_MAX };
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        hf_bytes value = { big, size[i] };
        CHECK_HF(hf_election_campaign(el, value, 0, NULL, &err), HF_OK);
        hf_leader *l = leader_of(c, "a");
        CHECK_MEM(l->value, l->value_len, big, size[i]);
        hf_leader_free(l);
    }
    hf_bytes longer = { big, sizeof big };
    CHECK_HF(hf_election_campaign(el, longer, 0, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_election_set_value(el, longer, &err), HF_EINVAL);
    CHECK(hf_election_is_leader(el));
    hf_election_free(el);
    hf_client_free(c);
}

TEST(EL4_a_value_of_another_term_is_not_shown)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 30000, 0);
    uint64_t term = campaign(el, "mine");
    server_ask(s, "SET {lock:a}:v %llu:1:old", (unsigned long long)term - 1);
    hf_leader *l = leader_of(c, "a");
    CHECK(l->leads && l->term == term && !l->value);
    hf_leader_free(l);
    CHECK_HF(hf_election_set_value(el, hf_str("mine"), &err), HF_OK);
    check_leader(c, "a", "mine");
    /* The lock was taken away: the value alone is nobody's, and cannot be changed any more. */
    server_ask(s, "DEL lock:a");
    check_leader(c, "a", NULL);
    CHECK_HF(hf_election_set_value(el, hf_str("late"), &err), HF_ELOST);
    CHECK(!hf_election_is_leader(el)); /* it knows now, without waiting for a renewal */
    CHECK(strstr(server_ask(s, "GET {lock:a}:v"), ":mine"));
    CHECK_HF(hf_election_resign(el, &err), HF_ELOST);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:v"), 0);
    hf_election_free(el);
    hf_client_free(c);
}

TEST(EL4_without_a_leader_there_is_no_value_and_without_a_value_a_leader)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    server_ask(s, "SET {lock:a}:v 1794000000000000:1:left PX 5000");
    check_leader(c, "a", NULL);
    /* Somebody's plain lock, and a foreign client's. */
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t fence = lock_now(m);
    hf_leader *l = leader_of(c, "a");
    CHECK(l->leads && l->term == fence && !l->value);
    hf_leader_free(l);
    unlock_now(m);
    server_ask(s, "SET lock:a foreign PX 5000");
    l = leader_of(c, "a");
    CHECK(l->leads && l->term == 0 && !l->value);
    CHECK_STR(l->party->owner, "foreign");
    hf_leader_free(l);
    hf_lock_free(m);
    /* Data of another kind. */
    server_ask(s, "DEL lock:a");
    server_ask(s, "LPUSH lock:a x");
    CHECK_HF(hf_election_leader(c, hf_str("a"), &l, &err), HF_ETYPE);
    server_ask(s, "DEL lock:a {lock:a}:v");
    server_ask(s, "LPUSH {lock:a}:v x");
    hf_election *el = election_with(c, "a", 5000, 0);
    CHECK_HF(hf_election_campaign(el, hf_str("x"), 0, NULL, &err), HF_ETYPE);
    CHECK(!hf_election_is_leader(el) && hf_election_term(el) == 0);
    CHECK_STR(server_ask(s, "LRANGE {lock:a}:v 0 -1"), "x"); /* P10 */
    check_leader(c, "a", NULL);
    hf_election_free(el);
    hf_client_free(c);
}

TEST(options_names_and_values_are_checked)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_election *el = NULL;
    hf_leader *l = NULL;
    hf_election_opts o = { .size = sizeof o, .ttl_ms = 5 };
    CHECK_HF(hf_election_open(c, hf_str("a"), &o, &el, &err), HF_EINVAL);
    o.size = 1;
    CHECK_HF(hf_election_open(c, hf_str("a"), &o, &el, &err), HF_EINVAL);
    CHECK_HF(hf_election_open(c, hf_str(""), NULL, &el, &err), HF_EINVAL);
    CHECK_HF(hf_election_open(c, hf_str("{a}:v"), NULL, &el, &err), HF_EINVAL);
    CHECK_HF(hf_election_open(NULL, hf_str("a"), NULL, &el, &err), HF_EINVAL);
    CHECK_HF(hf_election_leader(c, hf_str("holdfast:x"), &l, &err), HF_EINVAL);
    CHECK_HF(hf_election_observe(c, hf_str("a"), NULL, -2, &l, &err), HF_EINVAL);
    CHECK(!el && !l);
    CHECK(!hf_election_free(NULL) && !hf_leader_free(NULL));
    hf_client_free(c);
}

/* How often the server has run a command. */
static long long calls(struct server *s, const char *command)
{
    char field[64];
    snprintf(field, sizeof field, "cmdstat_%s:calls=", command);
    const char *p = strstr(server_ask(s, "INFO commandstats"), field);
    return p ? atoll(p + strlen(field)) : 0;
}

/* ---- many candidates ---- */

enum { PROCS = 32, TERMS = 4 };

struct contest {
    struct server  *s;
    struct history *h;
};

static void contend(int index, void *arg)
{
    struct contest *t = arg;
    hf_client *c = client_at(server_url(t->s), 0);
    hf_election *el = election_with(c, "a", 10000, 0);
    char value[32];
    for (int i = 0; i < TERMS; i++) {
        int64_t invoke = t_now_ns();
        snprintf(value, sizeof value, "%d.%d", index, i);
        uint64_t term = campaign(el, value);
        struct grant *g = history_grant(t->h, 0, (uint32_t)index, term, invoke,
                                        BELIEVED_UNTIL(hf_election_lock(el)));
        check_leader(c, "a", value);
        history_release(g);
        resign(el);
    }
    hf_election_free(el);
    hf_client_free(c);
}

TEST(EL1_EL2_of_32_processes_one_leads_at_a_time_and_terms_rise)
{
    struct contest t = { .s = server_start(NULL), .h = history_new(PROCS * TERMS) };
    struct history_report r;
    workers_run(PROCS, contend, &t, 55000);
    CHECK_INT(history_check(t.h, &r), 0);
    CHECK_INT(r.grants, PROCS * TERMS);
    CHECK_STR(server_keys(t.s), ONLY_OURS); /* EL7 */
}

/* ---- a leader that goes away ---- */

struct stage {
    struct server *s;
    int64_t        ttl_ms, grace_ms;
    struct bell    leads;
    struct shared {
        _Atomic int64_t believed_ns; /* when the first was last sure that it led */
        _Atomic int64_t next_ns;     /* when the second was told that it leads */
        atomic_int      learned;     /* the first knows that it does not */
    } *at;
};

static void lead_for_ever(int index, void *arg)
{
    struct stage *t = arg;
    (void)index;
    hf_client *c = client_at(server_url(t->s), 0);
    hf_election *el = election_with(c, "a", t->ttl_ms, t->grace_ms);
    campaign(el, "first");
    bell_ring(t->leads);
    for (;;) {
        int64_t now = t_now_ns();
        if (!hf_election_is_leader(el))
            break;
        atomic_store(&t->at->believed_ns, now);
        t_sleep_ms(1);
    }
    /* After its own pause it first reads what has come meanwhile. */
    CHECK_EVENTUALLY(hf_lock_state(hf_election_lock(el)) == HF_STATE_LOST, 5000);
    CHECK(hf_lock_loss(hf_election_lock(el)) != HF_LOSS_NONE);
    CHECK_HF(hf_election_set_value(el, hf_str("late"), &err), HF_ELOST);
    atomic_store(&t->at->learned, 1);
    /* Once more, behind the one who leads now. */
    campaign(el, "again");
    resign(el);
    hf_election_free(el);
    hf_client_free(c);
}

static struct stage stage_new(int64_t ttl_ms, int64_t grace_ms)
{
    return (struct stage){ .s = server_start(NULL), .ttl_ms = ttl_ms, .grace_ms = grace_ms,
                           .leads = bell_new(), .at = shared_memory(sizeof(struct shared)) };
}

TEST(EL5_a_killed_leader_has_a_successor_within_seconds_though_its_ttl_is_long)
{
    struct stage t = stage_new(60000, 1000);
    struct workers *w = workers_start(1, lead_for_ever, &t);
    bell_wait(t.leads);
    hf_client *c = client_at(server_url(t.s), 0);
    hf_election *el = election_with(c, "a", 60000, 1000);
    hf_leader *seen = leader_of(c, "a"), *now = NULL;
    CHECK_HF(hf_election_campaign(el, hf_str("x"), 0, NULL, &err), HF_EBUSY);
    workers_signal(w, 0, SIGKILL);
    int64_t before = t_now_ms();
    CHECK(campaign(el, "second") > seen->term);
    CHECK_TOOK(t_now_ms() - before, 500, 15000);
    CHECK_HF(hf_election_observe(c, hf_str("a"), seen, 0, &now, &err), HF_OK);
    CHECK_STR(now->value, "second");
    hf_leader_free(seen);
    hf_leader_free(now);
    workers_join(w, 10000);
    hf_election_free(el);
    hf_client_free(c);
    CHECK_INT(server_int(t.s, "EXISTS lock:a {lock:a}:v {lock:a}:q"), 0); /* EL7 */
}

TEST(EL1_a_stopped_leader_learns_that_it_lost_before_another_leads)
{
    struct stage t = stage_new(60000, 1000);
    struct workers *w = workers_start(1, lead_for_ever, &t);
    bell_wait(t.leads);
    hf_client *c = client_at(server_url(t.s), 0);
    hf_election *el = election_with(c, "a", 60000, 1000);
    CHECK_EVENTUALLY(atomic_load(&t.at->believed_ns) > 0, 5000);
    /* Stopped with its connections open, it is present: only its ttl would end it. So they go. */
    workers_signal(w, 0, SIGSTOP);
    CHECK_EVENTUALLY(kill_inboxes(t.s) >= 1, 5000);
    campaign(el, "second");
    atomic_store(&t.at->next_ns, t_now_ns());
    workers_signal(w, 0, SIGCONT);
    CHECK_EVENTUALLY(atomic_load(&t.at->learned), 10000);
    CHECK(atomic_load(&t.at->believed_ns) < atomic_load(&t.at->next_ns));
    check_leader(c, "a", "second"); /* the late one has changed nothing */
    resign(el);
    workers_join(w, 20000);
    hf_election_free(el);
    hf_client_free(c);
    CHECK_EVENTUALLY(server_int(t.s, "EXISTS lock:a {lock:a}:v {lock:a}:q") == 0, 5000);
}

TEST(EL7_nothing_of_a_killed_leader_stays_longer_than_its_ttl)
{
    struct stage t = stage_new(3000, HF_NO_TAKEOVER);
    struct workers *w = workers_start(1, lead_for_ever, &t);
    bell_wait(t.leads);
    CHECK_EVENTUALLY(calls(t.s, "pexpire") >= 10, 20000); /* renewed, lock and value alike */
    CHECK_RANGE(server_int(t.s, "PTTL {lock:a}:v"), 500, 3000);
    CHECK_RANGE(server_int(t.s, "PTTL lock:a") - server_int(t.s, "PTTL {lock:a}:v"), -100, 100);
    workers_signal(w, 0, SIGKILL);
    int64_t before = t_now_ms();
    CHECK_EVENTUALLY(server_int(t.s, "EXISTS lock:a {lock:a}:v") == 0, 10000);
    CHECK_TOOK(t_now_ms() - before, 0, 4500);
    check_only_ttls(t.s);
    workers_join(w, 5000);
}

TEST(the_value_follows_when_the_lease_is_set_anew)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 2000, 0);
    campaign(el, "v");
    CHECK_HF(hf_lock_extend(hf_election_lock(el), 60000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL {lock:a}:v"), 55000, 60000);
    CHECK_HF(hf_lock_extend(hf_election_lock(el), 5000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL {lock:a}:v"), 3000, 5000);
    CHECK_HF(hf_lock_verify(hf_election_lock(el), &err), HF_OK);
    hf_election_free(el);
    hf_client_free(c);
}

/* ---- observers ---- */

struct observer {
    hf_client *c;
    hf_leader *seen, *got;
    hf_err     result;
    int64_t    wait_ms, done_ns;
    pthread_t  thread;
};

static void *observe_main(void *arg)
{
    struct observer *o = arg;
    o->result = hf_election_observe(o->c, hf_str("a"), o->seen, o->wait_ms, &o->got, NULL);
    o->done_ns = t_now_ns();
    return NULL;
}

static long long listeners(struct server *s)
{
    return server_int(s, "ZCARD {lock:a}:l");
}

/* Observe from what is now, and listen before it returns. */
static void observe_start(struct observer *o, struct server *s, hf_client *c, int64_t wait_ms)
{
    long long before = listeners(s);
    *o = (struct observer){ .c = c, .seen = leader_of(c, "a"), .wait_ms = wait_ms };
    CHECK_INT(pthread_create(&o->thread, NULL, observe_main, o), 0);
    CHECK_EVENTUALLY(listeners(s) == before + 1, 5000);
}

/* It saw a leader with this value (NULL: nobody), within 5 s. */
static void observe_end(struct observer *o, const char *value)
{
    int64_t since_ns = t_now_ns();
    CHECK_INT(pthread_join(o->thread, NULL), 0);
    CHECK_INT(o->result, HF_OK);
    CHECK_INT(o->got->leads, value != NULL);
    CHECK_STR(o->got->value, value);
    CHECK((o->done_ns - since_ns) / 1000000 < 5000);
    hf_leader_free(o->seen);
    hf_leader_free(o->got);
}

TEST(EL5_observers_are_told_of_every_change_at_once_and_do_not_poll)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *oc = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 30000, 0);
    struct observer o[3];
    static const char *const news[] = { "one", "two", "three" };
    int64_t quickest_ns = INT64_MAX, took_ns;
    for (int round = 0; round < 3; round++) {
        campaign(el, "start");
        for (int i = 0; i < 3; i++)
            observe_start(&o[i], s, oc, 20000);
        long long rings = calls(s, "publish");
        took_ns = -t_now_ns();
        CHECK_HF(hf_election_set_value(el, hf_str(news[round]), &err), HF_OK);
        CHECK_INT(calls(s, "publish") - rings, 3); /* each once */
        for (int i = 0; i < 3; i++)
            observe_end(&o[i], news[round]);
        took_ns += t_now_ns();
        if (took_ns < quickest_ns)
            quickest_ns = took_ns;
        CHECK_INT(listeners(s), 0); /* rung, and gone */
        for (int i = 0; i < 3; i++)
            observe_start(&o[i], s, oc, 20000);
        took_ns = -t_now_ns();
        resign(el);
        for (int i = 0; i < 3; i++)
            observe_end(&o[i], NULL);
        took_ns += t_now_ns();
        if (took_ns < quickest_ns)
            quickest_ns = took_ns;
    }
    CHECK(quickest_ns < 400000000); /* by themselves they ask after half a second, not before */
    /* Nothing happens: a question now and then. */
    campaign(el, "quiet");
    for (int i = 0; i < 3; i++)
        observe_start(&o[i], s, oc, 4000);
    long long before = calls(s, "evalsha");
    for (int i = 0; i < 3; i++) {
        CHECK_INT(pthread_join(o[i].thread, NULL), 0);
        CHECK_INT(o[i].result, HF_ETIMEDOUT);
        CHECK(!o[i].got);
        hf_leader_free(o[i].seen);
    }
    CHECK_RANGE(calls(s, "evalsha") - before, 0, 3 * 8); /* not one each 250 ms */
    CHECK_INT(listeners(s), 0);
    hf_election_free(el);
    hf_client_free(c);
    hf_client_free(oc);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(EL5_a_new_leader_is_seen_with_its_value)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *oc = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 30000, 0);
    struct observer o;
    observe_start(&o, s, oc, 20000); /* nobody leads */
    uint64_t term = campaign(el, "elected");
    CHECK_INT(pthread_join(o.thread, NULL), 0);
    CHECK_INT(o.result, HF_OK);
    CHECK(o.got->leads && o.got->term == term);
    hf_leader_free(o.seen);
    hf_leader *next = NULL;
    if (!o.got->value) { /* it was quicker than the value; that is told too */
        CHECK_HF(hf_election_observe(oc, hf_str("a"), o.got, 20000, &next, &err), HF_OK);
        CHECK_STR(next->value, "elected");
    }
    hf_leader_free(o.got);
    hf_leader_free(next);
    hf_election_free(el);
    hf_client_free(c);
    hf_client_free(oc);
}

TEST(EL5_a_dead_leader_without_a_successor_is_noticed_when_its_lease_ends)
{
    struct stage t = stage_new(2000, 0);
    struct workers *w = workers_start(1, lead_for_ever, &t);
    bell_wait(t.leads);
    hf_client *c = client_at(server_url(t.s), 0);
    struct observer o;
    observe_start(&o, t.s, c, 20000);
    workers_signal(w, 0, SIGKILL);
    observe_end(&o, NULL); /* within 5 s: ttl and a little */
    workers_join(w, 5000);
    hf_client_free(c);
}

TEST(EL5_an_observer_survives_the_loss_of_its_subscription_and_of_the_server)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *oc = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 30000, 0);
    struct observer o;
    campaign(el, "x");
    observe_start(&o, s, oc, 30000);
    CHECK(kill_inboxes(s) >= 1);
    CHECK_HF(hf_election_set_value(el, hf_str("y"), &err), HF_OK);
    observe_end(&o, "y");
    observe_start(&o, s, oc, 30000);
    server_kill(s);
    server_restart(s); /* without its data: nobody leads */
    observe_end(&o, NULL);
    hf_election_free(el);
    hf_client_free(c);
    hf_client_free(oc);
}

/* ---- lost replies ---- */

TEST(EL6_a_lost_reply_to_the_value_is_asked_for_again)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000), *direct = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 30000, HF_NO_TAKEOVER);
    campaign(el, "zero");
    for (int i = 0; i < 5; i++) {
        char value[8];
        snprintf(value, sizeof value, "v%d", i);
        proxy_when(p, lua_sha[LUA_proclaim]);
        proxy_cut_after(p, (size_t)i);
        CHECK_HF(hf_election_set_value(el, hf_str(value), &err), HF_OK);
        CHECK_INT(proxy_cuts(p), i + 1);
        check_leader(direct, "a", value);
    }
    resign(el);
    hf_election_free(el);
    hf_client_free(c);
    hf_client_free(direct);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(EL6_a_late_copy_of_a_request_brings_no_old_value_back)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 1200), *direct = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 30000, HF_NO_TAKEOVER);
    campaign(el, "zero");
    /* It leaves, and gets stuck on the way; its sender gives up, and says something else. */
    proxy_when(p, lua_sha[LUA_proclaim]);
    proxy_hold(p);
    CHECK_HF(hf_election_set_value(el, hf_str("stuck"), &err), HF_EUNSURE);
    CHECK(proxy_held(p) > 0);
    check_leader(direct, "a", "zero");
    char grant[120], term[24]; /* what the stuck request says, once more, after the new value */
    snprintf(term, sizeof term, "%llu", (unsigned long long)hf_election_term(el));
    snprintf(grant, sizeof grant, "%s:%s:", hf_lock_owner(hf_election_lock(el)), term);
    proxy_pass(p);
    proxy_break(p);
    CHECK_HF(hf_election_set_value(el, hf_str("new"), &err), HF_OK);
    CHECK_STR(server_ask(s, "EVALSHA %s 4 lock:a {lock:a}:v " FENCE_KEY " {lock:a}:l %s %s 2 stuck",
                         lua_sha[LUA_proclaim], grant, term), "1");
    check_leader(direct, "a", "new");
    resign(el);
    CHECK_STR(server_ask(s, "EVALSHA %s 4 lock:a {lock:a}:v " FENCE_KEY " {lock:a}:l %s %s 2 stuck",
                         lua_sha[LUA_proclaim], grant, term), "0");
    check_leader(direct, "a", NULL);
    hf_election_free(el);
    hf_client_free(c);
    hf_client_free(direct);
}

TEST(EL6_who_cannot_make_its_value_known_does_not_lead)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 1200), *direct = client_at(server_url(s), 0);
    hf_election *el = election_with(c, "a", 3000, HF_NO_TAKEOVER);
    uint64_t term = campaign(el, "known"); /* so that the scripts are */
    resign(el);
    proxy_when(p, lua_sha[LUA_proclaim]);
    proxy_drop_replies(p);
    hf_err e = hf_election_campaign(el, hf_str("doubtful"), 0, NULL, &err);
    CHECK(e == HF_EUNSURE);
    CHECK_INT(err.known, HF_KNOWN_NOT_HELD);
    CHECK(proxy_dropped(p) > 0);
    CHECK(!hf_election_is_leader(el) && hf_election_term(el) == 0);
    proxy_pass(p);
    proxy_break(p);
    /* Nobody leads, at the latest when the ttl has passed. */
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:v") == 0, 6000);
    CHECK(campaign(el, "clear") > term);
    check_leader(direct, "a", "clear");
    hf_election_free(el);
    hf_client_free(c);
    hf_client_free(direct);
}

/* ---- at random, against a model ---- The model is one register. Each write of a value is an event
 * with a number, its text; a campaign is a write too. Written under a term, events are ordered by
 * term, then by number. What an observer sees must be an event that had begun, not older than any
 * that was over before it looked; and nobody only while nobody surely led. */

enum { EVENTS = 20000, SIGHTS = 60000, CANDIDATES = 5, OBSERVERS = 3, RANDOM_MS = 12000 };

struct event {
    _Atomic uint64_t term;       /* 0: the writer did not live to tell */
    _Atomic int64_t  begun, done; /* 0: never */
    _Atomic int64_t  over;       /* of a campaign: when its leader resigned, was killed or lost */
    atomic_int       candidate, first; /* 1: a campaign */
};

struct sighting {
    int      leads, has_value;
    uint64_t term;
    long     event;
    int64_t  begun, done;
    int      observer;
};

struct game {
    struct server  *s;
    int64_t         end_ns;
    atomic_long     events, sights;
    _Atomic int64_t killed[CANDIDATES + 16]; /* when we decided to */
    struct event    event[EVENTS];
    struct sighting sight[SIGHTS];
};

static long event_new(struct game *g, int index, int first, char value[24])
{
    long n = atomic_fetch_add(&g->events, 1);
    CHECK(n < EVENTS);
    struct event *ev = &g->event[n];
    atomic_store(&ev->candidate, index);
    atomic_store(&ev->first, first);
    atomic_store(&ev->begun, t_now_ns());
    snprintf(value, 24, "%ld", n);
    return n;
}

static void event_done(struct game *g, long n, uint64_t term)
{
    atomic_store(&g->event[n].term, term);
    atomic_store(&g->event[n].done, t_now_ns());
}

static void play(int index, void *arg)
{
    struct game *g = arg;
    char value[24];
    hf_client *c = client_at(server_url(g->s), 0);
    hf_election *el = election_with(c, "a", 3000, 600);
    while (t_now_ns() < g->end_ns) {
        uint64_t term;
        long first = event_new(g, index, 1, value);
        hf_err e = hf_election_campaign(el, hf_str(value), (int64_t)t_random(400), &term, &err);
        if (e == HF_EBUSY || e == HF_ETIMEDOUT || e == HF_ELOST || e == HF_EUNSURE)
            continue; /* the last one: hardly any time was given, and some of it passed */
        CHECK_HF(e, HF_OK);
        event_done(g, first, term);
        int64_t sure = t_now_ns();
        for (uint64_t i = t_random(5); i > 0; i--) {
            t_sleep_ms((int64_t)t_random(20));
            sure = t_now_ns();
            if (!hf_election_is_leader(el))
                break;
            long n = event_new(g, index, 0, value);
            e = hf_election_set_value(el, hf_str(value), &err);
            if (e == HF_ELOST)
                break;
            CHECK_HF(e, HF_OK);
            event_done(g, n, term);
        }
        if (t_random(8) == 0)
            t_sleep_ms((int64_t)t_random(300));
        /* Who was lost led for sure only until it last looked. */
        atomic_store(&g->event[first].over, hf_election_is_leader(el) ? t_now_ns() : sure);
        e = hf_election_resign(el, &err);
        CHECK(e == HF_OK || e == HF_ELOST);
    }
    hf_election_free(el);
    hf_client_free(c);
}

static void note_sight(struct game *g, int index, const hf_leader *l, int64_t begun)
{
    long n = atomic_fetch_add(&g->sights, 1);
    CHECK(n < SIGHTS);
    g->sight[n] = (struct sighting){ .leads = l->leads, .has_value = l->value != NULL,
                                     .term = l->term, .event = l->value ? atol(l->value) : -1,
                                     .begun = begun, .done = t_now_ns(), .observer = index };
}

static void watch(int index, void *arg)
{
    struct game *g = arg;
    hf_client *c = client_at(server_url(g->s), 0);
    hf_leader *seen = NULL;
    uint64_t last = 0;
    while (t_now_ns() < g->end_ns) {
        hf_leader *now = NULL;
        hf_err e = HF_OK;
        /* How long ago the answer of a wait was true is not known: so look once more. */
        if (t_random(3))
            e = hf_election_observe(c, hf_str("a"), seen, 500, &now, &err);
        CHECK(e == HF_OK || e == HF_ETIMEDOUT);
        hf_leader_free(now);
        int64_t begun = t_now_ns();
        CHECK_HF(hf_election_leader(c, hf_str("a"), &now, &err), HF_OK);
        note_sight(g, index, now, begun);
        if (now->leads) {
            CHECK(now->term >= last); /* EL2: nobody ever sees an older one */
            last = now->term;
        }
        hf_leader_free(seen);
        seen = now;
    }
    hf_leader_free(seen);
    hf_client_free(c);
}

/* Terms of those who were killed before they could tell are known from who saw them. */
static void judge_values(struct game *g, long sights)
{
    for (long i = 0; i < sights; i++) {
        const struct sighting *x = &g->sight[i];
        if (!x->leads || !x->has_value)
            continue;
        CHECK(x->event >= 0 && x->event < atomic_load(&g->events));
        struct event *ev = &g->event[x->event];
        CHECK(ev->begun && ev->begun < x->done); /* nobody sees what is not written yet */
        if (!ev->term)
            ev->term = x->term;
        if (ev->term != x->term) /* EL4 */
            FAIL("value %ld is term %llu's, seen under %llu", x->event,
                 (unsigned long long)ev->term, (unsigned long long)x->term);
    }
}

static void judge_order(struct game *g, long sights, long events)
{
    for (long i = 0; i < sights; i++) {
        const struct sighting *x = &g->sight[i];
        for (long n = 0; n < events; n++) {
            const struct event *ev = &g->event[n];
            if (!ev->done || ev->done >= x->begun)
                continue;
            if (x->leads && (ev->term > x->term || (ev->term == x->term && x->has_value
                                                    && n > x->event)))
                FAIL("observer %d saw term %llu value %ld after term %llu value %ld was known",
                     x->observer, (unsigned long long)x->term, x->event,
                     (unsigned long long)ev->term, n);
            if (x->leads && ev->term == x->term && !x->has_value) /* EL3 */
                FAIL("observer %d saw term %llu without its value", x->observer,
                     (unsigned long long)x->term);
            if (!x->leads && ev->first && ev->over > x->done)
                FAIL("observer %d saw nobody while candidate %d led", x->observer, ev->candidate);
        }
    }
}

TEST_TIMEOUT(EL1_to_EL7_at_random_what_is_seen_is_what_a_single_register_shows, 120)
{
    struct game *g = shared_memory(sizeof *g);
    g->s = server_start(NULL);
    g->end_ns = t_now_ns() + RANDOM_MS * INT64_C(1000000);
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(CANDIDATES, play, g),
                   *ow = workers_start(OBSERVERS, watch, g);
    int kills = 0;
    for (int victim = 0; victim < CANDIDATES - 1; victim++) {
        t_sleep_ms(1000 + (int64_t)t_random(1200));
        atomic_store(&g->killed[victim], t_now_ns());
        workers_signal(w, victim, SIGKILL);
        kills++;
    }
    workers_join(w, 60000);
    workers_join(ow, 60000);
    long events = atomic_load(&g->events), sights = atomic_load(&g->sights), known = 0;
    for (long n = 0; n < events; n++) {
        struct event *ev = &g->event[n];
        known += ev->done != 0;
        if (ev->first && ev->done && !ev->over)
            ev->over = g->killed[ev->candidate];
    }
    t_note("%ld writes, %ld of them known, %ld sightings, %d killed", events, known, sights, kills);
    CHECK(known > 50 && sights > 200 && kills == CANDIDATES - 1);
    judge_values(g, sights);
    judge_order(g, sights, events);
    /* Nothing is left: what the killed ones had, after their ttl. */
    CHECK_EVENTUALLY(server_int(g->s, "EXISTS lock:a {lock:a}:v {lock:a}:l") == 0, 8000);
    hf_client *c = client_at(server_url(g->s), 0);
    hf_election *el = election_with(c, "a", 3000, 600);
    campaign(el, "last"); /* drops whoever died in the queue */
    resign(el);
    hf_election_free(el);
    hf_client_free(c);
    CHECK_INT(server_int(g->s, "EXISTS lock:a {lock:a}:v {lock:a}:l {lock:a}:q"), 0);
    check_only_ttls(g->s);
}
