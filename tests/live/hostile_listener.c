/* SPDX-License-Identifier: MIT
 * hostile_listener.c - S1: one who hears what the server tells a client, and sends it more of that.
 *
 * It may use all channels and no key. So it knows a nonce as soon as the server has told it: too
 * late for what that nonce was for, and it must be good for nothing else. Its messages are sent by
 * the script that hands over, or right after it: nobody can be quicker.
 */
#include <hiredis/hiredis.h>
#include <signal.h>

#include "harness/proc.h"
#include "harness/waiting.h"

/* lock:a is a stranger's, and m waits for it. */
struct scene {
    struct server *s;
    hf_client     *c;
    struct locker  l;
    char           channel[64], token[64], nonce[20], grace[24];
    unsigned long long ticket;
};

static void look_at_queue(struct scene *sc)
{
    const char *head = NULL;
    CHECK_EVENTUALLY((head = server_ask(sc->s, "ZRANGE {lock:a}:q 0 0")) && *head, 10000);
    CHECK_INT(sscanf(head, "%63[^:]:%23[^:]:%*[^:]:%19[^:]", sc->token, sc->grace, sc->nonce),
              3);
    sc->ticket = (unsigned long long)server_int(
        sc->s, "EVAL %s 1 {lock:a}:q",
        "return tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2])");
    snprintf(sc->channel, sizeof sc->channel, "lock:holdfast:s:%.32s", sc->token);
}

static void scene_open(struct scene *sc, const char *option)
{
    *sc = (struct scene){ .s = server_start(NULL) };
    sc->c = client_at(*option ? url_with(server_url(sc->s), option) : server_url(sc->s), 0);
    sc->l = (struct locker){ .m = lock_with(sc->c, "a", KEPT), .wait_ms = 30000 };
    lock_now(sc->l.m); /* the session stands */
    unlock_now(sc->l.m);
    CHECK_STR(server_ask(sc->s, "SET lock:a stranger PX 60000"), "OK");
    locker_start(&sc->l);
    look_at_queue(sc);
}

static void scene_close(struct scene *sc)
{
    hf_lock_free(sc->l.m);
    hf_client_free(sc->c);
    check_only_ttls(sc->s);
}

/* Hand the lock over as pass.lua does, for long enough on a busy machine, and tell of it; then what
 * the listener adds. The number. */
static uint64_t hand_over(struct scene *sc, const char *more)
{
    return (uint64_t)server_int(
        sc->s, "EVAL %s 3 lock:a {lock:a}:q " FENCE_KEY " %s %s %s %s %s",
        "local token, grace, nonce, channel, more = unpack(ARGV) "
        "local n = string.format('%.0f', redis.call('INCR', KEYS[3])) "
        "redis.call('ZREMRANGEBYRANK', KEYS[2], 0, 0) "
        "redis.call('SET', KEYS[1], token .. ':' .. n .. ':' .. grace, 'PX', 20000) "
        "local function tell(number) redis.call('PUBLISH', channel, 'granted ' .. token .. ' ' .. "
        "string.format('%.0f', number) .. ' ' .. nonce .. ' ' .. KEYS[1]) end "
        "tell(n) "
        "for past in string.gmatch(more, '%-?%d+') do tell(n + past) end "
        "return tonumber(n)",
        sc->token, sc->grace, sc->nonce, sc->channel, more);
}

static void check_held(struct scene *sc, uint64_t fence)
{
    char value[200];
    CHECK_INT(hf_lock_is_held(sc->l.m), 1);
    CHECK(sc->l.fence == fence && hf_lock_fence(sc->l.m) == fence);
    snprintf(value, sizeof value, "%s:%llu:", hf_lock_owner(sc->l.m), (unsigned long long)fence);
    CHECK_CONTAINS(server_ask(sc->s, "GET lock:a"), value);
    CHECK_HF(hf_lock_verify(sc->l.m, &err), HF_OK);
}

/* Otherwise the holder would go on under a number that nobody has given, and lose the lock. */
TEST(S1_of_several_messages_the_first_counts)
{
    static const char *const more[] = { "1", "1 2 3 4 5 6 7 8 9", "1000 100000", "-1 7" };
    for (int i = 0; i < 8; i++) {
        struct scene sc;
        scene_open(&sc, i < 4 ? "" : "confirm=1");
        uint64_t fence = hand_over(&sc, more[i % 4]);
        locker_join(&sc.l, HF_OK);
        check_held(&sc, fence);
        t_sleep_ms(600); /* until what was believed at once was confirmed */
        check_held(&sc, fence);
        unlock_now(sc.l.m);
        scene_close(&sc);
    }
}

/* It missed its window, and the listener knows the nonce of the place that it had. */
TEST(S1_a_new_place_has_a_new_nonce)
{
    struct scene sc;
    char old[20];
    scene_open(&sc, "");
    t_sleep_ms(600); /* its refusal is too old for believing at once */
    CHECK_STR(server_ask(sc.s, "ZREMRANGEBYRANK {lock:a}:q 0 0"), "1"); /* lapsed */
    snprintf(old, sizeof old, "%s", sc.nonce);
    CHECK_INT(server_int(sc.s, "PUBLISH %s %s", sc.channel,
                         keep_text("granted %s %llu %s lock:a", sc.token, sc.ticket + 1, old)), 1);
    look_at_queue(&sc);
    CHECK(strcmp(old, sc.nonce) != 0);
    for (int i = 1; i < 20; i++)
        CHECK_INT(server_int(sc.s, "PUBLISH %s %s", sc.channel,
                             keep_text("granted %s %llu %s lock:a", sc.token, sc.ticket + i, old)),
                  1);
    t_sleep_ms(100);
    CHECK_INT(atomic_load(&sc.l.done), 0);
    CHECK_STR(server_ask(sc.s, "GET lock:a"), "stranger");
    uint64_t fence = hand_over(&sc, "");
    locker_join(&sc.l, HF_OK);
    check_held(&sc, fence);
    unlock_now(sc.l.m);
    scene_close(&sc);
}

/* The same message again and again, with larger numbers: while the lock is being taken, held, and
 * after it was left behind. The client has other things to read, so its own thread reads the
 * messages while another one takes the lock. */
struct flood {
    struct scene *sc;
    atomic_int    stop;
    atomic_long   sent;
};

static void *flood_main(void *arg)
{
    struct flood *f = arg;
    while (!atomic_load(&f->stop)) {
        const struct scene *sc = f->sc;
        char text[200];
        snprintf(text, sizeof text, "granted %s 9007199254730000 %s lock:a", sc->token, sc->nonce);
        server_ask(sc->s, "EVAL %s 0 %s %s", "for i = 1, 40 do redis.call('PUBLISH', ARGV[1], "
                   "ARGV[2]) end", sc->channel, text);
        atomic_fetch_add(&f->sent, 40);
    }
    return NULL;
}

static void beside_a_flood(int detach)
{
    struct scene sc;
    pthread_t thread;
    scene_open(&sc, "");
    CHECK_STR(server_ask(sc.s, "SET lock:busy stranger PX 60000"), "OK");
    struct locker busy = { .m = lock_with(sc.c, "busy", KEPT), .wait_ms = 50000 };
    locker_start(&busy);
    CHECK_QUEUE(sc.s, "busy", 1);
    for (int i = 0; i < 60; i++) {
        struct flood f = { .sc = &sc };
        if (i) {
            CHECK_STR(server_ask(sc.s, "SET lock:a stranger PX 60000"), "OK");
            locker_start(&sc.l);
            look_at_queue(&sc);
        }
        uint64_t fence = hand_over(&sc, "");
        CHECK_INT(pthread_create(&thread, NULL, flood_main, &f), 0);
        locker_join(&sc.l, HF_OK);
        const char *value = server_ask(sc.s, "GET lock:a");
        CHECK(value && sc.l.fence == fence);
        if (detach)
            CHECK_HF(hf_lock_detach(sc.l.m, 20000, &err), HF_OK);
        t_sleep_ms(5);
        CHECK_EVENTUALLY(atomic_load(&f.sent) >= 200, 10000);
        atomic_store(&f.stop, 1);
        CHECK_INT(pthread_join(thread, NULL), 0);
        t_sleep_ms(5);
        if (detach)
            CHECK_CONTAINS(server_ask(sc.s, "GET lock:a"), sc.token);
        else
            CHECK_STR(server_ask(sc.s, "GET lock:a"), value);
        if (detach)
            server_ask(sc.s, "DEL lock:a");
        else
            unlock_now(sc.l.m);
    }
    hf_lock_cancel(busy.m);
    locker_join(&busy, HF_ECANCELED);
    hf_lock_free(busy.m);
    scene_close(&sc);
}

TEST(S1_a_lock_is_not_given_up_while_it_is_being_taken)
{
    beside_a_flood(0);
}

TEST(S1_a_lock_is_not_given_up_while_it_is_being_left)
{
    beside_a_flood(1);
}

/* ---- a dead holder --------------------------------------------------------------------------- */

enum { TTL_MS = 4000, GRACE_MS = 500 };

struct dying {
    const char *url;
    char        owner[80];
    atomic_int  holds;
};

static void holds_until_killed(int index, void *arg)
{
    struct dying *d = arg;
    (void)index;
    hf_client *c = client_at(d->url, 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS, .grace_ms = GRACE_MS });
    lock_now(m);
    snprintf(d->owner, sizeof d->owner, "%s", hf_lock_owner(m));
    atomic_store(&d->holds, 1);
    for (;;)
        t_sleep_ms(1000);
}

/* How long after its death another has the lock, ms. */
static int64_t taken_over_after(int listens)
{
    struct server *s = server_start(NULL);
    struct dying *d = shared_memory(sizeof *d);
    d->url = server_url(s);
    struct workers *w = workers_start(1, holds_until_killed, d);
    CHECK_EVENTUALLY(atomic_load(&d->holds), 10000);
    redisContext *ear = redisConnectUnix(server_socket(s));
    CHECK(ear && !ear->err);
    if (listens) {
        redisReply *r = redisCommand(ear, "SUBSCRIBE lock:holdfast:s:%b", d->owner, (size_t)32);
        CHECK(r && r->type == REDIS_REPLY_ARRAY);
        freeReplyObject(r);
    }
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", KEPT);
    int64_t died = t_now_ms();
    workers_signal(w, 0, SIGKILL);
    workers_join(w, 10000);
    CHECK_HF(hf_lock_acquire(m, 30000, NULL, &err), HF_OK);
    int64_t took = t_now_ms() - died;
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    redisFree(ear);
    return took;
}

/* As SECURITY.md says: it seems to live as long as somebody listens, and yet not beyond its ttl. */
TEST(low3_who_listens_keeps_a_dead_holder_present_until_its_ttl_ends)
{
    int64_t alone = taken_over_after(0), listened = taken_over_after(1);
    t_note("taken over after %lld ms, and after %lld ms if somebody listens", (long long)alone,
           (long long)listened);
    CHECK_RANGE(alone, GRACE_MS / 2, TTL_MS);
    CHECK_RANGE(listened, TTL_MS / 2, TTL_MS + 3000);
}
