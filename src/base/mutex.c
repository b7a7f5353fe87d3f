/* SPDX-License-Identifier: MIT
 * mutex.c - the order of mutexes, checked: in the builds of the tests only.
 */
#include "base/mutex.h"

#ifdef LOCK_ORDER

#include <stdio.h>
#include <stdlib.h>

#define MUTEX_RANK(name, rank, text) { rank, text },
static const struct {
    int         rank;
    const char *text;
} about[] = { MUTEX_MAP(MUTEX_RANK) };
#undef MUTEX_RANK

static _Thread_local struct mutexes held;

static void fail(const char *what, const struct mutex *mu, const struct mutex *other)
{
    fprintf(stderr, "lock order: %s %s%s%s\n", what, about[mu->id].text,
            other ? " while it holds " : "", other ? about[other->id].text : "");
    abort();
}

static void check(const struct mutex *mu)
{
    for (size_t i = 0; i < held.n; i++)
        if (about[held.mu[i]->id].rank >= about[mu->id].rank)
            fail("a thread takes", mu, held.mu[i]);
    if (held.n == MUTEX_HELD_MAX)
        fail("too many are held with", mu, NULL);
}

void mutex_init(struct mutex *mu, enum mutex_id id)
{
    pthread_mutex_init(&mu->pthread, NULL);
    mu->id = id;
}

void mutex_lock(struct mutex *mu)
{
    check(mu);
    pthread_mutex_lock(&mu->pthread);
    held.mu[held.n++] = mu;
}

bool mutex_trylock(struct mutex *mu)
{
    if (pthread_mutex_trylock(&mu->pthread) != 0)
        return false;
    check(mu);
    held.mu[held.n++] = mu;
    return true;
}

void mutex_unlock(struct mutex *mu)
{
    size_t i = held.n;
    mutex_assert_held(mu);
    while (held.mu[--i] != mu)
        ;
    held.n--;
    for (; i < held.n; i++)
        held.mu[i] = held.mu[i + 1];
    pthread_mutex_unlock(&mu->pthread);
}

void mutex_assert_held(const struct mutex *mu)
{
    for (size_t i = 0; i < held.n; i++)
        if (held.mu[i] == mu)
            return;
    fail("a thread does not hold", mu, NULL);
}

void mutex_switch(struct mutexes *ret_mine, const struct mutexes *theirs)
{
    *ret_mine = held;
    held = *theirs;
}

#endif
