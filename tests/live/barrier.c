/* SPDX-License-Identifier: MIT
 * barrier.c - B1 to B7 of src/lock/barrier.c: so many parties meet.
 */
#include <signal.h>

#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

static hf_barrier *barrier_with(hf_client *c, const char *name, uint32_t parties, hf_barrier_opts o)
{
    hf_barrier *b = NULL;
    o.size = sizeof o;
    CHECK_HF(hf_barrier_open(c, hf_str(name), parties, &o, &b, &err), HF_OK);
    CHECK(b);
    return b;
}

static hf_barrier *barrier_of(hf_client *c, const char *name, uint32_t parties)
{
    return barrier_with(c, name, parties, (hf_barrier_opts){ 0 });
}

/* A thread that arrives, with a client and a handle of its own. */
struct party {
    hf_client  *c;
    hf_barrier *b;
    int64_t     wait_ms;
    int         leave; /* instead of arriving */
    hf_err      result;
    hf_error    error;
    uint32_t    index;
    uint64_t    generation;
    atomic_int  done;
    pthread_t   thread;
};

static struct party party_at(const char *url, uint32_t parties, hf_barrier_opts o)
{
    struct party p = { .c = client_at(url, 0), .wait_ms = 40000 };
    p.b = barrier_with(p.c, "a", parties, o);
    return p;
}

static void *party_main(void *arg)
{
    struct party *p = arg;
    p->result = p->leave ? hf_barrier_leave(p->b, p->wait_ms, &p->error)
                         : hf_barrier_wait(p->b, p->wait_ms, &p->index, &p->generation, &p->error);
    atomic_store(&p->done, 1);
    return NULL;
}

static void party_start(struct party *p)
{
    atomic_store(&p->done, 0);
    CHECK_INT(pthread_create(&p->thread, NULL, party_main, p), 0);
}

static void party_join(struct party *p, hf_err want)
{
    CHECK_INT(pthread_join(p->thread, NULL), 0);
    if (p->result != want)
        FAIL("the party got %s (%s), not %s", hf_err_name(p->result), p->error.message,
             hf_err_name(want));
}

static void party_free(struct party *p)
{
    hf_barrier_free(p->b);
    hf_client_free(p->c);
}

static long long arrived(struct server *s)
{
    const char *v = server_ask(s, "GET lock:a");
    return v ? atoll(strchr(strchr(v, '.') + 1, '.') + 1) : 0;
}

#define CHECK_ARRIVED(s, n) CHECK_EVENTUALLY(arrived(s) == (n), 10000)

/* A meeting that somebody opened, and ran out of time before arriving at it: nobody is counted in
 * it, and it goes by itself. */
static void drop_opened(struct server *s)
{
    const char *opened = server_ask(s, "GET lock:a");
    if (opened && strstr(opened, ".0:")) {
        CHECK_RANGE(server_int(s, "PTTL lock:a"), 0, 10000);
        server_ask(s, "DEL lock:a");
    }
}

/* Nothing but memory with a ttl is left of it. */
static void check_nothing_left(struct server *s)
{
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:l {lock:a}:absent {lock:a}:o "
                            "{lock:a}:oh {lock:a}:oa"), 0);
    check_only_ttls(s);
}

/* ---- B1 ---- */

TEST(B1_all_go_on_when_the_last_one_has_arrived_and_not_before)
{
    enum { N = 4 };
    struct server *s = server_start(NULL);
    struct party p[N];
    uint64_t last = 0;
    for (int i = 0; i < N; i++)
        p[i] = party_at(server_url(s), N, (hf_barrier_opts){ 0 });
    for (int round = 0; round < 3; round++) {
        unsigned seen = 0;
        for (int i = 0; i < N - 1; i++) {
            party_start(&p[i]);
            CHECK_ARRIVED(s, i + 1);
        }
        for (int i = 0; i < N - 1; i++)
            CHECK_INT(atomic_load(&p[i].done), 0);
        CHECK_CONTAINS(server_ask(s, "GET lock:a"), "barrier.4.3:");
        party_start(&p[N - 1]);
        for (int i = 0; i < N; i++) {
            party_join(&p[i], HF_OK);
            CHECK_INT((long long)p[i].generation, (long long)p[0].generation);
            CHECK_INT(p[i].index, i);
            seen |= 1u << p[i].index;
        }
        CHECK_INT(seen, (1u << N) - 1);
        CHECK(p[0].generation > last);
        last = p[0].generation;
    }
    for (int i = 0; i < N; i++)
        party_free(&p[i]);
    check_nothing_left(s);
}

TEST(B1_one_party_meets_itself_at_once)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_barrier *b = barrier_of(c, "a", 1);
    CHECK_HF(hf_barrier_wait(b, 0, NULL, NULL, &err), HF_OK);
    CHECK_HF(hf_barrier_wait(b, HF_WAIT_FOREVER, NULL, NULL, &err), HF_OK);
    CHECK_HF(hf_barrier_leave(b, 1000, &err), HF_OK);
    CHECK_HF(hf_barrier_wait(b, -2, NULL, NULL, &err), HF_EINVAL);
    hf_barrier *no = NULL;
    CHECK_HF(hf_barrier_open(c, hf_str("a"), 0, NULL, &no, &err), HF_EINVAL);
    CHECK_HF(hf_barrier_open(c, hf_str("a"), HF_PARTIES_MAX + 1, NULL, &no, &err), HF_EINVAL);
    CHECK(!no);
    hf_barrier_free(b);
    hf_client_free(c);
    check_nothing_left(s);
}

TEST(B1_without_waiting_only_the_last_one_arrives)
{
    struct server *s = server_start(NULL);
    struct party p = party_at(server_url(s), 2, (hf_barrier_opts){ 0 });
    hf_client *c = client_at(server_url(s), 0);
    hf_barrier *b = barrier_of(c, "a", 2);
    uint32_t index = 77;
    CHECK_HF(hf_barrier_wait(b, 0, &index, NULL, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "0 of 2 are at the barrier \"a\"");
    CHECK_INT(index, 77);
    CHECK_INT(arrived(s), 0);
    party_start(&p);
    CHECK_ARRIVED(s, 1);
    CHECK_HF(hf_barrier_wait(b, 0, &index, NULL, &err), HF_OK);
    CHECK_INT(index, 1);
    party_join(&p, HF_OK);
    party_free(&p);
    hf_barrier_free(b);
    hf_client_free(c);
    check_nothing_left(s);
}

struct crowd {
    struct server *s;
    int            rounds, parties;
    int64_t        grace_ms;
    struct {
        atomic_int  ready, go;
        atomic_int  arrived[64]; /* in each round */
        atomic_int  early;
        atomic_long met, broken, timedout;
        atomic_int  index[1000];
    } *mem;
};

static void meets_often(int who, void *arg)
{
    struct crowd *cr = arg;
    (void)who;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_barrier *b = barrier_of(c, "a", (uint32_t)cr->parties);
    for (int round = 0; round < cr->rounds; round++) {
        uint32_t index;
        atomic_fetch_add(&cr->mem->arrived[round], 1);
        CHECK_HF(hf_barrier_wait(b, 50000, &index, NULL, &err), HF_OK);
        if (atomic_load(&cr->mem->arrived[round]) != cr->parties)
            atomic_fetch_add(&cr->mem->early, 1);
        atomic_fetch_add(&cr->mem->index[index], 1);
    }
    hf_barrier_free(b);
    hf_client_free(c);
}

TEST(B1_100_processes_meet_again_and_again)
{
    struct crowd cr = { .s = server_start(NULL), .rounds = 5, .parties = 100 };
    cr.mem = shared_memory(sizeof *cr.mem);
    int64_t start = t_now_ms();
    workers_run(cr.parties, meets_often, &cr, 50000);
    t_note("%d meetings of %d in %lld ms", cr.rounds, cr.parties, (long long)(t_now_ms() - start));
    CHECK_INT(atomic_load(&cr.mem->early), 0);
    for (int i = 0; i < cr.parties; i++)
        CHECK_INT(atomic_load(&cr.mem->index[i]), cr.rounds);
    check_nothing_left(cr.s);
}

/* One is counted and dead: the others may not take its arrival for a meeting. */
TEST(B1_the_arrival_of_the_dead_completes_nothing)
{
    struct server *s = server_start(NULL);
    hf_barrier_opts o = { .grace_ms = 1000 };
    struct party p = party_at(server_url(s), 3, o);
    struct party first = party_at(server_url(s), 3, o);
    party_start(&first);
    CHECK_ARRIVED(s, 1);
    server_ask(s, "ZADD {lock:a}:h 9000000000000000 "
                  "0123456789abcdef0123456789abcdef.9:1000:4711:elsewhere");
    server_ask(s, "SET lock:a barrier.3.2%s PX 60000", strchr(server_ask(s, "GET lock:a"), ':'));
    party_start(&p);
    party_join(&first, HF_EBROKEN);
    CHECK_CONTAINS(first.error.message, "process 4711 on \"elsewhere\" is gone");
    party_free(&first);
    party_join(&p, HF_EBROKEN);
    CHECK_CONTAINS(p.error.message, "process 4711 on \"elsewhere\" is gone");
    party_free(&p);
    check_nothing_left(s);
}

/* ---- B2 ---- */

TEST(B2_an_arrival_whose_reply_is_lost_counts_once)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    struct party other = party_at(server_url(s), 3, (hf_barrier_opts){ 0 });
    struct party lossy = party_at(proxy_url(p), 3, (hf_barrier_opts){ 0 });
    struct party third = party_at(server_url(s), 3, (hf_barrier_opts){ 0 });
    for (int round = 0; round < 12; round++) {
        party_start(&other);
        CHECK_ARRIVED(s, 1);
        proxy_cut_after(p, (size_t)(round * 7 % 40));
        party_start(&lossy);
        CHECK_ARRIVED(s, 2);
        CHECK_INT(atomic_load(&other.done), 0);
        CHECK_INT(atomic_load(&lossy.done), 0);
        party_start(&third);
        party_join(&other, HF_OK);
        party_join(&lossy, HF_OK);
        party_join(&third, HF_OK);
        CHECK_INT(lossy.index, 1);
        CHECK_INT((long long)lossy.generation, (long long)other.generation);
        proxy_pass(p);
    }
    CHECK(proxy_cuts(p) >= 6);
    party_free(&other);
    party_free(&lossy);
    party_free(&third);
    check_nothing_left(s);
}

/* The reply to the arrival that completed it is lost, and others meet before it is asked again. */
TEST(B2_the_last_arrival_is_not_counted_in_the_next_meeting)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    struct party a = party_at(server_url(s), 2, (hf_barrier_opts){ 0 });
    struct party b = party_at(server_url(s), 2, (hf_barrier_opts){ 0 });
    struct party lossy = party_at(proxy_url(p), 2, (hf_barrier_opts){ 0 });
    CHECK_HF(hf_barrier_wait(lossy.b, 0, NULL, NULL, &err), HF_EBUSY); /* scripts are known now */
    party_start(&a);
    CHECK_ARRIVED(s, 1);
    proxy_when(p, "arrive");
    proxy_drop_replies(p);
    party_start(&lossy);
    party_join(&a, HF_OK);
    uint64_t first = a.generation;
    CHECK_EVENTUALLY(proxy_dropped(p) > 0, 5000);
    CHECK_INT(atomic_load(&lossy.done), 0);
    party_start(&a);
    party_start(&b);
    party_join(&a, HF_OK);
    party_join(&b, HF_OK);
    CHECK(a.generation > first);
    party_start(&a); /* and one more begins */
    CHECK_ARRIVED(s, 1);
    proxy_pass(p);
    proxy_break(p);
    party_join(&lossy, HF_OK);
    CHECK_INT((long long)lossy.generation, (long long)first);
    CHECK_INT(arrived(s), 1);
    party_start(&b);
    party_join(&a, HF_OK);
    party_join(&b, HF_OK);
    party_free(&a);
    party_free(&b);
    party_free(&lossy);
    check_nothing_left(s);
}

/* ---- B3 ---- */

static void arrives_and_waits(int who, void *arg)
{
    struct crowd *cr = arg;
    (void)who;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_barrier *b = barrier_with(c, "a", (uint32_t)cr->parties,
                                 (hf_barrier_opts){ .grace_ms = cr->grace_ms });
    hf_err e = hf_barrier_wait(b, 40000, NULL, NULL, &err);
    if (e == HF_EBROKEN)
        CHECK_CONTAINS(err.message, "is gone");
    atomic_fetch_add(e == HF_OK ? &cr->mem->met : e == HF_EBROKEN ? &cr->mem->broken
                                                                 : &cr->mem->timedout, 1);
    hf_barrier_free(b);
    hf_client_free(c);
}

TEST(B3_a_party_that_is_killed_breaks_it_for_the_others_within_about_its_grace)
{
    for (int victim = 0; victim < 3; victim++) { /* the first, one between, the youngest */
        struct crowd cr = { .s = server_start(NULL), .parties = 4, .grace_ms = 1000 };
        cr.mem = shared_memory(sizeof *cr.mem);
        struct workers *w[3];
        char pid[40];
        for (int i = 0; i < 3; i++) {
            w[i] = workers_start(1, arrives_and_waits, &cr);
            CHECK_ARRIVED(cr.s, i + 1);
        }
        snprintf(pid, sizeof pid, "%d", workers_pid(w[victim], 0));
        int64_t start = t_now_ms();
        workers_signal(w[victim], 0, SIGKILL);
        CHECK_EVENTUALLY(atomic_load(&cr.mem->broken) == 2, 20000);
        t_note("broken after %lld ms", (long long)(t_now_ms() - start));
        CHECK(t_now_ms() - start >= 900);
        for (int i = 0; i < 3; i++)
            workers_join(w[i], 10000);
        CHECK_CONTAINS(server_ask(cr.s, "GET {lock:a}:b"), pid);
        CHECK_CONTAINS(server_ask(cr.s, "GET {lock:a}:b"), " absent ");
        check_nothing_left(cr.s);
    }
}

TEST(B3_a_party_that_runs_out_of_time_breaks_it_at_once)
{
    struct server *s = server_start(NULL);
    struct party a = party_at(server_url(s), 3, (hf_barrier_opts){ 0 });
    struct party b = party_at(server_url(s), 3, (hf_barrier_opts){ 0 });
    char who[60];
    snprintf(who, sizeof who, "process %d on", (int)getpid());
    party_start(&a);
    CHECK_ARRIVED(s, 1);
    server_monitor_start(s);
    b.wait_ms = 200;
    party_start(&b);
    party_join(&b, HF_ETIMEDOUT);
    CHECK_CONTAINS(b.error.message, "2 of 3 are at the barrier \"a\" after 200 ms");
    party_join(&a, HF_EBROKEN);
    CHECK_CONTAINS(a.error.message, who);
    CHECK_CONTAINS(a.error.message, "did not want to wait any longer");
    CHECK(server_monitor_count(s, "\"ring ") > 0); /* it was told, and did not find out */
    b.wait_ms = 40000;
    party_start(&a);
    CHECK_ARRIVED(s, 1);
    party_start(&b);
    CHECK_ARRIVED(s, 2);
    hf_barrier_cancel(b.b);
    party_join(&b, HF_ECANCELED);
    party_join(&a, HF_EBROKEN);
    CHECK_CONTAINS(a.error.message, "gave up waiting");
    check_nothing_left(s);
    hf_barrier_cancel(b.b); /* before it waits: ends the next one */
    CHECK_HF(hf_barrier_wait(b.b, 1000, NULL, NULL, &err), HF_ECANCELED);
    party_free(&a);
    party_free(&b);
    check_nothing_left(s);
}

/* Who is stopped is seen, but does not ask any more. Half a minute is too long for a test: the
 * deadline is moved. */
TEST(B3_a_party_that_falls_silent_breaks_it)
{
    struct crowd cr = { .s = server_start(NULL), .parties = 3, .grace_ms = 1000 };
    cr.mem = shared_memory(sizeof *cr.mem);
    struct workers *w = workers_start(1, arrives_and_waits, &cr);
    CHECK_ARRIVED(cr.s, 1);
    workers_signal(w, 0, SIGSTOP);
    char *member = strdup(server_ask(cr.s, "ZRANGE {lock:a}:h 0 0"));
    server_ask(cr.s, "ZADD {lock:a}:h 1000 %s", member);
    struct party p = party_at(server_url(cr.s), 3, (hf_barrier_opts){ 0 });
    int64_t start = t_now_ms();
    party_start(&p);
    party_join(&p, HF_EBROKEN);
    CHECK_CONTAINS(p.error.message, "has not been heard of");
    CHECK(t_now_ms() - start >= 9500);
    workers_signal(w, 0, SIGKILL);
    workers_join(w, 1000);
    party_free(&p);
    free(member);
    check_nothing_left(cr.s);
}

TEST(B3_a_break_of_the_sessions_breaks_nothing)
{
    struct server *s = server_start(NULL);
    struct party p[3];
    for (int i = 0; i < 3; i++)
        p[i] = party_at(server_url(s), 3, (hf_barrier_opts){ .grace_ms = 3000 });
    party_start(&p[0]);
    party_start(&p[1]);
    CHECK_ARRIVED(s, 2);
    long long killed = 0;
    for (int i = 0; i < 8; i++) {
        killed += kill_inboxes(s);
        t_sleep_ms(150);
        CHECK_INT(atomic_load(&p[0].done) + atomic_load(&p[1].done), 0);
    }
    CHECK(killed >= 8);
    kill_inboxes(s); /* also in the very moment of completion */
    party_start(&p[2]);
    for (int i = 0; i < 3; i++) {
        party_join(&p[i], HF_OK);
        party_free(&p[i]);
    }
    check_nothing_left(s);
}

/* An absence, a return and a second absence are two; a step of the server's clock ages nothing. */
TEST(B3_a_step_of_the_servers_clock_breaks_nothing)
{
    struct server_opts so = { .clockshim = 1 };
    struct server *s = server_start_opts(&so);
    struct proxy *px = proxy_start(s);
    struct party a = party_at(server_url(s), 3, (hf_barrier_opts){ .grace_ms = 5000 });
    struct party b = party_at(proxy_url(px), 3, (hf_barrier_opts){ .grace_ms = 5000 });
    struct party c = party_at(server_url(s), 3, (hf_barrier_opts){ .grace_ms = 5000 });
    party_start(&a);
    CHECK_ARRIVED(s, 1);
    party_start(&b);
    CHECK_ARRIVED(s, 2);
    proxy_refuse(px);
    proxy_break(px);
    CHECK_EVENTUALLY(server_int(s, "EXISTS {lock:a}:absent") == 1, 10000); /* b is seen missing */
    server_clock_shift(s, 7000); /* more than the grace, less than the mark lasts */
    CHECK_INT(server_int(s, "EXISTS {lock:a}:absent"), 1);
    t_sleep_ms(700);
    CHECK_INT(atomic_load(&a.done), 0);
    proxy_pass(px);
    CHECK(proxy_refused(px) > 0);
    party_start(&c);
    party_join(&a, HF_OK);
    party_join(&b, HF_OK);
    party_join(&c, HF_OK);
    party_free(&a);
    party_free(&b);
    party_free(&c);
}

TEST(B3_a_restart_that_keeps_the_data_breaks_nothing)
{
    struct server_opts so = { .aof = 1 };
    struct server *s = server_start_opts(&so);
    struct party p[3];
    for (int i = 0; i < 3; i++)
        p[i] = party_at(server_url(s), 3, (hf_barrier_opts){ .grace_ms = 1000 });
    party_start(&p[0]);
    party_start(&p[1]);
    CHECK_ARRIVED(s, 2);
    server_kill(s);
    t_sleep_ms(1100); /* longer than the grace */
    server_restart(s);
    CHECK_INT(arrived(s), 2);
    party_start(&p[2]);
    for (int i = 0; i < 3; i++)
        party_join(&p[i], HF_OK);
    for (int i = 0; i < 3; i++)
        party_free(&p[i]);
    check_nothing_left(s);
}

TEST(B3_a_restart_that_loses_the_data_is_told)
{
    struct server *s = server_start(NULL);
    struct party p = party_at(server_url(s), 2, (hf_barrier_opts){ 0 });
    party_start(&p);
    CHECK_ARRIVED(s, 1);
    /* On the same connection: when this is answered, so is the arrival. */
    CHECK_HF(hf_owner_check(p.c, hf_str("x"), hf_str("me"), NULL, &err), HF_ENOTOWNER);
    server_kill(s);
    server_restart(s);
    party_join(&p, HF_EBROKEN);
    CHECK_CONTAINS(p.error.message, "went from the server");
    party_free(&p);
    check_nothing_left(s);
}

TEST(B3_by_polling_without_the_right_to_subscribe)
{
    struct server *s = server_start(NULL);
    server_ask(s, "ACL SETUSER poor on nopass ~* &* +@all -subscribe");
    char url[300];
    snprintf(url, sizeof url, "unix://poor:x@%s", server_socket(s));
    struct party a = party_at(url, 2, (hf_barrier_opts){ 0 });
    struct party b = party_at(url, 2, (hf_barrier_opts){ 0 });
    party_start(&a);
    CHECK_ARRIVED(s, 1);
    CHECK_CONTAINS(server_ask(s, "ZRANGE {lock:a}:h 0 -1"), ":0:"); /* no grace: nobody sees it */
    party_start(&b);
    party_join(&a, HF_OK);
    party_join(&b, HF_OK);
    party_free(&a);
    party_free(&b);
    check_nothing_left(s);
}

/* ---- B4, B5, B6 ---- */

TEST(B5_another_number_of_parties_is_refused_and_both_are_named)
{
    struct server *s = server_start(NULL);
    struct party a = party_at(server_url(s), 3, (hf_barrier_opts){ 0 });
    struct party b = party_at(server_url(s), 2, (hf_barrier_opts){ 0 });
    party_start(&a);
    CHECK_ARRIVED(s, 1);
    CHECK_HF(hf_barrier_wait(b.b, 1000, NULL, NULL, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "for 3 parties, of which 1 wait: it cannot be for 2");
    CHECK_HF(hf_barrier_wait(b.b, 0, NULL, NULL, &err), HF_EINVAL);
    CHECK_INT(arrived(s), 1);
    hf_barrier_cancel(a.b);
    party_join(&a, HF_ECANCELED);
    party_start(&b); /* B4: nobody waits any more: a new generation, and a new agreement */
    CHECK_ARRIVED(s, 1);
    CHECK_CONTAINS(server_ask(s, "GET lock:a"), "barrier.2.1:");
    hf_barrier_cancel(b.b);
    party_join(&b, HF_ECANCELED);
    party_free(&a);
    party_free(&b);
    check_nothing_left(s);
}

static void refuses(struct server *s, hf_barrier *b, const char *text)
{
    const char *before = server_ask(s, "DUMP lock:a");
    uint32_t index = 77;
    CHECK_HF(hf_barrier_wait(b, 5000, &index, NULL, &err), HF_ETYPE);
    CHECK_CONTAINS(err.message, text);
    CHECK_HF(hf_barrier_wait(b, 0, &index, NULL, &err), HF_ETYPE);
    CHECK_INT(index, 77);
    CHECK_STR(server_ask(s, "DUMP lock:a"), before);
}

TEST(B6_what_else_stands_on_the_key_is_not_touched)
{
    static const char *const beside[] = { "h", "l", "d" };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_barrier *b = barrier_of(c, "a", 2);
    server_ask(s, "RPUSH lock:a x");
    refuses(s, b, "data of another type");
    server_ask(s, "DEL lock:a");
    server_ask(s, "SET lock:a latch.3.3:1800000000000000:0 PX 60000");
    refuses(s, b, "\"a\" is a latch, not a barrier");
    server_ask(s, "SET lock:a whatever PX 60000");
    refuses(s, b, "\"a\" is a lock that is held, not a barrier");
    server_ask(s, "SET lock:a barrier.0x3.1:1:0 PX 60000");
    refuses(s, b, "not a barrier");
    server_ask(s, "DEL lock:a");
    for (int i = 0; i < 3; i++) {
        server_ask(s, "SET {lock:a}:%s x", beside[i]);
        refuses(s, b, "data of another type");
        server_ask(s, "DEL {lock:a}:%s", beside[i]);
    }
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    refuses(s, b, "\"a\" is a lock that is held");
    unlock_now(m);
    server_ask(s, "SET " FENCE_KEY " x");
    CHECK_HF(hf_barrier_wait(b, 5000, NULL, NULL, &err), HF_ECOUNTER);
    hf_lock_free(m);
    hf_barrier_free(b);
    hf_client_free(c);
}

TEST(B6_a_barrier_where_somebody_waits_is_no_lock_to_take)
{
    struct server *s = server_start(NULL);
    struct party p = party_at(server_url(s), 2, (hf_barrier_opts){ 0 });
    party_start(&p);
    CHECK_ARRIVED(s, 1);
    hf_lock *m = lock_of(p.c, "a", 30000);
    CHECK(hf_lock_try(m, NULL, &err) != HF_OK);
    CHECK_INT(arrived(s), 1);
    hf_lock_free(m);
    hf_barrier_cancel(p.b);
    party_join(&p, HF_ECANCELED);
    party_free(&p);
}

/* ---- B7 ---- */

TEST(B7_they_leave_together_and_nobody_enters_meanwhile)
{
    struct server *s = server_start(NULL);
    hf_barrier_opts o = { .leave = 1 };
    struct party a = party_at(server_url(s), 2, o), b = party_at(server_url(s), 2, o);
    struct party c = party_at(server_url(s), 2, o), d = party_at(server_url(s), 2, o);
    CHECK_HF(hf_barrier_leave(a.b, 0, &err), HF_ENOTHELD);
    party_start(&a);
    party_start(&b);
    party_join(&a, HF_OK);
    party_join(&b, HF_OK);
    CHECK_HF(hf_barrier_wait(a.b, 0, NULL, NULL, &err), HF_EINVAL); /* it is inside */
    uint64_t first = a.generation;
    party_start(&c);
    party_start(&d);
    CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:a}:l") == 2, 10000);
    CHECK_INT(arrived(s), 0); /* they wait at the door */
    CHECK_HF(hf_barrier_leave(b.b, 0, &err), HF_EBUSY);
    hf_barrier_cancel(b.b); /* before it wants to leave: it stays inside */
    CHECK_HF(hf_barrier_leave(b.b, 5000, &err), HF_ECANCELED);
    a.leave = 1;
    party_start(&a);
    CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:a}:l") == 3, 10000);
    CHECK_INT(atomic_load(&a.done) + atomic_load(&c.done) + atomic_load(&d.done), 0);
    CHECK_HF(hf_barrier_leave(b.b, 10000, &err), HF_OK);
    party_join(&a, HF_OK);
    party_join(&c, HF_OK);
    party_join(&d, HF_OK);
    CHECK(c.generation > first && c.generation == d.generation);
    c.leave = d.leave = 1;
    party_start(&c);
    party_start(&d);
    party_join(&c, HF_OK);
    party_join(&d, HF_OK);
    party_free(&a);
    party_free(&b);
    party_free(&c);
    party_free(&d);
    check_nothing_left(s);
}

/* Its arrival may be counted: it must not meet itself when it comes again. */
TEST(B1_who_gave_up_unheard_is_not_counted_twice)
{
    struct server *s = server_start(NULL);
    for (int together = 0; together < 2; together++) {
        struct proxy *p = proxy_start(s);
        struct party a = party_at(proxy_url(p), 2, (hf_barrier_opts){ .leave = together });
        a.wait_ms = 3000;
        party_start(&a);
        CHECK_ARRIVED(s, 1);
        proxy_refuse(p);
        proxy_break(p);
        CHECK_INT(pthread_join(a.thread, NULL), 0);
        CHECK(a.result != HF_OK);
        CHECK_INT(a.error.known, HF_KNOWN_NOTHING);
        CHECK(proxy_refused(p) > 0);
        CHECK_INT(arrived(s), 1);
        proxy_pass(p);
        CHECK_HF(hf_barrier_wait(a.b, 0, NULL, NULL, &err), HF_EBUSY);
        CHECK_INT(arrived(s), 0);
        struct party b = party_at(server_url(s), 2, (hf_barrier_opts){ .leave = together });
        a.wait_ms = 40000;
        party_start(&a);
        party_start(&b);
        party_join(&a, HF_OK);
        party_join(&b, HF_OK);
        party_free(&a);
        party_free(&b);
        server_ask(s, "FLUSHALL");
    }
}

/* Inside, and seen by the server, it would be waited for as long as it lives. */
TEST(B7_who_gave_up_unheard_tells_the_others_when_it_comes_again)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_barrier_opts o = { .leave = 1, .grace_ms = 20000 };
    struct party a = party_at(proxy_url(p), 2, o), b = party_at(server_url(s), 2, o);
    for (int i = 0; i < 2; i++) {
        party_start(&a);
        party_start(&b);
        party_join(&a, HF_OK);
        party_join(&b, HF_OK);
        proxy_refuse(p);
        proxy_break(p);
        hf_err e = hf_barrier_leave(a.b, 500, &err);
        CHECK(e == HF_ETIMEDOUT || e == HF_EUNSURE || e == HF_ECONN);
        CHECK_INT(err.known, HF_KNOWN_NOTHING);
        CHECK(proxy_refused(p) > 0);
        proxy_pass(p);
        CHECK_HF(hf_barrier_leave(a.b, 0, &err), HF_ENOTHELD);
        b.leave = 1;
        party_start(&b);
        CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:a}:l") == 1, 10000);
        if (i) { /* its last word, or coming again */
            hf_barrier_free(a.b);
            a.b = NULL;
        } else {
            party_start(&a);
        }
        party_join(&b, HF_EBROKEN);
        CHECK_CONTAINS(b.error.message, "went away without leaving");
        b.leave = 0;
        if (i)
            continue;
        CHECK_ARRIVED(s, 1); /* the next meeting */
        party_start(&b);
        party_join(&a, HF_OK);
        party_join(&b, HF_OK);
        a.leave = b.leave = 1;
        party_start(&a);
        party_start(&b);
        party_join(&a, HF_OK);
        party_join(&b, HF_OK);
        a.leave = b.leave = 0;
    }
    party_free(&a);
    party_free(&b);
    check_nothing_left(s);
}

static void enters_and_works(int who, void *arg)
{
    struct crowd *cr = arg;
    (void)who;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_barrier *b = barrier_with(c, "a", (uint32_t)cr->parties,
                                 (hf_barrier_opts){ .grace_ms = cr->grace_ms, .leave = 1 });
    CHECK_HF(hf_barrier_wait(b, 20000, NULL, NULL, &err), HF_OK);
    atomic_fetch_add(&cr->mem->ready, 1);
    t_sleep_ms(60000);
}

TEST(B7_one_that_dies_inside_breaks_the_leaving_and_opens_the_door)
{
    struct crowd cr = { .s = server_start(NULL), .parties = 2, .grace_ms = 1000 };
    hf_barrier_opts o = { .leave = 1, .grace_ms = 1000 };
    cr.mem = shared_memory(sizeof *cr.mem);
    struct workers *w = workers_start(1, enters_and_works, &cr);
    struct workers *both = NULL;
    CHECK_ARRIVED(cr.s, 1);
    struct party p = party_at(server_url(cr.s), 2, o);
    CHECK_HF(hf_barrier_wait(p.b, 20000, NULL, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->ready) == 1, 10000);
    workers_signal(w, 0, SIGKILL);
    workers_join(w, 1000);
    CHECK_HF(hf_barrier_leave(p.b, 20000, &err), HF_EBROKEN);
    CHECK_CONTAINS(err.message, "is gone");
    check_nothing_left(cr.s);
    CHECK_HF(hf_barrier_leave(p.b, 0, &err), HF_ENOTHELD);
    party_free(&p);
    /* All die inside: whoever comes next finds out, at the door. */
    both = workers_start(2, enters_and_works, &cr);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->ready) == 3, 10000);
    workers_signal(both, 0, SIGKILL);
    workers_signal(both, 1, SIGKILL);
    workers_join(both, 1000);
    CHECK_INT(server_int(cr.s, "EXISTS {lock:a}:o"), 1);
    struct party q = party_at(server_url(cr.s), 2, o), r = party_at(server_url(cr.s), 2, o);
    party_start(&q);
    party_start(&r);
    party_join(&q, HF_OK);
    party_join(&r, HF_OK);
    q.leave = 1;
    party_start(&q);
    party_free(&r); /* goes away without leaving */
    party_join(&q, HF_EBROKEN);
    CHECK_CONTAINS(q.error.message, "went away without leaving");
    party_free(&q);
    check_nothing_left(cr.s);
}

/* ---- random ---- */

static void comes_and_goes(int who, void *arg)
{
    struct crowd *cr = arg;
    (void)who;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_barrier *b = barrier_with(c, "a", (uint32_t)cr->parties,
                                 (hf_barrier_opts){ .grace_ms = cr->grace_ms });
    while (!atomic_load(&cr->mem->go)) {
        uint64_t generation = 0;
        hf_err e = hf_barrier_wait(b, t_random(4) ? 3000 : (int64_t)t_random(12), NULL, &generation,
                                   &err);
        if (e == HF_OK) /* each generation is met by exactly so many: counted in a small table */
            atomic_fetch_add(&cr->mem->index[generation % 1000], 1);
        if (e == HF_OK)
            atomic_fetch_add(&cr->mem->met, 1);
        else if (e == HF_EBROKEN)
            atomic_fetch_add(&cr->mem->broken, 1);
        else if (e == HF_ETIMEDOUT || e == HF_EBUSY)
            atomic_fetch_add(&cr->mem->timedout, 1);
        else
            FAIL("%s: %s", hf_err_name(e), err.message);
        t_sleep_ms((int64_t)t_random(6));
    }
    hf_barrier_free(b);
    hf_client_free(c);
}

/* Processes come and go, run out of time and are killed. Nobody hangs, and every generation that
 * was met was met by all its parties, but for those killed before they could say so. */
TEST(B3_random_kills_leave_nobody_waiting)
{
    enum { N = 11, PARTIES = 3, KILLS = 6 };
    struct crowd cr = { .s = server_start(NULL), .parties = PARTIES, .grace_ms = 1000 };
    cr.mem = shared_memory(sizeof *cr.mem);
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(N, comes_and_goes, &cr);
    for (int i = 0; i < KILLS; i++) {
        long before = atomic_load(&cr.mem->met);
        CHECK_EVENTUALLY(atomic_load(&cr.mem->met) > before + (long)t_random(300), 30000);
        workers_signal(w, i, SIGKILL);
    }
    long before = atomic_load(&cr.mem->met);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->met) > before + 300, 30000);
    atomic_store(&cr.mem->go, 1);
    workers_join(w, 20000);
    long met = atomic_load(&cr.mem->met);
    t_note("%ld met, %ld broken, %ld ran out of time", met, atomic_load(&cr.mem->broken),
           atomic_load(&cr.mem->timedout));
    CHECK(atomic_load(&cr.mem->broken) > 0 && atomic_load(&cr.mem->timedout) > 0);
    int odd = 0;
    for (int i = 0; i < 1000; i++)
        odd += (PARTIES - atomic_load(&cr.mem->index[i]) % PARTIES) % PARTIES;
    CHECK_RANGE(odd, 0, KILLS);
    drop_opened(cr.s);
    check_nothing_left(cr.s);
}
