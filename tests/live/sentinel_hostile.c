/* SPDX-License-Identifier: MIT
 * sentinel_hostile.c - what Sentinels say is judged before it is believed: one that lies changes
 * nothing, and if most of them make no sense that is said, in words that anybody may print.
 */
#include <stdatomic.h>
#include <sys/socket.h>

#include "harness/doctor.h"
#include "harness/fake.h"
#include "harness/keep.h"
#include "harness/live.h"
#include "harness/sockets.h"

/* ---- three Sentinels that say what they are told to ---- */

enum { SEATS = 3 };

struct fake {
    int         port;
    const char *host, *at;   /* the master's address, as this one says */
    const char *replicas;    /* num-slaves; NULL: it does not say */
    const char *down_after;
    atomic_long connections, counted;
};

/* Append texts, each with its length. */
static size_t add_bulks(char *buf, size_t size, size_t n, const char *const *text)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(buf + len, size - len, "$%zu\r\n%s\r\n", strlen(text[i]), text[i]);
    return len;
}

/* One command at a time is sent to them, and all are short. Thread: the fake's. */
static int answer(void *arg, int fd, char *buf, size_t n)
{
    struct fake *f = arg;
    char said[1000] = "+PONG\r\n";
    const char *replicas = f->replicas;
    const char *const all[] = { "ip", f->host, "port", f->at, replicas ? "num-slaves" : "other",
                                replicas ? replicas : "0", "num-other-sentinels", "2",
                                "down-after-milliseconds", f->down_after };
    const char *const address[] = { f->host, f->at };
    if (memmem(buf, n, "GET-MASTER-ADDR", 15)) {
        size_t head = (size_t)sprintf(said, "*2\r\n");
        add_bulks(said + head, sizeof said - head, 2, address);
    } else if (memmem(buf, n, "$6\r\nMASTER", 10)) {
        size_t head = (size_t)sprintf(said, "*10\r\n");
        add_bulks(said + head, sizeof said - head, 10, all);
        atomic_fetch_add(&f->counted, 1);
    } else if (memmem(buf, n, "SUBSCRIBE", 9)) {
        strcpy(said, "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n");
    }
    return send(fd, said, strlen(said), MSG_NOSIGNAL) >= 0 ? 0 : -1;
}

struct trio {
    struct fake seat[SEATS];
    char        url[300];
};

/* They all name s, and know of one replica. */
static struct trio *trio_of(struct server *s, const char *options)
{
    struct trio *t = keep_block(calloc(1, sizeof *t));
    int port[SEATS];
    for (int i = 0; i < SEATS; i++) {
        struct fake *f = &t->seat[i];
        int listener = socket_listen(64, &f->port);
        port[i] = f->port;
        f->host = "127.0.0.1";
        f->at = keep_text("%d", server_port(s));
        f->replicas = "1";
        f->down_after = "5000";
        fake_serve(listener, answer, f, &f->connections);
    }
    snprintf(t->url, sizeof t->url, "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/m?%s",
             port[0], port[1], port[2], options);
    return t;
}

static int is_printable(const char *text)
{
    while (*text >= ' ' && *text <= '~')
        text++;
    return !*text;
}

static struct server *master(void)
{
    struct server_opts o = { .tcp = 1, .aof = 1 };
    return server_start_opts(&o);
}

/* ---- how many replicas ---- */

/* There is none, so a majority of 1 + 1 cannot be had: who believes the liar grants the lock, or
 * wants the acknowledgements of many that do not exist. */
TEST(S4_one_lying_sentinel_does_not_decide_how_many_replicas_are_needed)
{
    static const char *const lies[] = { "2147483647", "4294967295", "200", "100", "0", "-1", "1x",
                                        " 1", "", "99999999999999999999", NULL };
    struct trio *t = trio_of(master(), "replicas=majority");
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct fake *liar = &t->seat[i % SEATS];
        liar->replicas = lies[i];
        long told = atomic_load(&liar->counted);
        hf_client *c = client_at(t->url, 800);
        hf_lock *m = lock_of(c, "a", 5000);
        hf_err e = hf_lock_try(m, NULL, &err);
        t_note("%s: %s %s", lies[i] ? lies[i] : "nothing", hf_err_name(e), err.message);
        CHECK_INT(e, HF_EREPLICAS);
        CHECK_CONTAINS(err.message, "0 of the 1 replicas");
        CHECK(atomic_load(&liar->counted) > told); /* the fault */
        hf_lock_free(m);
        hf_client_free(c);
        liar->replicas = "1";
    }
}

TEST(S4_a_count_that_makes_no_sense_is_not_taken_from_anybody)
{
    struct trio *t = trio_of(master(), "replicas=majority&timeout=1s");
    t->seat[0].replicas = "2147483647";
    t->seat[2].replicas = "x";
    hf_client *c = NULL;
    CHECK_HF(hf_client_open(t->url, NULL, &c, &err), HF_EPROTO);
    CHECK_CONTAINS(err.message, "num-slaves");
}

/* ---- where the master is ---- */

TEST(an_address_that_is_none_is_one_sentinels_trouble)
{
    struct server *s = master();
    struct trio *t = trio_of(s, "timeout=1s");
    const char *port = t->seat[0].at;
    const char *const lies[][2] = {
        { "127.0.0.1\x1b]0;pwned\x07", port }, { "127.0.0.1\nforged", port }, { "", port },
        { "127.0.0.1", keep_text("%sx", port) }, { "127.0.0.1", keep_text("+%s", port) },
        { "127.0.0.1", keep_text(" %s", port) }, { "127.0.0.1", "0" }, { "127.0.0.1", "65536" },
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        for (int k = 0; k < 2; k++) {
            t->seat[k].host = lies[i][0];
            t->seat[k].at = lies[i][1];
            hf_client *c = NULL;
            hf_err e = hf_client_open(t->url, NULL, &c, &err);
            if (e)
                t_note("%d: %s", k + 1, err.message);
            CHECK_INT(e, k == 0 ? HF_OK : HF_ECONN); /* of one, of two of three */
            CHECK(k == 0 || (is_printable(err.message) && strstr(err.message, "no address")));
            hf_client_free(c);
        }
        for (int k = 0; k < 2; k++) {
            t->seat[k].host = "127.0.0.1";
            t->seat[k].at = port;
        }
    }
}

TEST(the_doctor_repeats_no_byte_that_no_address_has)
{
    struct trio *t = trio_of(master(), "timeout=1s");
    struct logbook log = LOGBOOK;
    t->seat[0].host = "127.0.0.1\x1b]0;pwned\x07";
    t->seat[1].replicas = "2147483647";
    t->seat[2].down_after = "2147483647";
    diagnose(&log, t->url);
    for (char *p = log.text; *p; p++)
        CHECK(*p == '\n' || (*p >= ' ' && *p <= '~'));
    CHECK_CONTAINS(log.text, "its answer makes no sense");
}
