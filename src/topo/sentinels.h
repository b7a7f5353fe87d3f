/* SPDX-License-Identifier: MIT
 * sentinels.h - the Sentinels of one URL, asked together.
 *
 * One of them may be dead, cut off, out of date or lying. Only what more than half of the
 * *configured* ones say counts, however many answer.
 */
#ifndef TOPO_SENTINELS_H
#define TOPO_SENTINELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limit.h"
#include "base/log.h"
#include "net/url.h"

struct sentinels;

/* u must outlive it. NULL: no memory. */
struct sentinels *sentinels_new(const struct url *u, const struct log *log);
struct sentinels *sentinels_free(struct sentinels *co); /* in a forked child as well */

/* The URL as it is for the Sentinels: with their credentials. Borrows all text of u. */
struct url sentinels_login(const struct url *u);

struct sentinels_word {
    const struct url_host *master;   /* where a majority says that it is; lives as long as co */
    int64_t                asked_ms; /* it is so old: when the oldest of their answers was asked
                                        for */
    size_t                 answered; /* how many said anything; set whatever the result */
};

/* Where is the master? Done as soon as a majority agrees: the slow and the silent keep nobody.
 * Thread: one at a time, also with sentinels_replicas().
 *
 *   HF_ECONN    no majority answers, or agrees
 *   HF_ECONFIG  a majority knows no master of that name
 *   HF_EAUTH    a majority refused our login */
hf_err sentinels_ask(struct sentinels *co, const struct limit *lim, struct sentinels_word *ret,
                   hf_error *reterr);

/* The same, with more time to connect to each of them: for one that has heard nobody, as they are
 * far away or have a lot to do. */
hf_err sentinels_ask_patiently(struct sentinels *co, const struct limit *lim,
                               struct sentinels_word *ret, hf_error *reterr);

/* How many replicas the master should have: the median of what they say, 0 to URL_REPLICAS_MAX; an
 * answer that makes no sense is not counted. HF_EPROTO: no majority is left then. */
hf_err sentinels_replicas(struct sentinels *co, const struct limit *lim, int *ret,
                          hf_error *reterr);

/* Sleep until a Sentinel tells of a switch of our master (true), until ring_fd can be read, or
 * until the time has come. Keeps up the subscriptions, and makes no new ones after *stop. Thread:
 * another one than sentinels_ask()'s may do it. */
bool sentinels_listen(struct sentinels *co, int ring_fd, int64_t until_ms, const atomic_int *stop);

#endif
