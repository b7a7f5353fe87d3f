/* SPDX-License-Identifier: MIT
 * sim.h - a simulated world: virtual time, threads of which one runs at a time, connections to a
 * server in memory. What the library does in it, it does the same way again from the same seed.
 *
 * Time stands still while anything runs. When all threads sleep, it jumps to what comes first: a
 * thread that wakes up, a program whose time has come, bytes that arrive. Of several things at the
 * same time chance takes one.
 */
#ifndef HARNESS_SIM_H
#define HARNESS_SIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/stream.h"

#define SIM_NEVER INT64_MAX

/* From now on the library runs in this world: seam_set() and stream_set_opener() are called. There
 * is one at a time; the calling thread is its first. */
void sim_begin(uint64_t seed);
void sim_end(void); /* all threads have been joined, all connections closed */

int64_t sim_now(void);
uint64_t sim_random(uint64_t n); /* 0 .. n-1 */
int64_t sim_between(int64_t low, int64_t high);
void sim_sleep(int64_t ms);

/* A thread; the library's own are started the same way. */
int sim_start(pthread_t *ret, void *(*main_fn)(void *), void *arg);
void sim_join(pthread_t thread);

/* A program with an event loop, which has no thread: run() is called when due() has come, and when
 * there are bytes on a connection to its port. It must not sleep. */
struct sim_program {
    int      port;
    int64_t (*due)(struct sim_program *p);
    void    (*run)(struct sim_program *p);
    bool     called; /* sim.c's */
    struct sim_program *next;
};
void sim_add(struct sim_program *p);
void sim_remove(struct sim_program *p);

/* The server behind every address: a command is executed when it arrives. Writes the reply to text;
 * returns its length. */
typedef size_t (*sim_server)(int argc, const hf_bytes *argv, char *text, size_t size);
void sim_serve(sim_server server);

/* Called after everything that happens. */
void sim_watch(void (*fn)(void));

/* What goes wrong, each one time in so many; 0: never. */
struct sim_faults {
    unsigned slow;    /* a packet takes up to 3 s, not some milliseconds */
    unsigned cut;     /* the connection ends before a command is executed */
    unsigned lose;    /* it ends after that: the reply is lost */
    unsigned silence; /* the connection stays, and nothing comes over it any more */
    unsigned outage;  /* all end, and nobody can connect for a while */
};
extern struct sim_faults sim_faults;

struct sim_counts {
    uint64_t events, commands, connections, cuts, lost, silences, outages, refused, late_copies;
    uint64_t trace; /* of all that happened: the same from the same seed */
};
extern struct sim_counts sim_counts;

#endif
