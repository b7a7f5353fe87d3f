/* SPDX-License-Identifier: MIT
 * live.h - shorthands of the live tests: open, lock, look, with every failure explained.
 *
 *     struct server *s = server_start(NULL);
 *     hf_client *c = client_at(server_url(s), 0);
 *     hf_lock *m = lock_of(c, "a", 1000);
 *     CHECK_HF(hf_lock_try(m, &fence, &err), HF_OK);
 */
#ifndef HARNESS_LIVE_H
#define HARNESS_LIVE_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/keep.h"
#include "harness/server.h"
#include "harness/t.h"
#include "holdfast.h"

static __thread hf_error err; /* of the last call in this thread */

/* Compare a result; a wrong one is shown by name and with the call's own message. */
#define CHECK_HF(call, want)                                                              \
    do {                                                                                  \
        err.message[0] = '\0';                                                            \
        hf_err got_ = (call), want_ = (want);                                             \
        if (got_ != want_)                                                                \
            t_fail(__FILE__, __LINE__, "%s: got %s (%s), want %s", #call,                 \
                   hf_err_name(got_), err.message, hf_err_name(want_));                   \
    } while (0)

#define FENCE_KEY "lock:holdfast:fence"
#define REIGN_KEY "lock:holdfast:reign"
#define RECORD_KEYS "lock:holdfast:session:" /* of a client that is open, and has held something for
                                                a while: on a busy machine, anything */
#define ONLY_OURS FENCE_KEY "\n" REIGN_KEY /* all that P9 lets stay */

/* What is started now sees the clock's next second strike before it is a tenth of one old. */
static inline void await_late_in_a_second(void)
{
    struct timespec t;
    do {
        t_sleep_ms(2);
        clock_gettime(CLOCK_REALTIME, &t);
    } while (t.tv_nsec < 930000000);
}

/* ---- what the library logged ---- */

struct logbook {
    pthread_mutex_t mu;
    char            text[16384];
    size_t          len;
};
#define LOGBOOK { .mu = PTHREAD_MUTEX_INITIALIZER }

static inline void logbook_add(void *arg, hf_log level, const char *message)
{
    struct logbook *l = arg;
    pthread_mutex_lock(&l->mu);
    if (l->len < sizeof l->text)
        l->len += (size_t)snprintf(l->text + l->len, sizeof l->text - l->len, "%d %s\n",
                                   (int)level, message);
    pthread_mutex_unlock(&l->mu);
}

static inline int logbook_has(struct logbook *l, const char *part)
{
    pthread_mutex_lock(&l->mu);
    int has = strstr(l->text, part) != NULL;
    pthread_mutex_unlock(&l->mu);
    return has;
}

/* Like CHECK(logbook_has(...)), and a failure shows what was logged instead. */
#define CHECK_LOGGED(log, part)                          \
    do {                                                 \
        pthread_mutex_lock(&(log)->mu);                  \
        CHECK_CONTAINS((log)->text, part);               \
        pthread_mutex_unlock(&(log)->mu);                \
    } while (0)

/* ---- opening ---- */

/* Clients and handles may be left to the end of the test: they stay reachable, so that no leak is
 * seen where a compiler forgot a variable earlier than another one.
 *
 * A limit of less than a few seconds is meant for what comes next: opening may be tried again where
 * the machine is too slow for it. */
static inline hf_client *client_with(const char *url, hf_client_opts o)
{
    hf_client *c = NULL;
    o.size = sizeof o;
    int tries = o.timeout_ms && o.timeout_ms < 3000 ? 20 : 1;
    hf_err e;
    do
        e = hf_client_open(url, &o, &c, &err);
    while (--tries > 0 && (e == HF_ECONN || e == HF_ETIMEDOUT || e == HF_ENOQUORUM));
    if (e || !c)
        FAIL("cannot open %s: %s (%s)", url, hf_err_name(e), err.message);
    return keep_block(c);
}

/* timeout_ms 0: the default */
static inline hf_client *client_at(const char *url, int64_t timeout_ms)
{
    return client_with(url, (hf_client_opts){ .timeout_ms = timeout_ms });
}

static inline hf_lock *lock_with(hf_client *c, const char *name, hf_lock_opts o)
{
    hf_lock *m = NULL;
    o.size = sizeof o;
    CHECK_HF(hf_lock_open(c, hf_str(name), &o, &m, &err), HF_OK);
    return keep_block(m);
}

/* With the ttl alone: what a waiter may take over earlier is tested in tests/live/presence.c. */
static inline hf_lock *lock_of(hf_client *c, const char *name, int64_t ttl_ms)
{
    return lock_with(c, name, (hf_lock_opts){ .ttl_ms = ttl_ms, .grace_ms = HF_NO_TAKEOVER });
}

/* With a grace of 10 s: longer than any failover takes here. */
#define KEPT ((hf_lock_opts){ .ttl_ms = 20000 })

/* Locked within 30 s, or the test fails. */
static inline uint64_t lock_now(hf_lock *m)
{
    uint64_t fence = 0;
    CHECK_HF(hf_lock_acquire(m, 30000, &fence, &err), HF_OK);
    CHECK(fence > 0);
    return fence;
}

static inline void unlock_now(hf_lock *m)
{
    CHECK_HF(hf_lock_release(m, &err), HF_OK);
}

/* With one more option. */
static inline const char *url_with(const char *url, const char *option)
{
    return keep_text("%s%c%s", url, strchr(url, '?') ? '&' : '?', option);
}

/* ---- the scripts, as they are embedded ---- */

#ifdef LIVE_SCRIPTS
enum {
#define HF_SCRIPT(name, sha, text) LUA_##name,
#include "scripts.inc"
#undef HF_SCRIPT
    LUA_COUNT
};
static const char *const lua_text[] = {
#define HF_SCRIPT(name, sha, text) text,
#include "scripts.inc"
#undef HF_SCRIPT
};
static const char *const lua_sha[] = {
#define HF_SCRIPT(name, sha, text) sha,
#include "scripts.inc"
#undef HF_SCRIPT
};
#endif

#endif
