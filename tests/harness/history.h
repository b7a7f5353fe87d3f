/* SPDX-License-Identifier: MIT
 * history.h - what many processes were granted, and the proof that it was right.
 *
 * The record is shared memory, made before the workers are forked: a worker that is killed loses
 * nothing that it wrote. All times are t_now_ns(), one clock for every process of the machine.
 *
 *     int64_t invoke = t_now_ns();
 *     ... lock ...
 *     struct grant *g = history_grant(h, lock, client, fence, invoke, deadline_ns);
 *     ... work ...
 *     history_release(g);   // before the unlock is sent
 */
#ifndef HARNESS_HISTORY_H
#define HARNESS_HISTORY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct history;

struct grant {
    uint32_t lock, client;
    uint32_t weight;   /* of a lock that several hold; 0: alone */
    uint64_t fence;
    int64_t  invoke;   /* the call began */
    int64_t  returned; /* the call came back: the holder believes from here ... */
    int64_t  release;  /* ... until it asked for the release (0: never), */
    int64_t  deadline; /* or until its lease ended by its own clock, whichever came first */
    int64_t  lost_at;  /* its holder was told of a loss; 0: never */
    int      lost;     /* hf_loss: why */
    int      stopped;  /* its process was stopped or killed by the test meanwhile */
    atomic_int written; /* set last: a slot of a killed worker may be half-filled */
};

struct history *history_new(size_t max);
/* Record a grant; returned is now. */
struct grant *history_grant(struct history *h, uint32_t lock, uint32_t client, uint64_t fence,
                            int64_t invoke, int64_t deadline);
/* The same for a part of a lock that several hold. */
struct grant *history_share(struct history *h, uint32_t lock, uint32_t client, uint64_t fence,
                            int64_t invoke, int64_t deadline, uint32_t weight);
void history_deadline(struct grant *g, int64_t deadline); /* after a renewal */
void history_release(struct grant *g);

/* A copy of what is recorded, in no order; the caller frees it. */
size_t history_copy(struct history *h, struct grant **ret);

struct history_report {
    size_t  grants;
    size_t  duplicates; /* two grants of a lock with one number */
    size_t  disorder;   /* invoked after another had returned, yet with the smaller number */
    size_t  overlaps;   /* believed to hold while another did */
    int64_t worst_ns;   /* the longest such overlap */
    int64_t sum_ns;     /* of all of them */
};

/* Judge what is recorded, every pair counted against the worst before it. Returns the number of
 * violations and prints the first few. Call it when the writers are done. */
size_t history_check(struct history *h, struct history_report *ret);

/* The same when at most limit may be held at once: an overlap is a moment at which more was; who
 * has it alone has all of it. A downgrade is a release, and a grant to the same client with the
 * same number. */
size_t history_check_shared(struct history *h, uint32_t limit, struct history_report *ret);

#endif
