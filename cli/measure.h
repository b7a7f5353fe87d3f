/* SPDX-License-Identifier: MIT
 * measure.h - how long locks take on a user's own server, with a bounded load. */
#ifndef CLI_MEASURE_H
#define CLI_MEASURE_H

#include <holdfast.h>
#include <stddef.h>
#include <stdint.h>

/* What one kind of work took. Times in microseconds. */
struct measured {
    size_t count;
    double p50, p99, max;
    double per_second;
    double cpu; /* of this process, in cores: 1 is one core all the time */
};

#define MEASURE_THREADS 8
#define MEASURE_ASYNC   64

/* Each runs for ms at the most, and uses names of its own that begin with prefix. On failure *err
 * has the reason. */
hf_err measure_look(hf_client *c, const char *prefix, int64_t ms, struct measured *ret,
                    hf_error *err);
hf_err measure_pairs(hf_client *c, const char *prefix, int64_t ms, struct measured *ret,
                     hf_error *err);
/* MEASURE_THREADS threads, each with a lock of its own. */
hf_err measure_threads(hf_client *c, const char *prefix, int64_t ms, struct measured *ret,
                       hf_error *err);
/* One thread that keeps MEASURE_ASYNC locks under way. No times of single ones. */
hf_err measure_async(hf_client *c, const char *prefix, int64_t ms, struct measured *ret,
                     hf_error *err);
/* From the release by one client until the other, which waits, has it. round_trip_us: of this
 * server. */
hf_err measure_handover(hf_client *const pair[2], const char *prefix, int64_t ms,
                        double round_trip_us, struct measured *ret, hf_error *err);

#endif
