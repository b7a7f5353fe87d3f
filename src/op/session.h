/* SPDX-License-Identifier: MIT
 * session.h - the operations by which a session is seen: greeting, the record, listing.
 */
#ifndef OP_SESSION_H
#define OP_SESSION_H

#include "op/answer.h"
#include "topo/scope.h"

/* hello.lua */
struct op_hello {
    struct scope *scope;
    const char   *channel; /* is it subscribed to? "": nobody asks */
    bool          look;    /* write nothing: YES is then that a reign is to begin */
};
struct op_greeted {
    enum answer code;     /* YES: a new reign; NO; BAD_COUNTER; NO_INFO */
    long long   listeners; /* on the channel; -1: not allowed to ask */
    long long   age_ms;    /* since the counter began; -1: there is none yet */
    bool        fresh;     /* that was in this life of the server */
};

/* record.lua */
struct op_field {
    const char *name;
    hf_bytes    value;
};
struct op_record {
    hf_bytes               key;
    int64_t                ttl_ms;
    size_t                 fields;
    const struct op_field *field;
    size_t                 entries;
    const struct op_entry {
        char    name[24]; /* its sequence number, behind a w if it waits */
        int64_t age_ms;
        char    lease[32]; /* its length in ms, and " left" if nobody renews it; "": it waits */
    } *entry;
};

/* recall.lua */
struct op_recall {
    hf_bytes           key;
    size_t             n;
    const char *const *field;
};

/* scan.lua */
struct op_scan {
    const char *prefix;
    const char *cursor;
    const char *pattern;
    size_t      longest; /* key */
    bool        any_server; /* it names no key: for whatever server it is sent to */
};
struct op_page {
    hf_bytes       cursor;
    struct op_list keys;
    bool           missing; /* one of several servers was passed over: the op's reterr tells why */
};

/* Nothing is told but that it was done, or was not. */
struct op_done {
    enum answer code;
};

#endif
