/* SPDX-License-Identifier: MIT
 * worker.h - requests that somebody else's event loop waits for.
 *
 * One thread per client takes the steps of all of them, one after the other; a request that waits
 * for something costs it nothing. In a cluster there is one for each server, so that one that is
 * silent keeps nobody else waiting. What is finished is handed over by worker_dispatch(), in the
 * thread of whoever calls it.
 */
#ifndef SESSION_WORKER_H
#define SESSION_WORKER_H

#include <stdbool.h>

#include "base/err.h"
#include "base/heap.h"

struct worker;

struct job {
    /* Thread: worker. Do what is to be done now. True: finished, with *ret. False: there is nothing
     * to do before *ret_until_ms, or worker_wake(). */
    bool (*step)(struct job *j, hf_err *ret, int64_t *ret_until_ms, hf_error *reterr);
    /* Thread: the dispatcher's. Owns and frees j. err is NULL on success. */
    void (*finished)(struct job *j, hf_err result, const hf_error *err);

    /* The worker's. */
    struct hand     *hand;
    struct heap_node due;
    struct job      *next;
    hf_err           result;
    hf_error        *err;
    bool             woken;
};

hf_err worker_open(struct worker **ret, hf_error *reterr);
/* Ends its threads. Jobs that are not finished get one last step, as after their cancellation. */
struct worker *worker_free(struct worker *w);
struct worker *worker_forget(struct worker *w); /* in a forked child */

/* server: as topo_server() tells. */
hf_err worker_add(struct worker *w, struct job *j, const void *server, hf_error *reterr);
void worker_wake(struct worker *w, struct job *j); /* any thread */
int worker_fd(const struct worker *w);
size_t worker_dispatch(struct worker *w);

#endif
