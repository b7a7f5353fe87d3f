/* SPDX-License-Identifier: MIT
 * waiting.h - shorthands of the tests about waiting: a thread that locks, who stands in the queue,
 * memory that processes share, subscriptions to break.
 */
#ifndef HARNESS_WAITING_H
#define HARNESS_WAITING_H

#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/live.h"

/* ---- a thread that takes a lock ---- */

struct locker {
    hf_lock   *m;
    int64_t    wait_ms;
    hf_err     result;
    hf_error   error;
    uint64_t   fence;
    int64_t    done_ns;
    atomic_int done;
    pthread_t  thread;
};

static inline void *locker_main(void *arg)
{
    struct locker *l = arg;
    l->result = hf_lock_acquire(l->m, l->wait_ms, &l->fence, &l->error);
    l->done_ns = t_now_ns();
    atomic_store(&l->done, 1);
    return NULL;
}

static inline void locker_start(struct locker *l)
{
    atomic_store(&l->done, 0);
    CHECK_INT(pthread_create(&l->thread, NULL, locker_main, l), 0);
}

static inline void locker_join(struct locker *l, hf_err want)
{
    CHECK_INT(pthread_join(l->thread, NULL), 0);
    if (l->result != want)
        FAIL("the locker got %s (%s), not %s", hf_err_name(l->result), l->error.message,
             hf_err_name(want));
}

/* It was cancelled. 0: the server did not confirm that in time, as on a machine that has too much
 * to do; then it is cancelled later. */
static inline int locker_cancelled(struct locker *l)
{
    CHECK_INT(pthread_join(l->thread, NULL), 0);
    if (l->result == HF_EUNSURE && strstr(l->error.message, "nor to its cancellation")) {
        t_note("%s", l->error.message);
        return 0;
    }
    if (l->result != HF_ECANCELED)
        FAIL("the locker got %s (%s), not HF_ECANCELED", hf_err_name(l->result), l->error.message);
    return 1;
}

/* ---- the queue of lock:a and others ---- */

static inline long long queue_of(struct server *s, const char *name)
{
    return server_int(s, "ZCARD {lock:%s}:q", name);
}

#define CHECK_QUEUE(s, name, n) CHECK_EVENTUALLY(queue_of(s, name) == (n), 10000)
/* The same for requests without blocking of client c, which move only when it is dispatched. */
#define LOOP_EVENTUALLY(c, condition, ms) \
    CHECK_EVENTUALLY((hf_client_dispatch(c), (condition)), ms)
#define LOOP_QUEUE(c, s, name, n) LOOP_EVENTUALLY(c, queue_of(s, name) == (n), 10000)

/* P9: whatever is left has a ttl, but for the counter and the reign. */
static inline void check_only_ttls(struct server *s)
{
    char *all = strdup(server_keys(s)), *save = NULL;
    for (char *k = strtok_r(all, "\n", &save); k; k = strtok_r(NULL, "\n", &save))
        if (strcmp(k, FENCE_KEY) != 0 && strcmp(k, REIGN_KEY) != 0
            && server_int(s, "PTTL %s", k) == -1)
            FAIL("%s was left behind without a ttl", k);
    free(all);
}

/* ---- subscriptions ---- */

/* Close every subscription there is; how many. */
static inline long long kill_inboxes(struct server *s)
{
    return server_int(s, "CLIENT KILL TYPE pubsub");
}

/* Whether the session of this owner (or token, or value) is seen by the server. */
static inline int is_present(struct server *s, const char *owner)
{
    char channel[64];
    snprintf(channel, sizeof channel, "lock:holdfast:s:%.32s", owner);
    const char *text = server_ask(s, "PUBSUB NUMSUB %s", channel);
    return strcmp(strchr(text, '\n') + 1, "0") != 0;
}

/* The id of the only subscription there is. */
static inline long long only_inbox(struct server *s)
{
    const char *list = server_ask(s, "CLIENT LIST TYPE pubsub");
    CHECK(strncmp(list, "id=", 3) == 0 && !strstr(list + 3, "\nid="));
    return atoll(list + 3);
}

/* Take m, which asks for a grace, so that it has one: a process that the scheduler keeps from being
 * seen for a second is granted its lock without one. */
static inline uint64_t lock_with_grace(hf_client *c, hf_lock *m, const char *name)
{
    for (int tries = 0;; tries++) {
        hf_inspect_info *i = NULL;
        uint64_t fence = lock_now(m);
        CHECK_HF(hf_inspect_lock(c, hf_str(name), 0, &i, &err), HF_OK);
        int has = i->holders != 1 || i->holder[0]->grace_ms != 0;
        hf_inspect_free(i);
        if (has || tries == 5) /* a quorum never gives one */
            return fence;
        t_note("too late to be seen: once more");
        unlock_now(m);
    }
}

/* ---- between processes ---- */

static inline void *shared_memory(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

/* A bell that one rings and another waits for, without polling. */
struct bell { int fd[2]; };

static inline struct bell bell_new(void)
{
    struct bell b;
    CHECK_INT(pipe(b.fd), 0);
    return b;
}

static inline void bell_ring(struct bell b)
{
    CHECK(write(b.fd[1], "x", 1) == 1);
}

static inline void bell_wait(struct bell b)
{
    char x;
    CHECK(read(b.fd[0], &x, 1) == 1);
}

/* What another process was granted, with the deadline that it believes in. */
#define BELIEVED_UNTIL(m) (t_now_ns() + hf_lock_time_left_ms(m) * 1000000)

#endif
