/* SPDX-License-Identifier: MIT
 * scene.h - what top, graph and web show: a look at all locks, and what changed since the last.
 *
 * A look cannot count the hand-overs between two looks: it sees that a lock has another fencing
 * number than before. So the rates here are what was seen, and the truth may be more. */
#ifndef CLI_SCENE_H
#define CLI_SCENE_H

#include "output.h"

#include <stdint.h>

enum {
    SCENE_RING = 48,  /* looks that are remembered */
    SCENE_MEAN = 10,  /* looks of which a rate is the mean */
    SCENE_STAYS = 10, /* looks for which a lock that is gone is still shown, as free */
    SCENE_GONE = 1000 /* so many of those at the most */
};

enum scene_stuck {
    STUCK_NOT,
    STUCK_BEHIND, /* its holders wait for a deadlock */
    STUCK_CYCLE   /* part of one */
};

struct scene_lock {
    char    *name; /* name_len bytes and a NUL; our own */
    size_t   name_len;
    const hf_inspect_info *info; /* of the scene's list; NULL: it is free now */
    uint64_t newest;  /* the largest fencing number seen */
    unsigned gone;    /* looks since it was there */
    uint8_t  ring[SCENE_RING]; /* hand-overs seen at each look, at the same place as scene.at_ms */
    double   rate;    /* per second */
    int64_t  hold_ms; /* the longest of its holders; -1: not known */
    int64_t  wait_ms; /* the longest of its waiters */
    enum scene_stuck stuck;
};

struct scene {
    struct lock_list   list;
    struct scene_lock *lock; /* by name */
    size_t             n;
    unsigned           looks;
    int                partial, was_partial; /* not all was seen: now, and the time before */
    int64_t            at_ms[SCENE_RING]; /* when; the newest at at_ms[scene_newest()] */
    uint16_t           ring[SCENE_RING];  /* hand-overs of all locks */
    double             rate;
    size_t             held, waiting, stuck; /* locks, waiters, locks in deadlocks */
};

/* Take over what was found; list is empty then. partial: there may be more. -1: out of memory, and
 * the scene begins anew. */
int  scene_look(struct scene *s, struct lock_list *list, int partial, int64_t now_ms);
void scene_free(struct scene *s);

/* Where the newest look is in the rings. */
unsigned scene_newest(const struct scene *s);
/* Hand-overs that were seen `back` looks ago, of l or (NULL) of all; -1: that is too long ago. */
int scene_seen(const struct scene *s, const struct scene_lock *l, unsigned back);

/* NULL: there is none of that name. */
struct scene_lock *scene_find(const struct scene *s, const void *name, size_t len);

/* The fencing number that breaking the lock needs: of its first holder. 0: none. */
uint64_t scene_fence(const struct scene_lock *l);

#endif
