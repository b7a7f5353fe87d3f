/* SPDX-License-Identifier: MIT
 * grant.c - one grant of a lock: who has it, under which number, and what stands on the server.
 */
#include "op/grant.h"

#include <stdio.h>

void grant_values(const struct grant *g, char text[GRANT_TEXT_SIZE], hf_bytes *ret_value,
                  hf_bytes *ret_own)
{
    unsigned long long fence = g->fence;
    if (g->shared) {
        *ret_value = hf_str("shared");
        *ret_own = hf_str("");
    } else if (g->owner.len) {
        snprintf(text, GRANT_TEXT_SIZE, "%s:%llu", g->token, fence);
        *ret_value = g->owner;
        *ret_own = hf_str(text);
    } else {
        snprintf(text, GRANT_TEXT_SIZE, "%s:%llu:%lld", g->token, fence, (long long)g->grace_ms);
        *ret_value = hf_str(text);
        *ret_own = hf_str("");
    }
}
