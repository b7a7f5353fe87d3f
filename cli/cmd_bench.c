/* SPDX-License-Identifier: MIT
 * cmd_bench.c - holdfast bench: what a lock costs on this server, and what limits it. */
#include "commands.h"
#include "exitcode.h"
#include "measure.h"
#include "message.h"
#include "open.h"
#include "output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TIME_DEFAULT_MS 15000
#define TIME_MIN_MS     500
#define TIME_MAX_MS     60000
#define PARTS           5
#define BUSY_CPU        0.85 /* of a core: then it is this machine that limits */

struct results {
    struct measured look, pairs, threads, async, handover;
};

static hf_err measure_all(hf_client *const c[2], int64_t ms, struct results *r, hf_error *err)
{
    char prefix[60];
    snprintf(prefix, sizeof prefix, "holdfast-bench.%ld", (long)getpid());
    hf_err e = measure_look(c[0], prefix, ms, &r->look, err);
    if (!e)
        e = measure_pairs(c[0], prefix, ms, &r->pairs, err);
    if (!e)
        e = measure_threads(c[0], prefix, ms, &r->threads, err);
    if (!e)
        e = measure_async(c[0], prefix, ms, &r->async, err);
    if (!e)
        e = measure_handover(c, prefix, ms, r->look.p50, &r->handover, err);
    return e;
}

/* ---- in words ----------------------------------------------------------------------------- */

static double most_per_second(const struct results *r)
{
    return r->async.per_second > r->threads.per_second ? r->async.per_second
                                                       : r->threads.per_second;
}

/* "this machine" or "the server or the network". */
static int machine_is_busy(const struct results *r)
{
    const struct measured *m = r->async.per_second > r->threads.per_second ? &r->async
                                                                           : &r->threads;
    return m->cpu >= BUSY_CPU;
}

static void print_row(const char *what, const struct measured *m, int times, int rate)
{
    printf("%-44s", what);
    if (times)
        printf("%9.0f %9.0f %9.0f", m->p50, m->p99, m->max);
    else
        printf("%9s %9s %9s", "", "", "");
    if (rate)
        printf(" %11.0f", m->per_second);
    printf("\n");
}

static void print_words(const struct results *r)
{
    const struct measured *best = r->async.per_second > r->threads.per_second ? &r->async
                                                                              : &r->threads;
    if (r->look.p50 > 0)
        printf("\nA round trip takes %.0f us. A lock that nobody else wants costs %.1f of them, "
               "acquire and\nrelease together; to hand one to a waiter costs %.1f.\n", r->look.p50,
               r->pairs.p50 / r->look.p50, r->handover.p50 / r->look.p50);
    printf("One caller after the other gets %.0f locks a second: the round trip is the limit. "
           "Many at once\nget %.0f: ", r->pairs.per_second, most_per_second(r));
    if (machine_is_busy(r))
        printf("this machine is the limit, with %.0f %% of a core at work.\n", best->cpu * 100);
    else
        printf("the server or the network is the limit; this machine used %.0f %% of a core.\n",
               best->cpu * 100);
}

static void print_table(const struct results *r)
{
    printf("%-44s%9s %9s %9s %11s\n", "", "p50 us", "p99 us", "max us", "per second");
    print_row("a look at a lock: one round trip", &r->look, 1, 0);
    print_row("acquire and release, one caller", &r->pairs, 1, 1);
    print_row("acquire and release, 8 threads", &r->threads, 1, 1);
    print_row("acquire and release, 64 without blocking", &r->async, 0, 1);
    print_row("from a release until the waiter has it", &r->handover, 1, 0);
    print_words(r);
}

/* ---- as JSON ------------------------------------------------------------------------------ */

static void set(json_t *all, const char *name, const struct measured *m, int times)
{
    json_t *j = json_object();
    json_object_set_new(j, "count", json_integer((json_int_t)m->count));
    if (times) {
        json_object_set_new(j, "p50_us", json_real(m->p50));
        json_object_set_new(j, "p99_us", json_real(m->p99));
        json_object_set_new(j, "max_us", json_real(m->max));
    }
    json_object_set_new(j, "per_second", json_real(m->per_second));
    json_object_set_new(j, "cpu_cores", json_real(m->cpu));
    json_object_set_new(all, name, j);
}

static void print_json(const struct results *r)
{
    json_t *j = json_object();
    set(j, "round_trip", &r->look, 1);
    set(j, "one_caller", &r->pairs, 1);
    set(j, "threads_8", &r->threads, 1);
    set(j, "async_64", &r->async, 0);
    set(j, "handover", &r->handover, 1);
    json_object_set_new(j, "limit", json_string(machine_is_busy(r) ? "client" : "server"));
    json_line(j);
}

int cmd_bench(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    int64_t ms = o->time_ms == GIVEN_NOT ? TIME_DEFAULT_MS : o->time_ms;
    hf_client *c[2] = { NULL, NULL };
    struct results r;
    hf_error err;
    memset(&r, 0, sizeof r);
    (void)argv;
    if (argc)
        return usage_error(cmd, "it takes no names");
    if (ms < TIME_MIN_MS || ms > TIME_MAX_MS)
        return usage_error(cmd, "--time is 500ms to 1m");
    int code = client_open(o, NULL, &c[0]);
    if (!code)
        code = client_open(o, NULL, &c[1]);
    if (!code) {
        if (!o->quiet && o->output == OUT_TABLE)
            msg_note("%" PRId64 " s of load on the server, with up to 64 locks at once",
                     (ms + 999) / 1000);
        hf_err e = measure_all(c, ms / PARTS, &r, &err);
        if (e)
            code = msg_failed(e, &err);
        else if (o->output == OUT_TABLE)
            print_table(&r);
        else
            print_json(&r);
    }
    client_close(c[1]);
    client_close(c[0]);
    return code;
}
