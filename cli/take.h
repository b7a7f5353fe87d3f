/* SPDX-License-Identifier: MIT
 * take.h - one lock or several, all or nothing, with a wait that signals can end. */
#ifndef CLI_TAKE_H
#define CLI_TAKE_H

#include "options.h"
#include "signals.h"

#include <holdfast.h>

struct taken_lock {
    const char *name;
    hf_lock    *m;
    uint64_t    fence;
    hf_election *el;   /* NULL: a plain lock. Else m is its lock, and taking it is campaigning */
    const char *value; /* of the leader */
    unsigned    asks; /* how often it was asked for, as far as was told */
    int         told_lost; /* the user knows that it is lost */
};

struct taken {
    hf_client         *c;
    char              *words; /* the list, cut at its commas */
    size_t             n;     /* different names, in byte order: everybody takes them in the same */
    struct taken_lock *lock;
    size_t             given; /* names as given, each an index into lock */
    size_t            *order;
    int64_t            since_ms; /* when the last one was granted */
    int                abandoned;
};

/* Cut a list of names; separator 0: one name, taken as it is. 0, or an exit status after a
 * message. The list is freed by taken_free(). */
int taken_names(struct taken *t, const struct cmd *cmd, const char *list, char separator);

/* Make the handles. outlive: not renewed, and not to be taken over because we are gone. */
int taken_open(struct taken *t, hf_client *c, const struct opts *o, int outlive);

/* The same for one name, as a candidate with a value. */
int taken_open_election(struct taken *t, hf_client *c, const struct opts *o, const char *value);

/* Take them all, waiting as the options say. Returns 1; or 0 when none is held, with the exit
 * status after a message (0 with --skip-ok). */
int taken_wait(struct taken *t, const struct opts *o, int *ret_code);

/* CMD has ended, and code is what we shall exit with: letting go takes a second at the latest, and
 * a signal ends it. If it is cut short, a line says so, with also ("": nothing) in front, and that
 * the locks end by themselves after free_ms. */
void taken_way_out(struct taken *t, int64_t free_ms, const char *also, int code);

/* What the history of each shall say of this hold. */
void taken_note(struct taken *t, const char *text);

/* Something that we could not end still works under them: nothing is given back, neither now nor at
 * the end. Each lasts for ms more; that of an election, or of a server that does not hear of this,
 * for its grace. */
void taken_abandon(struct taken *t, int64_t ms);

/* Whether nothing of them is ours any more. */
int taken_all_lost(const struct taken *t);

/* Give them back, the last one first: 1 if nothing is left of them on the server, 0 if that is not
 * known. Or leave each to end by itself after ms. */
int taken_release(struct taken *t);
void taken_leave(struct taken *t, int64_t ms);

/* Release what is held, free everything but the client. */
void taken_free(struct taken *t);

/* The end of the command: everything is freed, the client, too; in a second at the latest. Locks
 * that were abandoned end the process here: to free them would give them back. */
void taken_end(struct taken *t, hf_client *c, int code);

/* Fencing numbers or owners in the order of the given names, comma separated; to be freed. NULL:
 * out of memory. */
char *taken_fences(const struct taken *t);
char *taken_owners(const struct taken *t);

#endif
