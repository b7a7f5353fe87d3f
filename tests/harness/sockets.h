/* SPDX-License-Identifier: MIT
 * sockets.h - sockets of the tests' own, and ports of 127.0.0.1 that are free.
 */
#ifndef HARNESS_SOCKETS_H
#define HARNESS_SOCKETS_H

/* A socket bound to this port of 127.0.0.1, where nobody listens; -1: the port is taken. With 0 it
 * is a free one, which is stored. */
int socket_bind(int *port);
int socket_port_is_free(int port);
int socket_free_port(void); /* it was free a moment ago */

/* Listening; nobody accepts yet. */
int socket_listen(int backlog, int *ret_port);
int socket_listen_unix(int backlog, const char *path);
/* Connect so often to a listening socket where nobody accepts. With more than its backlog takes,
 * whoever connects after that hears nothing. */
void socket_crowd(int listener, int n);

#endif
