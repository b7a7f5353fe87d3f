/* SPDX-License-Identifier: MIT
 * op.h - one operation on the server: what is asked, in named fields, and what was answered.
 *
 * Every file of src/lua is one. This is the only place where its KEYS and ARGV have names: the
 * packers (op_pack()) put them into their order, the readers (op_read()) make a typed answer of the
 * server's reply, and refuse one that makes no sense. Whoever carries an operation out, by a
 * script, by plain commands or on a majority of servers (src/exec), works on these fields and fills
 * in the same answer.
 *
 *     struct op op = { .id = OP_release, .deadline_ms = ..., .release = { .grant = &g } };
 *     hf_err e = exec_run(x, &op, reterr);
 *     if (!e) ... op.got.held ...
 *     op_clear(&op);
 */
#ifndef OP_OP_H
#define OP_OP_H

#include "base/backoff.h"
#include "net/command.h"
#include "net/request.h"
#include "net/resp.h"
#include "op/kinds.h"
#include "op/lock.h"
#include "op/note.h"
#include "op/quorum_ops.h"
#include "op/session.h"
#include "topo/topo.h"

/* Every *.lua file of src/lua. */
enum op_id {
#define HF_SCRIPT(name, sha, text) OP_##name,
#include "scripts.inc"
#undef HF_SCRIPT
    OP_COUNT
};

struct op {
    enum op_id        id;
    union { /* what is asked, by id */
        struct op_take        take;        /* acquire, share */
        struct op_acquire_all acquire_all;
        struct op_release     release;     /* release, unshare */
        struct op_downgrade   downgrade;
        struct op_cancel      cancel;
        struct op_keep        keep;
        struct op_held        held;
        struct op_look        look;
        struct op_by_owner    by_owner;
        struct op_inspect     inspect;
        struct op_edge        edge;
        struct op_edges       edges;
        struct op_health      health;
        struct op_break       breaking;    /* break */
        struct op_ask         ask;
        struct op_resize      resize;
        struct op_hold_key    hold_key;
        struct op_hello       hello;
        struct op_record      record;
        struct op_recall      recall;
        struct op_scan        scan;
        struct op_quorum_agree quorum_agree;
        struct op_quorum_release quorum_release;
        struct op_quorum_queue quorum_queue;
        struct op_latch       latch;       /* latch_set, latch_down, latch_look */
        struct op_barrier     barrier;     /* barrier_open, _meet, _judge, _quit */
        struct op_proclaim    proclaim;
        struct op_leader      leader;
        struct op_unlisten    unlisten;
        struct op_sequence    sequence;
        struct op_store       store;
        struct op_value       value;
        struct op_resolve     resolve;
        struct op_guard       guard;
        struct op_repair      repair;
        struct op_note        note;
        struct op_past        past;
    };

    /* How. */
    int64_t           deadline_ms;
    const atomic_int *stop;   /* not NULL: given up soon after *stop is not 0 */
    bool              urgent; /* no reply by the deadline: close the connection, a fresh one may do
                                 better */
    bool              once;   /* not tried again after what may pass: it will be asked anew */
    enum topo_lane    lane;   /* where replicas are waited for */
    struct task      *task;   /* who steps it; NULL for exec_run() */
    hf_error         *reterr; /* may be NULL; has to last as long as the operation */

    /* What came of it. */
    hf_err            result; /* HF_OK: got is filled in */
    union {
        struct op_taken     taken;     /* take */
        struct op_all_taken all_taken; /* acquire_all */
        bool                held;      /* release, unshare, downgrade, cancel, quorum_release: it
                                          was ours */
        struct op_kept      kept;      /* keep */
        struct op_looked    looked;    /* look */
        struct op_owned     owned;     /* by_owner */
        struct op_inspected inspected; /* inspect */
        struct op_edged     edged;     /* edge */
        struct op_edges_found edges_found; /* edges */
        struct op_state     state;     /* health */
        struct op_broken    broken;    /* break */
        struct op_asked     asked;     /* ask */
        struct op_resized   resized;   /* resize */
        struct op_key_held  key_held;  /* hold_key */
        struct op_greeted   greeted;   /* hello */
        struct op_list      list;      /* recall: name, value, ... */
        struct op_page      page;      /* scan */
        struct op_quorum_agreed quorum_agreed; /* quorum_agree */
        struct op_quorum_queued quorum_queued; /* quorum_queue */
        struct op_latched   latched;   /* latch_* */
        struct op_met       met;       /* barrier_* */
        struct op_led       led;       /* leader */
        struct op_numbers   numbers;   /* sequence */
        struct op_found     found;     /* value */
        struct op_guarded   guarded;   /* guard */
        struct op_entries   entries;   /* past */
        struct op_done      done;      /* held, record, unlisten, store, settle, proclaim, repair,
                                          note */
    } got;
    struct reply     *reply;   /* where the bytes of got lie; may be NULL */
    int64_t           sent_ms; /* when the request that was answered left */
    unsigned          epoch;   /* on which connection */
    unsigned          moves;   /* topo_moves_of() its key, by then */
    bool              by_key;  /* done key by key, because the slot is being moved */
    unsigned          in_doubt; /* how many earlier sendings got no answer */
    int               acked, wanted; /* how many replicas have what it wrote, of how many */

    /* Whoever carries it out. All zero at the beginning. */
    struct {
        step_at          at;
        struct request   request;
        struct conn     *conn;
        struct backoff   backoff;
        int              next;     /* what comes after this attempt */
        bool             text;     /* the server may not know the script */
        bool             unknown;  /* it said that it does not */
        bool             asking;   /* this once, where an ASK sent us */
        bool             by_ask;   /* what is under way, or was answered, went there */
        bool             greeting; /* what is under way is the hello before it */
        bool             has_greeted;
        bool             acks;     /* replicas are waited for */
        unsigned         redirections;
        int64_t          moving_since_ms, doubted_ms, limit_ms, resume_ms;
        void            *more;     /* an executor's own, freed by it */
    } run;
};

/* Its name, as messages show it ("acquire"), its SHA1 and its text. */
const char *op_name(enum op_id id);
const char *op_sha(enum op_id id);
const char *op_text(enum op_id id);

/* By this key its server is found. */
hf_bytes op_route(const struct op *op);
/* Whose numbers it takes; NULL: it takes none. */
struct scope *op_scope(const struct op *op);

/* The whole command: EVALSHA, or with its text EVAL. HF_ENOMEM, HF_EINVAL. */
hf_err op_pack(const struct op *op, bool text, struct command *ret);

/* Make an answer of a reply, which is not an error of the server. Takes rp over. HF_EPROTO: it
 * makes no sense. */
hf_err op_read(struct op *op, struct reply *rp, hf_error *reterr);

/* The op, with nothing of its answer: it may be asked again. */
void op_clear(struct op *op);

/* Replicas were to be waited for, and too few of them have what it wrote. */
static inline bool op_unacked(const struct op *op)
{
    return op->acked < op->wanted;
}
/* HF_EREPLICAS, and how many. What is known about the lock is the caller's to say. */
hf_err op_too_few(const struct op *op, const char *what, hf_error *reterr);

/* HF_ECOUNTER: the one message for a counter that is unusable. */
hf_err op_bad_counter(const struct scope *s, hf_error *reterr);

static inline bool op_stopped(const struct op *op)
{
    return op->stop && atomic_load_explicit(op->stop, memory_order_relaxed);
}

#endif
