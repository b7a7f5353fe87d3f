/* SPDX-License-Identifier: MIT
 * deadline.h - when must the work be over? One question over all locks that are held together. */
#ifndef CLI_DEADLINE_H
#define CLI_DEADLINE_H

#include "take.h"

struct deadline {
    struct taken *t;
    int           on_lost; /* enum on_lost */
    int64_t       margin_ms;
    int64_t       reserve_ms; /* what must be left of the lease for stopping the work in time */
    int64_t       end_ms;     /* its end, as far as it was ever proven; NEVER with LOST_IGNORE */
    int64_t       every_ms;   /* so often we look, whatever happens */
    int64_t       next_ms;    /* when we wanted to look; NEVER */
    int64_t       catch_up_ms; /* until when the library may, after we looked late; 0: no need */
    int64_t       ttl_ms;
    int64_t       full_ms;    /* what there is of it when all is well */
    const char   *full_name;  /* "grace" or "lease" */
    int64_t       stood_ms;   /* how long we have stood still, the last time; 0: never */
    int64_t       stood_at_ms; /* when that was over */
    int           lost;       /* told already */
    hf_loss       loss;       /* why */
    int           doubt;
};

void deadline_start(struct deadline *l, struct taken *t, const struct opts *o);

/* We are awake, and wanted to be at next_ms: notes it if that was long ago. */
void deadline_woke(struct deadline *l);

/* Say that CMD was killed by the guardian, and why. */
void deadline_tell_killed(const struct deadline *l);

/* Look at all locks. 1 when one of them is lost or runs out, for the first time; a line has been
 * printed then. With LOST_IGNORE the line is all that happens, and the result is 0. */
int deadline_check(struct deadline *l);

/* The same when nothing of it matters any more. Descriptors that stay readable would let the
 * caller's poll() return at once, again and again. */
void deadline_ignore(struct deadline *l);

/* When to look again at the latest: often enough for deadline_last_ms() to be new, for it is when
 * somebody else must act if we do not. */
int64_t deadline_next_ms(struct deadline *l);
int64_t deadline_last_ms(const struct deadline *l);

/* The last moment for KILL after TERM was sent now. */
int64_t deadline_kill_at_ms(const struct deadline *l, int64_t now_ms, int64_t kill_after_ms);

/* We stop ourselves on purpose, and CMD with us: nobody takes the locks over before their leases
 * end, for our connections stay. Until when that is; 0: no longer than without. */
int64_t deadline_suspended_ms(struct deadline *l, int64_t ttl_ms);

/* After having been stopped for who knows how long: have the server prolong the lease, if it still
 * is ours. deadline_check() then tells. */
void deadline_renew(struct deadline *l, int64_t ttl_ms);

#endif
