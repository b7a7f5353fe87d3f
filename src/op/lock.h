/* SPDX-License-Identifier: MIT
 * lock.h - the operations on a lock: taking, keeping, giving back, looking.
 */
#ifndef OP_LOCK_H
#define OP_LOCK_H

#include "op/answer.h"
#include "op/grant.h"

/* ---- taking ------------------------------------------------------------------------------- */

/* acquire.lua: alone; share.lua: weight parts of it. */
struct op_take {
    const struct lock_keys *keys;
    const char *token;    /* the same in every repetition: it is the attempt's identity */
    int64_t     ttl_ms, grace_ms;
    int64_t     claim_ms; /* 0: do not join the queue */
    uint64_t    ticket;   /* an old one; 0: none */
    const char *nonce;    /* of the place in the queue: whoever hands over repeats it */
    hf_bytes    owner;    /* acquire: caller-chosen id, or empty */
    unsigned    weight;   /* share: so many parts, of */
    unsigned    limit;    /* at most so many; 0: as many as may come */
    bool        mend;     /* a lock that is found without a ttl may be given one */
};
struct op_taken {
    enum answer code;    /* YES; BUSY, GIVEN_UP, WRONG_TYPE, BAD_COUNTER, HANDED_OVER, *_LIMIT,
                            NOT_A_TIMESTAMP */
    uint64_t    fence;   /* YES, HANDED_OVER */
    bool        partial; /* YES, of a quorum: not of all servers, as far as is known */
    int64_t     left_ms; /* BUSY: of the other's lease */
    uint64_t    ticket;  /* BUSY: ours, when we stand in the queue; 0: we do not */
    hf_bytes    value;   /* BUSY: what stands in the lock; may be empty */
    long long   limit;   /* *_LIMIT: the agreed one */
};

/* Our member of the queue: token:grace:claim:nonce:owner, or token:grace:claim:nonce/limit.weight:
 * of a shared lock. Returns its length. */
#define OP_MEMBER_MAX (TOKEN_SIZE + 96 + OWNER_MAX)
size_t op_member(const struct op_take *t, char ret[OP_MEMBER_MAX]);

/* acquire_all.lua: all of them or none. Each with a ttl, a grace, and an owner or a limit and a
 * weight. */
struct op_acquire_all {
    size_t                n;
    const struct op_take *each;
    uint64_t             *fences; /* out: n of them, on YES */
};
struct op_all_taken {
    enum answer code;
    size_t      which; /* which was refused */
    long long   limit; /* *_LIMIT */
};

/* ---- giving back -------------------------------------------------------------------------- */

/* release.lua, or unshare.lua of a shared grant. */
struct op_release {
    const struct grant *grant;
};

/* downgrade.lua */
struct op_downgrade {
    const struct grant *grant;
    int64_t             ttl_ms;
    char              **note; /* out: it was broken: "break WHEN BY TEXT", to be freed */
};

/* cancel.lua: the token holds nothing and stands in no queue afterwards. */
struct op_cancel {
    const struct lock_keys *keys;
    const char *token;
    hf_bytes    owner;       /* caller-chosen id, or empty */
    hf_bytes    member;      /* of the queue, or empty */
    const struct op_take *place; /* not NULL: its member, instead */
    int64_t     remember_ms; /* 0: no copy of its request is under way */
};
/* text is where it may be written. */
hf_bytes op_cancel_member(const struct op_cancel *c, char text[OP_MEMBER_MAX]);

/* ---- keeping ------------------------------------------------------------------------------ */

enum keep_mode {
    KEEP_RENEW, /* never shortens */
    KEEP_SET,   /* exactly */
    KEEP_LEAVE, /* exactly, and never to be taken over */
    KEEP_CHECK
};
enum verdict {
    VERDICT_UNKNOWN = -1, /* on a quorum: too few servers can tell */
    VERDICT_NOT_OURS = 0,
    VERDICT_OURS = 1,
    VERDICT_RELEASED = 2, /* on purpose, elsewhere */
    VERDICT_BROKEN = 3    /* the holder was told to let go; it was not renewed */
};
struct op_lease {
    const struct grant *grant;
    hf_bytes            follower; /* a key that shall last as long as the lock; empty: none */
    int64_t             ttl_ms;
};
#define KEEP_MAX 200 /* leases in one; a longer script would keep the server from others */

/* keep.lua */
struct op_keep {
    enum keep_mode         mode;
    bool                   settles; /* in a cluster: whoever it runs for counts on being seen there
                                       from now on. A hello goes before it: what another server
                                       thinks of the holder is out of date then */
    size_t                 n;
    const struct op_lease *each;
    enum verdict          *verdicts; /* out: n of them */
    char                 **notes; /* out: what others wrote for each holder: "break WHEN BY TEXT",
                                     "ask WHEN BY TEXT", or left as it is. NULL: nobody reads it.
                                     The asker frees them, and begins with NULL in each */
};
/* Whose is a note? "break" comes before "ask". */
bool op_note_is(const char *note, const char *kind);
/* Of several for the i-th lease, told by several servers, a break counts. */
void op_keep_note(const struct op_keep *k, size_t i, hf_bytes text);
struct op_kept {
    int64_t server_ms;
};

/* held.lua: which of these are not what they should be? Their keep says what they are. */
struct op_held {
    size_t                     n;
    const struct grant *const *each;
    bool                      *odd; /* out: n of them */
};

/* hold_key.lua: one key of a lock while its slot is being moved. */
enum hold_mode { HOLD_RENEW, HOLD_CHECK, HOLD_FREE, HOLD_UNMARK };
enum hold_what { HOLD_VALUE, HOLD_KIND, HOLD_MEMBER, HOLD_ANY };
struct op_hold_key {
    hf_bytes       key;
    enum hold_mode mode;
    enum hold_what what;
    hf_bytes       text;
    int64_t        ttl_ms;
    hf_bytes       breaks; /* the key of the marks of breaking; empty: whether it is broken does not
                              matter */
    uint64_t       fence;
    hf_bytes       own_key, own; /* of a caller-chosen id: what must stand beside it, if that is
                                    seen there; empty: it does not matter */
};
struct op_key_held {
    int64_t  server_ms;
    bool     held;
    hf_bytes broken; /* what is written for the holder: "break WHEN BY TEXT"; empty: it is not, or
                        the marks are on another server. Until op_clear() */
};

/* ---- waiting and looking ------------------------------------------------------------------ */

/* look.lua: a waiter looks after the queue. */
struct op_absence {
    hf_bytes id;
    int64_t  seen_ms; /* for how long, by the looker's own clock */
};
struct op_look {
    const struct lock_keys  *keys;
    const struct op_take    *place;  /* whose member of the queue is ours */
    bool                     mend;   /* as in op_take */
    size_t                   n;
    const struct op_absence *absences;
};
enum look_answer { LOOK_WAIT = 1, LOOK_ABSENT, LOOK_NOT_QUEUED, LOOK_OURS };
struct op_looked {
    enum look_answer what;
    int64_t          next_ms; /* until the next look; 0: as usual */
    uint64_t         fence;   /* OURS */
    long long        younger; /* waiters behind us */
    struct op_list   absences;
    long long        place;
};

/* by_owner.lua: what whoever knows the owner id may do. */
enum owner_act { OWNER_RELEASE, OWNER_EXTEND, OWNER_CHECK };
struct op_by_owner {
    const struct lock_keys *keys;
    enum owner_act          act;
    hf_bytes                id;
    int64_t                 ttl_ms, remember_ms;
};
struct op_owned {
    bool     ours;
    bool     broken; /* not to be relied on: why says by whom, "WHEN BY TEXT" */
    hf_bytes why;
    int64_t  left_ms;
    uint64_t fence;
};

/* inspect.lua */
struct op_inspect {
    const struct lock_keys *keys;
    size_t                  max; /* waiters, and holders */
};
struct op_inspected {
    hf_bytes       type, value;
    int64_t        left_ms; /* as PTTL tells it */
    hf_bytes       own;
    int64_t        server_ms;
    long long      nwaiters;
    struct op_list waiters; /* members of the queue */
    long long      nholders;
    struct op_list holders; /* token, fence:grace:weight, deadline, ... */
    struct op_list seen;    /* of each holder, then of each waiter: op_list_number() */
    struct op_list notes;   /* of each holder: mark of absence, what it waits for, ... */
    hf_bytes       leader;  /* "term:n:value" */
    hf_bytes       settings; /* of a semaphore: "limit named" */
};

/* health.lua: would a write be taken there? Where a slot is being moved it is refused as taking the
 * lock is. */
struct op_health {
    const struct lock_keys *keys;
    int64_t                 ttl_ms; /* of a lock that is to be taken */
};
struct op_state {
    bool    replica, full, no_disk, few_replicas;
    size_t  servers, usable; /* a quorum: how many there are, and may vote for such a lock now; */
    int64_t young_ms;        /* when enough of them may that are in quarantine; 0: none is */
};

/* edge.lua: a holder of one lock waits for another one. */
struct op_edge {
    const struct lock_keys *keys;   /* of what it holds */
    const char             *holder; /* its token, or # and its number */
    const char             *token;  /* of the waiter */
    hf_bytes                key;    /* of what it waits for */
    int64_t                 valid_ms; /* 0: it waits no more */
    int64_t                 waited_ms, since_ms; /* since_ms: server time; 0: not known yet */
};
struct op_edged {
    bool    held;
    int64_t since_ms;
};

/* edges.lua: which holders of a lock wait, and for what; and who waits for it. */
struct op_edges {
    const struct lock_keys *keys;
    size_t                  from, max; /* of the waiters */
};
enum { EDGES_NOBODY = -2, EDGES_ALONE = -1, EDGES_READERS = 0 };
struct op_edges_found {
    int64_t        server_ms;
    long long      limit;    /* EDGES_*, or of a semaphore */
    struct op_list edges;    /* token, weight, "UNTIL SINCE TOKEN KEY", ... */
    long long      nwaiters;
    struct op_list waiters;  /* "token weight" */
};

/* break.lua */
enum break_mode { BREAK_MARK, BREAK_LOOK, BREAK_NOW };
struct op_break {
    const struct lock_keys *keys;
    enum break_mode         mode;
    uint64_t                fence;       /* 0: of a lock without a number, with this value */
    hf_bytes                value;
    const char             *by, *why;    /* by has no blanks */
    const char             *token;       /* as the first answer told it; "" at first */
    int64_t                 remember_ms;
    size_t                  n;
    const struct op_absence *absences;
};
enum break_answer {
    BREAK_NOT_A_LOCK = -3,
    BREAK_FREE = 0,
    BREAK_MARKED,    /* it is held under that number */
    BREAK_OTHER,     /* held under another number */
    BREAK_UNNUMBERED, /* held, under none */
    BREAK_DONE,      /* handed on at once */
    BREAK_GONE       /* handed on: its holder was gone */
};
struct op_broken {
    enum break_answer what;
    int64_t           left_ms; /* of its lease */
    uint64_t          fence;   /* of who holds it; 0: none */
    int               present; /* 1, 0; -1: not known */
    bool              told;
    struct op_list    absences;
    hf_bytes          token;
};

/* ask.lua */
struct op_ask {
    const struct lock_keys *keys;
    uint64_t                fence; /* 0: all who hold it */
    const char             *by, *text;
};
struct op_asked {
    enum break_answer what; /* MARKED: they were asked */
    long long         asked, heard; /* how many; of these, whose session is there */
};

/* resize.lua */
struct op_resize {
    const struct lock_keys *keys;
    unsigned                limit;
};
struct op_resized {
    enum answer code; /* YES, BUSY, WRONG_TYPE */
    unsigned    old;
};

#endif
