/* SPDX-License-Identifier: MIT
 * world.h - a simulated world: processes with clocks of their own, threads of which one runs at a
 * time, and a network between them and the model server, in which things go wrong.
 *
 * Time stands still while anything runs. When all sleep, it jumps to what comes first; of several
 * things at the same time chance takes one. The same seed gives the same world.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "holdfast.h"

#define WORLD_NEVER INT64_MAX
#define WORLD_PROCS 8

/* What goes wrong on a connection, each one time in so many packets; 0: never. */
struct world_net {
    unsigned slow;      /* it takes up to slow_ms */
    int64_t  slow_ms;
    int64_t  usual_ms;  /* up to so long otherwise */
    unsigned cut;       /* the connection ends before a command is executed */
    unsigned lose;      /* it ends after that: the reply is lost */
    unsigned silence;   /* the connection stays, and nothing comes over it any more */
};

/* What happened so far, of each kind. */
struct world_counts {
    uint64_t events, switches, commands, connections, cuts, lost, silences, refused, late_copies,
        slow, pushes, pauses, crashes, outages, stalls;
    uint64_t trace; /* of all that happened: the same from the same seed */
};
extern struct world_counts world_counts;
extern struct world_net world_net;

/* A process: its threads, its connections, its clock. */
struct world_proc {
    int      id;
    uint64_t chance;       /* its random numbers */
    int64_t  ppm;          /* how much faster its clock is, in millionths */
    int64_t  frozen_until; /* true time; it does nothing before that */
    int64_t  troubled_ms;  /* true time; until then the network has kept it waiting */
    bool     dead;
    bool     opened;       /* bytes have come for its event loop */
    unsigned connections;  /* so far */
};

/* From now on the library runs in this world, with so many servers: 1, or a cluster of 2. */
void world_begin(uint64_t seed, int servers);
void world_end(void); /* all threads have ended */

int64_t world_now(void); /* true time, ms */
uint64_t world_random(uint64_t *chance, uint64_t n);
int64_t world_between(uint64_t *chance, int64_t low, int64_t high);

/* Its port is 7000 + id, or 7100 + id at the second server: connections are told apart by it. */
struct world_proc *world_add_proc(int64_t ppm);
#define WORLD_URL_SIZE 64
const char *world_url(const struct world_proc *p, char ret[WORLD_URL_SIZE]);
/* Its own clock, and back: when that shows so much, or more. */
int64_t world_local(const struct world_proc *p, int64_t true_ms);
void world_freeze(struct world_proc *p, int64_t ms);
/* It ends at once, and its kernel closes its connections. world_bury(): its threads may run again,
 * to be ended; nothing that they do reaches anybody. */
void world_kill(struct world_proc *p);
void world_bury(struct world_proc *p);

/* A thread of a process; NULL: of nobody. With due() it is woken when that time, by its own clock,
 * has come, and when something comes over a connection of its process. */
void world_start(struct world_proc *p, void (*fn)(void *), void *arg);
void world_sleep(int64_t ms);
void world_sleep_due(int64_t (*due)(void *arg), void *arg);
bool world_alone(void); /* all other threads have ended */

/* ---- the server's side ----------------------------------------------------------------------- */

/* All connections to a server end; nobody can connect for so long. */
void world_outage(int server, int64_t ms);
/* All connections end; what was sent over them may still arrive. */
void world_cut_all(void);
/* Those to a server do, and another one is there: it knows none of them, so nothing arrives. */
void world_replace_server(int server);
/* A server does nothing for so long. */
void world_stall(int server, int64_t ms);
/* The servers' clock: true time and this. */
void world_shift_clock(int64_t ms);
int64_t world_clock_shift(void);

/* After each command: who sent it. */
void world_on_command(void (*after)(int proc));
bool world_late(void); /* it came over a connection that was closed before */
/* After everything that happens. */
void world_watch(void (*fn)(void));

/* ---- in words -------------------------------------------------------------------------------- */

/* A line of the timeline, if one is wanted. Session ids in it become c0, c1 ... */
extern bool world_tells;
__attribute__((format(printf, 1, 2))) void world_tell(const char *fmt, ...);
void world_name_session(int proc, const char *session);

#endif
