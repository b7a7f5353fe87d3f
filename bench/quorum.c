/* SPDX-License-Identifier: MIT
 * quorum.c - what a lock on a majority of servers costs, as ratios to one server in the same run.
 */
#include <arpa/inet.h>
#include <holdfast.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/server.h"
#include "harness/t.h"
#include "harness/waiting.h"

enum { SERVERS = 5, SAMPLES = 2000, TURNS = 3 };

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

struct figures {
    int64_t lock[SAMPLES * TURNS], pair[SAMPLES * TURNS];
    size_t  n;
};

/* A name of its own each time: a server that was frozen may still have an old one to get rid of. */
static void measure(const char *url, struct figures *f)
{
    static int used;
    char name[32];
    hf_client *c = NULL;
    hf_lock *m = NULL;
    hf_error e;
    hf_lock_opts o = { .size = sizeof o, .grace_ms = HF_NO_TAKEOVER };
    if (hf_client_open(url, NULL, &c, &e))
        FAIL("%s", e.message);
    snprintf(name, sizeof name, "bench-%d", used++);
    CHECK_INT(hf_lock_open(c, hf_str(name), &o, &m, NULL), HF_OK);
    for (int i = -200; i < SAMPLES; i++) {
        int64_t begun = t_now_ns();
        CHECK_INT(hf_lock_try(m, NULL, NULL), HF_OK);
        int64_t locked = t_now_ns();
        CHECK_INT(hf_lock_release(m, NULL), HF_OK);
        if (i >= 0) {
            f->lock[f->n] = locked - begun;
            f->pair[f->n++] = t_now_ns() - begun;
        }
    }
    hf_lock_free(m);
    hf_client_free(c);
}

static int dial(const struct server *s)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)server_port(s)) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* A bare round trip: a small script to all, and the answers of a majority; the others' are read
 * with the next. */
static void bare_round(struct pollfd *p, size_t *owed, int n)
{
    static const char ask[] = "*4\r\n$4\r\nEVAL\r\n$34\r\nreturn redis.call('INCR', KEYS[1])\r\n"
                              "$1\r\n1\r\n$1\r\nx\r\n";
    char buf[256];
    int answered = 0;
    for (int i = 0; i < n; i++) {
        CHECK_INT(send(p[i].fd, ask, sizeof ask - 1, 0), sizeof ask - 1);
        owed[i]++;
    }
    while (answered < n / 2 + 1) {
        CHECK(poll(p, (nfds_t)n, -1) > 0);
        for (int i = 0; i < n; i++) {
            if (!p[i].revents)
                continue;
            ssize_t got = recv(p[i].fd, buf, sizeof buf, 0);
            CHECK(got > 0);
            for (ssize_t k = 0; k < got; k++)
                owed[i] -= buf[k] == ':';
            answered += owed[i] == 0;
        }
    }
}

/* One round trip is a lock, another one its unlock. */
static void measure_bare(struct server *const *s, int n, struct figures *f)
{
    struct pollfd p[SERVERS] = { 0 };
    size_t owed[SERVERS] = { 0 };
    for (int i = 0; i < n; i++)
        p[i] = (struct pollfd){ .fd = dial(s[i]), .events = POLLIN };
    for (int i = -200; i < SAMPLES; i++) {
        int64_t begun = t_now_ns();
        bare_round(p, owed, n);
        int64_t locked = t_now_ns();
        bare_round(p, owed, n);
        if (i >= 0) {
            f->lock[f->n] = locked - begun;
            f->pair[f->n++] = t_now_ns() - begun;
        }
    }
    for (int i = 0; i < n; i++)
        close(p[i].fd);
}

static double p50_us(int64_t *ns, size_t n)
{
    qsort(ns, n, sizeof *ns, by_value);
    return (double)ns[n / 2] / 1000.0;
}

static void show(const char *what, struct figures *f, double lock1, double pair1)
{
    double lock = p50_us(f->lock, f->n), pair = p50_us(f->pair, f->n);
    t_note("%-24s lock %7.1f us (%4.2fx)   lock + unlock %7.1f us (%4.2fx)", what, lock,
           lock / lock1, pair, pair / pair1);
}

static void url_of(struct server *const *s, int n, char *ret, size_t size)
{
    int used = snprintf(ret, size, "redis+quorum://");
    for (int i = 0; i < n; i++)
        used += snprintf(ret + used, size - (size_t)used, "%s127.0.0.1:%d", i ? "," : "",
                         server_port(s[i]));
}

TEST(quorum_of_three_and_five)
{
    static struct figures one, three, five, frozen, bare1, bare3, bare5;
    struct server *s[SERVERS];
    struct server_opts o = { .aof = 1, .tcp = 1 };
    char url3[300], url5[300];
    for (int i = 0; i < SERVERS; i++)
        s[i] = server_start_opts(&o);
    url_of(s, 3, url3, sizeof url3);
    url_of(s, 5, url5, sizeof url5);
    for (int turn = 0; turn < TURNS; turn++) {
        measure(server_tcp_url(s[0]), &one);
        measure(url3, &three);
        measure(url5, &five);
        measure_bare(s, 1, &bare1);
        measure_bare(s, 3, &bare3);
        measure_bare(s, 5, &bare5);
        server_freeze(s[0]);
        server_freeze(s[4]);
        measure(url5, &frozen);
        server_thaw(s[0]);
        server_thaw(s[4]);
    }
    double lock1 = p50_us(one.lock, one.n), pair1 = p50_us(one.pair, one.n);
    show("one server, TCP", &one, lock1, pair1);
    show("  bare sockets", &bare1, lock1, pair1);
    show("three", &three, lock1, pair1);
    show("  bare sockets", &bare3, lock1, pair1);
    show("five", &five, lock1, pair1);
    show("  bare sockets", &bare5, lock1, pair1);
    show("five, two of them frozen", &frozen, lock1, pair1);
}

/* ---- waiting ---- */

enum { CROWD = 16, HANDOVERS = 100, IDLE_MS = 3000 };

/* What clients sent to it, but for pings and who leaves the line. */
static double commands(struct server *s)
{
    static const char *const sent[] = { "eval", "evalsha", "subscribe" };
    const char *text = server_ask(s, "INFO commandstats");
    double sum = 0;
    for (size_t i = 0; i < sizeof sent / sizeof sent[0]; i++) {
        char field[40];
        snprintf(field, sizeof field, "cmdstat_%s:calls=", sent[i]);
        const char *at = strstr(text, field);
        sum += at ? strtod(at + strlen(field), NULL) : 0;
    }
    return sum;
}

/* So many wait for a lock that is held; then it goes through all of them. */
static void crowd(const char *url, struct server *s, int n)
{
    struct locker l[CROWD] = { 0 };
    hf_client *c[CROWD], *own = client_at(url, 0);
    hf_lock *m = lock_of(own, "crowd", 20000);
    lock_now(m);
    for (int i = 0; i < n; i++) {
        c[i] = client_at(url, 0);
        l[i] = (struct locker){ .m = lock_of(c[i], "crowd", 20000), .wait_ms = 60000 };
        locker_start(&l[i]);
    }
    t_sleep_ms(1500);
    double before = commands(s);
    t_sleep_ms(IDLE_MS);
    double idle = commands(s) - before;
    before = commands(s);
    int64_t begun = t_now_ns(), last = begun;
    unlock_now(m);
    for (int served = 0; served < n;) {
        for (int i = 0; i < n; i++) {
            if (!l[i].m || !atomic_load(&l[i].done))
                continue;
            locker_join(&l[i], HF_OK);
            unlock_now(l[i].m);
            last = t_now_ns();
            hf_lock_free(l[i].m);
            l[i].m = NULL;
            hf_client_free(c[i]);
            served++;
        }
        usleep(100);
    }
    t_note("%2d wait: %5.2f commands/s each on each server; all served in %6.1f ms, %.1f commands "
           "each",
           n, idle / n * 1000 / IDLE_MS, (double)(last - begun) / 1e6, (commands(s) - before) / n);
    hf_lock_free(m);
    hf_client_free(own);
}

/* From the call of the release until the next one has it. */
static void hand_over(const char *url, const char *what)
{
    static int64_t ns[HANDOVERS];
    hf_client *a = client_at(url, 0), *b = client_at(url, 0);
    hf_lock *ma = lock_of(a, "over", 20000), *mb = lock_of(b, "over", 20000);
    for (int i = 0; i < HANDOVERS; i++) {
        struct locker l = { .m = mb, .wait_ms = 60000 };
        lock_now(ma);
        locker_start(&l);
        t_sleep_ms(20 + (int64_t)t_random(40));
        int64_t begun = t_now_ns();
        unlock_now(ma);
        locker_join(&l, HF_OK);
        ns[i] = l.done_ns - begun;
        unlock_now(mb);
    }
    qsort(ns, HANDOVERS, sizeof ns[0], by_value);
    t_note("handed over, %-12s p50 %8.0f us   p90 %8.0f us", what,
           (double)ns[HANDOVERS / 2] / 1000, (double)ns[HANDOVERS * 9 / 10] / 1000);
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_client_free(a);
    hf_client_free(b);
}

TEST(waiting)
{
    struct server *s[SERVERS];
    struct server_opts o = { .aof = 1, .tcp = 1 };
    char url[300];
    for (int i = 0; i < SERVERS; i++)
        s[i] = server_start_opts(&o);
    url_of(s, SERVERS, url, sizeof url);
    hand_over(server_tcp_url(s[0]), "one server");
    hand_over(url, "five");
    crowd(url, s[0], 1);
    crowd(url, s[0], CROWD);
}
