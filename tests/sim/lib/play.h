/* SPDX-License-Identifier: MIT
 * play.h - one schedule: a few clients contend for a few locks, and things go wrong, all of it
 * drawn from one seed.
 */
#ifndef SIM_PLAY_H
#define SIM_PLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLAY_FAULTS 7

enum play_fault {
    FAULT_PAUSE,        /* of a client: it does nothing for a while */
    FAULT_CRASH,        /* of a client */
    FAULT_STALL,        /* of the server */
    FAULT_CUT,          /* of all connections */
    FAULT_OUTAGE,       /* the server cannot be reached for a while */
    FAULT_RESTART,      /* of the server, and all is still there */
    FAULT_SCRIPT_FLUSH,
    FAULT_BREAK,        /* by an operator: a lock is to be taken from its holder */
    FAULT_ASK,          /* the same: a holder is asked to let go */
    FAULT_CLOCK_BACK,   /* of the server */
    FAULT_FIRST_LOSS,   /* from here on something that no promise covers is lost */
    FAULT_CLOCK_FORWARD = FAULT_FIRST_LOSS,
    FAULT_RESTART_LOSES, /* the last writes */
    FAULT_FAILOVER,     /* to a replica that lags */
    FAULT_FLUSHALL,
    FAULT_EVICT,        /* one key that has a ttl */
    FAULT_DELETE,       /* a lock, by a stranger */
    FAULT_BREAK_NOW,    /* by an operator, whatever the holder believes */
    FAULT_LAST_LOSS = FAULT_BREAK_NOW,
    FAULT_MOVE,         /* of a lock's slot, in a cluster */
    FAULTS
};
extern const char *const play_fault_name[FAULTS];

/* Rare kinds of schedules: bits. */
enum play_kind {
    PLAY_CLUSTER = 1, /* two servers, and slots that move */
    PLAY_NESTED = 2,  /* who has a lock waits for another one */
};
unsigned play_kinds(uint64_t seed);

/* What is left out of a schedule, to find what it needs: bits. */
struct play_without {
    unsigned faults, clients;
    bool     network; /* nothing goes wrong there */
};

struct play_counts {
    uint64_t schedules, events, switches, commands, connections, calls, grants, handovers,
        takeovers, cuts, lost_replies, silences, late_copies, slow, losses, excused_beliefs,
        excused_grants, broken, asked, heard, circles, deadlocks, elections, led, clusters,
        keys_moved, moved, ask, tryagain, could_be_handed, late_deaths, late_takeovers,
        faults[FAULTS];
    int64_t  virtual_ms;
};

/* Play it, and add to the counts. False: judge_verdict says what was wrong. */
bool play(uint64_t seed, const struct play_without *without, struct play_counts *counts);
/* What a schedule has: how many faults and clients; *ret_plan in words. */
void play_plan(uint64_t seed, const struct play_without *without, int *ret_faults,
               int *ret_clients, char *ret_plan, size_t size);
/* Of the last one: the same from the same seed. */
uint64_t play_trace(void);

#endif
