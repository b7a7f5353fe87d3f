/* SPDX-License-Identifier: MIT
 * cluster_hostile.c - P10: whatever a node of a cluster says about where slots are: an answer in
 * time, or a clear error in time; no crash, and nothing that goes round and round.
 */
#include <stdatomic.h>
#include <sys/socket.h>

#include "harness/fake.h"
#include "harness/keep.h"
#include "harness/live.h"
#include "harness/sockets.h"

/* ---- a node that lies ---- */

struct fake;
typedef const char *script_fn(struct fake *f, char **argv);

struct fake {
    int         listener, port;
    _Atomic(const char *) slots; /* what it answers to CLUSTER SLOTS */
    _Atomic(const char *) nodes; /* ... to CLUSTER NODES; NULL: the same */
    _Atomic(const char *) eval; /* ... to scripts; NULL: as a server does that grants all */
    _Atomic(const char *) subscribe; /* ... to SSUBSCRIBE; NULL: as a server does */
    const char *unsubscribe; /* ... to SUNSUBSCRIBE */
    const char *ask; /* for script */
    _Atomic(script_fn *) script; /* ... to scripts; NULL: as eval says */
    atomic_int  late_ms;     /* that long it takes to answer CLUSTER SLOTS and NODES */
    atomic_int  late_nodes_ms; /* ... to answer CLUSTER NODES, on top of that */
    atomic_long connections, asked, asked_nodes, scripts, keys, subscribed, plain, stood;
};

static const char *answer_to(struct fake *f, int argc, char **argv, char *text, size_t size)
{
    if (strcmp(argv[0], "CLUSTER") == 0) {
        int about_nodes = argc == 2 && strcmp(argv[1], "NODES") == 0;
        atomic_fetch_add(&f->asked, 1);
        atomic_fetch_add(&f->asked_nodes, about_nodes);
        t_sleep_ms(f->late_ms + (about_nodes ? f->late_nodes_ms : 0));
        const char *nodes = atomic_load(&f->nodes);
        return nodes && about_nodes ? nodes : f->slots;
    }
    if (strncmp(argv[0], "EVAL", 4) == 0) {
        atomic_fetch_add(&f->scripts, 1);
        script_fn *script = atomic_load(&f->script);
        const char *said = script ? script(f, argv) : atomic_load(&f->eval);
        if (said)
            return said;
        return strcmp(argv[2], "2") == 0 ? "*2\r\n:0\r\n:1\r\n" : ":1700000000000001\r\n";
    }
    if (strcmp(argv[0], "SSUBSCRIBE") == 0 && argc == 2) {
        atomic_fetch_add(&f->subscribed, 1);
        snprintf(text, size, "*3\r\n$10\r\nssubscribe\r\n$%zu\r\n%s\r\n:1\r\n", strlen(argv[1]),
                 argv[1]);
        const char *lie = atomic_load(&f->subscribe);
        atomic_fetch_add(&f->stood, !lie);
        return lie ? lie : text;
    }
    if (strcmp(argv[0], "SUBSCRIBE") == 0) {
        atomic_fetch_add(&f->plain, 1);
        return "?\r\n"; /* of no use: the connection is made anew */
    }
    if (strcmp(argv[0], "SUNSUBSCRIBE") == 0 && f->unsubscribe)
        return f->unsubscribe;
    return strcmp(argv[0], "INFO") == 0 ? "$0\r\n\r\n" : "+PONG\r\n";
}

/* Whole commands only, as short ones arrive; -1: not one of them. */
static long take_command(struct fake *f, char *buf, long len, int fd)
{
    char *argv[64] = { 0 }, *at = buf, *end = buf + len, text[512];
    int argc = atoi(at + 1);
    if (*at != '*' || argc < 1 || argc > 64 || !(at = memmem(at, (size_t)(end - at), "\r\n", 2)))
        return -1;
    at += 2;
    for (int i = 0; i < argc; i++) {
        if (at >= end)
            return -1;
        long n = atol(at + 1);
        if (!(at = memmem(at, (size_t)(end - at), "\r\n", 2)) || at + 2 + n + 2 > end)
            return -1;
        argv[i] = at + 2;
        at += 2 + n + 2;
        at[-2] = '\0';
    }
    const char *said = answer_to(f, argc, argv, text, sizeof text);
    (void)!send(fd, said, strlen(said), MSG_NOSIGNAL);
    return at - buf;
}

static int answer_all(void *arg, int fd, char *buf, size_t n)
{
    long len = (long)n, took = 0, one = 0;
    while (took < len && (one = take_command(arg, buf + took, len - took, fd)) > 0)
        took += one;
    return one < 0 ? -1 : 0;
}

/* All slots, at the port that follows. */
static char *slots_at(const char *host, int port)
{
    return keep_text("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n%s\r\n:%d\r\n$1\r\nx\r\n", host, port);
}

static struct fake *fake_start(void)
{
    struct fake *f = calloc(1, sizeof *f);
    CHECK(f);
    f->listener = socket_listen(64, &f->port);
    f->slots = slots_at("$9\r\n127.0.0.1", f->port);
    return f;
}

static void fake_go(struct fake *f)
{
    fake_serve(f->listener, answer_all, f, &f->connections);
}

static int is_printable(const char *text)
{
    while (*text >= ' ' && *text <= '~')
        text++;
    return !*text;
}

static const char *url_of(const struct fake *f)
{
    static char url[64];
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d", f->port);
    return url;
}

/* ---- redirections ---- */

/* It stays bound, so that nobody else can come to listen there. */
static int closed_port(void)
{
    int port = 0;
    CHECK(socket_bind(&port) >= 0);
    return port;
}

/* Nobody accepts there, and what would wait to be is full: packets vanish. */
static int black_hole(void)
{
    int port;
    socket_crowd(socket_listen(0, &port), 4);
    return port;
}

static const char *redirect(const char *how, int port)
{
    return keep_text("-%s 127.0.0.1:%d\r\n", how, port);
}

struct tried {
    hf_err  e;
    int64_t took_ms, cpu_ms;
    long    asked;
};

/* Try to take a lock at me, whose scripts are answered by said. */
static struct tried try_at(struct fake *me, struct fake *other, const char *said, int64_t limit_ms)
{
    atomic_store(&me->eval, said);
    hf_client *c = client_at(url_of(me), limit_ms);
    hf_lock *m = lock_of(c, "a", 1000);
    long before = atomic_load(&me->scripts) + atomic_load(&other->scripts);
    int64_t begun = t_now_ms(), used = t_cpu_ms();
    struct tried t = { .e = hf_lock_try(m, NULL, &err) };
    t.took_ms = t_now_ms() - begun;
    t.cpu_ms = t_cpu_ms() - used;
    t.asked = atomic_load(&me->scripts) + atomic_load(&other->scripts) - before;
    t_note("%-40.*s %s after %lld ms, %ld requests: %s", (int)strcspn(said, "\r"), said,
           hf_err_name(t.e), (long long)t.took_ms, t.asked, err.message);
    CHECK(err.message[0] && !strstr(err.message, "use redis+cluster"));
    CHECK(is_printable(err.message));
    hf_lock_free(m);
    hf_client_free(c);
    return t;
}

/* Servers that do not agree may do so soon, so that is tried until the client's limit, with pauses.
 * If that passes while a request is under way, nobody knows what becomes of it, and there are
 * 500 ms more to undo it. */
TEST(P10_redirections_that_lead_nowhere_end_in_time)
{
    enum { LIMIT_MS = 1000 };
    struct fake *me = fake_start(), *other = fake_start();
    const char *said[] = {
        redirect("MOVED 1", me->port), redirect("ASK 1", me->port),
        redirect("MOVED 1", other->port), redirect("ASK 1", other->port),
        redirect("MOVED 1", closed_port()), redirect("ASK 1", closed_port()),
        redirect("MOVED 1", black_hole()), redirect("ASK 1", black_hole()),
    };
    fake_go(me);
    other->eval = redirect("MOVED 1", me->port); /* and back again */
    fake_go(other);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct tried t = try_at(me, other, said[i], LIMIT_MS);
        if (t.e != HF_ECONN) {
            CHECK_INT(t.e, HF_EUNSURE);
            CHECK(t.took_ms >= LIMIT_MS);
        }
        CHECK_TOOK(t.took_ms, 0, 10 * LIMIT_MS); /* and not for ever */
        CHECK_RANGE(t.asked, 1, 100);
        CHECK_RANGE(t.cpu_ms, 0, LIMIT_MS / 2);
    }
}

/* There is nothing to wait for: one request, and long before the limit. */
TEST(P10_redirections_to_no_server_end_at_once)
{
    enum { LIMIT_MS = 30000 };
    char longest[300];
    memset(longest, 'h', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    struct fake *me = fake_start(), *other = fake_start();
    const char *said[] = {
        "-MOVED\r\n", "-MOVED \r\n", "-MOVED 1\r\n", "-MOVED 1 \r\n", "-MOVED 1 :\r\n",
        "-MOVED 1 127.0.0.1\r\n", "-MOVED 1 127.0.0.1:\r\n", "-MOVED 1 127.0.0.1:0\r\n",
        "-MOVED 1 127.0.0.1:65536\r\n", "-MOVED 1 127.0.0.1:-1\r\n",
        redirect("MOVED 16384", other->port), redirect("MOVED -1", other->port),
        redirect("MOVED x", other->port), redirect("MOVED 99999999999999999999", other->port),
        keep_text("-MOVED 1 ?:%d\r\n", other->port), keep_text("-MOVED 1 %s:1\r\n", longest),
        keep_text("-MOVED 1 h\x1b]0;pwned\x07:%d\r\n", other->port),
        keep_text("-ASK 1 h\nforged:%d\r\n", other->port),
        "-ASK\r\n", "-ASK 1 127.0.0.1:99999999999999999999\r\n",
    };
    fake_go(me);
    fake_go(other);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct tried t = try_at(me, other, said[i], LIMIT_MS);
        CHECK_INT(t.e, HF_ECONN);
        CHECK_TOOK(t.took_ms, 0, LIMIT_MS / 2);
        CHECK_INT(t.asked, 1);
    }
}

/* ---- CLUSTER SLOTS ---- */

/* n nodes, of which all but the last are not there; that one has every slot. */
static char *many_nodes(int n, int port)
{
    static char s[1500 * 80 + 100];
    char *p = s;
    CHECK(n <= 1500);
    p += sprintf(p, "*%d\r\n", n);
    for (int i = 1; i < n; i++)
        p += sprintf(p, "*3\r\n:%d\r\n:%d\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", i, i, i);
    sprintf(p, "*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", port);
    return s;
}

/* Each is judged at once, long before the client's limit. */
TEST(P10_a_map_of_any_form_is_understood_or_refused)
{
    enum { MAP_LIMIT_MS = 30000 };
    struct fake *f = fake_start();
    int port = f->port;
    const struct {
        const char *slots;
        hf_err      open, lock;
    } t[] = {
        { slots_at("$9\r\n127.0.0.1", port), HF_OK, HF_OK },
        { slots_at("$0\r\n", port), HF_OK, HF_OK },          /* where we asked */
        { slots_at("$-1", port), HF_OK, HF_OK },             /* the same, of newer servers */
        { slots_at("$9\r\nlocalhost", port), HF_OK, HF_OK },
        /* a host name is preferred, and it has none */
        { keep_text("*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n$1\r\n?\r\n:%d\r\n$1\r\nx\r\n"
                    "*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n", port), HF_OK, HF_OK },
        /* one that nobody can find, among others */
        { keep_text("*2\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$1\r\n?\r\n:1\r\n"
                    "*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", port), HF_OK, HF_OK },
        /* overlapping */
        { keep_text("*2\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n"
                    "*3\r\n:5\r\n:5\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n", port, port), HF_OK,
          HF_OK },
        { many_nodes(1500, port), HF_OK, HF_OK },
        { slots_at("$1\r\n?", port), HF_ECONN, HF_OK },
        { "*0\r\n", HF_ECONN, HF_OK },
        { ":1\r\n", HF_EPROTO, HF_OK },
        { "*1\r\n:1\r\n", HF_EPROTO, HF_OK },
        { "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nx\r\n:1\r\n", HF_EPROTO, HF_OK },
        { "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\nx\r\n:1\r\n", HF_EPROTO, HF_OK },
        { "*1\r\n*3\r\n:-1\r\n:4\r\n*2\r\n$1\r\nx\r\n:1\r\n", HF_EPROTO, HF_OK },
        { "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\nx\r\n:0\r\n", HF_EPROTO, HF_OK },
        { "*1\r\n*3\r\n:0\r\n:4\r\n*1\r\n$1\r\nx\r\n", HF_EPROTO, HF_OK },
        { "*1\r\n*3\r\n:0\r\n:4\r\n*0\r\n", HF_EPROTO, HF_OK },
        { "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n:1\r\n:1\r\n", HF_EPROTO, HF_OK },
        { slots_at("$12\r\nh\x1b]0;pwned\x07\n", port), HF_EPROTO, HF_OK },
        { "-NOPERM User x has no permissions to run the 'cluster|slots' command\r\n", HF_EAUTH,
          HF_OK },
        { "-ERR unknown command 'CLUSTER'\r\n", HF_ESERVER, HF_OK },
    };
    fake_go(f);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        hf_client *c = NULL;
        hf_client_opts o = { .size = sizeof o, .timeout_ms = MAP_LIMIT_MS };
        int64_t begun = t_now_ms();
        f->slots = t[i].slots;
        hf_err e = hf_client_open(url_of(f), &o, &c, &err);
        t_note("%zu: %s after %lld ms %s", i, hf_err_name(e), (long long)(t_now_ms() - begun),
               e ? err.message : "");
        CHECK_INT(e, t[i].open);
        CHECK(e == HF_OK || is_printable(err.message));
        CHECK_TOOK(t_now_ms() - begun, 0, MAP_LIMIT_MS / 2);
        if (e)
            continue;
        hf_lock *m = lock_of(c, "a", 20000);
        CHECK_HF(hf_lock_try(m, NULL, &err), t[i].lock);
        hf_lock_free(m);
        hf_client_free(c);
        CHECK_TOOK(t_now_ms() - begun, 0, MAP_LIMIT_MS / 2);
    }
}

/* Longer than a server is waited for while others might answer. */
TEST(a_map_that_comes_late_is_waited_for_where_nothing_is_known)
{
    struct fake *f = fake_start();
    f->late_ms = 700;
    fake_go(f);
    hf_client *c = client_at(url_of(f), 20000);
    hf_lock *m = lock_of(c, "a", 20000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    hf_lock_free(m);
    hf_client_free(c);
}

/* n addresses where nobody is, each with some slots, from port `first` on. */
static char *junk(int n, int first)
{
    size_t size = (size_t)n * 80 + 100, at = 0;
    char *s = keep_block(malloc(size));
    at += (size_t)snprintf(s, size, "*%d\r\n", n);
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(s + at, size - at,
                               "*3\r\n:%d\r\n:%d\r\n*2\r\n$9\r\n127.0.0.2\r\n:%d\r\n", 14 * i,
                               i < n - 1 ? 14 * i + 13 : 16383, first + i);
    return s;
}

static int takes(hf_lock *m)
{
    return hf_lock_try(m, NULL, &err) == HF_OK;
}

/* The one that we know lies, then tells the truth; the true one is another. */
TEST(P10_junk_addresses_do_not_shut_out_the_true_servers)
{
    struct fake *me = fake_start(), *other = fake_start();
    fake_go(me);
    fake_go(other);
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 1000 };
    for (int lie = 0; lie < 4; lie++) {
        long asked = atomic_load(&me->asked) + atomic_load(&other->asked);
        me->slots = other->slots = junk(1100, 1 + 2000 * lie);
        other->eval = keep_text("-MOVED 3300 127.0.0.2:%d\r\n", 1 + 2000 * lie); /* {b} */
        if (!c)
            CHECK_HF(hf_client_open(url_of(me), &o, &c, &err), HF_OK);
        hf_lock *m = lock_of(c, keep_text("{b} %d", lie), 20000);
        /* The fault: it is believed. */
        CHECK_EVENTUALLY(!takes(m) && strstr(err.message, "connect to 127.0.0.2"), 10000);
        CHECK_EVENTUALLY(atomic_load(&me->asked) + atomic_load(&other->asked) > asked, 10000);
        t_note("%s", err.message);
        long before = atomic_load(&other->scripts);
        other->eval = NULL;
        me->slots = other->slots = slots_at("$9\r\n127.0.0.1", other->port);
        int64_t begun = t_now_ms();
        CHECK_EVENTUALLY(takes(m), 10000);
        t_note("found after %lld ms", (long long)(t_now_ms() - begun));
        CHECK(atomic_load(&other->scripts) > before);
        hf_lock_free(m);
    }
    hf_client_free(c);
}

/* Of a cluster whose slots were moved one by one for years, with two replicas whose names are
 * long. */
TEST(a_map_of_many_pieces_is_understood)
{
    enum { PIECES = 2500 };
    struct fake *f = fake_start();
    const char *host = "a-rather-long-name-of-a-replica.in-some-zone.example.com";
    size_t size = (size_t)PIECES * 600, n = 0;
    char *map = malloc(size);
    CHECK(map);
    n += (size_t)snprintf(map, size, "*%d\r\n", PIECES);
    for (int i = 0; i < PIECES; i++) {
        n += (size_t)snprintf(map + n, size - n, "*5\r\n:%d\r\n:%d\r\n", i,
                              i < PIECES - 1 ? i : 16383);
        for (int k = 0; k < 3; k++) {
            const char *h = k ? host : "127.0.0.1";
            n += (size_t)snprintf(map + n, size - n, "*4\r\n$%zu\r\n%s\r\n:%d\r\n$40\r\n%040d\r\n"
                                  "*2\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n", strlen(h), h, f->port,
                                  k);
        }
    }
    f->slots = map;
    fake_go(f);
    int64_t begun = t_now_ms();
    hf_client *c = client_at(url_of(f), 5000);
    t_note("%zu bytes, %lld ms", n, (long long)(t_now_ms() - begun));
    hf_lock *m = lock_of(c, "a", 20000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    hf_lock_free(m);
    hf_client_free(c);
    free(map);
}

/* ---- subscriptions that are refused for ever ---- */

TEST(P10_a_subscription_that_is_refused_for_ever_is_not_asked_for_all_the_time)
{
    struct fake *f = fake_start(), *other = fake_start();
    const char *said[] = {
        redirect("MOVED 1", other->port), "-CLUSTERDOWN The cluster is down\r\n",
        "-TRYAGAIN later\r\n", "-ERR not today\r\n", "-OOM no memory\r\n", ":1\r\n",
        "*3\r\n$10\r\nssubscribe\r\n$5\r\nother\r\n:1\r\n",
        "*3\r\n$12\r\nsunsubscribe\r\n$1\r\nx\r\n:0\r\n",
    };
    fake_go(f);
    fake_go(other);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        f->subscribe = said[i];
        hf_client *c = client_at(url_of(f), 1000);
        hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 });
        CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_OK); /* with the ttl alone */
        long connections = atomic_load(&f->connections), asked = atomic_load(&f->asked);
        long subscribed = atomic_load(&f->subscribed);
        int64_t used = t_cpu_ms();
        t_sleep_ms(3000);
        used = t_cpu_ms() - used;
        connections = atomic_load(&f->connections) - connections;
        asked = atomic_load(&f->asked) - asked;
        subscribed = atomic_load(&f->subscribed) - subscribed;
        t_note("%-30.20s in 3 s: %ld connections, %ld times SLOTS, %ld times SSUBSCRIBE, %lld ms",
               said[i], connections, asked, subscribed, (long long)used);
        CHECK_RANGE(connections, 0, 15);
        CHECK_RANGE(asked, 0, 30);
        CHECK_RANGE(subscribed, 0, 30);
        hf_lock_free(m);
        hf_client_free(c);
    }
}

#define HALF(first, last) \
    "*3\r\n:" #first "\r\n:" #last "\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\nx\r\n"

/* Two that have lost their slots do not answer, and are asked all the same: that must not use up
 * the time in which the one that does answer could say why. */
TEST(P3_two_servers_that_are_silent_at_once_are_both_left)
{
    struct fake *me = fake_start(), *gone[] = { fake_start(), fake_start() };
    me->slots = keep_text("*2\r\n" HALF(0, 8191) HALF(8192, 16383), gone[0]->port, gone[1]->port);
    for (int i = 0; i < 2; i++) {
        gone[i]->slots = me->slots;
        fake_go(gone[i]);
    }
    fake_go(me);
    hf_client *c = client_at(url_of(me), 1000);
    hf_lock *m[] = { lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000 }),
                     lock_with(c, "b", (hf_lock_opts){ .ttl_ms = 60000 }) };
    for (int i = 0; i < 2; i++)
        CHECK_HF(hf_lock_acquire(m[i], 5000, NULL, &err), HF_OK);
    CHECK(atomic_load(&gone[0]->scripts) > 0 && atomic_load(&gone[1]->scripts) > 0);
    const char *text = "x 127.0.0.1:1@2 master,fail - 0 0 1 connected\n"
                       "y 127.0.0.1:3@4 myself,master - 0 0 2 connected 0-16383\n";
    me->nodes = keep_text("$%zu\r\n%s\r\n", strlen(text), text);
    for (int i = 0; i < 2; i++)
        atomic_store(&gone[i]->late_ms, 3600000);
    me->slots = slots_at("$9\r\n127.0.0.1", me->port);
    CHECK_INT(atomic_load(&me->scripts), 0);
    CHECK_EVENTUALLY(atomic_load(&me->scripts) > 0, 6000); /* the holder looks there */
    for (int i = 0; i < 2; i++) {
        atomic_store(&gone[i]->eval, "-ERR gone\r\n");
        hf_lock_free(m[i]);
    }
    hf_client_free(c);
}

/* ---- a server that is silent, and another one that claims its slots ---- */

enum { FOR_EVER = 3600000 };

/* The lock is at gone, which falls silent; me says that it has all slots itself. */
struct silent {
    struct fake *me, *gone;
    hf_client   *c;
    hf_lock     *m;
    int64_t      since_ms;
};

/* What me says to CLUSTER NODES; gone is x there, with these flags. */
static char *nodes_with(const char *flags)
{
    char *text = keep_text("x 127.0.0.1:1@2 %s - 0 0 1 connected\n"
                           "y 127.0.0.1:3@4 myself,master - 0 0 2 connected 0-16383\n", flags);
    return keep_text("$%zu\r\n%s\r\n", strlen(text), text);
}

static void fall_silent(struct silent *t, int late_ms)
{
    t->since_ms = t_now_ms();
    atomic_store(&t->gone->late_ms, late_ms);
    atomic_store(&t->me->slots, slots_at("$9\r\n127.0.0.1", t->me->port));
}

static struct silent silent_owner(const char *nodes, int late_nodes_ms, int late_ms)
{
    struct silent t = { .me = fake_start(), .gone = fake_start() };
    t.me->slots = t.gone->slots;
    fake_go(t.me);
    fake_go(t.gone);
    t.c = client_at(url_of(t.me), 1000);
    t.m = lock_with(t.c, "a", (hf_lock_opts){ .ttl_ms = 60000 });
    CHECK_HF(hf_lock_acquire(t.m, 5000, NULL, &err), HF_OK);
    CHECK(atomic_load(&t.gone->scripts) > 0);
    CHECK_INT(atomic_load(&t.me->scripts), 0);
    atomic_store(&t.me->nodes, nodes);
    atomic_store(&t.me->late_nodes_ms, late_nodes_ms);
    atomic_store(&t.gone->eval, "-ERR gone\r\n"); /* at its release, when it is heard again */
    fall_silent(&t, late_ms);
    return t;
}

static void silent_end(struct silent *t)
{
    hf_lock_free(t->m);
    hf_client_free(t->c);
}

/* It may be that only we do not reach it: then it still has the slot. After a while that counts no
 * more. */
TEST(P3_who_is_silent_but_seen_alive_keeps_its_slots_for_five_seconds)
{
    struct silent t = silent_owner(nodes_with("master"), 0, FOR_EVER);
    CHECK_EVENTUALLY(atomic_load(&t.me->scripts) > 0, 15000);
    t_note("left after %lld ms", (long long)(t_now_ms() - t.since_ms));
    CHECK(t_now_ms() - t.since_ms >= 5000);
    CHECK(atomic_load(&t.me->asked_nodes) > 1);
    silent_end(&t);
}

/* Not only the first time. */
TEST(P3_and_it_does_so_again_when_it_is_silent_once_more)
{
    struct silent t = silent_owner(nodes_with("master"), 0, 1500);
    CHECK_EVENTUALLY(atomic_load(&t.me->asked_nodes) > 0, 10000); /* it was too slow */
    atomic_store(&t.gone->late_ms, 0);
    atomic_store(&t.me->slots, t.gone->slots); /* and the other one agrees by then */
    t_sleep_ms(31000);
    CHECK_INT(atomic_load(&t.me->scripts), 0);
    fall_silent(&t, FOR_EVER);
    CHECK_EVENTUALLY(atomic_load(&t.me->scripts) > 0, 15000);
    CHECK(t_now_ms() - t.since_ms >= 5000);
    silent_end(&t);
}

/* Without its word on who claims what, its map does not count. */
TEST(P1_a_map_does_not_count_whose_server_does_not_say_who_claims_what)
{
    struct silent t = silent_owner(nodes_with("master,fail"), 2000, FOR_EVER);
    CHECK_EVENTUALLY(atomic_load(&t.me->asked_nodes) >= 3, 20000);
    CHECK_INT(atomic_load(&t.me->scripts), 0);
    atomic_store(&t.me->late_nodes_ms, 0);
    CHECK_EVENTUALLY(atomic_load(&t.me->scripts) > 0, 10000);
    silent_end(&t);
}

/* ---- an ASK that comes late ---- */

static int one_key(char **argv)
{
    return strcmp(argv[2], "1") == 0;
}

/* The slot is on its way from here. */
static const char *sends_it(struct fake *f, char **argv)
{
    return one_key(argv) ? f->ask : "-TRYAGAIN Multiple keys request during rehashing\r\n";
}

/* It has been here, and is on its way here once more: the second key is not here yet. */
static const char *imports_it_again(struct fake *f, char **argv)
{
    if (!one_key(argv))
        return "-CLUSTERDOWN not mine\r\n";
    return atomic_fetch_add(&f->keys, 1) == 1 ? "*2\r\n:0\r\n:0\r\n" : "*2\r\n:0\r\n:1\r\n";
}

TEST(P5_what_one_ASK_does_not_find_is_looked_for_once_more)
{
    struct fake *me = fake_start(), *other = fake_start();
    fake_go(me);
    fake_go(other);
    hf_client *c = client_at(url_of(me), 2000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .grace_ms = HF_NO_TAKEOVER });
    CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_OK);
    me->ask = redirect("ASK 6035", other->port);
    other->script = imports_it_again;
    me->script = sends_it;
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK(atomic_load(&other->keys) > 3);
    CHECK(hf_lock_is_held(m));
    me->script = NULL;
    atomic_store(&me->eval, "-ERR gone\r\n");
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- subscriptions that come back ---- */

/* A server that knew no sharded channels is started again as one that does. */
TEST(V1_sharded_channels_are_asked_for_again_on_each_connection)
{
    struct fake *f = fake_start();
    atomic_store(&f->subscribe, "-ERR unknown command 'ssubscribe'\r\n");
    fake_go(f);
    hf_client *c = client_at(url_of(f), 1000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 });
    CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(atomic_load(&f->plain) > 0, 10000); /* it has understood */
    atomic_store(&f->subscribe, NULL);
    CHECK_EVENTUALLY(atomic_load(&f->stood) > 0, 10000);
    hf_lock_free(m);
    hf_client_free(c);
}

static hf_client *logged(const struct fake *f, struct logbook *log)
{
    return client_with(url_of(f), (hf_client_opts){ .timeout_ms = 1000, .log = logbook_add,
                                                    .log_arg = log });
}

/* Whatever is answered for a while, and by whom: in the end the channel is subscribed to. */
TEST(V1_a_subscription_that_is_refused_for_a_while_is_made_in_the_end)
{
    struct fake *f = fake_start(), *other = fake_start();
    const char *said[] = {
        redirect("MOVED 1", other->port), redirect("ASK 1", other->port),
        redirect("MOVED 1", f->port), "-CLUSTERDOWN The cluster is down\r\n",
        "-TRYAGAIN later\r\n", "-ERR not today\r\n", "-MOVED\r\n",
        "-NOPERM this user has no permissions to access one of the channels\r\n",
    };
    fake_go(f);
    fake_go(other);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        struct logbook log = LOGBOOK;
        long begun = atomic_load(&f->subscribed);
        atomic_store(&f->subscribe, said[i]);
        hf_client *c = logged(f, &log);
        hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 });
        CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_OK); /* with the ttl alone */
        CHECK_EVENTUALLY(atomic_load(&f->subscribed) > begun, 5000);
        t_sleep_ms(300);
        long stood = atomic_load(&f->stood);
        int64_t healed = t_now_ms();
        atomic_store(&f->subscribe, NULL);
        CHECK_EVENTUALLY(atomic_load(&f->stood) > stood, 5000);
        t_note("%-30.20s asked %ld times, then after %lld ms", said[i],
               atomic_load(&f->subscribed) - begun, (long long)(t_now_ms() - healed));
        CHECK_INT(logbook_has(&log, "use redis+cluster"), 0);
        CHECK_INT(logbook_has(&log, "no subscription"), strncmp(said[i], "-NOPERM", 7) == 0);
        if (logbook_has(&log, "no subscription"))
            CHECK_EVENTUALLY(logbook_has(&log, "stands again"), 5000);
        hf_lock_free(m);
        hf_client_free(c);
    }
}

/* Who waits is told once, after a while, and once again when it is over. */
TEST(V1_polling_is_said_after_a_while_and_so_is_its_end)
{
    struct fake *f = fake_start();
    struct logbook log = LOGBOOK;
    atomic_store(&f->subscribe, redirect("MOVED 1", f->port));
    fake_go(f);
    hf_client *c = logged(f, &log);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 });
    int64_t begun = t_now_ms();
    CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(logbook_has(&log, "no subscription"), 15000);
    CHECK_TOOK(t_now_ms() - begun, 4500, 15000);
    CHECK_INT(logbook_has(&log, "waiting is by polling, and a crash costs the ttl"), 1);
    CHECK_INT(logbook_has(&log, "use redis+cluster"), 0);
    CHECK_INT(logbook_has(&log, "stands again"), 0);
    atomic_store(&f->subscribe, NULL);
    CHECK_EVENTUALLY(logbook_has(&log, "the subscription stands again"), 5000);
    char *first = strstr(log.text, "no subscription");
    CHECK(!strstr(first + 1, "no subscription"));
    hf_lock_free(m);
    hf_client_free(c);
}

enum { SLOT = 6035 }; /* of the key lock:a */

static char *range_at(int first, int last, int port)
{
    return keep_text("*3\r\n:%d\r\n:%d\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$1\r\nx\r\n", first,
                     last, port);
}

/* It is at one of them, all others are at the first. */
static char *slot_at(const struct fake *f, int port)
{
    return keep_text("*3\r\n%s%s%s", range_at(0, SLOT - 1, f->port), range_at(SLOT, SLOT, port),
                     range_at(SLOT + 1, 16383, f->port));
}

/* Whoever gives it away answers MOVED to all that is said about it from then on, an end of the
 * subscription among it. */
static void give_away(struct fake *from, struct fake *to, const char *map, hf_client *c)
{
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 });
    long stood = atomic_load(&to->stood);
    atomic_store(&to->eval, NULL);
    atomic_store(&to->subscribe, NULL);
    atomic_store(&to->slots, map);
    atomic_store(&from->slots, map);
    atomic_store(&from->eval, redirect(keep_text("MOVED %d", SLOT), to->port));
    atomic_store(&from->subscribe, from->eval);
    CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(atomic_load(&to->stood) > stood, 5000);
    hf_lock_free(m);
}

TEST(V1_a_slot_that_goes_and_comes_back_finds_its_subscription_again)
{
    struct fake *f = fake_start(), *other = fake_start();
    struct logbook log = LOGBOOK;
    f->unsubscribe = redirect(keep_text("MOVED %d", SLOT), other->port);
    fake_go(f);
    fake_go(other);
    hf_client *c = logged(f, &log);
    hf_lock *a = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 });
    hf_lock *b = lock_with(c, "b", (hf_lock_opts){ .ttl_ms = 20000 }); /* stays there */
    CHECK_HF(hf_lock_acquire(a, 5000, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_acquire(b, 5000, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(atomic_load(&f->stood) == 2, 5000);
    for (int i = 0; i < 3; i++) {
        give_away(f, other, slot_at(f, other->port), c);
        t_sleep_ms(100); /* for what is answered to the last words there */
        give_away(other, f, slot_at(f, f->port), c);
    }
    CHECK_INT(logbook_has(&log, "no subscription"), 0);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
}
