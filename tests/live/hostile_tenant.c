/* SPDX-License-Identifier: MIT
 * hostile_tenant.c - P10: who may PUBLISH and nothing else cannot take a lock from its holder; and
 * what one can do who may also read the queue.
 *
 * Another user of the same server, without any right to a key, publishes what the server says when
 * it hands a lock over, to the channel of a client, for tokens that the client has, has had and
 * will have next. It knows everything but the nonces. A client that believed it would cancel, with
 * its own rights, what it has just been given.
 */
#include <hiredis/hiredis.h>

#define LIVE_SCRIPTS
#include "harness/proxy.h"
#include "harness/waiting.h"

enum {
    AHEAD = 6,        /* tokens that are still to come */
    NETWORK_MS = 3,   /* each way: the time in which a grant is under way to the client */
    AFTERWARDS_MS = 15, /* until what a message has set off has come to the server */
    TTL_MS = 30000,
};

struct tenant {
    struct server  *s;
    _Atomic(const char *) session; /* NULL: not known yet */
    _Atomic long    last;  /* the newest token that the client is known to have had */
    atomic_int      stop;
    atomic_long     heard; /* messages that came to a subscriber */
    redisContext   *conn;
    pthread_t       thread;
};

/* ---- the tenant ------------------------------------------------------------------------------ */

static void said(struct tenant *t)
{
    redisReply *r = NULL;
    CHECK_INT(redisGetReply(t->conn, (void **)&r), REDIS_OK);
    CHECK_INT(r->type, REDIS_REPLY_INTEGER);
    atomic_fetch_add(&t->heard, (long)r->integer);
    freeReplyObject(r);
}

/* Each token is handed over under a number beyond all and under a small one, with each lock. */
static void lie_about(struct tenant *t, long token)
{
    static const char *const key[] = { "lock:a", "lock:b", "lock:evil" };
    static const char *const number[] = { "9007199254730000", "1700000000000001" };
    const char *publish = "PUBLISH lock:holdfast:s:%s %s";
    const char *s = atomic_load(&t->session);
    char text[200];
    s = s ? s : "";
    for (int i = 0; i < 6; i++) {
        snprintf(text, sizeof text, "granted %s.%ld %s %s %s", s, token, number[i % 2],
                 i < 3 ? "0123456789abcdef" : "x", key[i % 3]);
        redisAppendCommand(t->conn, publish, s, text);
    }
    snprintf(text, sizeof text, "watch %s.%ld", s, token);
    redisAppendCommand(t->conn, publish, s, text);
    for (int i = 0; i < 7; i++)
        said(t);
}

static void *tenant_main(void *arg)
{
    struct tenant *t = arg;
    while (!atomic_load(&t->stop)) {
        long last = atomic_load(&t->last);
        for (long token = last > 2 ? last - 2 : 1; token <= last + AHEAD; token++)
            lie_about(t, token);
        usleep(500);
    }
    return NULL;
}

static void tenant_login(struct tenant *t)
{
    CHECK_STR(server_ask(t->s, "ACL SETUSER tenant reset on >tpw &* +publish"), "OK");
    t->conn = redisConnectUnix(server_socket(t->s));
    CHECK(t->conn && !t->conn->err);
    redisReply *r = redisCommand(t->conn, "AUTH tenant tpw");
    CHECK(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    r = redisCommand(t->conn, "GET lock:a"); /* it may not even look */
    CHECK(r && r->type == REDIS_REPLY_ERROR);
    freeReplyObject(r);
}

/* What the client's next tokens will be like, anybody sees who sees one. */
static void tenant_learn(struct tenant *t, const hf_lock *m)
{
    const char *owner = hf_lock_owner(m);
    CHECK(strlen(owner) > 33 && owner[32] == '.');
    atomic_store(&t->session, keep_text("%.32s", owner));
    atomic_store(&t->last, atol(owner + 33));
}

/* ---- what must not happen -------------------------------------------------------------------- */

static int cancels_ran(struct server *s)
{
    return strcmp(server_ask(s, "SCRIPT EXISTS %s", lua_sha[LUA_cancel]), "0") != 0;
}

static void check_safe(struct server *s, hf_lock *m, const char *name)
{
    const char *value = server_ask(s, "GET lock:%s", name);
    if (!value || !strstr(value, hf_lock_owner(m)))
        FAIL("\"%s\" is held as %s, and on the server is %s", name, hf_lock_owner(m),
             value ? value : "nothing");
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
}

/* Held, and a moment later still so. */
static void check_stays(struct tenant *t, hf_lock *const *m, size_t n)
{
    static const char *const name[] = { "a", "b" };
    tenant_learn(t, m[n - 1]);
    for (size_t i = 0; i < n; i++)
        check_safe(t->s, m[i], name[i]);
    t_sleep_ms(AFTERWARDS_MS);
    for (size_t i = 0; i < n; i++)
        check_safe(t->s, m[i], name[i]);
    CHECK_INT(cancels_ran(t->s), 0);
}

/* ---- the scene ------------------------------------------------------------------------------- */

struct scene {
    struct tenant  t;
    struct proxy  *p;
    hf_client     *c, *other;
    hf_lock       *m[2], *o; /* a and b; a of another client */
};

static hf_lock *usual(hf_client *c, const char *name)
{
    return lock_with(c, name, (hf_lock_opts){ .ttl_ms = TTL_MS });
}

static void scene_open(struct scene *sc)
{
    *sc = (struct scene){ .t = { .s = server_start(NULL) } };
    sc->p = proxy_start(sc->t.s);
    sc->c = client_at(proxy_url(sc->p), 0);
    sc->other = client_at(server_url(sc->t.s), 0);
    sc->m[0] = usual(sc->c, "a");
    sc->m[1] = usual(sc->c, "b");
    sc->o = usual(sc->other, "a");
    proxy_delay(sc->p, NETWORK_MS);
    lock_now(sc->m[0]);
    tenant_learn(&sc->t, sc->m[0]);
    unlock_now(sc->m[0]);
    tenant_login(&sc->t);
}

static void scene_attack(struct scene *sc)
{
    CHECK_INT(pthread_create(&sc->t.thread, NULL, tenant_main, &sc->t), 0);
    CHECK_EVENTUALLY(atomic_load(&sc->t.heard) > 50, 5000);
}

static void scene_end_attack(struct scene *sc)
{
    atomic_store(&sc->t.stop, 1);
    CHECK_INT(pthread_join(sc->t.thread, NULL), 0);
    redisFree(sc->t.conn);
    t_note("%ld lies were heard", atomic_load(&sc->t.heard));
    CHECK(atomic_load(&sc->t.heard) > 500);
    /* Nor did it make us write what it may not write itself. */
    CHECK_INT(server_int(sc->t.s, "EXISTS lock:evil {lock:evil}:t {lock:a}:t {lock:b}:t"), 0);
    CHECK_INT(cancels_ran(sc->t.s), 0);
}

/* That nothing was cancelled was seen by something that does see it. */
static void scene_close(struct scene *sc)
{
    struct locker l = { .m = sc->m[0], .wait_ms = 20000 };
    server_ask(sc->t.s, "DEL lock:a");
    lock_now(sc->o);
    locker_start(&l);
    CHECK_QUEUE(sc->t.s, "a", 1);
    hf_lock_cancel(l.m);
    locker_cancelled(&l);
    CHECK_EVENTUALLY(cancels_ran(sc->t.s), 10000);
    unlock_now(sc->o);
    hf_lock_free(sc->m[0]);
    hf_lock_free(sc->m[1]);
    hf_lock_free(sc->o);
    hf_client_free(sc->c);
    hf_client_free(sc->other);
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST(P10_a_lock_that_was_tried_for_is_not_lied_away)
{
    struct scene sc;
    scene_open(&sc);
    scene_attack(&sc);
    for (int i = 0; i < 30; i++) {
        CHECK_HF(hf_lock_try(sc.m[0], NULL, &err), HF_OK);
        check_stays(&sc.t, sc.m, 1);
        unlock_now(sc.m[0]);
    }
    scene_end_attack(&sc);
    scene_close(&sc);
}

TEST(P10_several_locks_are_not_lied_away)
{
    struct scene sc;
    scene_open(&sc);
    scene_attack(&sc);
    for (int i = 0; i < 30; i++) {
        CHECK_HF(hf_multi_acquire(sc.m, 2, i % 2 ? 5000 : 0, &err), HF_OK);
        check_stays(&sc.t, sc.m, 2);
        CHECK_HF(hf_multi_release(sc.m, 2, &err), HF_OK);
    }
    scene_end_attack(&sc);
    scene_close(&sc);
}

/* It stands in the queue meanwhile, and its own message comes among the lies. */
TEST(P10_a_lock_that_was_waited_for_is_not_lied_away)
{
    struct scene sc;
    scene_open(&sc);
    scene_attack(&sc);
    int64_t worst = 0;
    for (int i = 0; i < 15; i++) {
        struct locker l = { .m = sc.m[0], .wait_ms = 20000 };
        lock_now(sc.o);
        locker_start(&l);
        CHECK_QUEUE(sc.t.s, "a", 1);
        t_sleep_ms((int64_t)t_random(30));
        CHECK_INT(atomic_load(&l.done), 0); /* nor is it made to believe that it is its turn */
        int64_t begun = t_now_ns(), begun_ms = t_now_ms();
        unlock_now(sc.o);
        locker_join(&l, HF_OK);
        CHECK_TOOK(t_now_ms() - begun_ms, 0, 2000);
        worst = l.done_ns - begun > worst ? l.done_ns - begun : worst;
        CHECK(l.fence < 9007199254730000);
        check_stays(&sc.t, sc.m, 1);
        unlock_now(sc.m[0]);
    }
    t_note("the longest handover took %lld ms", (long long)(worst / 1000000));
    scene_end_attack(&sc);
    scene_close(&sc);
}

/* Nobody races here: whoever knows the token has as much time as the lock has. */
TEST(P10_a_lock_that_was_left_behind_is_not_lied_away)
{
    struct scene sc;
    scene_open(&sc);
    for (int waited = 0; waited < 2; waited++) {
        struct locker l = { .m = sc.m[0], .wait_ms = 20000 };
        if (waited)
            lock_now(sc.o);
        locker_start(&l);
        if (waited) {
            CHECK_QUEUE(sc.t.s, "a", 1);
            unlock_now(sc.o);
        }
        locker_join(&l, HF_OK);
        tenant_learn(&sc.t, sc.m[0]);
        CHECK_HF(hf_lock_detach(sc.m[0], 20000, &err), HF_OK);
        if (!waited)
            scene_attack(&sc);
        const char *value = server_ask(sc.t.s, "GET lock:a");
        CHECK(value);
        t_sleep_ms(1000);
        CHECK_STR(server_ask(sc.t.s, "GET lock:a"), value);
        CHECK_RANGE(server_int(sc.t.s, "PTTL lock:a"), 10000, 20000);
        CHECK_INT(cancels_ran(sc.t.s), 0);
        server_ask(sc.t.s, "DEL lock:a");
    }
    scene_end_attack(&sc);
    scene_close(&sc);
}

/* ---- one who reads the queue, too ------------------------------------------------------------ */

/* The first in the queue of lock:a. */
struct entry {
    char               token[64], nonce[20];
    unsigned long long ticket;
};

static void reader_login(struct tenant *t)
{
    CHECK_STR(server_ask(t->s, "ACL SETUSER reader reset on >tpw ~{lock:a}:q &* +publish +zrange"),
              "OK");
    t->conn = redisConnectUnix(server_socket(t->s));
    CHECK(t->conn && !t->conn->err);
    redisReply *r = redisCommand(t->conn, "AUTH reader tpw");
    CHECK(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
}

static struct entry reader_look(struct tenant *t)
{
    struct entry p = { .token = "" };
    redisReply *r = redisCommand(t->conn, "ZRANGE {lock:a}:q 0 0 WITHSCORES");
    CHECK(r && r->type == REDIS_REPLY_ARRAY);
    if (r->elements == 2) {
        CHECK_INT(sscanf(r->element[0]->str, "%63[^:]:%*[^:]:%*[^:]:%19[^:/]", p.token,
                         p.nonce), 2);
        p.ticket = (unsigned long long)strtod(r->element[1]->str, NULL);
    }
    freeReplyObject(r);
    return p;
}

/* Hand over what is another's, under this number. How many heard it. */
static long long reader_forge(struct tenant *t, const struct entry *p, unsigned long long number)
{
    char text[200], channel[64];
    snprintf(channel, sizeof channel, "lock:holdfast:s:%.32s", p->token);
    snprintf(text, sizeof text, "granted %s %llu %s lock:a", p->token, number, p->nonce);
    redisReply *r = redisCommand(t->conn, "PUBLISH %s %s", channel, text);
    CHECK(r && r->type == REDIS_REPLY_INTEGER);
    long long heard = r->integer;
    freeReplyObject(r);
    return heard;
}

/* other holds the lock, c waits for it; the reader tells c these numbers, as soon as c waits. */
struct forgery {
    struct tenant t;
    hf_client    *other, *c;
    hf_lock     *o, *m;
};

static struct forgery forgery_with(const char *option, hf_client_opts o)
{
    struct forgery f = { .t = { .s = server_start(NULL) } };
    f.other = client_at(server_url(f.t.s), 0);
    f.c = client_with(*option ? url_with(server_url(f.t.s), option) : server_url(f.t.s), o);
    f.o = usual(f.other, "a");
    f.m = usual(f.c, "a");
    reader_login(&f.t);
    lock_now(f.o);
    return f;
}

static struct forgery forgery_begin(const char *option)
{
    return forgery_with(option, (hf_client_opts){ 0 });
}

static void forgery_end(struct forgery *f)
{
    redisFree(f->t.conn);
    hf_lock_free(f->o);
    hf_lock_free(f->m);
    hf_client_free(f->other);
    hf_client_free(f->c);
}

/* The waiter is told this number, relative to its ticket if that is not 0. */
static void forge(struct forgery *f, struct locker *l, long long past, unsigned long long number)
{
    struct entry p;
    locker_start(l);
    CHECK_EVENTUALLY((p = reader_look(&f->t), *p.token), 5000);
    CHECK(reader_forge(&f->t, &p, past ? p.ticket + (unsigned long long)past : number) == 1);
}

/* Its own message comes in the end, and it has not lost its place. */
static void forgery_passes(struct forgery *f, struct locker *l, unsigned long long told)
{
    t_sleep_ms(100);
    if (atomic_load(&l->done))
        FAIL("it believed in %llu", told);
    CHECK_QUEUE(f->t.s, "a", 1);
    int64_t begun = t_now_ms();
    unlock_now(f->o);
    locker_join(l, HF_OK);
    CHECK_TOOK(t_now_ms() - begun, 0, 2000);
    CHECK(l->fence != told);
    unlock_now(l->m);
    lock_now(f->o);
}

TEST(S2_a_number_that_cannot_be_is_not_believed)
{
    static const unsigned long long number[] = { 0, 1, 1600000000000001, 9007199254730000,
                                                 9007199254740000, 18446744073709551615ULL };
    static const long long past[] = { -1, -1000, 0, 100000000, 10000000000000LL };
    struct forgery f = forgery_begin("");
    for (size_t i = 0; i < 6 + 5; i++) {
        struct locker l = { .m = f.m, .wait_ms = 20000 };
        unsigned long long n = i < 6 ? number[i] : 0;
        forge(&f, &l, i < 6 ? 0 : past[i - 6], n);
        forgery_passes(&f, &l, n);
    }
    /* What can be is, for as long as nobody has asked: this is what ?confirm=1 is for. */
    struct locker l = { .m = f.m, .wait_ms = 20000 };
    forge(&f, &l, 1, 0);
    locker_join(&l, HF_OK);
    CHECK_EVENTUALLY(!hf_lock_is_held(f.m), 2000);
    CHECK_HF(hf_lock_verify(f.o, &err), HF_OK);
    CHECK(hf_lock_release(f.m, &err));
    forgery_end(&f);
}

TEST(S2_with_confirm_nothing_that_was_handed_over_is_believed_without_asking)
{
    for (int field = 0; field < 2; field++) {
        struct forgery f = forgery_with(field ? "" : "confirm=1",
                                        (hf_client_opts){ .confirm = field });
        for (int i = 0; i < 8; i++) {
            struct locker l = { .m = f.m, .wait_ms = 20000 };
            forge(&f, &l, i + 1, 0);
            forgery_passes(&f, &l, 0);
        }
        forgery_end(&f);
    }
}

/* A lie does not cost anybody its place in the queue. */
TEST(S2_who_was_lied_to_keeps_its_place)
{
    struct forgery f = forgery_begin("confirm=1");
    hf_client *late = client_at(server_url(f.t.s), 0);
    struct locker first = { .m = f.m, .wait_ms = 20000 };
    struct locker second = { .m = usual(late, "a"), .wait_ms = 20000 };
    forge(&f, &first, 1, 0);
    CHECK_QUEUE(f.t.s, "a", 1);
    locker_start(&second);
    CHECK_QUEUE(f.t.s, "a", 2);
    struct entry p = reader_look(&f.t);
    for (int i = 1; i < 20; i++) {
        CHECK(reader_forge(&f.t, &p, p.ticket + (unsigned long long)i) == 1);
        t_sleep_ms(10);
        struct entry now = reader_look(&f.t);
        CHECK_STR(now.token, p.token);
        CHECK(now.ticket == p.ticket);
    }
    unlock_now(f.o);
    locker_join(&first, HF_OK);
    CHECK_INT(atomic_load(&second.done), 0);
    unlock_now(first.m);
    locker_join(&second, HF_OK);
    unlock_now(second.m);
    hf_lock_free(second.m);
    hf_client_free(late);
    forgery_end(&f);
}

/* The lie comes first, and the question that it causes arrives when the lock was really handed
 * over: it is ours then, but not under that number. */
static void lie_before_the_truth(int shared)
{
    struct tenant t = { .s = server_start(NULL) };
    struct proxy *p = proxy_start(t.s);
    hf_client *other = client_at(server_url(t.s), 0);
    hf_client *c = client_at(url_with(proxy_url(p), "confirm=1"), 5000);
    hf_lock *o = usual(other, "a");
    struct locker l = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS,
                                                               .shared = shared }),
                        .wait_ms = 20000 };
    struct entry place;
    lock_now(l.m); /* the scripts are known, the session stands */
    unlock_now(l.m);
    reader_login(&t);
    lock_now(o);
    locker_start(&l);
    CHECK_EVENTUALLY((place = reader_look(&t), *place.token), 5000);
    proxy_when(p, lua_sha[LUA_keep]);
    proxy_hold(p);
    CHECK(reader_forge(&t, &place, place.ticket + 900) == 1);
    CHECK_EVENTUALLY(proxy_held(p) > 0, 5000);
    unlock_now(o);
    CHECK_QUEUE(t.s, "a", 0);
    proxy_pass(p);
    locker_join(&l, HF_OK);
    CHECK(l.fence > place.ticket && l.fence < place.ticket + 900);
    CHECK_HF(hf_lock_verify(l.m, &err), HF_OK);
    unlock_now(l.m);
    redisFree(t.conn);
    hf_lock_free(l.m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(S2_with_confirm_the_number_is_the_servers)
{
    lie_before_the_truth(0);
}

TEST(S2_with_confirm_the_number_of_a_share_is_the_servers)
{
    lie_before_the_truth(1);
}
