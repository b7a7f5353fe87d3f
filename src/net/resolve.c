/* SPDX-License-Identifier: MIT
 * resolve.c - the addresses of a host, in time.
 */
#include "net/resolve.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/forkguard.h"
#include "base/mem.h"
#include "base/park.h"
#include "base/thread.h"

#define UNDER_WAY_MAX 32 /* a resolver that is dead must not cost a thread for each attempt */

/* A look-up: of who asks, and of the thread that does it. The last one of them frees it. */
struct lookup {
    atomic_int       users;
    pthread_t        thread; /* joined by who asks, unless the answer comes too late */
    struct park      park; /* finished: the next three are there */
    int              gai, why;
    struct addrinfo *list;
    char             port[16];
    char             host[];
};

/* How many there are, in the process that started them: a forked child has none of the threads. */
static atomic_int under_way;
static atomic_uint under_way_in;

static bool begin_one(void)
{
    unsigned generation = forkguard_generation();
    if (atomic_exchange(&under_way_in, generation) != generation)
        atomic_store(&under_way, 0);
    if (atomic_fetch_add(&under_way, 1) < UNDER_WAY_MAX)
        return true;
    atomic_fetch_sub(&under_way, 1);
    return false;
}

static void leave(struct lookup *l)
{
    if (atomic_fetch_sub(&l->users, 1) > 1)
        return;
    if (l->list)
        freeaddrinfo(l->list);
    mem_free(l);
}

static int look_up(const char *host, const char *port, int flags, struct addrinfo **ret)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags };
    return getaddrinfo(host, port, &hints, ret);
}

static void *lookup_main(void *arg)
{
    struct lookup *l = arg;
    l->gai = look_up(l->host, l->port, 0, &l->list);
    l->why = errno;
    if (l->gai)
        l->list = NULL;
    park_finish(&l->park); /* ours is still counted: it is not freed under our hands */
    atomic_fetch_sub(&under_way, 1);
    leave(l);
    return NULL;
}

static hf_err explain(const char *host, int gai, int why, hf_error *reterr)
{
    if (gai == EAI_MEMORY)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return err_set(reterr, HF_ECONN, "cannot find the host %s: %s: check the name in the URL", host,
                   gai == EAI_SYSTEM ? strerror(why) : gai_strerror(gai));
}

/* Thread: whoever asks. The thread has been started. If it has answered, nothing of it is left when
 * this returns: what the C library keeps for each thread that resolves names is freed at its end,
 * and a program that exits just then would seem to have lost it. */
static hf_err await(struct lookup *l, const struct limit *lim, struct addrinfo **ret,
                    hf_error *reterr)
{
    while (!park_finished(&l->park) && !limit_over(lim))
        park_wait(&l->park, clock_now_ms() + limit_tick_ms(lim));
    if (!park_finished(&l->park)) {
        pthread_detach(l->thread);
        return err_set(reterr, HF_ECONN,
                       "the host %s was not found in time: does this machine's name server answer?",
                       l->host);
    }
    pthread_join(l->thread, NULL);
    if (l->gai)
        return explain(l->host, l->gai, l->why, reterr);
    *ret = l->list;
    l->list = NULL;
    return HF_OK;
}

static hf_err start(struct lookup *l, hf_error *reterr)
{
    if (!begin_one())
        return err_set(reterr, HF_ECONN,
                       "the host %s was not looked up: %d look-ups have not been answered yet",
                       l->host, UNDER_WAY_MAX);
    int e = thread_start(&l->thread, "hf-resolve", lookup_main, l);
    if (!e)
        return HF_OK;
    atomic_fetch_sub(&under_way, 1);
    return err_set(reterr, e == ENOMEM ? HF_ENOMEM : HF_ESYS,
                   "cannot start a thread to look up %s: %s", l->host, strerror(e));
}

hf_err resolve_host(const struct url_host *host, const struct limit *lim, struct addrinfo **ret,
                    hf_error *reterr)
{
    char port[16];
    snprintf(port, sizeof port, "%d", host->port);
    int gai = look_up(host->host, port, AI_NUMERICHOST, ret);
    if (gai != EAI_NONAME)
        return gai ? explain(host->host, gai, errno, reterr) : HF_OK;

    size_t size = strlen(host->host) + 1;
    struct lookup *l = mem_zalloc(sizeof *l + size);
    if (!l)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    memcpy(l->host, host->host, size);
    memcpy(l->port, port, sizeof port);
    atomic_store(&l->users, 2);
    hf_err e = start(l, reterr);
    if (e)
        leave(l); /* for the thread that there is not */
    else
        e = await(l, lim, ret, reterr);
    leave(l);
    return e;
}
