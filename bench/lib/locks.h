/* SPDX-License-Identifier: MIT
 * locks.h - the library's calls, with every failure explained: each ends the benchmark.
 */
#ifndef BENCH_LOCKS_H
#define BENCH_LOCKS_H

#include <holdfast.h>

hf_client *bench_client(const char *url);
hf_lock *bench_lock(hf_client *c, const char *name, const hf_lock_opts *o); /* o may be NULL */
void bench_take(hf_lock *m); /* nobody else has it */
void bench_wait(hf_lock *m); /* however long it takes */
void bench_give(hf_lock *m);
void bench_pair(hf_lock *m); /* wait for it, and give it back */

/* Call hf_client_dispatch() whenever there is something to do, for at most ms; returns after one
 * turn. */
void bench_dispatch(hf_client *c, int ms);

/* Handles "PREFIX0", "PREFIX1" ..., taken without blocking, 256 at a time. */
hf_lock **bench_hold_many(hf_client *c, const char *prefix, int n, const hf_lock_opts *o);
void bench_free_many(hf_lock **m, int n);
int bench_count_lost(hf_lock *const *m, int n);

#endif
