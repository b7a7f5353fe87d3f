/* SPDX-License-Identifier: MIT
 * thread_resolve.c - names of hosts, and a name server that is slow or silent.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>

#include "harness/live.h"

enum { AT_ONCE = 32 }; /* look-ups that may be under way */

static atomic_int silent, delay_ms, calls, ended;
static atomic_int freed;   /* threads that have freed what was kept for each of them */
static pthread_key_t kept; /* that, if it is not 0 */

/* The resolver, as far as the library sees it: every name is this machine. */
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (hints && hints->ai_flags & AI_NUMERICHOST)
        return real(node, service, hints, ret);
    atomic_fetch_add(&calls, 1);
    t_sleep_ms(atomic_load(&delay_ms));
    while (atomic_load(&silent))
        t_sleep_ms(1);
    int e = strcmp(node, "nowhere.test") == 0 ? EAI_NONAME : real("127.0.0.1", service, hints, ret);
    if (kept)
        pthread_setspecific(kept, &freed);
    atomic_fetch_add(&ended, 1);
    return e;
}

static void free_kept(void *arg)
{
    t_sleep_ms(100);
    atomic_fetch_add((atomic_int *)arg, 1);
}

static hf_err open_at(const char *url, hf_client **ret)
{
    return hf_client_open(url, NULL, ret, &err);
}

TEST(a_silent_name_server_costs_no_more_than_the_time_out)
{
    hf_client *c = NULL;
    atomic_store(&silent, 1);
    int64_t begun = t_now_ms();
    CHECK_HF(open_at("redis://slow.test?timeout=200ms", &c), HF_ECONN);
    CHECK_TOOK(t_now_ms() - begun, 0, 5000);
    CHECK_CONTAINS(err.message, "slow.test was not found in time");
    CHECK(atomic_load(&calls) > 0 && atomic_load(&ended) == 0);
    atomic_store(&silent, 0);
    CHECK_EVENTUALLY(atomic_load(&ended) == atomic_load(&calls), 5000);
}

/* The real resolver keeps something for each thread. Who ends at once has not lost it. */
TEST(of_a_look_up_that_was_answered_no_thread_is_left)
{
    hf_client *c = NULL;
    pthread_key_t unused; /* the first key may be 0 */
    CHECK_INT(pthread_key_create(&unused, NULL), 0);
    CHECK_INT(pthread_key_create(&kept, free_kept), 0);
    CHECK_HF(open_at("redis://nowhere.test", &c), HF_ECONN);
    CHECK(atomic_load(&calls) > 0);
    CHECK_INT(atomic_load(&freed), atomic_load(&calls));
}

TEST(look_ups_that_are_not_answered_do_not_pile_up)
{
    hf_client *c = NULL;
    atomic_store(&silent, 1);
    for (int i = 0; i < AT_ONCE + 8; i++)
        CHECK_HF(open_at("redis://slow.test?timeout=10ms", &c), HF_ECONN);
    CHECK_INT(atomic_load(&calls), AT_ONCE);
    CHECK_CONTAINS(err.message, "have not been answered yet");
    atomic_store(&silent, 0);
    CHECK_EVENTUALLY(atomic_load(&ended) == AT_ONCE, 5000);
    /* Counted down a moment later. */
    CHECK_EVENTUALLY(open_at("redis://nowhere.test?timeout=2s", &c) == HF_ECONN
                     && strstr(err.message, "cannot find the host nowhere.test"), 5000);
}

TEST(a_slow_answer_is_as_good_as_a_quick_one)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    char url[64];
    hf_client *c = NULL;
    atomic_store(&delay_ms, 100);
    snprintf(url, sizeof url, "redis://some.test:%d", server_port(s));
    CHECK_HF(open_at(url, &c), HF_OK);
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m); /* the session looks it up as well */
    unlock_now(m);
    CHECK(atomic_load(&calls) >= 1);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(atomic_load(&ended), atomic_load(&calls));
}

TEST(figures_are_looked_up_by_nobody)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    atomic_store(&silent, 1);
    hf_client *c = client_at(server_tcp_url(s), 0);
    hf_client_free(c);
    CHECK_INT(atomic_load(&calls), 0);
}
