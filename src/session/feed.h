/* SPDX-License-Identifier: MIT
 * feed.h - hearing which keys of our prefix change, for who watches.
 *
 * The server itself names them: CLIENT TRACKING in broadcast mode, on two connections for each
 * master, one that asks for it and one that hears. So nothing is written, published or remembered
 * for those who watch, and without them the server does nothing more than before.
 */
#ifndef SESSION_FEED_H
#define SESSION_FEED_H

#include "session/client.h"

struct feed;

/* Thread: whoever calls feed_wait(). */
struct feed_hooks {
    void (*changed)(void *arg, hf_bytes key);
    void (*unknown)(void *arg); /* anything may have changed: we hear again, or all was flushed */
    void (*told)(void *arg, hf_bytes message); /* on the channel of events (notes.h) */
    void *arg;
};

/* Connects: until the deadline. HF_ENOTSUP: on a quorum; HF_ESERVER: the server is too old;
 * HF_EAUTH, HF_ECONN ... */
hf_err feed_open(hf_client *c, const struct feed_hooks *hooks, int64_t deadline_ms,
                 struct feed **ret, hf_error *reterr);
struct feed *feed_free(struct feed *f);

/* Hear for so long at the most, or until something came. A connection that breaks is made again. */
void feed_wait(struct feed *f, int64_t until_ms);

#endif
