/* SPDX-License-Identifier: MIT
 * renew.h - asking the server about a lease, in the background or for its holder.
 */
#ifndef SESSION_RENEW_H
#define SESSION_RENEW_H

#include "session/client.h"

struct renew_answer {
    hf_loss loss;     /* HF_LOSS_NONE: still ours */
    int64_t sent_ms;
    bool    in_doubt; /* set also on failure: a copy of the request may still be under way */
};

/* One lease, between keeper_begin() and the outcome. mode is keep.lua's: "set" the lease to ttl_ms,
 * only "check" ... HF_OK: *ret tells the answer. */
hf_err renew_ask(hf_client *c, const struct lease *l, const char *mode, int64_t ttl_ms,
                 struct renew_answer *ret, hf_error *reterr);

#endif
