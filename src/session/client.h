/* SPDX-License-Identifier: MIT
 * client.h - the inside of an hf_client.
 */
#ifndef SESSION_CLIENT_H
#define SESSION_CLIENT_H

#include <stdatomic.h>

#include "base/log.h"
#include "base/mutex.h"
#include "exec/exec.h"
#include "net/loop.h"
#include "session/inherited.h"
#include "session/keyspace.h"
#include "session/keeper.h"
#include "session/metrics.h"
#include "session/names.h"
#include "session/notes.h"
#include "session/record.h"
#include "topo/own_conn.h"
#include "topo/topo.h"

/* How long a given-up token is remembered: longer than any copy of its request can linger. */
#define CLIENT_TOMBSTONE_MS 60000
#define CLIENT_INBOXES_MAX  256

struct hf_client {
    unsigned             generation; /* of forkguard */
    struct log           log;
    char                *prefix;
    char                *record_key;
    struct keyspaces    *keyspaces;
    struct keyspace     *keyspace;  /* the one of all locks; NULL: each slot of a cluster is one */
    int64_t              timeout_ms;
    char                 session[33];
    _Atomic uint64_t     sequence;
    struct names        *names;
    struct identity      identity;
    struct topo         *topo;
    struct exec         *exec;       /* what carries our operations out */
    struct own_conns    *own_conns;  /* a connection is kept for the next update */
    bool                 no_repair;  /* a lock without a ttl is left as it is */
    bool                 confirm;    /* nothing that was handed over is believed without asking */
    bool                 no_deadlock; /* nobody looks for circles */
    struct inherited    *inherited;  /* what our ancestors hold; NULL: nothing */
    bool                 any_protocol; /* nobody chose one: without scripts transactions will do */
    struct keeper       *keeper;
    struct mutex         session_mu; /* guards the next four, and what each keyspace says */
    struct inbox        *inboxes[CLIENT_INBOXES_MAX]; /* one for each server in use */
    size_t               ninboxes;   /* 0 until the first lock */
    bool                 inboxes_closed;
    int64_t              prove_for_ms; /* the grace that all of them prove for; 0: none */
    struct waiters      *waiters;
    struct listeners    *listeners;
    atomic_uint          expectant;  /* waiters that do not read the inbox themselves */
    struct loop         *loop;       /* NULL until the first request without blocking */
    atomic_bool          warned; /* about the server's settings */
    atomic_bool          warned_numsub, warned_info, warned_inboxes;
    atomic_uint          users;  /* its owner and every handle made from it: the last one frees
                                    it */
    _Atomic int64_t      closing_ms; /* hf_client_close() has to be done by then; 0: not called */
    atomic_int           stopping; /* 1: no request without blocking waits any more */
    atomic_bool          closed; /* by its owner */
    atomic_int           state;  /* of enum client_state */
    struct metrics       metrics;
    struct notes         notes;  /* what is to be told in the background */
    unsigned             history; /* entries that are kept of each lock; 0: none are written */
    char                *events;  /* the channel of those who watch */
};

/* OPENING: without blocking, and done() was not called yet. */
enum client_state { CLIENT_OPEN, CLIENT_OPENING, CLIENT_FAILED };

/* At the beginning of every public call: HF_EFORK in a forked child, HF_EINVAL without a client,
 * before it is open, and after hf_client_free(). */
hf_err client_enter(const hf_client *c, hf_error *reterr);
/* The same with the handle that a caller gave us, which may be NULL. */
#define handle_enter(handle, reterr) \
    ((handle) ? client_enter((handle)->c, reterr) : client_none(reterr))
static inline hf_err client_none(hf_error *reterr)
{
    return err_set(reterr, HF_EINVAL, "no handle was given, but NULL");
}

/* The caller's options, which may be NULL: as many of them as it knows, and zeros for the rest. */
hf_err client_opts_of(const hf_client_opts *opts, hf_client_opts *ret, hf_error *reterr);
/* The URL that a caller means, with its passwords and what the options say otherwise. */
hf_err client_url_of(const char *text, const hf_client_opts *o, struct url **ret, hf_error *reterr);
const char *client_prefix_of(const struct url *u, const hf_client_opts *o);

/* A handle that was made from it keeps the memory of a closed client. */
void client_use(hf_client *c);
void client_leave(hf_client *c);

/* A fresh token: session id, a dot, a sequence number. */
uint64_t client_token(hf_client *c, char *ret, size_t size);
/* The sequence number of a token of this very session; 0: it is not. */
uint64_t client_sequence_of(const hf_client *c, const char *token);

/* The keys of a name, with their keyspace. As keys_new(). */
hf_err client_keys(const hf_client *c, hf_bytes name, struct lock_keys **ret, hf_error *reterr);

/* Being present where h is: the inbox is started if need be, and the server has seen it standing.
 * INBOX_READY: a lock may carry a grace now, and terms has the proof that counts. Takes at most a
 * part of the time until the deadline, and ends soon after *stop. */
struct presence {
    /* Filled in by the caller. */
    hf_client         *c;
    struct keyspace     *keyspace;
    int64_t            grace_ms, deadline_ms;
    const atomic_int  *stop;
    struct task       *task;
    struct op         *op;    /* for its own question */
    bool               in_line; /* who of the event loop came before goes before */
    struct lease_terms terms; /* out: epoch and present_ms */
    enum inbox_answer  answer; /* out: READY, NOT_YET, REFUSED */

    step_at            at;
    int64_t            limit_ms;
    unsigned           conn, moves;
    bool               unseen; /* the subscription stands, and the server has not said so */
    struct inbox      *in;
    struct inbox_watch watch;
};
bool present_step(struct presence *p); /* true: answer */

/* The topology has moved: the inboxes subscribe anew where that is needed. */
void client_follow(hf_client *c);
/* From now on nobody sees us, nor is anything heard. */
void client_absent(hf_client *c);
void client_warn_of_info(hf_client *c);

/* protocol.c: by the caller's word, or the URL's; else scripts, if the server runs them. */
hf_err client_choose_protocol(hf_client *c, const char *asked, const struct url *u,
                              hf_error *reterr);
/* On a fresh connection: hello.lua, or the same without scripts; and what its answer means. */
hf_err client_hello(hf_client *c, struct link *l, const struct limit *lim, struct greeted *ret,
                    hf_error *reterr);
/* Is this possible with the client's protocol? protocols: those with which it is, as bits.
 * HF_ENOTSUP says that what is not. */
#define CLIENT_SCRIPT      (1u << PROTOCOL_SCRIPT)
#define CLIENT_TRANSACTION (1u << PROTOCOL_TRANSACTION)
hf_err client_can(const hf_client *c, unsigned protocols, const char *what, hf_error *reterr);

/* Prove often enough for this grace from now on; CLOCK_NEVER: only now and then. */
void client_prove_for(hf_client *c, int64_t grace_ms);
/* Sleep until p is woken or the time has come; may return early. Reads the inbox meanwhile if
 * nobody else has to: that of h, from where news is expected. */
void client_wait(hf_client *c, struct keyspace *h, struct park *p, uint64_t ticket,
                 int64_t until_ms);
/* One more, or one less, waits for a message without calling client_wait(). */
void client_expect(hf_client *c, bool more);

/* Where requests without blocking are stepped, made at the first one. */
hf_err client_loop(hf_client *c, struct loop **ret, hf_error *reterr);

/* How long a session must be seen gone before it counts as gone, if its user says nothing else. */
int64_t client_default_grace(const hf_client *c);

/* Now plus the client's time-out; or plus what a caller gave instead, if that is not 0. */
int64_t client_deadline(const hf_client *c);
int64_t client_deadline_in(const hf_client *c, int64_t timeout_ms);

/* Thread cancellation is off while a call of ours runs: `CALL_GUARD;` at its beginning. */
int client_cancel_off(void);
void client_cancel_restore(const int *state);
#define CALL_GUARD \
    __attribute__((cleanup(client_cancel_restore), unused)) int cancel_state_ = client_cancel_off()

#endif
