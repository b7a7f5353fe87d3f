/* SPDX-License-Identifier: MIT
 * seam.c - virtual time, chance that repeats itself, and a server that is in memory.
 */
#include "base/seam.h"

#include <stdlib.h>
#include <string.h>

#include "base/limit.h"
#include "base/park.h"
#include "base/random.h"
#include "harness/t.h"
#include "net/link.h"

/* ---- the simulated system ---- */

static struct {
    int64_t      now_ms, sleeps;
    int64_t      wake_at_ms; /* when this one is woken; 0: never */
    struct park *wakes;
    uint64_t     chance;
} sim;

static int64_t sim_now(void)
{
    return sim.now_ms;
}

static void sim_sleep_until(int64_t at_ms, const void *on)
{
    (void)on;
    sim.sleeps++;
    if (sim.wake_at_ms && sim.wake_at_ms <= at_ms) {
        sim.now_ms = sim.wake_at_ms;
        sim.wake_at_ms = 0;
        park_wake(sim.wakes);
    } else if (at_ms > sim.now_ms) {
        sim.now_ms = at_ms;
    }
}

static int sim_random(void *buf, size_t n)
{
    for (unsigned char *p = buf; n-- > 0; p++) {
        sim.chance = sim.chance * 6364136223846793005u + 1442695040888963407u;
        *p = (unsigned char)(sim.chance >> 56);
    }
    return 0;
}

static const struct seam simulated = { .now_ms = sim_now, .sleep_until = sim_sleep_until,
                                       .random = sim_random };

static void simulate(void)
{
    memset(&sim, 0, sizeof sim);
    sim.now_ms = 1000000;
    seam_set(&simulated);
}

/* ---- the simulated server ---- */

struct memory {
    struct stream s;
    char          asked[1000];
    size_t        asked_len;
    size_t        read; /* of what it has to say */
};

static struct {
    const char *says; /* as soon as it is connected to: it does not wait for questions */
    size_t      at_once; /* so many bytes each time */
    bool        takes_nothing;
    int         opened, closed;
    char        asked[1000]; /* by the last connection */
} server;

static ssize_t memory_read_now(struct stream *s, void *buf, size_t n)
{
    struct memory *m = (struct memory *)s;
    size_t left = strlen(server.says) - m->read;
    n = n < server.at_once ? n : server.at_once;
    n = n < left ? n : left;
    memcpy(buf, server.says + m->read, n);
    m->read += n;
    return (ssize_t)n;
}

static ssize_t memory_read(struct stream *s, void *buf, size_t n)
{
    if (server.at_once < 100) /* it is slow */
        clock_sleep_until(clock_now_ms() + STREAM_TICK_MS / 2);
    ssize_t got = memory_read_now(s, buf, n);
    if (got == 0)
        clock_sleep_until(clock_now_ms() + STREAM_TICK_MS);
    return got;
}

static ssize_t memory_writev(struct stream *s, const struct iovec *iov, int n)
{
    struct memory *m = (struct memory *)s;
    CHECK_INT(n, 1);
    if (server.takes_nothing)
        return 0;
    CHECK(m->asked_len + iov->iov_len < sizeof m->asked);
    memcpy(m->asked + m->asked_len, iov->iov_base, iov->iov_len);
    m->asked_len += iov->iov_len;
    return (ssize_t)iov->iov_len;
}

static void memory_close(struct stream *s, int reset)
{
    struct memory *m = (struct memory *)s;
    (void)reset;
    memcpy(server.asked, m->asked, sizeof m->asked);
    server.closed++;
    free(m);
}

static const struct stream_ops memory_ops = {
    .read = memory_read, .read_now = memory_read_now, .writev = memory_writev,
    .close = memory_close,
};

static hf_err memory_open(const struct url *u, const struct url_host *host, const struct limit *lim,
                          struct stream **ret, hf_error *reterr)
{
    (void)u, (void)lim;
    if (host->port == 1)
        return err_set(reterr, HF_ECONN, "nobody is at port 1");
    struct memory *m = calloc(1, sizeof *m);
    m->s = (struct stream){ .ops = &memory_ops, .fd = -1 };
    server.opened++;
    *ret = &m->s;
    return HF_OK;
}

static char nowhere[] = "nowhere", secret[] = "secret";
static const struct url_host host = { .host = nowhere, .port = 6379 };

/* A link to a server that says this. */
static void serve(struct link *l, const char *says, const struct limit *lim)
{
    struct url u = { .db = 0 };
    hf_error err = { 0 };
    server.says = says;
    server.at_once = 1000;
    stream_set_opener(memory_open);
    CHECK_INT(link_init(l), 0);
    CHECK_INT(link_open(l, &u, &host, lim, &err), HF_OK);
    CHECK_INT(server.opened, 1);
    CHECK_INT(l->stream->fd, -1);
}

/* ---- time ---- */

TEST(time_passes_when_the_simulation_says_so)
{
    int64_t begun = t_now_ms();
    atomic_int stop = 0;
    struct limit hour = { 1000000 + 3600000, NULL }, stopped = { CLOCK_NEVER, &stop };
    simulate();
    CHECK_INT(clock_now_ms(), 1000000);
    clock_sleep_until(1000500);
    CHECK_INT(clock_now_ms(), 1000500);
    CHECK(!limit_over(&hour));
    limit_sleep(&hour, 1000);
    CHECK_INT(clock_now_ms(), 1001500);
    limit_sleep(&hour, CLOCK_NEVER);
    CHECK_INT(clock_now_ms(), 4600000);
    CHECK(limit_over(&hour));
    CHECK_INT(limit_tick_ms(&hour), 0);
    CHECK_INT(limit_tick_ms(&stopped), LIMIT_TICK_MS);
    atomic_store(&stop, 1);
    limit_sleep(&stopped, 1000);
    CHECK_INT(clock_now_ms(), 4600000);
    CHECK_INT(limit_tick_ms(&stopped), 0);
    CHECK_TOOK(t_now_ms() - begun, 0, 5000);
}

TEST(a_limit_that_can_be_stopped_is_looked_at_often)
{
    atomic_int stop = 0;
    simulate();
    struct limit lim = { clock_now_ms() + 5000, &stop }, sooner = limit_earlier(&lim, 1000040);
    limit_sleep(&sooner, 1000);
    CHECK_INT(clock_now_ms(), 1000040);
    CHECK_INT(sim.sleeps, 2);
    CHECK(limit_over(&sooner));
    CHECK(!limit_over(&lim));
    atomic_store(&stop, 1);
    CHECK(limit_over(&lim));
    CHECK(limit_stopped(&sooner));
}

TEST(a_parked_thread_sleeps_in_virtual_time)
{
    struct park p = { 0 };
    simulate();
    park_wait(&p, 1060000);
    CHECK_INT(clock_now_ms(), 1060000);
    sim.wakes = &p;
    sim.wake_at_ms = 1060321;
    park_wait(&p, CLOCK_NEVER);
    CHECK_INT(clock_now_ms(), 1060321);
}

TEST(without_a_simulation_time_is_the_systems)
{
    simulate();
    seam_set(NULL);
    int64_t a = clock_now_ms(), b = t_now_ms();
    clock_sleep_until(a + 20);
    CHECK_RANGE(clock_now_ms() - a, 20, 5000);
    CHECK_TOOK(t_now_ms() - b, 15, 5000);
}

/* ---- chance ---- */

TEST(chance_repeats_itself_from_the_same_seed)
{
    char id[2][33];
    int64_t n[2][100];
    for (int run = 0; run < 2; run++) {
        simulate();
        sim.chance = 42;
        CHECK_INT(random_id(id[run]), 0);
        for (int i = 0; i < 100; i++) {
            n[run][i] = random_between(-5, i);
            CHECK_RANGE(n[run][i], -5, i);
        }
    }
    CHECK_STR(id[0], id[1]);
    CHECK_MEM(n[0], sizeof n[0], n[1], sizeof n[1]);
    random_between(INT64_MIN, INT64_MAX);
    CHECK_RANGE(random_between(0, INT64_MAX), 0, INT64_MAX);
    seam_set(NULL);
    CHECK_INT(random_id(id[1]), 0);
    CHECK(strcmp(id[0], id[1]) != 0);
    CHECK_RANGE(random_between(7, 9), 7, 9);
    CHECK_INT(random_between(9, 7), 9);
}

/* ---- connections ---- */

TEST(a_link_speaks_to_a_server_in_memory)
{
    struct link l;
    struct url u = { .password = secret, .db = 7 };
    struct reply *rp = NULL;
    hf_error err = { 0 };
    simulate();
    server.says = "+OK\r\n+OK\r\n+PONG\r\n";
    server.at_once = 1;
    stream_set_opener(memory_open);
    struct limit lim = { clock_now_ms() + 1000, NULL };
    CHECK_INT(link_init(&l), 0);
    CHECK_INT(link_open(&l, &u, &host, &lim, &err), HF_OK);
    CHECK_INT(link_exchange(&l, 1, (hf_bytes[]){ hf_str("PING") }, &lim, &rp, &err), HF_OK);
    CHECK_STR(rp->str, "PONG");
    CHECK_RANGE(clock_now_ms(), 1000000 + 17 * STREAM_TICK_MS / 2, 1000200);
    reply_free(rp);
    link_clear(&l);
    CHECK_INT(server.closed, 1);
    CHECK_STR(server.asked, "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n7\r\n"
                            "*1\r\n$4\r\nPING\r\n");
}

TEST(several_commands_go_in_one_piece)
{
    struct link l;
    hf_error err = { 0 };
    struct link_command cmd[] = { { 1, (hf_bytes[]){ hf_str("MULTI") } },
                                  { 2, (hf_bytes[]){ hf_str("GET"), hf_str("k") } },
                                  { 1, (hf_bytes[]){ hf_str("EXEC") } } };
    simulate();
    struct limit lim = { clock_now_ms() + 1000, NULL };
    serve(&l, "", &lim);
    CHECK_INT(link_send_many(&l, cmd, 3, &lim, &err), HF_OK);
    CHECK_INT(link_send_many(&l, cmd, 0, &lim, &err), HF_OK);
    cmd[1].argc = 0;
    CHECK_INT(link_send_many(&l, cmd, 3, &lim, &err), HF_EINVAL);
    link_clear(&l);
    CHECK_STR(server.asked,
              "*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nEXEC\r\n");
}

TEST(who_does_not_connect_says_why)
{
    struct link l;
    struct url u = { .db = 0 };
    struct url_host one = { .host = nowhere, .port = 1 };
    atomic_int stop = 1;
    hf_error err = { 0 };
    simulate();
    stream_set_opener(memory_open);
    struct limit lim = { CLOCK_NEVER, NULL }, stopped = { CLOCK_NEVER, &stop };
    CHECK_INT(link_init(&l), 0);
    CHECK_INT(link_open(&l, &u, &one, &lim, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "nobody is at port 1");
    CHECK_INT(link_open(&l, &u, &host, &stopped, &err), HF_ECONN);
    CHECK_INT(server.opened, 0);
    link_clear(&l);
}

/* A server that never comes to an end keeps its client until the limit and not longer. */
static void check_kept(const char *says, size_t at_once, bool takes_nothing)
{
    struct link l;
    struct reply *rp = NULL;
    hf_error err = { 0 };
    struct limit lim = { clock_now_ms() + 1000, NULL };
    int64_t begun = clock_now_ms();
    server.opened = 0;
    serve(&l, says, &lim);
    server.at_once = at_once;
    server.takes_nothing = takes_nothing;
    CHECK_INT(link_exchange(&l, 1, (hf_bytes[]){ hf_str("PING") }, &lim, &rp, &err), HF_ECONN);
    CHECK_RANGE(clock_now_ms() - begun, 1000, 1000 + 2 * STREAM_TICK_MS);
    link_clear(&l);
}

TEST(nobody_is_kept_longer_than_its_limit)
{
    static char long_line[5000] = "+";
    simulate();
    memset(long_line + 1, 'x', sizeof long_line - 2);
    check_kept("", 1000, false);
    check_kept(long_line, 1, false); /* drop by drop */
    check_kept("", 1000, true);
}

static atomic_int stop_reading;

static void sim_sleep_and_stop(int64_t at_ms, const void *on)
{
    sim_sleep_until(at_ms, on);
    if (sim.now_ms >= 1000100)
        atomic_store(&stop_reading, 1);
}

TEST(a_stop_ends_the_wait_for_an_answer)
{
    static const struct seam stopping = { .now_ms = sim_now, .sleep_until = sim_sleep_and_stop,
                                          .random = sim_random };
    struct link l;
    struct reply *rp = NULL;
    hf_error err = { 0 };
    simulate();
    seam_set(&stopping);
    struct limit lim = { CLOCK_NEVER, &stop_reading };
    serve(&l, "", &lim);
    CHECK_INT(link_exchange(&l, 1, (hf_bytes[]){ hf_str("PING") }, &lim, &rp, &err), HF_ECONN);
    CHECK_RANGE(clock_now_ms(), 1000100, 1000100 + STREAM_TICK_MS);
    link_clear(&l);
}

TEST(the_systems_sockets_are_back_afterwards)
{
    struct url u = { .db = 0 };
    char path[] = "/nonexistent/socket";
    struct url_host gone = { .path = path };
    struct stream *s = NULL;
    hf_error err = { 0 };
    stream_set_opener(memory_open);
    stream_set_opener(NULL);
    struct limit lim = { clock_now_ms() + 1000, NULL };
    CHECK_INT(stream_open(&u, &gone, &lim, &s, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "/nonexistent/socket");
    CHECK_INT(server.opened, 0);
}
