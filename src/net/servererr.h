/* SPDX-License-Identifier: MIT
 * servererr.h - what each error of the server means for the request that got it.
 */
#ifndef NET_SERVERERR_H
#define NET_SERVERERR_H

#include <stdbool.h>

#include "net/resp.h"

enum server_verdict {
    SERVER_NOSCRIPT,  /* not executed: send the script's text */
    SERVER_RETRY,     /* not executed, and will pass: try again until the deadline */
    SERVER_RECONNECT, /* not executed: this is not (any more) the right server */
    SERVER_REDIRECT,  /* not executed: another server of a cluster has it */
    SERVER_REFUSED,   /* not executed, and trying again does not help: report */
    SERVER_UNKNOWN    /* who knows: as if no answer had come */
};

/* Judge an error reply. For SERVER_REFUSED, *ret_code is the error to report. */
enum server_verdict server_judge(const struct reply *rp, hf_err *ret_code);

/* Fill *e from an error reply. The server's words are quoted, cut to one printable line. */
hf_err server_error(const struct reply *rp, hf_err code, hf_error *e);

/* The same for a login or a greeting; what will pass by itself is HF_EBUSY: to be tried again. */
hf_err server_refusal(const struct reply *rp, hf_error *e);
/* It was refused because the server is loading its data, which may take long. */
bool server_is_loading(const hf_error *e);

#endif
