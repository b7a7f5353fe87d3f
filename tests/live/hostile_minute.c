/* SPDX-License-Identifier: MIT
 * hostile_minute.c - S1, S2: a tenant of the same server tries for half a minute (HF_SOAK=1: for a
 * minute), against programs that use locks of every kind.
 *
 * First with every right but the keys': all channels, and all commands but those of an
 * administrator; docs/acl.md says what such a user can do. Then one that also reads every queue,
 * against clients that confirm. The witness is a record in shared memory of who believed what and
 * when, and the server itself, asked over a connection of the test's own.
 */
#include <hiredis/hiredis.h>
#include <sys/socket.h>

#include "harness/acl.h"
#include "harness/history.h"
#include "harness/proc.h"
#include "harness/waiting.h"

enum { PROGRAMS = 3, THREADS = 3, SLOTS = 2, HEARD = 64, LISTENED_MAX = 40 };

enum use { TRY, WAIT, MULTI, LEFT, PERMIT, READ, WRITE, LEAD, USES };
static const char *const use_name[] = { "try", "wait", "multi", "left", "permit", "read", "write",
                                        "lead" };
enum attack { FORGED, REPLAYED, RAISED, FAR, MIXED, OTHERS, JUNK, SCRIPTS, KILLED, KEYS, LISTENED,
              QUEUED, ATTACKS };
static const char *const attack_name[] = { "forged", "replayed", "raised", "far", "mixed", "others",
                                           "junk", "scripts", "killed", "keys", "listened",
                                           "queued" };

struct arena {
    struct server  *s;
    const char     *url;
    atomic_int      stop;
    atomic_long     granted[USES], busy, troubled, excused;
    struct history *alone, *permits, *shared;
};

/* ---- the programs ------------------------------------------------------------------------- */

struct hand { /* one thread */
    struct arena *ar;
    hf_client    *c;
    uint32_t      id;
    hf_lock      *a, *b, *left, *permit, *rw;
    hf_election  *el;
    pthread_t     thread;
};

/* What one whose connection is cut now and then gets, beside its lock. */
static int is_trouble(hf_err e)
{
    return e == HF_ECONN || e == HF_EUNSURE;
}

/* 1: it has it. A try may find it busy, and nobody who waits waits in vain. */
static int has(struct hand *h, hf_err e, enum use use, int tries)
{
    if (!e)
        atomic_fetch_add(&h->ar->granted[use], 1);
    else if (tries && e == HF_EBUSY)
        atomic_fetch_add(&h->ar->busy, 1);
    else if (is_trouble(e))
        atomic_fetch_add(&h->ar->troubled, 1);
    else
        FAIL("%s: %s (%s)", use_name[use], hf_err_name(e), err.message);
    return !e;
}

/* Who says that it holds it, does: under that token and that number. */
static void check_owned(struct hand *h, hf_lock *m, const char *name)
{
    char want[120];
    snprintf(want, sizeof want, "%s:%llu:", hf_lock_owner(m),
             (unsigned long long)hf_lock_fence(m));
    const char *value = server_ask(h->ar->s, "GET lock:%s", name);
    if (hf_lock_is_held(m) && (!value || strncmp(value, want, strlen(want)) != 0))
        FAIL("\"%s\" is held as %s, and on the server is %s", name, want,
             value ? value : "nothing");
}

/* On a machine that stands still for long, a lock that was handed over may lapse before it is
 * claimed, and be lost without anybody's fault. */
static void give_back(struct hand *h, hf_err e, int64_t granted_ms, const char *what)
{
    if (is_trouble(e))
        atomic_fetch_add(&h->ar->troubled, 1);
    else if (e == HF_ELOST && t_now_ms() - granted_ms > 400)
        atomic_fetch_add(&h->ar->excused, 1);
    else if (e)
        FAIL("giving back \"%s\": %s (%s)", what, hf_err_name(e), err.message);
}

static void work(struct hand *h, hf_lock *m, const char *name)
{
    if (t_random(4) == 0)
        check_owned(h, m, name);
    t_sleep_ms((int64_t)t_random(t_random(20) ? 3 : 40));
}

static void alone(struct hand *h, enum use use)
{
    int64_t begun = t_now_ns();
    hf_err e = use == TRY ? hf_lock_try(h->a, NULL, &err)
                          : hf_lock_acquire(h->a, 30000, NULL, &err);
    if (!has(h, e, use, use == TRY))
        return;
    int64_t granted = t_now_ms();
    struct grant *g = history_grant(h->ar->alone, 0, h->id, hf_lock_fence(h->a), begun,
                                    BELIEVED_UNTIL(h->a));
    work(h, h->a, "a");
    history_release(g);
    give_back(h, hf_lock_release(h->a, &err), granted, "a");
}

static void both(struct hand *h)
{
    hf_lock *m[] = { h->a, h->b };
    int64_t begun = t_now_ns();
    if (!has(h, hf_multi_acquire(m, 2, 30000, &err), MULTI, 0))
        return;
    int64_t granted = t_now_ms();
    struct grant *g[2];
    for (uint32_t i = 0; i < 2; i++)
        g[i] = history_grant(h->ar->alone, i, h->id, hf_lock_fence(m[i]), begun,
                             BELIEVED_UNTIL(m[i]));
    work(h, h->b, "b");
    history_release(g[0]);
    history_release(g[1]);
    give_back(h, hf_multi_release(m, 2, &err), granted, "a and b");
}

/* Left behind, and found again by its id. */
static void leave(struct hand *h)
{
    char owner[80];
    if (!has(h, hf_lock_acquire(h->left, 30000, NULL, &err), LEFT, 0))
        return;
    int64_t granted = t_now_ms();
    snprintf(owner, sizeof owner, "%s", hf_lock_owner(h->left));
    hf_err e = hf_lock_detach(h->left, 5000, &err);
    if (e) {
        give_back(h, e, granted, "left");
        (void)hf_lock_release(h->left, NULL);
        return;
    }
    t_sleep_ms((int64_t)t_random(10));
    e = hf_owner_release(h->c, hf_str("left"), hf_str(owner), &err);
    if (e == HF_ENOTOWNER && t_now_ms() - granted < 4000)
        FAIL("what was left behind is another's: %s", server_ask(h->ar->s, "GET lock:left"));
    if (e != HF_ENOTOWNER)
        give_back(h, e, granted, "left");
}

static void permit(struct hand *h)
{
    int64_t begun = t_now_ns();
    if (!has(h, hf_lock_acquire(h->permit, 30000, NULL, &err), PERMIT, 0))
        return;
    int64_t granted = t_now_ms();
    struct grant *g = history_share(h->ar->permits, 0, h->id, hf_lock_fence(h->permit), begun,
                                    BELIEVED_UNTIL(h->permit), 1);
    t_sleep_ms((int64_t)t_random(3));
    history_release(g);
    give_back(h, hf_lock_release(h->permit, &err), granted, "permit");
}

static void read_or_write(struct hand *h, enum use use)
{
    int64_t begun = t_now_ns();
    hf_err e = use == READ ? hf_lock_acquire_shared(h->rw, 30000, NULL, &err)
                           : hf_lock_acquire(h->rw, 30000, NULL, &err);
    if (!has(h, e, use, 0))
        return;
    int64_t granted = t_now_ms();
    uint64_t fence = hf_lock_fence(h->rw);
    struct grant *g = use == READ
        ? history_share(h->ar->shared, 0, h->id, fence, begun, BELIEVED_UNTIL(h->rw), 1)
        : history_grant(h->ar->shared, 0, h->id, fence, begun, BELIEVED_UNTIL(h->rw));
    t_sleep_ms((int64_t)t_random(3));
    history_release(g);
    give_back(h, hf_lock_release(h->rw, &err), granted, "rw");
}

static void lead(struct hand *h)
{
    int64_t begun = t_now_ns();
    hf_err e = hf_election_campaign(h->el, hf_str("me"), 30000, NULL, &err);
    if (e == HF_ELOST) { /* elected, and its connection was cut before that was known */
        atomic_fetch_add(&h->ar->troubled, 1);
        return;
    }
    if (!has(h, e, LEAD, 0))
        return;
    int64_t granted = t_now_ms();
    hf_lock *m = hf_election_lock(h->el);
    struct grant *g = history_grant(h->ar->alone, 2, h->id, hf_election_term(h->el), begun,
                                    BELIEVED_UNTIL(m));
    work(h, m, "el");
    history_release(g);
    give_back(h, hf_election_resign(h->el, &err), granted, "el");
}

static void *hand_main(void *arg)
{
    struct hand *h = arg;
    while (!atomic_load(&h->ar->stop)) {
        enum use use = (enum use)t_random(USES);
        switch (use) {
        case MULTI: both(h); break;
        case LEFT: leave(h); break;
        case PERMIT: permit(h); break;
        case READ:
        case WRITE: read_or_write(h, use); break;
        case LEAD: lead(h); break;
        case TRY:
        case WAIT:
        case USES: alone(h, use);
        }
        t_sleep_ms((int64_t)t_random(20)); /* other tests have to be done, too */
    }
    return NULL;
}

static void hand_open(struct hand *h)
{
    hf_lock_opts sem = hf_semaphore(SLOTS);
    sem.ttl_ms = KEPT.ttl_ms;
    h->a = lock_with(h->c, "a", KEPT);
    h->b = lock_with(h->c, "b", KEPT);
    h->left = lock_with(h->c, "left", KEPT);
    h->rw = lock_with(h->c, "rw", KEPT);
    h->permit = lock_with(h->c, "permit", sem);
    hf_election_opts o = { .size = sizeof o, .ttl_ms = KEPT.ttl_ms };
    CHECK_HF(hf_election_open(h->c, hf_str("el"), &o, &h->el, &err), HF_OK);
}

static void hand_close(struct hand *h)
{
    hf_lock_free(h->a);
    hf_lock_free(h->b);
    hf_lock_free(h->left);
    hf_lock_free(h->rw);
    hf_lock_free(h->permit);
    hf_election_free(h->el);
}

/* Its threads share a client, so that one reads what comes for another. */
static void program_main(int index, void *arg)
{
    struct arena *ar = arg;
    struct hand hand[THREADS];
    hf_client *c = client_at(ar->url, 0);
    for (int i = 0; i < THREADS; i++) {
        hand[i] = (struct hand){ .ar = ar, .c = c, .id = (uint32_t)(index * THREADS + i) };
        hand_open(&hand[i]);
        CHECK_INT(pthread_create(&hand[i].thread, NULL, hand_main, &hand[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_join(hand[i].thread, NULL), 0);
        hand_close(&hand[i]);
    }
    hf_client_free(c);
}

/* ---- the tenant ------------------------------------------------------------------------------ */

struct message {
    char channel[80], session[33], nonce[20], key[40];
    long sequence;
    unsigned long long number;
};

struct tenant {
    struct arena   *ar;
    const char     *user;
    redisContext   *conn, *ears, *watcher;
    pthread_t       listener;
    pthread_mutex_t mu;
    struct message  heard[HEARD]; /* the last that the server has sent; under mu */
    long            nheard;
    long            listened, cut; /* channels; connections */
    _Atomic long    tried[ATTACKS], received; /* by how many subscribers */
};

static redisContext *login(const struct tenant *t)
{
    redisContext *c = redisConnectUnix(server_socket(t->ar->s));
    CHECK(c && !c->err);
    redisReply *r = redisCommand(c, "AUTH %s tpw", t->user);
    CHECK(r && r->type == REDIS_REPLY_STATUS);
    freeReplyObject(r);
    return c;
}

static void publish(struct tenant *t, redisContext *c, const char *channel, const char *text,
                    size_t len)
{
    redisReply *r = redisCommand(c, "PUBLISH %s %b", channel, text, len);
    CHECK(r && r->type == REDIS_REPLY_INTEGER);
    atomic_fetch_add(&t->received, (long)r->integer);
    freeReplyObject(r);
}

/* A zero before the number changes nothing, and shows us what we have said ourselves. */
static void say(struct tenant *t, redisContext *c, const struct message *m)
{
    char text[300];
    int n = snprintf(text, sizeof text, "granted %s.%ld 0%llu %s %s", m->session, m->sequence,
                     m->number, m->nonce, m->key);
    publish(t, c, m->channel, text, (size_t)n);
}

/* 1: the server said so, not we. */
static int parse(const redisReply *r, struct message *ret)
{
    char number[24];
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 4 || strcmp(r->element[0]->str, "pmessage"))
        return 0;
    snprintf(ret->channel, sizeof ret->channel, "%s", r->element[2]->str);
    if (sscanf(r->element[3]->str, "granted %32[0-9a-f].%ld %23[0-9] %16[0-9a-f] %39s",
               ret->session, &ret->sequence, number, ret->nonce, ret->key) != 5)
        return 0;
    ret->number = strtoull(number, NULL, 10);
    return number[0] != '0';
}

/* Whatever is heard is sent again at once, under larger numbers. */
static void *listener_main(void *arg)
{
    struct tenant *t = arg;
    redisContext *mouth = login(t);
    redisReply *r;
    while (redisGetReply(t->ears, (void **)&r) == REDIS_OK) {
        struct message m = { .sequence = 0 };
        int news = parse(r, &m);
        freeReplyObject(r);
        if (!news)
            continue;
        pthread_mutex_lock(&t->mu);
        t->heard[t->nheard++ % HEARD] = m;
        pthread_mutex_unlock(&t->mu);
        for (int i = 0; i < 4; i++) {
            m.number += 1 + t_random(3);
            say(t, mouth, &m);
        }
        atomic_fetch_add(&t->tried[RAISED], 4);
    }
    redisFree(mouth);
    return NULL;
}

static int any_heard(struct tenant *t, struct message *ret)
{
    pthread_mutex_lock(&t->mu);
    long n = t->nheard < HEARD ? t->nheard : HEARD;
    if (n)
        *ret = t->heard[t_random((uint64_t)n)];
    pthread_mutex_unlock(&t->mu);
    return n > 0;
}

static void send_junk(struct tenant *t, const struct message *m)
{
    static char large[300000];
    static const char *const kind[] = { "watch", "ring", "free", "granted", "MOVED 1", "-MOVED 1" };
    char text[200];
    if (!large[0])
        memset(large, '7', sizeof large);
    int n = snprintf(text, sizeof text, "%s %s.%ld 127.0.0.1:1\r\n", kind[t_random(6)], m->session,
                     m->sequence + (long)t_random(8));
    size_t len = (size_t)n;
    switch (t_random(4)) {
    case 0: publish(t, t->conn, m->channel, text, t_random(len)); break;
    case 1: publish(t, t->conn, m->channel, "granted \0 \0\r\n", 13); break;
    case 2:
        memcpy(large, "granted ", 8);
        publish(t, t->conn, m->channel, large, t_random(10) ? 3000 : sizeof large);
        break;
    default: publish(t, t->conn, m->channel, text, len);
    }
}

/* Nothing of a key can be had: by no command, and by no script. */
static void try_keys(struct tenant *t)
{
    static const char *const command[] = {
        "GET lock:a", "DEL lock:a", "UNLINK lock:a", "SET lock:a x", "PEXPIRE lock:a 1",
        "GETDEL lock:a", "ZRANGE {lock:a}:q 0 -1", "ZREM {lock:a}:q x", "DEL lock:holdfast:fence",
        "INCR lock:holdfast:fence", "COPY lock:a mine", "DUMP lock:a", "WATCH lock:a",
        "OBJECT ENCODING lock:a", "HGETALL {lock:permit}:d", "TOUCH lock:a", "RENAME lock:a lock:b",
        "XADD {lock:a}:q * a b", "EVAL %s 0", "EVAL %s 1 lock:a",
    };
    const char *what = command[t_random(sizeof command / sizeof command[0])];
    redisReply *r = redisCommand(t->conn, what, "return redis.call('DEL', KEYS[1] or 'lock:a')");
    if (!r || r->type != REDIS_REPLY_ERROR)
        FAIL("%s was not refused", what);
    freeReplyObject(r);
}

/* Its commands that need no key. */
static void run_quietly(struct tenant *t, const char *command)
{
    redisReply *r = redisCommand(t->conn, command);
    if (!r || r->type == REDIS_REPLY_ERROR)
        FAIL("%s: %s", command, r ? r->str : "no answer");
    if (r->type == REDIS_REPLY_INTEGER)
        t->cut += (long)r->integer;
    freeReplyObject(r);
}

/* To the channel of another: its session seems to be there even if it is not. */
static void listen_in(struct tenant *t, const struct message *m)
{
    if (t->listened++ >= LISTENED_MAX)
        return;
    CHECK_INT(redisAppendCommand(t->watcher, "SUBSCRIBE %s", m->channel), REDIS_OK);
    int done = 0;
    while (!done)
        CHECK_INT(redisBufferWrite(t->watcher, &done), REDIS_OK);
}

/* Those who wait for this lock are told that it is theirs, by their own nonces. */
static void read_queue(struct tenant *t)
{
    static const char *const name[] = { "a", "b", "left", "permit", "rw", "el" };
    const char *lock = name[t_random(6)];
    redisReply *r = redisCommand(t->conn, "ZRANGE {lock:%s}:q 0 5 WITHSCORES", lock);
    CHECK(r && r->type == REDIS_REPLY_ARRAY);
    for (size_t i = 0; i + 1 < r->elements; i += 2) {
        struct message m = { .sequence = 0 };
        if (sscanf(r->element[i]->str, "%32[0-9a-f].%ld:%*[^:]:%*[^:]:%16[0-9a-f]", m.session,
                   &m.sequence, m.nonce) != 3)
            continue;
        snprintf(m.channel, sizeof m.channel, "lock:holdfast:s:%s", m.session);
        snprintf(m.key, sizeof m.key, "lock:%s", lock);
        m.number = (unsigned long long)strtod(r->element[i + 1]->str, NULL) + 1 + t_random(50);
        say(t, t->conn, &m);
        atomic_fetch_add(&t->tried[QUEUED], 1);
    }
    freeReplyObject(r);
}

static void attack(struct tenant *t, enum attack a)
{
    struct message m, other;
    if (!any_heard(t, &m) || !any_heard(t, &other))
        return;
    atomic_fetch_add(&t->tried[a], a == QUEUED ? 0 : 1);
    switch (a) {
    case FORGED:
        m.sequence += (long)t_random(10);
        m.number += t_random(1000);
        snprintf(m.nonce, sizeof m.nonce, "%016llx", (unsigned long long)t_random(UINT64_MAX));
        break;
    case REPLAYED: break;
    case FAR: m.number = t_random(2) ? 9007199254730000 : 1600000000000001; break;
    case MIXED: /* what is right, beside what belongs to another */
        if (t_random(2))
            memcpy(m.nonce, other.nonce, sizeof m.nonce);
        else
            snprintf(m.key, sizeof m.key, "%s", t_random(2) ? other.key : "lock:evil");
        m.number++;
        break;
    case OTHERS: memcpy(m.channel, other.channel, sizeof m.channel); break;
    case RAISED: m.number += 1 + t_random(1000); break;
    case JUNK: send_junk(t, &m); return;
    case SCRIPTS: run_quietly(t, "SCRIPT FLUSH"); return;
    case KILLED: run_quietly(t, "CLIENT KILL USER holdfast"); return;
    case KEYS: try_keys(t); return;
    case LISTENED: listen_in(t, &m); return;
    case QUEUED: read_queue(t); return;
    case ATTACKS: return;
    }
    say(t, t->conn, &m);
}

/* At random, in bursts; connections and scripts only now and then. */
static void attack_for(struct tenant *t, int reads, int64_t ms)
{
    int64_t until = t_now_ms() + ms, next_rough = t_now_ms();
    while (t_now_ms() < until) {
        for (int i = 0; i < 12; i++) {
            enum attack a = (enum attack)t_random(ATTACKS);
            if (a == SCRIPTS || a == KILLED || (a == KEYS && reads) || (a == QUEUED && !reads))
                a = reads ? QUEUED : FORGED;
            attack(t, a);
        }
        if (!reads && t_now_ms() >= next_rough) {
            attack(t, t_random(2) ? SCRIPTS : KILLED);
            next_rough = t_now_ms() + 350;
        }
        t_sleep_ms(10);
    }
}

static void tenant_begin(struct tenant *t)
{
    pthread_mutex_init(&t->mu, NULL);
    t->conn = login(t);
    t->watcher = login(t);
    t->ears = login(t);
    redisReply *r = redisCommand(t->ears, "PSUBSCRIBE lock:holdfast:s:*");
    CHECK(r && r->type == REDIS_REPLY_ARRAY);
    freeReplyObject(r);
    CHECK_INT(pthread_create(&t->listener, NULL, listener_main, t), 0);
}

static void tenant_end(struct tenant *t)
{
    shutdown(t->ears->fd, SHUT_RDWR);
    CHECK_INT(pthread_join(t->listener, NULL), 0);
    redisFree(t->conn);
    redisFree(t->ears);
    redisFree(t->watcher);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

static void check_history(const char *what, size_t violations, const struct history_report *r)
{
    t_note("%s: %zu grants, %zu overlaps, %zu numbers twice, %zu out of order", what, r->grants,
           r->overlaps, r->duplicates, r->disorder);
    CHECK_INT(violations, 0);
}

static void judge(struct arena *ar)
{
    struct history_report r;
    long all = 0;
    char line[300] = "";
    for (int i = 0; i < USES; i++) {
        long n = atomic_load(&ar->granted[i]);
        snprintf(line + strlen(line), sizeof line - strlen(line), " %s %ld", use_name[i], n);
        CHECK(n >= 20);
        all += n;
    }
    t_note("granted:%s; busy %ld, connection cut %ld, lapsed %ld", line, atomic_load(&ar->busy),
           atomic_load(&ar->troubled), atomic_load(&ar->excused));
    CHECK(atomic_load(&ar->excused) * 20 <= all);
    check_history("a, b, el", history_check(ar->alone, &r), &r);
    check_history("permit", history_check_shared(ar->permits, SLOTS, &r), &r);
    check_history("rw", history_check_shared(ar->shared, PROGRAMS * THREADS, &r), &r);
    CHECK_INT(server_int(ar->s, "EXISTS lock:evil {lock:evil}:t {lock:evil}:q lock:evil:h"), 0);
    check_only_ttls(ar->s);
}

static int is_rough(int attack)
{
    return attack == SCRIPTS || attack == KILLED || attack == KEYS;
}

/* Each attack was tried, and felt; a slow machine takes longer for that. */
static int tried_enough(struct tenant *t, int reads)
{
    int enough = (reads || t->cut > 20) && atomic_load(&t->received) > 1000
                 && (!reads || atomic_load(&t->tried[QUEUED]) > 200);
    for (int i = 0; i < ATTACKS; i++)
        if (i != QUEUED && !(is_rough(i) && reads))
            enough &= atomic_load(&t->tried[i]) >= (is_rough(i) ? 5 : 50);
    for (int i = 0; i < USES; i++)
        enough &= atomic_load(&t->ar->granted[i]) >= 20;
    return enough;
}

static void judge_attacks(struct tenant *t, int reads)
{
    char line[300] = "";
    for (int i = 0; i < ATTACKS; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), " %s %ld", attack_name[i],
                 atomic_load(&t->tried[i]));
    t_note("tried:%s; %ld messages received, %ld connections cut", line,
           atomic_load(&t->received), t->cut);
    CHECK(tried_enough(t, reads));
}

static void try_for(const char *user, const char *rights, const char *option, int reads, int64_t ms)
{
    struct arena *ar = shared_memory(sizeof *ar);
    struct tenant t = { .ar = ar, .user = user };
    ar->s = server_start(NULL);
    acl_user(ar->s, "acl");
    CHECK_STR(server_ask(ar->s, keep_text("ACL SETUSER %s reset on >tpw %s", user, rights)), "OK");
    ar->url = keep_text("unix://holdfast:pw@%s%s", server_url(ar->s) + strlen("unix://"), option);
    ar->alone = history_new(300000);
    ar->permits = history_new(100000);
    ar->shared = history_new(100000);
    struct workers *w = workers_start(PROGRAMS, program_main, ar);
    tenant_begin(&t);
    attack_for(&t, reads, getenv("HF_SOAK") ? 2 * ms : ms);
    for (int more = 0; more < 20 && !tried_enough(&t, reads); more++)
        attack_for(&t, reads, 5000);
    atomic_store(&ar->stop, 1);
    workers_join(w, 60000);
    tenant_end(&t);
    judge_attacks(&t, reads);
    judge(ar);
}

TEST_TIMEOUT(S1_a_tenant_with_every_right_but_the_keys_tries_for_20_s, 180)
{
    try_for("tenant", "&* +@all -@admin -@dangerous +client|kill", "", 0, 20000);
}

TEST_TIMEOUT(S2_with_confirm_one_who_reads_every_queue_tries_for_10_s, 120)
{
    try_for("reader", "~{lock:* &* +publish +subscribe +psubscribe +zrange", "?confirm=1", 1,
            10000);
}
