/* SPDX-License-Identifier: MIT
 * grant.h - one grant of a lock: who has it, under which number, and what stands on the server.
 */
#ifndef OP_GRANT_H
#define OP_GRANT_H

#include <stdbool.h>

#include "topo/keys.h"

#define TOKEN_SIZE 56 /* 32 digits, a dot, a sequence number, a NUL */
#define OWNER_MAX  256

struct grant {
    const struct lock_keys *keys;
    char     token[TOKEN_SIZE];
    uint64_t sequence; /* of the token */
    uint64_t fence;
    int64_t  grace_ms; /* as it stands in the value; 0: nobody takes over before the ttl */
    hf_bytes owner;    /* caller-chosen id, or empty; outlives the grant */
    bool     shared;   /* with others */
};

/* Exactly what the lock key and the own key hold for it; *ret_own is empty without an owner id. Of
 * a shared lock: "shared", the token is one of several holders. text is where they are written. */
#define GRANT_TEXT_SIZE (TOKEN_SIZE + 40)
void grant_values(const struct grant *g, char text[GRANT_TEXT_SIZE], hf_bytes *ret_value,
                  hf_bytes *ret_own);

#endif
