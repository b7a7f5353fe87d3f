/* SPDX-License-Identifier: MIT
 * lease.c - one grant, and until when its holder may believe in it.
 */
#include "session/lease.h"

#include <stdio.h>
#include <string.h>

void lease_granted(struct lease *l, uint64_t fence, int64_t grace_ms, hf_bytes owner)
{
    l->fence = fence;
    l->grace_ms = grace_ms;
    if (owner.len) {
        memcpy(l->value, owner.data, owner.len);
        l->value[owner.len] = '\0';
        l->value_len = owner.len;
        l->grace_ms = 0; /* a caller-chosen id says nothing about a session */
        snprintf(l->own, sizeof l->own, "%s:%llu", l->token, (unsigned long long)fence);
    } else {
        l->value_len = (size_t)snprintf(l->value, sizeof l->value, "%s:%llu:%lld", l->token,
                                        (unsigned long long)fence, (long long)grace_ms);
        l->own[0] = '\0';
    }
}
