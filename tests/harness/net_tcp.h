/* SPDX-License-Identifier: MIT
 * net_tcp.h - packets of TCP over IPv4, as a switch that does harm sees them.
 */
#ifndef HARNESS_NET_TCP_H
#define HARNESS_NET_TCP_H

#include <stddef.h>

/* How many bytes of the connection it carries; 0: it is no TCP, or carries none. */
size_t tcp_payload(const unsigned char *packet, size_t len);

/* Let it carry the first of them only; its new length. */
size_t tcp_shorten(unsigned char *packet, size_t len, size_t payload);

enum { TCP_RESET_LEN = 40 };

/* What ends the connection for whom it was sent to, right after what it carries; or, back, for its
 * sender, right after what that has acknowledged. */
void tcp_reset(const unsigned char *packet, size_t len, int back,
               unsigned char ret[TCP_RESET_LEN]);

#endif
