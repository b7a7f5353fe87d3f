/* SPDX-License-Identifier: MIT
 * offload.h - a few threads for what cannot be done in steps, so that an event loop need not wait
 * for it.
 */
#ifndef NET_OFFLOAD_H
#define NET_OFFLOAD_H

#include "net/task.h"

struct offload;

struct offload_job {
    void (*work)(struct offload_job *j); /* Thread: one of ours. May wait */
    struct task        *task; /* woken when it is done */
    struct park         park; /* park_finished(): it is done */
    struct offload_job *next;
};

struct offload *offload_new(void); /* NULL: no memory. Threads are started when there is work */
/* Waits for the jobs under way; in a forked child only frees memory. */
struct offload *offload_free(struct offload *o);

/* 0, or an errno: no thread could be started. */
int offload_start(struct offload *o, struct offload_job *j);

static inline bool offload_done(const struct offload_job *j)
{
    return park_finished(&j->park);
}

#endif
