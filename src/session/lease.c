/* SPDX-License-Identifier: MIT
 * lease.c - one grant, and until when its holder may believe in it.
 */
#include "session/lease.h"

#include <stdio.h>

void lease_granted(struct lease *l, uint64_t fence, int64_t grace_ms, hf_bytes owner)
{
    l->fence = fence;
    if (owner.len) {
        l->grace_ms = 0; /* a caller-chosen id says nothing about a session */
        snprintf(l->text, sizeof l->text, "%s:%llu", l->token, (unsigned long long)fence);
        l->value = owner;
        l->own = hf_str(l->text);
    } else {
        l->grace_ms = grace_ms;
        snprintf(l->text, sizeof l->text, "%s:%llu:%lld", l->token, (unsigned long long)fence,
                 (long long)grace_ms);
        l->value = hf_str(l->text);
        l->own = (hf_bytes){ "", 0 };
    }
}
