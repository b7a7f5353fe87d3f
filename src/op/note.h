/* SPDX-License-Identifier: MIT
 * note.h - the operations by which it is told what has happened to a lock: to those who watch now,
 * and to those who ask later.
 */
#ifndef OP_NOTE_H
#define OP_NOTE_H

#include "op/answer.h"
#include "op/session.h"

/* note.lua */
struct op_note {
    hf_bytes               log;     /* the lock's; its server is asked, whether it is written or
                                       not */
    unsigned               keep;    /* so many entries; 0: none is written */
    int64_t                ttl_ms;
    const char            *channel; /* "": nobody is told */
    hf_bytes               message;
    size_t                 fields;
    const struct op_field *field;   /* of the entry */
};

/* past.lua */
struct op_past {
    hf_bytes    log;
    const char *from; /* the newest that is wanted: "+", or "(ID" */
    unsigned    most;
};
struct op_entries {
    enum answer         code; /* YES, WRONG_TYPE */
    long long           server_ms;
    const struct reply *rp;   /* its items from 1 on: {ID, {name, value, ...}} */
};

#endif
