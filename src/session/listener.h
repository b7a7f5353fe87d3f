/* SPDX-License-Identifier: MIT
 * listener.h - waiting for news about a key.
 *
 * Who waits for something that is no turn of its own (a latch at zero, a barrier complete, a
 * leader) asks a script. The script that finds nothing yet puts the listener's token on the key's
 * list, in the same step; whoever changes the key rings everybody on the list, through their
 * sessions' channels, and takes them off it. A rung listener asks again. Nobody relies on the ring
 * alone: listeners ask again by themselves too, ever more rarely, and by polling where no ring can
 * come.
 *
 *     listener_begin(&ln);
 *     for (;;) {
 *         STEP_UNTIL(at, listener_ready(&ln));
 *         ... carry the script out, with ln.token; deadline listener_limit(&ln) ...
 *         if (e != HF_EBUSY that is: done) break;
 *         if ((e = listener_judge(&ln, e, &err)) != HF_EBUSY) break;
 *         STEP_UNTIL(at, listener_wait(&ln, CLOCK_NEVER));
 *     }
 *     STEP_UNTIL(at, listener_end(&ln));
 *
 * On the server: part/listen.lua puts a token on the list, part/ring.lua rings.
 */
#ifndef SESSION_LISTENER_H
#define SESSION_LISTENER_H

#include "base/park.h"
#include "base/tree.h"
#include "session/client.h"

struct listeners; /* all listeners of a client */

struct listeners *listeners_new(void); /* NULL: no memory */
struct listeners *listeners_free(struct listeners *ls); /* nobody listens any more */
/* Thread: inbox. The subscription was made anew: nobody knows what was missed. */
void listeners_ring_all(struct listeners *ls);
bool listeners_any(struct listeners *ls);
void listeners_message(hf_client *c, const char *text);

struct listener {
    /* Filled in by the caller. */
    hf_client        *c;
    struct keyspace  *keyspace; /* of the key */
    hf_bytes          key;  /* of the list on the server, "{key}:l" */
    struct task      *task; /* who steps it; woken by a ring, and to be woken by a cancel */
    const atomic_int *stop; /* not 0: cancelled */
    int64_t           deadline_ms; /* CLOCK_NEVER: none */

    char              token[TOKEN_SIZE]; /* fresh; the listener's identity */
    uint64_t          sequence;

    /* Thread: the listener's. */
    bool              heard;    /* the server sees our session: rings reach us */
    bool              listed;   /* the token may stand on the list */
    unsigned          round;    /* times in a row that there was no news */
    int64_t           reached_ms; /* when the server last answered */
    bool              answered; /* it has, since we began */
    step_at           at;
    int64_t           until_ms; /* of the present sleep */
    struct presence   present;
    struct op         op;       /* its own questions */

    /* Under the registry's lock. */
    bool              rung, registered;
    struct tree_node  node;
};

/* Join the client's listeners with a fresh token. */
void listener_begin(struct listener *ln);

/* Before each question: see to it that the server sees our session, so that the ring will reach us;
 * else, heard is false, we poll. False: under way. */
bool listener_ready(struct listener *ln);

/* By when the next question has to be answered. */
int64_t listener_limit(const struct listener *ln);

/* The question was answered with "not yet" (HF_EBUSY), or failed with e. HF_EBUSY: wait on. Else
 * the verdict: HF_ECANCELED; HF_ETIMEDOUT, with the caller's message to be written; or e. A server
 * that cannot be reached is put up with for a while. */
hf_err listener_judge(struct listener *ln, hf_err e, hf_error *reterr);

/* Until there is news, a cancel, the deadline, at_most_ms from now, or it is time to ask again
 * anyway: false. */
bool listener_wait(struct listener *ln, int64_t at_most_ms);

/* Leave. A token that may still stand on the list is taken off it, if that is quick; else it is
 * forgotten there after half a minute. False: under way. */
bool listener_end(struct listener *ln);

#endif
