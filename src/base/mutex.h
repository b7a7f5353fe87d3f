/* SPDX-License-Identifier: MIT
 * mutex.h - a mutex, and the order in which a thread may take several.
 *
 * Each has a rank, and a thread takes them in the order of their ranks; docs/threads.md has the
 * same list, and what each guards. The tests are built with LOCK_ORDER: there a thread that takes
 * one of the same or a lower rank than one that it holds ends the program, with both names, even if
 * this time no other thread is in its way. Elsewhere this is pthread_mutex_lock() and no more.
 */
#ifndef BASE_MUTEX_H
#define BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/seam.h"

#define MUTEX_MAP(X)                        \
    X(SENTINEL,    1, "sentinel.mu")        \
    X(CLUSTER_ASK, 1, "cluster.ask_mu")     \
    X(KEEPER_TURN, 2, "keeper.turn")        \
    X(KEEPER,      3, "keeper.mu")          \
    X(SESSION,     4, "client.session_mu")  \
    X(WAITERS,     4, "waiters.mu")         \
    X(LISTENERS,   4, "listeners.mu")       \
    X(NAMES,       4, "names.mu")           \
    X(INBOX,       5, "inbox.mu")           \
    X(KEYSPACES,   5, "keyspaces.mu")       \
    X(CLUSTER,     6, "cluster.mu")         \
    X(CONN,        7, "conn.mu")            \
    X(TLS,         8, "tls.mu")             \
    X(LOOP,        8, "loop.mu")            \
    X(QUORUM,      8, "quorum.mu")          \
    X(MEMBER,      8, "member.mu")          \
    X(OWN_CONNS,   8, "own_conns.mu")       \
    X(OFFLOAD,     8, "offload.mu")         \
    X(SEQUENCE,    8, "sequence.mu")        \
    X(BELLS,       8, "bells.mu")           \
    X(SINGLE,      8, "single.mu")          \
    X(NOTES,       8, "notes.mu")           \
    X(FORKGUARD,   9, "forkguard.mu")

#define MUTEX_ID(name, rank, text) MUTEX_##name,
enum mutex_id { MUTEX_MAP(MUTEX_ID) MUTEX_IDS };
#undef MUTEX_ID

struct mutex {
    pthread_mutex_t pthread;
#ifdef LOCK_ORDER
    enum mutex_id id;
#endif
};

#ifdef LOCK_ORDER

#define MUTEX_INITIALIZER(id) { PTHREAD_MUTEX_INITIALIZER, id }

void mutex_init(struct mutex *mu, enum mutex_id id);
void mutex_lock(struct mutex *mu);
bool mutex_trylock(struct mutex *mu);
void mutex_unlock(struct mutex *mu);
void mutex_assert_held(const struct mutex *mu);

/* Simulated threads are one to the system: what the present one holds is put aside, and it is what
 * another one had put aside that is held. */
#define MUTEX_HELD_MAX 16
struct mutexes {
    const struct mutex *mu[MUTEX_HELD_MAX];
    size_t              n;
};
void mutex_switch(struct mutexes *ret_mine, const struct mutexes *theirs);

#else

#define MUTEX_INITIALIZER(id) { PTHREAD_MUTEX_INITIALIZER }

static inline void mutex_init(struct mutex *mu, enum mutex_id id)
{
    (void)id;
    pthread_mutex_init(&mu->pthread, NULL);
}

static inline void mutex_lock(struct mutex *mu)
{
    pthread_mutex_lock(&mu->pthread);
}

/* False: somebody has it. */
static inline bool mutex_trylock(struct mutex *mu)
{
    return pthread_mutex_trylock(&mu->pthread) == 0;
}

static inline void mutex_unlock(struct mutex *mu)
{
    pthread_mutex_unlock(&mu->pthread);
}

/* The caller has it. */
static inline void mutex_assert_held(const struct mutex *mu)
{
    (void)mu;
}

#endif

/* What is held stays held, in the eyes of the order: the thread takes nothing meanwhile. In a
 * simulation time has to pass for it. */
static inline void mutex_cond_wait(struct mutex *mu, pthread_cond_t *cond)
{
    const struct seam *seam = seam_get();
    if (seam && seam->wake) {
        mutex_unlock(mu);
        seam->sleep_until(INT64_MAX, cond);
        mutex_lock(mu);
        return;
    }
    pthread_cond_wait(cond, &mu->pthread);
}

/* All who wait. */
static inline void mutex_cond_wake(pthread_cond_t *cond)
{
    const struct seam *seam = seam_get();
    if (seam)
        seam_wake(seam, cond);
    pthread_cond_broadcast(cond);
}

static inline void mutex_destroy(struct mutex *mu)
{
    pthread_mutex_destroy(&mu->pthread);
}

#endif
