/* SPDX-License-Identifier: MIT
 * quorum_ops.h - the operations on one server of a quorum.
 */
#ifndef OP_QUORUM_OPS_H
#define OP_QUORUM_OPS_H

#include "op/answer.h"
#include "op/grant.h"

/* quorum_agree.lua: one number for a lock that several servers have granted to a token. */
struct op_quorum_agree {
    const struct lock_keys *keys;
    const char *token;
    uint64_t    fence;
    int64_t     ttl_ms;
    hf_bytes    owner;
    bool        take; /* also where the lock is free: a majority has confirmed the holder */
};
struct op_quorum_agreed {
    enum answer code;   /* YES; NO: not this token's lock here; WRONG_TYPE, BAD_COUNTER */
    int64_t     server_ms;
    uint64_t    before; /* the number that it had here */
};

/* quorum_release.lua: a token holds nothing on this server any more, nor stands in line. */
struct op_quorum_release {
    const struct lock_keys *keys;
    const char *token;
    int64_t     remember_ms;
    hf_bytes    owner;
    bool        tell; /* the first in line, if the lock is free then */
};

/* quorum_queue.lua: wait in line. */
struct op_quorum_queue {
    const struct lock_keys *keys;
    const char *token;
    int64_t     waited_ms;
};
struct op_quorum_queued {
    enum answer code;      /* YES, WRONG_TYPE */
    int64_t     server_ms; /* of one server */
    int64_t     left_ms;   /* 0: free; of several: until it will be free on a majority */
    int64_t     before;    /* how many stand before us, on most */
    uint64_t    unlocked;  /* of several: members where it is free, as bits */
};

/* Where they stand in line: a companion of the lock, {key}:w. Kept nowhere, because only a quorum
 * needs it. */
#define OP_LINE_KEY_MAX 4096
hf_bytes op_line_key(const struct lock_keys *keys, char ret[OP_LINE_KEY_MAX]);

#endif
