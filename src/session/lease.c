/* SPDX-License-Identifier: MIT
 * lease.c - one grant, and until when its holder may believe in it.
 */
#include "session/lease.h"

#include <stdio.h>

void lease_values(const struct lease *l, char text[LEASE_TEXT_SIZE], hf_bytes *ret_value,
                  hf_bytes *ret_own)
{
    unsigned long long fence = l->fence;
    if (l->shared) {
        *ret_value = hf_str("shared");
        *ret_own = hf_str("");
    } else if (l->owner.len) {
        snprintf(text, LEASE_TEXT_SIZE, "%s:%llu", l->token, fence);
        *ret_value = l->owner;
        *ret_own = hf_str(text);
    } else {
        snprintf(text, LEASE_TEXT_SIZE, "%s:%llu:%lld", l->token, fence, (long long)l->grace_ms);
        *ret_value = hf_str(text);
        *ret_own = hf_str("");
    }
}
