/* SPDX-License-Identifier: MIT
 * notes.h - what is to be told about locks in the background: to those who watch, and to the
 * history.
 *
 * Only what is rare is told to those who watch: in doubt, lost, a deadlock. What the server can see
 * by itself is never told. The history is written if the client was asked to. Nobody waits for
 * either, and nothing is decided by them: when memory is short, or the queue is full, they are
 * dropped, and counted.
 */
#ifndef SESSION_NOTES_H
#define SESSION_NOTES_H

#include <stdbool.h>

#include "base/mutex.h"
#include "op/op.h"
#include "topo/keys.h"

#define NOTE_FIELDS_MAX 16
#define NOTES_AT_ONCE   16

struct note {
    struct note    *next;
    int64_t         since_ms; /* when it happened, by our own clock */
    char           *log;      /* the key, log_len bytes */
    size_t          log_len;
    char           *message;  /* without its time; NULL: nobody is told */
    size_t          message_len;
    size_t          fields;   /* of the entry; 0: none is written */
    struct op_field field[NOTE_FIELDS_MAX];
    char           *text;     /* where the values lie, */
    size_t          used;     /* up to here */
    char            session[33]; /* whose record tells who it was, if not ourselves; "" */
    uint64_t        sequence;
    int64_t         absent_ms; /* since when it was, by the server's clock */
    hf_err          result;
};

struct notes {
    struct mutex  mu;     /* guards the rest */
    struct note  *first, **end;
    size_t        n;
    int64_t       due_ms; /* when the next attempt is made; CLOCK_NEVER: there is nothing */
    bool          told;   /* that it cannot be written */
};

void notes_init(struct notes *q);
void notes_clear(struct notes *q); /* also in a forked child */

/* An event: the kind in one word, and about which grant; text may be "". Any thread; nothing is
 * locked. */
struct hf_client;
void notes_event(struct hf_client *c, const char *kind, const struct lock_keys *keys,
                 const char *token, uint64_t fence, const char *text);

/* A hold that is over, for the history. Does nothing if the client has none. */
struct note_end {
    const struct lock_keys *keys;
    const char *token;
    hf_bytes    owner;     /* caller-chosen; empty: none */
    uint64_t    fence;
    const char *mode;      /* "exclusive", "shared", "permits" */
    const char *end, *why; /* "released" ...; why may be "" */
    const char *note;      /* of its holder; may be NULL */
    int64_t     waited_ms, held_ms; /* -1: not known */
};
void notes_end(struct hf_client *c, const struct note_end *what);
/* The same of a holder that was found gone, by its absence: "SINCE TOKEN:FENCE:GRACE", as look.lua
 * tells it. */
void notes_taken_over(struct hf_client *c, const struct lock_keys *keys, hf_bytes absence);
/* The same of a lock that we released for its holder, by its owner id. */
void notes_released_by_id(struct hf_client *c, const struct lock_keys *keys, hf_bytes id,
                          uint64_t fence);

/* Thread: keeper; in the end, whoever closes the client. Holds: nothing. Tell some of them; false:
 * one could not be, and will be tried again later unless last. */
bool notes_run(struct hf_client *c, struct notes *q, int64_t deadline_ms, bool last);
/* When that is to be done next. */
int64_t notes_due(struct notes *q);

#endif
