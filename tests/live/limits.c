/* SPDX-License-Identifier: MIT
 * limits.c - a limit given to a call bounds it in every state that a server can be in, and a cancel
 * ends it at once; nothing that an event loop calls ever waits.
 *
 * Each state is made, proved, and mended four times: for a call with a limit and one that is
 * cancelled, blocking and not. Afterwards the lock must be to be had, and nothing be left of it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LIVE_SCRIPTS
#include "harness/fleet.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

enum {
    TIMEOUT_MS = 6000, /* of the client: what a call would take that forgot its limit */
    LIMIT_MS = 300,
    CANCEL_AFTER_MS = 100,
    /* The limit, half a second to take the request back, and room for a slow machine. */
    IN_TIME_MS = 2500,
    AT_ONCE_MS = 1500,
    NEVER_WAITS_MS = 500, /* what never waits may still not get a processor */
};

/* ---- states ---------------------------------------------------------------------------------- */

struct state {
    struct server *s;
    struct fleet  *f;
    struct proxy  *p;
    const char    *url;
    hf_client_opts opts;
    int            crowd[16]; /* who fills the server's backlog; 0: nobody */
    long           before;    /* what is counted, when the state began */
};

struct state_kind {
    const char *name;
    void (*set_up)(struct state *st);
    void (*begin)(struct state *st); /* the client has used the lock: now it stands */
    int (*met)(struct state *st);    /* the call has come to feel it */
    void (*mend)(struct state *st);
    unsigned may; /* what a call answers that ran into its limit */
};

#define MAY(code) (1u << -(code))

/* ---- the calls ------------------------------------------------------------------------------- */

/* What of. */
struct trial {
    struct state            *st;
    const struct state_kind *k;
    hf_client               *c;
    hf_lock                 *m;
    int                      cancel; /* it has all the time there is, and is ended */
};

struct outcome {
    int64_t  took_ms, longest_ms; /* longest: that anything took of what must not wait */
    hf_err   result;
    char     message[512];
    int      calls;
};

/* No request left, or one has: also one that is written to a TCP connection which is closed at the
 * other end. */
#define IN_DOUBT (MAY(HF_ECONN) | MAY(HF_EUNSURE))
/* HF_ECANCELED, or that nothing is known of a request that left. */
#define CANCELLED (MAY(HF_ECANCELED) | MAY(HF_EUNSURE))

static void judge(const char *state, const char *how, const struct outcome *o, unsigned may,
                  int64_t low_ms, int64_t high_ms)
{
    t_note("%s, %s: %lld ms, longest turn %lld ms: %s (%s)", state, how, (long long)o->took_ms,
           (long long)o->longest_ms, hf_err_name(o->result), o->message);
    if (o->result == HF_OK || !(may & MAY(o->result)))
        FAIL("%s, %s: %s", state, how, hf_err_name(o->result));
    CHECK(o->message[0]);
    CHECK_TOOK(o->took_ms, low_ms, high_ms);
    CHECK_TOOK(o->longest_ms, 0, NEVER_WAITS_MS);
}

static struct outcome call_blocking(const struct trial *t)
{
    struct outcome o = { 0 };
    struct locker l = { .m = t->m, .wait_ms = t->cancel ? HF_WAIT_FOREVER : LIMIT_MS };
    int64_t begun = t_now_ms();
    locker_start(&l);
    if (t->cancel) {
        CHECK_EVENTUALLY(t->k->met(t->st), 10000);
        t_sleep_ms(CANCEL_AFTER_MS);
        CHECK_INT(atomic_load(&l.done), 0);
        begun = t_now_ms();
        hf_lock_cancel(t->m);
    }
    CHECK_INT(pthread_join(l.thread, NULL), 0);
    o.took_ms = l.done_ns / 1000000 - begun;
    o.result = l.result;
    snprintf(o.message, sizeof o.message, "%s", l.error.message);
    return o;
}

static void note(hf_err result, const hf_error *e, void *arg)
{
    struct outcome *o = arg;
    o->calls++;
    o->result = result;
    snprintf(o->message, sizeof o->message, "%s", e ? e->message : "");
}

static void longest(struct outcome *o, int64_t begun_ms)
{
    int64_t took = t_now_ms() - begun_ms;
    if (took > o->longest_ms)
        o->longest_ms = took;
}

/* One turn of an event loop: dispatch only if there is something to dispatch. */
static void turn(hf_client *c, struct outcome *o, int wait_ms)
{
    int fd;
    CHECK_HF(hf_client_fd(c, &fd, &err), HF_OK);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    if (poll(&p, 1, wait_ms) == 1) {
        int64_t begun = t_now_ms();
        hf_client_dispatch(c);
        longest(o, begun);
    }
}

static void loop_to_the_end(hf_client *c, struct outcome *o, int64_t begun_ms)
{
    for (int64_t until = t_now_ms() + 2 * TIMEOUT_MS; !o->calls && t_now_ms() < until;)
        turn(c, o, 1000);
    o->took_ms = t_now_ms() - begun_ms;
    CHECK_INT(o->calls, 1);
}

static void loop_for_ms(hf_client *c, struct outcome *o, int64_t ms)
{
    for (int64_t left, until = t_now_ms() + ms; (left = until - t_now_ms()) > 0;)
        turn(c, o, (int)left);
}

static struct outcome call_async(const struct trial *t)
{
    struct outcome o = { 0 };
    int64_t begun = t_now_ms();
    CHECK_HF(hf_lock_acquire_async(t->m, t->cancel ? HF_WAIT_FOREVER : LIMIT_MS, note, &o,
                                   &err), HF_OK);
    longest(&o, begun);
    if (t->cancel) {
        CHECK_EVENTUALLY((loop_for_ms(t->c, &o, 5), t->k->met(t->st)), 10000);
        loop_for_ms(t->c, &o, CANCEL_AFTER_MS);
        CHECK_INT(o.calls, 0);
        begun = t_now_ms();
        hf_lock_cancel(t->m);
        longest(&o, begun);
    }
    loop_to_the_end(t->c, &o, begun);
    return o;
}

/* ---- every state, in every way --------------------------------------------------------------- */

/* Locked and unlocked: the connections stand, or at least one that is used for that. */
static void use(hf_client *c, hf_lock *m)
{
    lock_now(m);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    struct outcome o = { 0 };
    CHECK_HF(hf_lock_acquire_async(m, 10000, note, &o, &err), HF_OK);
    loop_to_the_end(c, &o, t_now_ms());
    CHECK_INT(o.result, HF_OK);
    unlock_now(m);
}

/* 1; or 0: on a busy machine its time was over before it came to feel anything. */
static int try_once(struct trial *t, int async)
{
    static const char *const how[2][2] = { { "limit", "cancel" },
                                           { "async limit", "async cancel" } };
    t->c = client_with(t->st->url, t->st->opts);
    t->m = lock_of(t->c, "a", 60000);
    use(t->c, t->m);
    t->k->begin(t->st);
    struct outcome o = async ? call_async(t) : call_blocking(t);
    int met = t->k->met(t->st);
    if (met)
        judge(t->k->name, how[async][t->cancel], &o, t->cancel ? CANCELLED : t->k->may,
              t->cancel ? 0 : LIMIT_MS - 10, t->cancel ? AT_ONCE_MS : IN_TIME_MS);
    t->k->mend(t->st);
    CHECK_INT(hf_lock_is_held(t->m), 0);
    use(t->c, t->m);
    hf_lock_free(t->m);
    hf_client_free(t->c);
    CHECK_EVENTUALLY(server_int(t->st->s, "EXISTS lock:a {lock:a}:q") == 0, 5000);
    return met;
}

static void in_every_way(const struct state_kind *k)
{
    struct state st = { .opts = { .timeout_ms = TIMEOUT_MS } };
    k->set_up(&st);
    for (int way = 0; way < 4; way++) {
        struct trial t = { .st = &st, .k = k, .cancel = way % 2 };
        int tries = 1;
        while (!try_once(&t, way / 2))
            if (++tries > 10)
                FAIL("%s: it never happened", k->name);
    }
}

/* ---- a server that stands still -------------------------------------------------------------- */

static void plain_server(struct state *st)
{
    st->s = server_start(NULL);
    st->url = server_url(st->s);
}

static void freeze(struct state *st)
{
    CHECK_STR(server_ask(st->s, "PING"), "PONG");
    server_freeze(st->s);
}

static int still_frozen(struct state *st)
{
    return server_is_frozen(st->s);
}

static void thaw(struct state *st)
{
    server_thaw(st->s);
}

TEST(a_frozen_server)
{
    in_every_way(&(struct state_kind){ "frozen", plain_server, freeze, still_frozen, thaw,
                                       IN_DOUBT });
}

/* ---- a server that takes no connection ------------------------------------------------------- */

static const char *const short_queue[] = { "--tcp-backlog", "1", NULL };

static void short_queue_unix(struct state *st)
{
    st->s = server_start(short_queue);
    st->url = server_url(st->s);
}

static void short_queue_tcp(struct state *st)
{
    st->s = server_start_opts(&(struct server_opts){ .tcp = 1, .args = short_queue });
    st->url = server_tcp_url(st->s);
}

/* A connection that is begun, not more. */
static int knock(const struct state *st)
{
    int tcp = strncmp(st->url, "redis:", 6) == 0;
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    struct sockaddr_in in = { .sin_family = AF_INET };
    in.sin_port = htons((uint16_t)server_port(st->s));
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(un.sun_path, sizeof un.sun_path, "%s", server_socket(st->s));
    int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    (void)!(tcp ? connect(fd, (struct sockaddr *)&in, sizeof in)
                : connect(fd, (struct sockaddr *)&un, sizeof un));
    return fd;
}

static int is_connected(int fd, int wait_ms)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    poll(&p, 1, wait_ms);
    return getpeername(fd, (struct sockaddr *)&a, &len) == 0;
}

static int nobody_comes_in(struct state *st)
{
    int fd = knock(st), in = is_connected(fd, 50);
    close(fd);
    return server_is_frozen(st->s) && !in;
}

static void kill_connections(struct state *st)
{
    CHECK(server_int(st->s, "CLIENT KILL TYPE normal") >= 1);
    server_int(st->s, "CLIENT KILL TYPE pubsub");
}

static void fill_queue(struct state *st)
{
    kill_connections(st);
    freeze(st);
    for (size_t i = 0; i < sizeof st->crowd / sizeof *st->crowd; i++)
        st->crowd[i] = knock(st);
    CHECK(nobody_comes_in(st));
}

static void empty_queue(struct state *st)
{
    for (size_t i = 0; i < sizeof st->crowd / sizeof *st->crowd; i++)
        close(st->crowd[i]);
    server_thaw(st->s);
}

TEST(a_unix_socket_that_takes_no_connection)
{
    in_every_way(&(struct state_kind){ "no connection, unix", short_queue_unix, fill_queue,
                                       nobody_comes_in, empty_queue, MAY(HF_ECONN) });
}

TEST(a_tcp_port_that_takes_no_connection)
{
    in_every_way(&(struct state_kind){ "no connection, tcp", short_queue_tcp, fill_queue,
                                       nobody_comes_in, empty_queue, IN_DOUBT });
}

/* ---- a server that is silent at the door ----------------------------------------------------- */

static void proxied(struct state *st)
{
    st->s = server_start_opts(&(struct server_opts){ .requirepass = "pw" });
    st->p = proxy_start(st->s);
    st->url = proxy_url(st->p);
    st->opts.password = "pw";
}

static void silent_at_login(struct state *st)
{
    st->before = proxy_connections(st->p);
    proxy_hold(st->p);
    proxy_break(st->p);
}

/* The login is answered, the greeting is not. */
static void silent_at_greeting(struct state *st)
{
    st->before = proxy_connections(st->p);
    proxy_when(st->p, "local listening");
    proxy_hold(st->p);
    proxy_break(st->p);
}

static int was_silent(struct state *st)
{
    return proxy_connections(st->p) > st->before && proxy_held(st->p) > 0;
}

static void pass(struct state *st)
{
    proxy_pass(st->p);
    proxy_break(st->p);
}

TEST(a_login_that_nobody_answers)
{
    in_every_way(&(struct state_kind){ "silent at login", proxied, silent_at_login, was_silent,
                                       pass, MAY(HF_ECONN) });
}

TEST(a_greeting_that_nobody_answers)
{
    in_every_way(&(struct state_kind){ "silent at greeting", proxied, silent_at_greeting,
                                       was_silent, pass, MAY(HF_ECONN) });
}

/* ---- replies drop by drop -------------------------------------------------------------------- */

static void drip(struct state *st, int64_t ms)
{
    st->before = proxy_dripped(st->p);
    proxy_drip(st->p, ms);
}

static void drip_slowly(struct state *st)
{
    drip(st, 50);
}

/* Faster than anything that waits looks at its limit. */
static void drip_fast(struct state *st)
{
    drip(st, 5);
}

static void drip_at_login(struct state *st)
{
    drip(st, 5);
    proxy_break(st->p);
}

static int has_dripped(struct state *st)
{
    return proxy_dripped(st->p) >= st->before + 2;
}

static int has_rained(struct state *st)
{
    return proxy_dripped(st->p) >= st->before + 10;
}

TEST(a_reply_that_comes_drop_by_drop)
{
    in_every_way(&(struct state_kind){ "a byte in 50 ms", proxied, drip_slowly, has_dripped, pass,
                                       IN_DOUBT });
}

TEST(a_reply_that_comes_in_a_drizzle)
{
    in_every_way(&(struct state_kind){ "a byte in 5 ms", proxied, drip_fast, has_rained, pass,
                                       IN_DOUBT });
}

TEST(a_login_that_is_answered_drop_by_drop)
{
    in_every_way(&(struct state_kind){ "a byte in 5 ms at login", proxied, drip_at_login,
                                       has_rained, pass, MAY(HF_ECONN) });
}

/* ---- replicas that do not acknowledge -------------------------------------------------------- */

static long waits(struct state *st)
{
    const char *line = server_info(st->s, "cmdstat_wait");
    return line ? atol(strstr(line, "calls=") + 6) : 0;
}

static void with_replicas(struct state *st)
{
    st->f = fleet_start(&(struct fleet_opts){ .no_sentinels = 1, .memory_only = 1 });
    st->s = st->f->node[0];
    st->url = st->f->url;
    st->opts.replicas = 2;
}

static void freeze_a_replica(struct state *st)
{
    st->before = waits(st);
    CHECK(st->before > 0);
    server_freeze(st->f->node[1]);
}

static int was_asked(struct state *st)
{
    return waits(st) > st->before && server_is_frozen(st->f->node[1]);
}

static void thaw_the_replica(struct state *st)
{
    server_thaw(st->f->node[1]);
}

/* The others: its time was over before the server said how many have it. */
#define UNACKNOWLEDGED (MAY(HF_EREPLICAS) | MAY(HF_EUNSURE) | MAY(HF_ETIMEDOUT))

TEST(replicas_that_do_not_acknowledge)
{
    in_every_way(&(struct state_kind){ "a replica frozen", with_replicas, freeze_a_replica,
                                       was_asked, thaw_the_replica, UNACKNOWLEDGED });
}

static int was_asked_alone(struct state *st)
{
    return waits(st) > st->before;
}

/* Nothing can be had before: so this one begins in its state. */
TEST(replicas_that_are_not_there)
{
    struct state_kind k = { .name = "no replica", .met = was_asked_alone };
    struct state st = { .s = server_start(NULL) };
    for (int way = 0; way < 4; way++) {
        struct trial t = { .st = &st, .k = &k, .cancel = way % 2 };
        t.c = client_with(server_url(st.s), (hf_client_opts){ .timeout_ms = TIMEOUT_MS,
                                                              .replicas = 1 });
        t.m = lock_of(t.c, "a", 60000);
        st.before = waits(&st);
        struct outcome o = way / 2 ? call_async(&t) : call_blocking(&t);
        judge(k.name, way / 2 ? "async" : "blocking", &o, t.cancel ? CANCELLED : UNACKNOWLEDGED,
              t.cancel ? 0 : LIMIT_MS - 10, t.cancel ? AT_ONCE_MS : IN_TIME_MS);
        CHECK(waits(&st) > st.before);
        CHECK_EVENTUALLY(server_int(st.s, "EXISTS lock:a {lock:a}:q") == 0, 5000);
        hf_lock_free(t.m);
        hf_client_free(t.c);
    }
}

/* ---- a name server that is silent ------------------------------------------------------------ */

static atomic_int names_hang, looked_up, found;

/* The resolver, as far as the library sees it: every name is this machine. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (hints && hints->ai_flags & AI_NUMERICHOST)
        return real(node, service, hints, ret);
    atomic_fetch_add(&looked_up, 1);
    while (atomic_load(&names_hang))
        t_sleep_ms(1);
    atomic_fetch_add(&found, 1);
    return real("127.0.0.1", service, hints, ret);
}

static void named_server(struct state *st)
{
    st->s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    st->url = keep_text("redis://some.test:%d", server_port(st->s));
}

static void forget_names(struct state *st)
{
    CHECK(atomic_load(&found) > 0);
    atomic_store(&names_hang, 1);
    kill_connections(st);
}

static int names_did_hang(struct state *st)
{
    (void)st;
    return atomic_load(&looked_up) > atomic_load(&found);
}

static void find_names(struct state *st)
{
    (void)st;
    atomic_store(&names_hang, 0);
    CHECK_EVENTUALLY(atomic_load(&looked_up) == atomic_load(&found), 5000);
}

TEST(a_look_up_that_hangs)
{
    in_every_way(&(struct state_kind){ "look-up hangs", named_server, forget_names, names_did_hang,
                                       find_names, IN_DOUBT });
}

/* ---- several locks at once ------------------------------------------------------------------- */

enum { SEVERAL = 3, SEVERAL_MS = 1000 }; /* the limit: there has to be time to get into the state */

struct several {
    struct server *s;
    struct proxy  *p;
    hf_client     *c, *other;
    hf_lock       *m[SEVERAL], *held; /* the middle one, by another client */
    int64_t        wait_ms, begun_ms;
    struct outcome o;
    pthread_t      thread;
};

static void *lock_several(void *arg)
{
    struct several *v = arg;
    hf_error e = { 0 };
    v->o.result = hf_multi_acquire(v->m, SEVERAL, v->wait_ms, &e);
    v->o.took_ms = t_now_ms() - v->begun_ms;
    snprintf(v->o.message, sizeof v->o.message, "%s", e.message);
    return NULL;
}

static void several_open(struct several *v)
{
    v->s = server_start(NULL);
    v->p = proxy_start(v->s);
    v->c = client_at(proxy_url(v->p), TIMEOUT_MS);
    v->other = client_at(server_url(v->s), TIMEOUT_MS);
    for (int i = 0; i < SEVERAL; i++)
        v->m[i] = lock_with(v->c, (const char *[]){ "a", "b", "c" }[i],
                            (hf_lock_opts){ .ttl_ms = 60000, .grace_ms = HF_NO_TAKEOVER,
                                              .whole_lease = 1 });
    v->held = lock_of(v->other, "b", 60000);
    CHECK_HF(hf_multi_acquire(v->m, SEVERAL, 10000, &err), HF_OK);
    CHECK_HF(hf_multi_release(v->m, SEVERAL, &err), HF_OK);
    for (int i = 0; i < 2; i++) { /* both connections are there, by whichever name it waits */
        lock_now(v->m[1]);
        unlock_now(v->m[1]);
    }
}

static void several_start(struct several *v, int cancel)
{
    v->o = (struct outcome){ 0 };
    v->wait_ms = cancel ? HF_WAIT_FOREVER : SEVERAL_MS;
    v->begun_ms = t_now_ms();
    CHECK_INT(pthread_create(&v->thread, NULL, lock_several, v), 0);
}

static void several_end(struct several *v, const char *state, int cancel, unsigned may)
{
    if (cancel) {
        t_sleep_ms(CANCEL_AFTER_MS);
        v->begun_ms = t_now_ms();
        hf_multi_cancel(v->m, SEVERAL);
    }
    CHECK_INT(pthread_join(v->thread, NULL), 0);
    judge(state, cancel ? "cancel" : "limit", &v->o, cancel ? CANCELLED : may,
          cancel ? 0 : SEVERAL_MS - 10, cancel ? AT_ONCE_MS : SEVERAL_MS - LIMIT_MS + IN_TIME_MS);
    for (int i = 0; i < SEVERAL; i++)
        CHECK_INT(hf_lock_is_held(v->m[i]), 0);
}

/* All is well again: all of them are to be had, and nothing stays. */
static void several_close(struct several *v)
{
    CHECK_HF(hf_multi_acquire(v->m, SEVERAL, 10000, &err), HF_OK);
    CHECK_HF(hf_multi_release(v->m, SEVERAL, &err), HF_OK);
    for (int i = 0; i < SEVERAL; i++)
        hf_lock_free(v->m[i]);
    hf_lock_free(v->held);
    hf_client_free(v->c);
    hf_client_free(v->other);
    CHECK_EVENTUALLY(server_int(v->s, "EXISTS lock:a lock:b lock:c {lock:b}:q") == 0, 5000);
}

TEST(several_locks_on_a_frozen_server)
{
    for (int cancel = 0; cancel < 2; cancel++) {
        struct several v;
        several_open(&v);
        server_freeze(v.s);
        several_start(&v, cancel);
        several_end(&v, "several, frozen", cancel, IN_DOUBT);
        CHECK(server_is_frozen(v.s));
        server_thaw(v.s);
        several_close(&v);
    }
}

TEST(several_locks_of_which_one_is_held)
{
    for (int cancel = 0; cancel < 2; cancel++) {
        struct several v;
        several_open(&v);
        lock_now(v.held);
        several_start(&v, cancel);
        CHECK_QUEUE(v.s, "b", 1);
        several_end(&v, "several, one held", cancel, MAY(HF_ETIMEDOUT));
        CHECK_INT(queue_of(v.s, "b"), 0);
        CHECK_HF(hf_lock_verify(v.held, &err), HF_OK);
        unlock_now(v.held);
        several_close(&v);
    }
}

TEST(several_locks_of_which_one_is_held_on_a_server_that_freezes)
{
    for (int cancel = 0; cancel < 2; cancel++) {
        struct several v;
        several_open(&v);
        lock_now(v.held);
        several_start(&v, cancel);
        CHECK_QUEUE(v.s, "b", 1);
        server_freeze(v.s);
        several_end(&v, "several, one held, then frozen", cancel, IN_DOUBT);
        CHECK(server_is_frozen(v.s));
        server_thaw(v.s);
        unlock_now(v.held);
        several_close(&v);
    }
}

/* The one that was waited for is held while the others are asked for: it has to be given back. */
TEST(several_locks_on_a_server_that_is_silent_when_one_of_them_was_given)
{
    for (int cancel = 0; cancel < 2; cancel++) {
        struct several v;
        several_open(&v);
        lock_now(v.held);
        several_start(&v, cancel);
        CHECK_QUEUE(v.s, "b", 1);
        proxy_when(v.p, lua_sha[LUA_acquire_all]);
        proxy_hold(v.p);
        unlock_now(v.held);
        CHECK_EVENTUALLY(proxy_held(v.p) > 0, 1000);
        CHECK_INT(server_int(v.s, "EXISTS lock:b"), 1); /* it is ours, */
        several_end(&v, "several, silent with one", cancel, IN_DOUBT);
        CHECK(proxy_held(v.p) > 0);
        proxy_pass(v.p);
        CHECK_EVENTUALLY(server_int(v.s, "EXISTS lock:b") == 0, 5000); /* and is not kept */
        several_close(&v);
    }
}

/* ---- what has no limit of its own: the client's timeout -------------------------------------- */

enum { SHORT_TIMEOUT_MS = 400, LOCKS = 20 };

TEST(unlock_and_extend_on_a_frozen_server)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), SHORT_TIMEOUT_MS);
    hf_lock *m[] = { lock_of(c, "a", 60000), lock_of(c, "b", 60000), lock_of(c, "c", 60000),
                      lock_of(c, "d", 60000) };
    struct outcome o[4] = { 0 };
    for (int i = 0; i < 4; i++)
        lock_now(m[i]);
    server_freeze(s);
    for (int i = 0; i < 2; i++) {
        int64_t begun = t_now_ms();
        hf_err e = i ? hf_lock_release(m[i], &err) : hf_lock_extend(m[i], 90000, &err);
        note(e, &err, &o[i]);
        o[i].took_ms = t_now_ms() - begun;
    }
    for (int i = 2; i < 4; i++) {
        int64_t begun = t_now_ms();
        CHECK_HF(i == 3 ? hf_lock_release_async(m[i], note, &o[i], &err)
                        : hf_lock_extend_async(m[i], 90000, note, &o[i], &err), HF_OK);
        longest(&o[i], begun);
        loop_to_the_end(c, &o[i], begun);
    }
    for (int i = 0; i < 4; i++) {
        judge("timeout of 400 ms, frozen",
              (const char *[]){ "extend", "unlock", "async extend", "async unlock" }[i], &o[i],
              IN_DOUBT, SHORT_TIMEOUT_MS - 10, IN_TIME_MS);
        CHECK_INT(hf_lock_is_held(m[i]), i % 2 == 0);
    }
    CHECK(server_is_frozen(s));
    server_thaw(s);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:b lock:d") == 0, 5000); /* in the background */
    CHECK_HF(hf_lock_verify(m[0], &err), HF_OK);
    for (int i = 0; i < 4; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a lock:c") == 0, 5000);
}

/* One time-out for all of them together. */
TEST(freeing_a_client_with_many_locks_on_a_frozen_server)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 2 * SHORT_TIMEOUT_MS);
    hf_lock *m[LOCKS];
    for (int i = 0; i < LOCKS; i++) {
        m[i] = lock_of(c, keep_text("n%d", i), 60000);
        lock_now(m[i]);
    }
    CHECK_INT(server_int(s, "EXISTS lock:n0 lock:n%d", LOCKS - 1), 2);
    server_freeze(s);
    int64_t begun = t_now_ms();
    hf_client_free(c);
    int64_t took = t_now_ms() - begun;
    t_note("freed in %lld ms with a timeout of %d ms and %d locks", (long long)took,
           2 * SHORT_TIMEOUT_MS, LOCKS);
    CHECK_TOOK(took, 0, IN_TIME_MS);
    CHECK(server_is_frozen(s));
    for (int i = 0; i < LOCKS; i++)
        hf_lock_free(m[i]);
    server_thaw(s);
}

/* ---- a limit of the handle or of the call, shorter than the client's timeout ----------------- */

static int64_t elapsed(int64_t begun)
{
    return t_now_ms() - begun;
}

TEST(a_handle_with_its_own_timeout_on_a_frozen_server)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 2 * TIMEOUT_MS);
    hf_lock_opts o = { .ttl_ms = 60000, .timeout_ms = LIMIT_MS };
    hf_lock *m[] = { lock_with(c, "a", o), lock_with(c, "b", o), lock_with(c, "c", o) };
    for (int i = 0; i < 3; i++)
        lock_now(m[i]);
    server_freeze(s);
    int64_t begun = t_now_ms();
    hf_err e = hf_lock_extend(m[0], 90000, &err);
    CHECK(e == HF_EUNSURE || e == HF_ECONN);
    CHECK_TOOK(elapsed(begun), LIMIT_MS - 10, IN_TIME_MS);
    begun = t_now_ms();
    e = hf_lock_verify(m[1], &err);
    CHECK(e == HF_EUNSURE || e == HF_ECONN);
    CHECK_TOOK(elapsed(begun), LIMIT_MS - 10, IN_TIME_MS);
    begun = t_now_ms();
    e = hf_lock_release(m[2], &err);
    CHECK(e == HF_EUNSURE || e == HF_ECONN);
    CHECK_TOOK(elapsed(begun), LIMIT_MS - 10, IN_TIME_MS);
    CHECK(server_is_frozen(s));
    server_thaw(s);
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

/* A renewal has more time than such a handle's release: it is ended for it. */
TEST(a_release_does_not_wait_for_a_renewal_longer_than_its_limit)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 2 * TIMEOUT_MS);
    hf_lock_opts o = { .ttl_ms = 3 * TIMEOUT_MS, .grace_ms = HF_NO_TAKEOVER,
                       .timeout_ms = LIMIT_MS };
    hf_lock *m = lock_with(c, "a", o);
    lock_now(m);
    CHECK_HF(hf_lock_extend(m, 6000, &err), HF_OK); /* renewed every two seconds */
    server_freeze(s);
    /* In doubt at half of it: a renewal has been under way for a second, and has one more. */
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_IN_DOUBT, 6000);
    int64_t begun = t_now_ms();
    hf_err e = hf_lock_release(m, &err);
    t_note("released in %lld ms: %s", (long long)elapsed(begun), err.message);
    CHECK(e == HF_EUNSURE || e == HF_ECONN);
    CHECK_TOOK(elapsed(begun), 0, 900);
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK(server_is_frozen(s));
    server_thaw(s);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a") == 0, 5000); /* in the background */
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(closing_and_inspecting_have_limits_of_their_own)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 2 * TIMEOUT_MS);
    hf_lock *m = lock_of(c, "a", 60000);
    hf_inspect_info *info = NULL;
    lock_now(m);
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 5000, &info, &err), HF_OK);
    CHECK_INT(info->holders, 1);
    hf_inspect_free(info);
    server_freeze(s);
    int64_t begun = t_now_ms();
    CHECK(hf_inspect_lock(c, hf_str("a"), LIMIT_MS, &info, &err) != HF_OK);
    CHECK_TOOK(elapsed(begun), LIMIT_MS - 10, IN_TIME_MS);
    begun = t_now_ms();
    hf_err e = hf_client_close(c, LIMIT_MS, &err);
    CHECK(e == HF_EUNSURE || e == HF_ECONN);
    CHECK(err.message[0]);
    CHECK_TOOK(elapsed(begun), 0, IN_TIME_MS);
    CHECK(server_is_frozen(s));
    server_thaw(s);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EINVAL);
    hf_lock_free(m);
    c = client_at(server_url(s), 0);
    CHECK_HF(hf_client_close(c, 0, &err), HF_OK);
}
