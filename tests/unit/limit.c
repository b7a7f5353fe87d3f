/* SPDX-License-Identifier: MIT
 * limit.c - whoever connects or waits for bytes is kept until its limit, and no longer.
 */
#include "base/limit.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/forkguard.h"
#include "harness/sockets.h"
#include "harness/t.h"
#include "net/link.h"
#include "net/probe.h"

enum { STOP_MS = 100, SLACK_MS = 400 }; /* 20 of them are ours, the rest is the machine's */

static atomic_int silent_resolver;

/* The resolver, as far as the library sees it. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    while (atomic_load(&silent_resolver) && !(hints->ai_flags & AI_NUMERICHOST))
        t_sleep_ms(1);
    return real(node, service, hints, ret);
}

/* ---- the two ways in which it ends ---- */

static atomic_int stop;
static int64_t begun_ms;

static void *stop_soon(void *arg)
{
    (void)arg;
    t_sleep_ms(STOP_MS);
    atomic_store(&stop, 1);
    return NULL;
}

/* wait() shall end when its time has come, and when it is stopped. */
static void check_ends(void (*wait)(const struct limit *lim))
{
    pthread_t thread;
    struct limit timed = { clock_now_ms() + STOP_MS, NULL }, stopped = { CLOCK_NEVER, &stop };
    begun_ms = t_now_ms();
    wait(&timed);
    CHECK_TOOK(t_now_ms() - begun_ms, STOP_MS - 1, STOP_MS + SLACK_MS);
    CHECK_INT(pthread_create(&thread, NULL, stop_soon, NULL), 0);
    begun_ms = t_now_ms();
    wait(&stopped);
    CHECK_TOOK(t_now_ms() - begun_ms, STOP_MS - 1, STOP_MS + SLACK_MS);
    pthread_join(thread, NULL);
    atomic_store(&stop, 0);
}

/* ---- connecting ---- */

static struct url u;
static struct url_host host;

static void try_to_connect(const struct limit *lim)
{
    struct stream *s = NULL;
    hf_error err = { 0 };
    CHECK_INT(stream_open(&u, &host, lim, &s, &err), HF_ECONN);
}

TEST(a_look_up_that_is_not_answered)
{
    host.host = strdup("slow.test");
    host.port = 6379;
    atomic_store(&silent_resolver, 1);
    check_ends(try_to_connect);
    atomic_store(&silent_resolver, 0);
    free(host.host);
}

TEST(a_tcp_connect_that_is_not_answered)
{
    int fd = socket_listen(1, &host.port);
    host.host = strdup("127.0.0.1");
    socket_crowd(fd, 4);
    check_ends(try_to_connect);
    close(fd);
    free(host.host);
}

TEST(a_unix_socket_with_a_queue_that_is_full)
{
    host.path = t_path("s");
    int fd = socket_listen_unix(0, host.path);
    socket_crowd(fd, 4);
    check_ends(try_to_connect);
    close(fd);
    free(host.path);
}

/* ---- a server that says something all the time and never comes to an end ---- */

static struct {
    int         listener;
    const char *begins; /* what it says first */
    size_t      len;
    atomic_int  ends;
} drip;

/* A byte every 2 ms to each who connects, one after the other. */
static void *drip_main(void *arg)
{
    (void)arg;
    while (!atomic_load(&drip.ends)) {
        int fd = accept(drip.listener, NULL, NULL);
        size_t sent = 0;
        while (fd >= 0 && !atomic_load(&drip.ends)
               && send(fd, sent < drip.len ? drip.begins + sent : "x", 1, MSG_NOSIGNAL) == 1) {
            sent++;
            t_sleep_ms(2);
        }
        if (fd >= 0)
            close(fd);
    }
    return NULL;
}

static pthread_t drip_start(const char *begins, size_t len)
{
    pthread_t thread;
    drip.begins = begins;
    drip.len = len;
    CHECK_INT(pthread_create(&thread, NULL, drip_main, NULL), 0);
    return thread;
}

static void drip_stop(pthread_t thread)
{
    atomic_store(&drip.ends, 1);
    shutdown(drip.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(drip.listener);
}

static void ask(const struct limit *lim)
{
    struct link l;
    struct reply *rp = NULL;
    hf_error err = { 0 };
    hf_bytes ping[] = { hf_str("PING") };
    CHECK_INT(link_init(&l), 0);
    CHECK_INT(link_open(&l, &u, &host, lim, &err), HF_OK);
    CHECK_INT(link_exchange(&l, 1, ping, lim, &rp, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "does not answer");
    link_clear(&l);
}

TEST(an_answer_drop_by_drop)
{
    drip.listener = socket_listen(4, &host.port);
    host.host = strdup("127.0.0.1");
    pthread_t thread = drip_start("+", 1);
    check_ends(ask);
    drip_stop(thread);
    free(host.host);
}

TEST(a_tls_handshake_drop_by_drop)
{
    drip.listener = socket_listen(4, &host.port);
    host.host = strdup("127.0.0.1");
    u.tls = 1;
    pthread_t thread = drip_start("\x16\x03\x03\x40\x00", 5); /* a record of 16 KB */
    check_ends(try_to_connect);
    drip_stop(thread);
    u.tls = 0;
    free(host.host);
}

static void ask_embedded(const struct limit *lim)
{
    int fd = -1;
    struct reply *rp = NULL;
    hf_error err = { 0 };
    CHECK_INT(probe_connect(host.path, &fd, NULL, &err), HF_OK);
    CHECK_INT(probe_ask(fd, "PING", lim, &rp, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "in time");
    forkguard_close(fd);
}

TEST(an_embedded_servers_answer_drop_by_drop)
{
    host.path = t_path("s");
    drip.listener = socket_listen_unix(4, host.path);
    pthread_t thread = drip_start("+", 1);
    check_ends(ask_embedded);
    drip_stop(thread);
    free(host.path);
}

/* ---- what else waits ---- */

static struct mutex mu = MUTEX_INITIALIZER(MUTEX_SENTINEL);

static void lock(const struct limit *lim)
{
    CHECK(!limit_lock(lim, &mu));
}

static void sleep_long(const struct limit *lim)
{
    limit_sleep(lim, 1000000);
}

TEST(a_sleep_and_a_lock_that_somebody_keeps)
{
    check_ends(sleep_long);
    mutex_lock(&mu);
    check_ends(lock);
    mutex_unlock(&mu);
    struct limit late = { 0, NULL };
    CHECK(limit_lock(&late, &mu)); /* it is free: no wait is needed */
    mutex_unlock(&mu);
}
