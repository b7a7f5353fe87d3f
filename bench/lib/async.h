/* SPDX-License-Identifier: MIT
 * async.h - lock and unlock without blocking: one thread keeps many under way.
 */
#ifndef BENCH_ASYNC_H
#define BENCH_ASYNC_H

#include <holdfast.h>

#include "lib/meter.h"

struct cost async_measure(struct server *s, hf_client *c, int under_way, int run_ms);

#endif
