/* SPDX-License-Identifier: MIT
 * sentinel_hostile.c - P10: whatever one Sentinel of three says about replicas and hosts, the
 * others decide; and nothing of it reaches anybody's terminal.
 */
#include <stdatomic.h>
#include <sys/socket.h>

#include "harness/fake.h"
#include "harness/keep.h"
#include "harness/live.h"
#include "harness/sockets.h"

enum { SENTINELS = 3 };

struct sentinel {
    int         port;
    const char *host, *replicas; /* what it says */
    int         master_port;
    atomic_long connections, told;
};

static const char *bulk(const char *text)
{
    return keep_text("$%zu\r\n%s\r\n", strlen(text), text);
}

static int answer(void *arg, int fd, char *buf, size_t n)
{
    struct sentinel *st = arg;
    const char *said = "+OK\r\n";
    if (memmem(buf, n, "GET-MASTER", 10)) {
        said = keep_text("*2\r\n%s%s", bulk(st->host), bulk(keep_text("%d", st->master_port)));
    } else if (memmem(buf, n, "MASTER", 6)) {
        atomic_fetch_add(&st->told, 1);
        said = keep_text("*4\r\n%s%s%s%s", bulk("name"), bulk("m"), bulk("num-slaves"),
                         bulk(st->replicas));
    } else if (memmem(buf, n, "SUBSCRIBE", 9)) {
        said = keep_text("*3\r\n%s%s:1\r\n", bulk("subscribe"), bulk("+switch-master"));
    }
    (void)!send(fd, said, strlen(said), MSG_NOSIGNAL);
    return 0;
}

/* Each says this; the master is real, and has no replica. */
static struct sentinel *sentinels_start(struct server *master)
{
    struct sentinel *st = calloc(SENTINELS, sizeof *st);
    CHECK(st);
    for (int i = 0; i < SENTINELS; i++) {
        int listener = socket_listen(64, &st[i].port);
        st[i].host = "127.0.0.1";
        st[i].master_port = server_port(master);
        fake_serve(listener, answer, &st[i], &st[i].connections);
    }
    return st;
}

static const char *url_of(const struct sentinel *st)
{
    return keep_text("redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/m"
                     "?replicas=majority&quarantine=0", st[0].port, st[1].port, st[2].port);
}

/* How a try ends when two say one thing and the third another. */
static hf_err try_with(struct sentinel *st, const char *two, const char *third)
{
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 2000 };
    long before = atomic_load(&st[2].told);
    st[0].replicas = st[1].replicas = two;
    st[2].replicas = third;
    err.message[0] = '\0';
    hf_err e = hf_client_open(url_of(st), &o, &c, &err);
    if (!e) {
        hf_lock *m = lock_of(c, "a", 5000);
        e = hf_lock_try(m, NULL, &err);
        hf_lock_free(m);
        hf_client_free(c);
    }
    CHECK(atomic_load(&st[2].told) > before); /* it was asked, and did lie */
    t_note("%s, %s, and %s: %s %s", two, two, third, hf_err_name(e), e ? err.message : "");
    return e;
}

TEST(S4_one_sentinel_of_three_decides_nothing_about_replicas)
{
    static const char *const lies[] = { "2147483647", "2147483648", "200", "101", "100", "0", "-5",
                                        "", "x", "1x", "99999999999999999999" };
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1, .aof = 1 });
    struct sentinel *st = sentinels_start(s);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        /* There should be one, and there is none: whoever says what, nothing is granted. */
        CHECK_INT(try_with(st, "1", lies[i]), HF_EREPLICAS);
        CHECK_CONTAINS(err.message, "0 of the 1 replicas");
        /* There should be none: the lie keeps nobody from it. */
        CHECK_INT(try_with(st, "0", lies[i]), HF_OK);
    }
    /* A majority that talks nonsense is no majority. */
    CHECK(try_with(st, "2147483647", "1"));
    CHECK_CONTAINS(err.message, "1 of 3 Sentinels tell how many replicas");
}

TEST(S4_a_host_that_cannot_be_one_is_not_used_nor_shown)
{
    static const char *const hosts[] = { "\x1b]0;pwned\a", "127.0.0.1\nmaster: fine", "a b", "h\r",
                                         "127.0.0.1 ", "\xff\xfe", "$(id)" };
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1, .aof = 1 });
    struct sentinel *st = sentinels_start(s);
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        hf_client *c = NULL;
        hf_client_opts o = { .size = sizeof o, .timeout_ms = 500 };
        for (int k = 0; k < SENTINELS; k++) {
            st[k].host = hosts[i];
            st[k].replicas = "0";
        }
        CHECK(hf_client_open(url_of(st), &o, &c, &err));
        t_note("%s", err.message);
        for (const char *p = err.message; *p; p++)
            CHECK((unsigned char)*p >= ' ' && (unsigned char)*p < 127);
        CHECK(!strstr(err.message, "pwned"));
        st[0].host = st[1].host = "127.0.0.1"; /* and a minority is outvoted */
        CHECK_HF(hf_client_open(url_of(st), &o, &c, &err), HF_OK);
        hf_client_free(c);
    }
}
