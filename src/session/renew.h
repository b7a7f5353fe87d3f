/* SPDX-License-Identifier: MIT
 * renew.h - asking the server about a lease, in the background or for its holder.
 */
#ifndef SESSION_RENEW_H
#define SESSION_RENEW_H

#include "session/client.h"

/* One lease, between keeper_begin() and the outcome. mode is keep.lua's: "set" the lease to ttl_ms
 * or only "check". HF_OK: *ret_loss says whether it still is ours (HF_LOSS_NONE). */
hf_err renew_ask(hf_client *c, const struct lease *l, const char *mode, int64_t ttl_ms,
                 hf_loss *ret_loss, int64_t *ret_sent_ms, hf_error *reterr);

#endif
