/* SPDX-License-Identifier: MIT
 * quiet.c - connections on which nothing happens for long: they are tried out, and still carry the
 * news when there is some.
 */
#include "harness/quorum.h"
#include "harness/waiting.h"

static long long pings(struct server *s)
{
    const char *line = server_info(s, "cmdstat_ping");
    return line && strstr(line, "calls=") ? atoll(strstr(line, "calls=") + 6) : 0;
}

struct watcher {
    hf_client *c;
    hf_err     result;
    atomic_int heard;
    pthread_t  thread;
};

static int hear(const hf_news *n, void *arg)
{
    struct watcher *w = arg;
    if (strcmp(n->name, "a") == 0)
        atomic_store(&w->heard, 1);
    return atomic_load(&w->heard);
}

static void *watch(void *arg)
{
    struct watcher *w = arg;
    hf_error e;
    w->result = hf_watch(w->c, NULL, 300000, hear, w, &e);
    return NULL;
}

static int pinged_anew(struct members *q, const long long *before)
{
    int n = 0;
    for (int i = 0; i < q->n; i++)
        n += pings(q->s[i]) > before[i];
    return n == q->n;
}

/* Both at once, since they take so long: five and ten seconds. */
TEST_TIMEOUT(P3_who_hears_nothing_for_long_is_told_all_the_same, 180)
{
    struct server *s = server_start(NULL);
    struct members q = members_start(3, kept);
    hf_client *holder = client_at(q.url, 0), *c = client_at(q.url, 0);
    hf_lock *held = lock_of(holder, "w", 60000);
    struct locker l = { .m = lock_of(c, "w", 60000), .wait_ms = 150000 };
    struct watcher w = { .c = client_at(server_url(s), 0) };
    lock_now(held);
    locker_start(&l);
    CHECK_INT(pthread_create(&w.thread, NULL, watch, &w), 0);

    long long alone = pings(s), before[MEMBERS_MAX];
    for (int i = 0; i < q.n; i++)
        before[i] = pings(q.s[i]);
    CHECK_EVENTUALLY(pings(s) > alone, 60000);
    CHECK_EVENTUALLY(pinged_anew(&q, before), 60000);
    CHECK(!atomic_load(&w.heard) && !atomic_load(&l.done));

    hf_client *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(other, "a", 60000);
    lock_now(m);
    unlock_now(m);
    CHECK_INT(pthread_join(w.thread, NULL), 0);
    CHECK_INT(w.result, HF_OK);
    unlock_now(held);
    locker_join(&l, HF_OK);
    hf_lock_free(l.m);
    hf_lock_free(held);
    hf_lock_free(m);
    hf_client_free(other);
    hf_client_free(w.c);
    hf_client_free(c);
    hf_client_free(holder);
}
