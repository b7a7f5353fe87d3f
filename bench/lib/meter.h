/* SPDX-License-Identifier: MIT
 * meter.h - what work cost: time, commands, bytes, the server's and our own processor time,
 * context switches. All of it for one unit of the work: a pair of lock and unlock, a handoff.
 */
#ifndef BENCH_METER_H
#define BENCH_METER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include "harness/server.h"
#include "lib/stats.h"

enum cost_field {
    COST_RATE,     /* a second */
    COST_P50,      /* us, as all times here */
    COST_P99,
    COST_MAX,
    COST_COMMANDS, /* that clients sent, not those that scripts call */
    COST_BYTES,    /* both ways */
    COST_SERVER,   /* us of the server's processor time */
    COST_CLIENT,   /* us of ours */
    COST_SWITCHES, /* context switches of ours */
    COST_FAIRNESS, /* most turns of one worker / fewest */
    COST_FIELDS
};
extern const char *const cost_names[COST_FIELDS]; /* with their units: "p50_us" */

/* NAN: not measured. */
struct cost {
    double is[COST_FIELDS];
};
struct cost cost_none(void);

struct meter {
    struct server *s;
    const char    *sent; /* names of commands that only clients send, with blanks between them */
    int64_t        start_ns;
    double         server_us, bytes, question, commands;
    struct rusage  own;
};

#define SENT_BY_HOLDFAST "eval evalsha fcall subscribe unsubscribe ping wait"
#define SENT_BY_HIREDIS  "set evalsha"

void meter_begin(struct meter *m, struct server *s, const char *sent);
/* done: how many units of the work; us: of each, or NULL. */
struct cost meter_end(const struct meter *m, double done, struct samples *us);

/* Calls of these commands so far. INFO counts what scripts call, too. */
double meter_commands(struct server *s, const char *names);
double meter_script_us(struct server *s); /* in scripts so far, as INFO commandstats tells it */
double meter_server_us(const struct server *s);  /* processor time so far */
double meter_server_memory(struct server *s);    /* bytes */
double meter_rusage_us(const struct rusage *u);
double meter_heap(void);                         /* bytes that malloc(3) has given out here */
double meter_seconds_since(int64_t start_ns);

/* Only this core may run the process pid (0: this one, with the threads it starts from now on);
 * -1: all of them may. */
void meter_pin(int pid, int core);

#endif
