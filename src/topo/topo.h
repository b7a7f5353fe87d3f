/* SPDX-License-Identifier: MIT
 * topo.h - where a key lives.
 *
 * Everything above asks for the connection to a key's server and does not know which topology it
 * runs on. One server, given by its address or embedded, is what there is so far.
 */
#ifndef TOPO_TOPO_H
#define TOPO_TOPO_H

#include "base/log.h"
#include "net/conn.h"
#include "net/link.h"

struct topo;

/* On every fresh connection, before other requests use it (link_exchange()). */
typedef hf_err (*topo_greet)(void *arg, struct link *l, int64_t deadline_ms, hf_error *reterr);

/* Takes over u. Talks to nobody yet. HF_ENOTSUP, HF_ECONFIG, HF_ENOMEM. */
hf_err topo_open(struct url *u, int64_t timeout_ms, topo_greet greet, void *arg,
                 const struct log *log, struct topo **ret, hf_error *reterr);
struct topo *topo_free(struct topo *t);
/* In a forked child: free the memory, touch no connection. */
struct topo *topo_forget(struct topo *t);

/* Connect now, one attempt. */
hf_err topo_connect(struct topo *t, int64_t deadline_ms, hf_error *reterr);

/* The connection to the server that has this key. */
struct conn *topo_conn(struct topo *t, hf_bytes key);

/* Open a connection of one's own to the same server as this key's: for a subscription. */
hf_err topo_link(struct topo *t, hf_bytes key, struct link *l, int64_t deadline_ms,
                 hf_error *reterr);

/* Whether the server is on this machine, behind a unix socket. */
bool topo_is_local(const struct topo *t);

/* One thing that belongs to this topology and is nobody's business here: what the protocols without
 * scripts keep (script/plain.h). NULL: nothing. */
void topo_attach(struct topo *t, void *what);
void *topo_attached(const struct topo *t);

/* Where it connects to, as it may be shown. */
const char *topo_shown(const struct topo *t);

#endif
