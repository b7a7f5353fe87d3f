/* SPDX-License-Identifier: MIT
 * proxy.h - a proxy in front of a server that does to the traffic what networks do.
 *
 *     struct proxy *p = proxy_start(s);
 *     ... hf_client_open(proxy_url(p), ...) ...
 *     proxy_drop_replies(p);
 *     ... the call must answer HF_EUNSURE ...
 *     CHECK(proxy_dropped(p) > 0);   // the fault did happen
 *
 * It runs in a thread of the test's process; forked workers may connect to it. A mode holds for
 * all connections, present and coming, until the next call that sets one.
 */
#ifndef HARNESS_PROXY_H
#define HARNESS_PROXY_H

#include <stddef.h>
#include <stdint.h>

#include "harness/server.h"

struct proxy;

struct proxy *proxy_start(struct server *s);     /* listens on a unix socket in t_dir() */
struct proxy *proxy_start_tcp(struct server *s); /* listens on a free port of 127.0.0.1 */
const char *proxy_url(const struct proxy *p);    /* until the test ends */

/* ---- modes ---- */
void proxy_pass(struct proxy *p); /* as a wire does; lets go what is held, in order */
/* Keep what clients send. It goes to the server at the next proxy_pass() or proxy_let_go(), even
 * when the client has closed its connection meanwhile. */
void proxy_hold(struct proxy *p);
void proxy_let_go(struct proxy *p); /* deliver what is held now, and go on holding */
/* Deliver requests and throw their replies away. A connection that lost a reply stays silent until
 * it is closed, whatever mode comes next: streams have no holes. */
void proxy_drop_replies(struct proxy *p);
/* Let k more bytes of reply through (over all connections), then close that connection and pass
 * again. */
void proxy_cut_after(struct proxy *p, size_t k);
void proxy_delay(struct proxy *p, int64_t ms); /* each way */
/* Instead of the next reply on each connection send a long string that does not end while a test
 * lasts, one byte every so many ms. Such a connection goes on dripping until it is closed. */
void proxy_drip(struct proxy *p, int64_t ms);
void proxy_refuse(struct proxy *p);            /* new connections are closed at once */

/* Whatever mode is set next begins with the first request that contains text. Needs the request
 * to arrive in one piece, as short ones do. */
void proxy_when(struct proxy *p, const char *text);

void proxy_break(struct proxy *p); /* close every connection now; held bytes are lost */

/* One of these at random for a moment, then a moment of peace. */
void proxy_trouble(struct proxy *p);

/* ---- proof that it happened; all count from the start ---- */
long proxy_connections(struct proxy *p); /* accepted */
long proxy_dropped(struct proxy *p);     /* bytes of reply thrown away */
long proxy_held(struct proxy *p);        /* bytes of request held at this moment */
long proxy_late(struct proxy *p);        /* bytes of request delivered for a client that had left */
long proxy_cuts(struct proxy *p);
long proxy_delayed(struct proxy *p);     /* bytes, both ways */
long proxy_refused(struct proxy *p);
long proxy_dripped(struct proxy *p);     /* bytes sent one by one */

#endif
