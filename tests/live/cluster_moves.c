/* SPDX-License-Identifier: MIT
 * cluster_moves.c - slots that go to another master while their locks are held and waited for.
 *
 * A slot on its way answers ASK for keys that it does not have any more, and TRYAGAIN for scripts
 * whose keys are here and there, or new: each test shows by the servers' counts that it met them.
 */
#include <signal.h>

#include "harness/contest.h"
#include "harness/holder.h"
#include "harness/kinds.h"
#include "harness/scene.h"

/* ASKING lets a server answer for a slot that is not its own yet: only who was sent to it by ASK
 * may say it, once for each. It is counted first, so that what is under way does no harm. */
static void check_asking(struct cluster *cl)
{
    long long asking = cluster_calls(cl, "asking"), ask = cluster_errors(cl, "ASK");
    t_note("ASKING %lld, after ASK %lld", asking, ask);
    CHECK(asking <= ask);
}

/* ---- moved ----------------------------------------------------------------------------------- */

TEST(a_slot_that_has_moved_is_found_where_it_is)
{
    struct scene s = scene_with((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0);
    hf_lock *m = lock_of(c, s.name, 20000); /* no session that is told that its channel is gone */
    uint64_t fence = 0, next = 0;
    CHECK_HF(hf_lock_try(m, &fence, &err), HF_OK);
    unlock_now(m);
    cluster_move_slot(s.cl, s.slot, s.to, NULL, NULL);
    long long before = cluster_errors(s.cl, "MOVED");
    CHECK_HF(hf_lock_try(m, &next, &err), HF_OK);
    CHECK(next > fence); /* the counter came along */
    long long after = cluster_errors(s.cl, "MOVED");
    CHECK(after > before); /* nobody had told us */
    CHECK(server_ask(s.to, "GET %s", s.key));
    unlock_now(m);
    for (int i = 0; i < 20; i++) {
        fence = next;
        CHECK_HF(hf_lock_try(m, &next, &err), HF_OK);
        CHECK(next > fence);
        unlock_now(m);
    }
    CHECK_INT(cluster_errors(s.cl, "MOVED"), after);
    CHECK_STR(server_ask(s.to, "GET %s", s.key), NULL);
    check_asking(s.cl);
    hf_lock_free(m);
    hf_client_free(c);
}

enum { WAITERS = 4 };

static void line_up(struct scene *s, struct locker *w, hf_client **c)
{
    for (int i = 0; i < WAITERS; i++) {
        c[i] = client_at(s->cl->url, 0);
        w[i] = (struct locker){ .m = lock_with(c[i], s->name, KEPT), .wait_ms = 40000 };
        locker_start(&w[i]);
        CHECK_QUEUE(s->from, s->name, i + 1);
    }
}

static int next_served(struct locker *w, const int *served)
{
    for (int i = 0; i < WAITERS; i++)
        if (!served[i] && atomic_load(&w[i].done))
            return i;
    return -1;
}

/* Each gets it, one at a time; in their order, unless some may have come back too late for that. */
static void serve(struct locker *w, hf_client **c, uint64_t fence, int in_order)
{
    int served[WAITERS] = { 0 }, i = -1;
    for (int n = 0; n < WAITERS; n++) {
        CHECK_EVENTUALLY((i = next_served(w, served)) >= 0, 30000);
        served[i] = 1;
        if (in_order)
            CHECK_INT(i, n);
        locker_join(&w[i], HF_OK);
        CHECK(w[i].fence > fence);
        fence = w[i].fence;
        CHECK_INT(next_served(w, served), -1);
        unlock_now(w[i].m);
    }
    for (i = 0; i < WAITERS; i++) {
        hf_lock_free(w[i].m);
        hf_client_free(c[i]);
    }
}

/* How many sessions this master sees. */
static int sessions_at(struct server *s)
{
    const char *all = server_ask(s, "PUBSUB SHARDCHANNELS");
    int n = *all != '\0';
    for (; *all; all++)
        n += *all == '\n';
    return n;
}

TEST(P1_P6_who_holds_and_who_waits_move_along)
{
    server_needs(700, "sharded channels");
    struct scene s = scene_with((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0), *d[WAITERS];
    hf_lock *m = lock_with(c, s.name, KEPT);
    struct locker w[WAITERS];
    uint64_t fence = lock_now(m);
    line_up(&s, w, d);
    cluster_move_slot(s.cl, s.slot, s.to, NULL, NULL);
    CHECK_QUEUE(s.to, s.name, WAITERS); /* who was not seen there at once comes back to its place */
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK(hf_lock_fence(m) == fence);
    CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
    CHECK_EVENTUALLY(sessions_at(s.to) == WAITERS + 1, 10000); /* who is not seen is passed over */
    unlock_now(m);
    serve(w, d, fence, 1);
    CHECK(cluster_errors(s.cl, "MOVED") > 0);
    hf_lock_free(m);
    hf_client_free(c);
}

/* The ttl is two minutes; the test's own limit is one. */
TEST(P3_a_holder_that_is_killed_after_a_move_costs_its_grace)
{
    struct scene s = scene_with((struct cluster_opts){ 0 });
    hf_lock_opts o = { .ttl_ms = 120000, .grace_ms = 2000 };
    struct workers *ws = holder_start(s.cl->url, s.name, o);
    hf_client *d = client_at(s.cl->url, 0);
    struct locker w = { .m = lock_with(d, s.name, KEPT), .wait_ms = 50000 };
    locker_start(&w);
    CHECK_QUEUE(s.from, s.name, 1);
    cluster_move_slot(s.cl, s.slot, s.to, NULL, NULL);
    /* Alive, it keeps it for longer than the grace: it has been seen at its new place. */
    int64_t begun = t_now_ms();
    while (t_now_ms() - begun < 4000) {
        CHECK_INT(atomic_load(&w.done), 0);
        t_sleep_ms(50);
    }
    workers_signal(ws, 0, SIGKILL);
    locker_join(&w, HF_OK);
    unlock_now(w.m);
    workers_join(ws, 1000);
    hf_lock_free(w.m);
    hf_client_free(d);
}

/* ---- half-way -------------------------------------------------------------------------------- */

TEST(P1_P5_a_lock_in_a_slot_that_is_half_moved_is_kept_for_longer_than_its_ttl)
{
    struct scene s = scene_with((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0), *d = client_at(s.cl->url, 0);
    hf_lock *m = lock_of(c, s.name, 6000);
    uint64_t fence = lock_now(m);
    struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.to);
    CHECK_INT(cluster_move_key(&mv, s.key), 1);
    long long before = cluster_halfway(s.cl);
    int64_t begun = t_now_ms();
    while (t_now_ms() - begun < 8000) {
        CHECK(hf_lock_is_held(m));
        t_sleep_ms(20);
    }
    CHECK(cluster_halfway(s.cl) > before);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK(hf_lock_fence(m) == fence);
    cluster_move_finish(&mv);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    hf_lock *n = lock_of(d, s.name, 6000);
    CHECK(lock_now(n) > fence);
    unlock_now(n);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
    hf_client_free(d);
}

/* Released where half of its keys are elsewhere: it is free all the same, and the others get it, at
 * the latest when the slot has arrived. */
/* Of an owner id, of a reader and of a semaphore there is more than one key, and any may be
 * gone. */
TEST(P5_every_kind_of_hold_is_kept_while_its_slot_is_half_moved)
{
    enum { TTL = 6000 };
    struct scene s = scene_with((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0);
    char reader[80], permit[80];
    snprintf(reader, sizeof reader, "{%s}r", s.key); /* in the same slot */
    snprintf(permit, sizeof permit, "{%s}p", s.key);
    hf_lock *m[] = {
        lock_with(c, s.name, (hf_lock_opts){ .ttl_ms = TTL, .owner = hf_str("me") }),
        lock_with(c, reader, (hf_lock_opts){ .ttl_ms = TTL }),
        lock_with(c, permit, (hf_lock_opts){ .ttl_ms = TTL, .slots = 3 }),
    };
    lock_now(m[0]);
    CHECK_HF(hf_lock_acquire_shared(m[1], 0, NULL, &err), HF_OK);
    lock_now(m[2]);
    struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.to);
    char moved[4][100];
    snprintf(moved[0], sizeof moved[0], "{%s}:own", s.key);
    snprintf(moved[1], sizeof moved[1], "lock:%s:h", reader);
    snprintf(moved[2], sizeof moved[2], "lock:%s", permit);
    snprintf(moved[3], sizeof moved[3], "lock:%s:d", permit);
    for (int i = 0; i < 4; i++)
        CHECK_INT(cluster_move_key(&mv, moved[i]), 1);
    long long before = cluster_halfway(s.cl);
    for (int64_t begun = t_now_ms(); t_now_ms() - begun < TTL + 2000; t_sleep_ms(20))
        for (int i = 0; i < 3; i++)
            CHECK(hf_lock_is_held(m[i]));
    CHECK(cluster_halfway(s.cl) > before);
    unlock_now(m[0]);
    CHECK_CONTAINS(server_ask(s.from, "GET %s", s.key), "ASK "); /* it is gone */
    CHECK_STR(server_ask(s.to, "ASKING"), "OK");
    CHECK_STR(server_ask(s.to, "GET %s", moved[0]), NULL);
    cluster_move_finish(&mv);
    CHECK_STR(server_ask(s.to, "GET %s", s.key), NULL);
    for (int i = 1; i < 3; i++) {
        CHECK_HF(hf_lock_verify(m[i], &err), HF_OK);
        unlock_now(m[i]);
    }
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

TEST(P3_P6_a_lock_can_be_released_while_its_slot_is_half_moved)
{
    struct scene s = scene_with((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0), *d[WAITERS];
    hf_lock *m = lock_with(c, s.name, KEPT);
    struct locker w[WAITERS];
    uint64_t fence = lock_now(m);
    char *owner = strdup(hf_lock_owner(m));
    line_up(&s, w, d);
    struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.to);
    CHECK_INT(cluster_move_key(&mv, s.key), 1); /* the lock is there, who waits for it here */
    long long before = cluster_halfway(s.cl);
    unlock_now(m);
    CHECK(cluster_halfway(s.cl) > before);
    CHECK_CONTAINS(server_ask(s.from, "GET %s", s.key), "ASK ");
    CHECK_STR(server_ask(s.to, "ASKING"), "OK");
    const char *value = server_ask(s.to, "GET %s", s.key);
    CHECK(!value || !strstr(value, owner));
    cluster_move_finish(&mv);
    serve(w, d, fence, 0);
    free(owner);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Two locks in one slot: the one is asked for when the slot has begun to move. */
TEST(P8_a_lock_that_is_asked_for_half_way_is_had_once_the_slot_has_arrived)
{
    struct scene s = scene_with((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0), *d = client_at(s.cl->url, 1000);
    char first[32], second[32];
    snprintf(first, sizeof first, "{%s}1", s.key);
    snprintf(second, sizeof second, "{%s}2", s.key);
    hf_lock *m = lock_with(c, first, KEPT), *n = lock_with(d, second, KEPT);
    lock_now(m);
    struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.to);
    CHECK(cluster_move_keys(&mv, 1) == 1);
    int64_t begun = t_now_ms();
    hf_err e = hf_lock_try(n, NULL, &err);
    int64_t took = t_now_ms() - begun;
    /* On a busy machine its last request may have been under way when the time was over. */
    if (e != HF_EUNSURE || t_calm_ms(begun) > took * 9 / 10) {
        CHECK_INT(e, HF_ECONN); /* CHECK_HF() empties err */
        CHECK_CONTAINS(err.message, "a slot is being moved");
    }
    /* The same here, on any machine. */
    e = hf_lock_acquire(n, 1500, NULL, &err);
    CHECK(e == HF_ECONN || e == HF_EUNSURE);
    CHECK_TOOK(t_now_ms() - begun, 0, 6000);
    struct locker w = { .m = n, .wait_ms = 30000 };
    long long before = cluster_halfway(s.cl);
    locker_start(&w);
    begun = t_now_ms();
    CHECK_EVENTUALLY(cluster_halfway(s.cl) > before + 2 && t_now_ms() - begun > 2500, 10000);
    CHECK_INT(atomic_load(&w.done), 0); /* though that was longer than the client's time-out */
    cluster_move_finish(&mv);
    locker_join(&w, HF_OK);
    CHECK_INT(server_int(s.to, "EXISTS lock:%s", second), 1);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(n);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
    hf_client_free(d);
}

/* ---- again and again ------------------------------------------------------------------------- */

struct mover {
    struct cluster *cl;
    int slot;
    atomic_int stop, moves;
};

static void *move_on(void *arg)
{
    struct mover *mo = arg;
    for (int i = 1; !atomic_load(&mo->stop); i++) {
        cluster_move_slot(mo->cl, mo->slot, mo->cl->node[i % 3], NULL, NULL);
        atomic_fetch_add(&mo->moves, 1);
        t_sleep_ms(30);
    }
    return NULL;
}

/* Somebody met the slot in each state that it can be in. */
static void check_all_answers(struct cluster *cl)
{
    long long moved = cluster_errors(cl, "MOVED"), ask = cluster_errors(cl, "ASK");
    long long again = cluster_errors(cl, "TRYAGAIN");
    t_note("MOVED %lld ASK %lld TRYAGAIN %lld", moved, ask, again);
    CHECK(moved > 0 && ask > 0 && again > 0);
    check_asking(cl);
}

/* Who is handed a lock may rely on it for a second before it has confirmed that: too short where
 * each answer takes several attempts, on a machine that has much else to do. */
static hf_client *client_that_confirms(const char *url)
{
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .confirm = 1 };
    CHECK_HF(hf_client_open(url, &o, &c, &err), HF_OK);
    return c;
}

TEST(every_kind_works_in_a_slot_that_never_rests)
{
    struct cluster *cl = cluster_start(NULL);
    struct mover mo = { .cl = cl };
    hf_client *c = client_that_confirms(cl->url), *d = client_that_confirms(cl->url);
    const char *tag = cluster_name(cl, cl->node[0], 0);
    char base[64], key[64];
    pthread_t thread;
    snprintf(key, sizeof key, "lock:%s", tag);
    mo.slot = cluster_slot(cl, key);
    CHECK_INT(pthread_create(&thread, NULL, move_on, &mo), 0);
    int rounds = 0;
    do {
        snprintf(base, sizeof base, "{%s}%d", key, rounds++);
        kind_try_all(c, d, hf_str(base));
    } while (rounds < 5 || atomic_load(&mo.moves) < 20);
    atomic_store(&mo.stop, 1);
    CHECK_INT(pthread_join(thread, NULL), 0);
    t_note("%d rounds, %d moves", rounds, atomic_load(&mo.moves));
    check_all_answers(cl);
    CHECK_INT(cluster_errors(cl, "CROSSSLOT"), 0);
    hf_client_free(c);
    hf_client_free(d);
}

enum { MOVES = 200 };

TEST(P1_P4_P6_eight_contend_while_the_slot_moves_two_hundred_times)
{
    struct scene s = scene_with((struct cluster_opts){ 0 });
    struct contest *ct = contest_start(8, s.cl->url, s.name);
    contest_go_on(ct, 100);
    struct server *at = s.from;
    for (int i = 1; i <= MOVES; i++) {
        long before = atomic_load(&ct->written);
        struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.cl->node[i % 3]);
        CHECK(mv.from == at);
        at = mv.to;
        cluster_move_finish(&mv);
        if (i % 10 == 0) /* nobody is stuck for ever, however often it moves */
            CHECK_EVENTUALLY(atomic_load(&ct->written) > before, 20000);
    }
    CHECK(cluster_owner(s.cl, s.slot) == at);
    contest_go_on(ct, 50);
    contest_end(ct);
    long least = atomic_load(&ct->of[0]), most = 0;
    for (int i = 0; i < ct->n; i++) {
        long n = atomic_load(&ct->of[i]);
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    t_note("%d moves, %ld to %ld grants each", MOVES, least, most);
    check_all_answers(s.cl);
    contest_check_clean(ct);
    CHECK_INT(atomic_load(&ct->failed), 0);
    /* Whoever comes back late is overtaken; where the slot stays for milliseconds only, often. */
    CHECK(least > 0 && atomic_load(&ct->longest_ns) / 1000000 < 15000);
}

/* ---- afterwards ------------------------------------------------------------------------------ */

enum { USERS = 4, HOT = 3, RESHARDS = 90 };

struct user {
    struct scene  *s;
    hf_client     *c;
    struct logbook log;
    const char   **names;
    int            n; /* of names */
    atomic_int    *stop;
    atomic_long    used;
    pthread_t      thread;
};

/* Takes what is moved about, for a moment each, with a grace. */
static void *use(void *arg)
{
    struct user *u = arg;
    for (int i = 0; !atomic_load(u->stop); i++) {
        hf_lock *m = lock_with(u->c, u->names[i % u->n],
                               (hf_lock_opts){ .ttl_ms = 20000, .grace_ms = 2000 });
        if (hf_lock_acquire(m, 2000, NULL, NULL) == HF_OK)
            atomic_fetch_add(&u->used, 1);
        t_sleep_ms(5);
        hf_lock_free(m);
    }
    return NULL;
}

/* Who has been through it takes over as quickly as ever. The ttl is two minutes. */
static int64_t takeover_ms(struct user *u, const char *name)
{
    struct workers *ws = holder_start(u->s->cl->url, name,
                                      (hf_lock_opts){ .ttl_ms = 120000, .grace_ms = 2000 });
    struct locker w = { .m = lock_with(u->c, name, KEPT), .wait_ms = 50000 };
    struct server *at = cluster_owner_of(u->s->cl, keep_text("lock:%s", name));
    locker_start(&w);
    CHECK_QUEUE(at, name, 1);
    int64_t killed = t_now_ms();
    workers_signal(ws, 0, SIGKILL);
    locker_join(&w, HF_OK);
    int64_t took = t_now_ms() - killed;
    unlock_now(w.m);
    workers_join(ws, 1000);
    hf_lock_free(w.m);
    return took;
}

static void users_start(struct user *u, struct user like)
{
    for (int i = 0; i < USERS; i++) {
        u[i] = like;
        u[i].log = (struct logbook)LOGBOOK;
        u[i].c = client_with(like.s->cl->url, (hf_client_opts){ .log = logbook_add,
                                                                .log_arg = &u[i].log });
        CHECK_INT(pthread_create(&u[i].thread, NULL, use, &u[i]), 0);
    }
}

static void users_stop(struct user *u)
{
    atomic_store(u->stop, 1);
    for (int i = 0; i < USERS; i++)
        CHECK_INT(pthread_join(u[i].thread, NULL), 0);
}

/* Each takes over one of the names, as quickly as ever; and nobody was told nonsense. */
static void users_check(struct user *u, const char **names, int n)
{
    for (int i = 0; i < USERS; i++) {
        int64_t took = takeover_ms(&u[i], names[i % n]);
        t_note("client %d: %ld grants, takeover after %lld ms", i, atomic_load(&u[i].used),
               (long long)took);
        CHECK(atomic_load(&u[i].used) > 10);
        CHECK_TOOK(took, 1900, 16000);
        CHECK_INT(logbook_has(&u[i].log, "use redis+cluster"), 0);
        hf_client_free(u[i].c);
    }
}

TEST(V1_a_crash_costs_the_grace_after_slots_have_moved_under_load)
{
    struct scene s = scene_with((struct cluster_opts){ .no_replicas = 1 });
    const char *names[HOT];
    struct user u[USERS];
    atomic_int stop = 0;
    for (int i = 0; i < HOT; i++)
        names[i] = cluster_name(s.cl, s.from, i);
    users_start(u, (struct user){ .s = &s, .names = names, .n = HOT, .stop = &stop });
    for (int i = 0; i < RESHARDS; i++) {
        int slot = cluster_slot_of(s.cl, names[i % HOT]);
        struct server *to = s.cl->node[(i / HOT + 1) % 3];
        if (cluster_owner(s.cl, slot) != to)
            cluster_move_slot(s.cl, slot, to, NULL, NULL);
        t_sleep_ms(20);
    }
    users_stop(u);
    CHECK(cluster_errors(s.cl, "MOVED") > RESHARDS / 2);
    users_check(u, names, HOT);
}

/* Not a few hot slots, but a third of a master's, moved as operators do; the names are used now and
 * then. */
TEST_TIMEOUT(V1_a_crash_costs_the_grace_after_a_plain_reshard_under_load, 240)
{
    enum { NAMES = 300, SLOTS = 1500 };
    const char *tool = server_program("redis-cli");
    if (!tool)
        SKIP("no redis-cli");
    struct scene s = scene_with((struct cluster_opts){ .no_replicas = 1 });
    static const char *names[NAMES], *moved[NAMES];
    struct user u[USERS];
    atomic_int stop = 0;
    int n = 0;
    for (int i = 0; i < NAMES; i++)
        names[i] = keep_text("n%d", i);
    users_start(u, (struct user){ .s = &s, .names = names, .n = NAMES, .stop = &stop });
    const char *command = keep_text("'%s' --cluster reshard 127.0.0.1:%d --cluster-from %s "
                                    "--cluster-to %s --cluster-slots %d --cluster-yes > '%s/out'",
                                    tool, server_port(s.from), cluster_id(s.cl, s.from),
                                    cluster_id(s.cl, s.to), SLOTS, t_dir());
    CHECK_INT(system(command), 0);
    users_stop(u);
    for (int i = 0; i < NAMES; i++) /* it gives away its first slots */
        if (cluster_slot_of(s.cl, names[i]) < SLOTS)
            moved[n++] = names[i];
    CHECK(n > USERS);
    CHECK(cluster_owner_of(s.cl, keep_text("lock:%s", moved[0])) == s.to);
    CHECK(cluster_errors(s.cl, "MOVED") > 0);
    users_check(u, moved, n);
}
