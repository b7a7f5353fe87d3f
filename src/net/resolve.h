/* SPDX-License-Identifier: MIT
 * resolve.h - the addresses of a host, in time: getaddrinfo(3) itself knows no limit.
 *
 * A name is looked up by a thread of its own. Who cannot wait any longer goes on without it, and
 * the answer is thrown away when it comes. An address in figures needs no thread.
 */
#ifndef NET_RESOLVE_H
#define NET_RESOLVE_H

#include <netdb.h>

#include "base/err.h"
#include "base/limit.h"
#include "net/url.h"

/* *ret is freed by freeaddrinfo(3). HF_ECONN: there is no such host, or nobody said so in time.
 * HF_ENOMEM, HF_ESYS. */
hf_err resolve_host(const struct url_host *host, const struct limit *lim, struct addrinfo **ret,
                    hf_error *reterr);

#endif
