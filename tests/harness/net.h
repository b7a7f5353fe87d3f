/* SPDX-License-Identifier: MIT
 * net.h - a network of our own: each server in a network namespace, all packets through a switch in
 * user space, which delays, loses, doubles and reorders them, and cuts one off from another.
 *
 *     struct net *n = net_start();
 *     struct server_opts o = { .tcp = 1, .place = &net_places(n)[0] };
 *     net_cut(n, 0, 1, 1);            // what 0 sends to 1 is lost
 *     CHECK(net_lost(n) > 0);         // it was
 *
 * It needs root and /dev/net/tun; nothing of the machine's own network is touched or reached.
 */
#ifndef HARNESS_NET_H
#define HARNESS_NET_H

#include <stdint.h>

#include "harness/server.h"

struct net;

enum { NET_PLACES = 16 };

/* Why there can be none here; NULL: there can. */
const char *net_missing(void);
struct net *net_start(void);
const struct place *net_places(const struct net *n); /* NET_PLACES of them */
/* This process, one thread so far, is at that place from now on. */
void net_enter(const struct net *n, int place);

/* What 'from' sends to 'to' is lost from now on, or not; -1: everybody's. */
void net_cut(struct net *n, int from, int to, int cut);
/* Of all packets: so late, give or take; so many of a thousand lost; and sent twice. Late ones
 * overtake one another. */
void net_weather(struct net *n, int delay_ms, int jitter_ms, int loss, int twice);

/* Let k more bytes of what 'from' sends to the places from 'first' on through, then reset that
 * connection, in the middle of a packet if need be. Once. */
void net_reset_after(struct net *n, int from, int first, long k);

/* ---- proof; all count from the start ---- */
long net_passed(const struct net *n);
long net_delayed(const struct net *n);   /* of these: by a millisecond or more */
long net_lost(const struct net *n);      /* by chance */
long net_blocked(const struct net *n);   /* by a cut */
long net_doubled(const struct net *n);
long net_overtaken(const struct net *n); /* packets that left after a later one of the same pair */
long net_resets(const struct net *n);    /* connections */

#endif
