/* SPDX-License-Identifier: MIT
 * probe.h - is the embedded server there, and one question to it.
 *
 * Below the client's own connection, which needs a running server: this finds out whether there
 * is one.
 */
#ifndef NET_PROBE_H
#define NET_PROBE_H

#include <stdint.h>

#include "base/err.h"
#include "base/limit.h"
#include "net/resp.h"

/* Connect without waiting. *ret_fd is to be closed with forkguard_close(); -1: nobody listens.
 * *ret_pid (may be NULL) is the server's, 0 when it is not known (another pid namespace).
 *
 *   HF_ECONN  somebody listens but has more connections waiting than it can take
 *   HF_EAUTH  the server belongs to another user
 *   HF_ENOMEM, HF_ESYS, HF_ECONFIG (path too long) */
hf_err probe_connect(const char *path, int *ret_fd, int64_t *ret_pid, hf_error *reterr);

/* Send an inline command and wait for its reply, to be freed. HF_ECONN: the connection ended or
 * the limit is over. HF_EPROTO, HF_ENOMEM. */
hf_err probe_ask(int fd, const char *command, const struct limit *lim, struct reply **ret,
                 hf_error *reterr);

enum probe_state {
    PROBE_ABSENT,  /* nobody listens */
    PROBE_BUSY,    /* it is there and does not answer */
    PROBE_LOADING, /* it answers that it still reads its data */
    PROBE_READY
};

/* Connect and PING. Waits for the answer a moment at most. */
hf_err probe_ping(const char *path, const struct limit *lim, enum probe_state *ret,
                  hf_error *reterr);

#endif
